"""Shares of a call for its threads: into how many tasks its boxes are dealt out."""

import heapq
import itertools
import math
from collections.abc import Iterable

from convt.tiling import BoxLayout

TASKS_OF_THREAD = 4  # so many even out what the last one to finish leaves idle
MOST_SPLITS = 8  # of tasks that are few, but not alike
EVEN = 1.05  # of an equal share, at most, is what the busiest thread should have


def splits(layout: BoxLayout, group: int, blocks: int, threads: int) -> int:
    """Parts that a group's blocks of channels are dealt out in, each a task of a chain of boxes.

    Parts pack the same input again: there is one where chains are many, or as many for every thread and alike.
    320 to 320 channels, kernel 2, stride 2, 7x7x5 ran 1.74 times as fast on two threads in one part, 4 and 3 rows.
    """
    chains = layout.chains * group
    if chains >= TASKS_OF_THREAD * threads or threads == 1:
        return 1
    if chains % threads:
        return min(blocks, -(-TASKS_OF_THREAD * threads // chains))
    cells = chain_cells(layout) * group

    def busiest_share(parts: int) -> int:
        widths = [(part + 1) * blocks // parts - part * blocks // parts for part in range(parts)]
        return busiest((size * width for size in cells for width in widths), threads)

    most = EVEN * sum(cells) * blocks / threads
    options = range(1, min(blocks, MOST_SPLITS) + 1)
    return next((parts for parts in options if busiest_share(parts) <= most), min(options, key=busiest_share))


def chain_cells(layout: BoxLayout) -> list[int]:
    """Cells of each chain of boxes, in the order of their tasks."""
    pieces = []
    for a, (_, _, _, cells, box, *_) in enumerate(layout.axes.tolist()):
        size = box * (layout.chain if a == 1 else 1)
        pieces.append([min(size, cells - begin) for begin in range(0, cells, size)])
    return [math.prod(sizes) for sizes in itertools.product(*pieces)]


def busiest(tasks: Iterable[int], threads: int) -> int:
    """What the thread with the most work has done in the end, if each takes the next task when it is free."""
    done = [0] * threads
    for task in tasks:
        heapq.heapreplace(done, done[0] + task)
    return max(done)

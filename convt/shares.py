"""Shares of a call for its threads: into how many tasks its boxes are dealt out."""

import heapq
import itertools
import math
from collections.abc import Iterable

from convt.tiling import BoxLayout

TASKS_TO_BALANCE = 4  # of a thread: so few leave little of it idle while the last task ends
# Of a group's blocks, where chains are few and not alike: tasks so few that none has several groups (`BoxPlan`).
MOST_PARTS = 8
EVEN, AS_GOOD = 1.05, 1.02  # times an equal share, and the least share of the busiest thread


def splits(layout: BoxLayout, group: int, blocks: int, threads: int) -> int:
    """Parts that a group's blocks of channels are dealt out in, each a task of a chain of boxes.

    Every part packs the chain's input again: there is one part if chains are many, or divide evenly among threads
    and are equal. Otherwise parts make shares even, blocks taken as equal: 320 to 320 channels, kernel 2, stride
    2, 7x7x5, in boxes of 4 and 3 rows, ran 1.74 times as fast on two threads as on one in one part, 1.94 in three.
    """
    chains = layout.chains * group
    if threads == 1 or chains >= TASKS_TO_BALANCE * threads:
        return 1
    if chains % threads:
        return min(blocks, -(-TASKS_TO_BALANCE * threads // chains))
    cells = chain_cells(layout) * group
    if len(set(cells)) == 1:
        return 1
    shares = []
    for parts in range(1, min(blocks, MOST_PARTS) + 1):
        widths = [(part + 1) * blocks // parts - part * blocks // parts for part in range(parts)]
        shares.append(busiest((size * width for size in cells for width in widths), threads))
        if shares[-1] * threads <= EVEN * sum(cells) * blocks:
            return parts
    return 1 + next(i for i, share in enumerate(shares) if share <= AS_GOOD * min(shares))


def even_parts(group: int, threads: int) -> int:
    """Parts of a group's blocks, each of which packs the input: so few that all threads have equally many."""
    return threads // math.gcd(group, threads)


def even_part(n: int, most: int) -> int:
    """The size of the parts when `n` is cut as evenly as possible into parts of at most `most`."""
    return max(1, -(-n // max(1, -(-n // most))))


def chain_cells(layout: BoxLayout) -> list[int]:
    """Cells of each chain of boxes, in the order of their tasks."""
    sizes_on_axis = []
    for a, axis in enumerate(layout.axes):
        size = axis.box * (layout.chain if a == 1 else 1)
        sizes_on_axis.append([min(size, axis.cells - begin) for begin in range(0, axis.cells, size)])
    return [math.prod(sizes) for sizes in itertools.product(*sizes_on_axis)]


def busiest(tasks: Iterable[int], threads: int) -> int:
    """What the thread with the most work has done in the end, if each takes the next task when it is free."""
    done = [0] * threads
    for task in tasks:
        heapq.heapreplace(done, done[0] + task)
    return max(done)

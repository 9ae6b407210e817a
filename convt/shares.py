"""Shares of a call for its threads: into how many tasks its boxes are dealt out."""

import heapq
import itertools
import math
from collections.abc import Iterable
from typing import NamedTuple

from convt.tiling import BoxLayout
from convt.work import Work

TASKS_TO_BALANCE = 4  # of a thread: so few leave little of it idle while the last task ends
# Of a group's blocks, where chains are few and not alike: tasks so few that none has several groups (`deal`).
MOST_PARTS = 8
EVEN, AS_GOOD = 1.05, 1.02  # times an equal share, and the least share of the busiest thread
# Many tasks are as small as a depthwise channel: groups share one, and what their boxes have in common, where so
# many tasks are left for each thread and the weights stay in the second-level cache from box to box. With 32 tasks
# a thread, depthwise layers of 20 to 80 microseconds took 1.07 to 1.4 times as long on two threads, 1.0 to 1.06
# on one.
TASKS_PER_THREAD = 8
SHARED_WEIGHTS = 1 << 18  # bytes
# A thread takes its whole share at once of a short call whose result stays in the caches and is larger than the
# weights: in the next call it finds there what it wrote. Where cores are far apart, depthwise layers took 0.5 to
# 0.8 of the time of tasks one by one.
KEPT_OUTPUTS, SHORT_CYCLES = 1 << 23, 2e6  # bytes, and of all threads


class Tasks(NamedTuple):
    """What boxes are dealt out in.

    Attributes
    ----------
    total, threads : int
    groups : int
        Of a task.
    splits : int
        Parts of a group's blocks of channels, each a task.
    together : int
        Consecutive tasks that a thread takes at once.
    """

    total: int
    threads: int
    groups: int
    splits: int
    together: int


def deal(work: Work, cycles: float, threads: int) -> Tasks:
    """The tasks of a call of so many cycles for at most `threads` threads."""
    layout, group, blocks = work.layout, work.geometry.group, work.blocks
    packs_blocks = work.in_panels and not work.path.columns_first  # when they are multiplied
    parts = even_parts(group, threads) if packs_blocks else splits(layout, group, blocks, threads)
    threads = max(1, min(threads, layout.chains * group * parts))
    most_groups = SHARED_WEIGHTS * group // max(1, work.weights_bytes)
    groups = max(1, min(group, most_groups, layout.chains * group * parts // (TASKS_PER_THREAD * threads)))
    total = -(-group // groups) * layout.chains * parts
    together = 1
    kept = cycles < SHORT_CYCLES and work.weights_bytes < work.output_bytes < KEPT_OUTPUTS
    if kept and threads > 1 and total % threads == 0:
        cells, widths = chain_cells(layout), part_widths(blocks, parts)
        of_groups = [min(groups, group - g) for g in range(0, group, groups)]
        sizes = [n * size * width for n in of_groups for size in cells for width in widths]
        share = total // threads
        if max(sum(sizes[i : i + share]) for i in range(0, total, share)) * threads <= EVEN * sum(sizes):
            together = share
    return Tasks(total, threads, groups, parts, together)


def part_widths(blocks: int, parts: int) -> list[int]:
    """Blocks of each of so many parts of them, as `run_task` of _box_compute cuts them."""
    return [(part + 1) * blocks // parts - part * blocks // parts for part in range(parts)]


def splits(layout: BoxLayout, group: int, blocks: int, threads: int) -> int:
    """Parts that a group's blocks of channels are dealt out in, each a task of a chain of boxes.

    Every part packs the chain's input again, but along groups: there is one part if chains are many, or divide
    evenly among threads and are equal. Otherwise parts make shares even, blocks taken as equal: 320 to 320
    channels, kernel 2, stride 2, 7x7x5, in boxes of 4 and 3 rows, ran 1.74 times as fast on two threads as on one
    in one part, 1.94 in three.
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
        shares.append(busiest((size * width for size in cells for width in part_widths(blocks, parts)), threads))
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

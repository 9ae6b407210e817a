"""Shares of a call for its threads."""

import math
from types import SimpleNamespace

import pytest

from convt.shares import (
    KEPT_OUTPUTS,
    SHARED_WEIGHTS,
    SHORT_CYCLES,
    Tasks,
    busiest,
    chain_cells,
    deal,
    part_widths,
    splits,
)
from convt.tiling import BoxAxis, BoxLayout


def layout(counts, box, chain=1):
    """Boxes of so many cells per axis; what else a layout has does not matter here."""
    axes = tuple(BoxAxis(n, 1, n, n, b, 0, 0, b) for n, b in zip(counts, box, strict=True))
    boxes = math.prod(-(-n // b) for n, b in zip(counts, box, strict=True))
    return BoxLayout(axes, (), 0, boxes, (1,) * len(counts), 1, 1, 1, chain=chain)


def test_chains_are_in_the_order_of_their_tasks():
    assert chain_cells(layout((2, 5, 3), (1, 1, 2), chain=3)) == 2 * [6, 3, 4, 2]


def test_a_free_thread_takes_the_next_task():
    assert busiest([5, 1, 1, 1, 4], 2) == 7


def test_boxes_alike_are_not_split():
    assert splits(layout((1, 8, 8), (1, 4, 8)), 1, 10, 2) == 1


def test_many_boxes_are_not_split():
    assert splits(layout((1, 15, 8), (1, 2, 8)), 1, 10, 2) == 1


def test_one_thread_takes_them_as_they_are():
    assert splits(layout((1, 5, 8), (1, 2, 8)), 1, 10, 1) == 1


def test_a_single_box_is_split_into_several_tasks_for_each_thread():
    assert splits(layout((1, 7, 8), (1, 7, 8)), 1, 10, 2) == 8


@pytest.mark.parametrize("blocks", [5, 10])
@pytest.mark.parametrize("rows", [3, 7, 9])
def test_boxes_that_differ_are_split_into_shares_that_do_not(rows, blocks):
    boxes = layout((1, rows, 8), (1, -(-rows // 2), 8))
    parts = splits(boxes, 1, blocks, 2)
    tasks = [size * width for size in chain_cells(boxes) for width in part_widths(blocks, parts)]
    assert busiest(tasks, 2) <= 1.1 * sum(tasks) / 2 < busiest([size * blocks for size in chain_cells(boxes)], 2)


def test_a_single_block_cannot_be_split():
    assert splits(layout((1, 7, 8), (1, 4, 8)), 1, 1, 2) == 1


def test_groups_are_shared_first():
    assert splits(layout((1, 7, 8), (1, 4, 8)), 4, 10, 2) == 1
    assert splits(layout((1, 8, 8), (1, 8, 8)), 2, 10, 2) == 1
    assert splits(layout((1, 7, 8), (1, 4, 8)), 2, 10, 4) > 1


def test_more_threads_than_tasks():
    assert splits(layout((1, 3, 8), (1, 2, 8)), 1, 2, 16) == 2


def work(boxes, group=1, blocks=1, weights=1 << 10, outputs=1 << 20):
    """Boxes of a call whose weights and outputs take so many bytes."""
    geometry = SimpleNamespace(group=group)
    return SimpleNamespace(
        layout=boxes,
        geometry=geometry,
        blocks=blocks,
        weights_bytes=weights,
        output_bytes=outputs,
        in_panels=False,
    )


def test_groups_share_tasks_where_many_are_left():
    box = layout((1, 8, 8), (1, 8, 8))
    assert deal(work(box, 256), 1e5, 2)[:3] == (16, 2, 16)
    assert deal(work(box, 256), 1e5, 1)[:3] == (8, 1, 32)
    assert deal(work(box, 15), 1e5, 2).groups == 1
    assert deal(work(box, 256, weights=64 * SHARED_WEIGHTS), 1e5, 2).groups == 4


@pytest.mark.parametrize(
    ("rows", "cycles", "weights", "outputs", "together"),
    [
        (8, 1e5, 1 << 10, 1 << 20, 2),
        (7, 1e5, 1 << 10, 1 << 20, 1),  # shares of 4 and 3 rows
        (8, SHORT_CYCLES, 1 << 10, 1 << 20, 1),
        (8, 1e5, 1 << 20, 1 << 20, 1),
        (8, 1e5, 1 << 10, KEPT_OUTPUTS, 1),
    ],
)
def test_a_thread_takes_its_share_at_once_where_it_finds_it_in_its_caches(
    rows, cycles, weights, outputs, together
):
    boxes = layout((1, rows, 8), (1, 2, 8))
    assert deal(work(boxes, weights=weights, outputs=outputs), cycles, 2) == Tasks(4, 2, 1, 1, together)

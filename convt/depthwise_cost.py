"""Estimated cycles of one thread of depthwise layers, whose groups have one channel in and one out.

What other estimates leave out is most of their time: planes, lines and tiles begin for each channel. These are
fits to 620 random layers of all dtypes by AVX-512 and AVX2 (Zen 5), most of whose times they hit within a factor
of 1.25: the chosen path takes 1.01 to 1.02 times as long as the best one.
"""

import math

from convt.dtypes import ITEMSIZE
from convt.work import Work

# Lanes along groups: to pack a place of a channel, and to write an output, by its bytes; to multiply a vector of a
# place by a tap; to begin a tile, a block of a box and a row of outputs.
GROUPS_PACKED, GROUPS_WRITTEN = {2: 0.72, 4: 0.42, 8: 0.54}, {2: 0.35, 4: 0.35, 8: 1.16}
GROUPS_TAP, GROUPS_TILE, GROUPS_BLOCK, GROUPS_ROW = 0.7, 80, 320, 4

# Lanes along positions: to pack a place, and to begin a line, a plane and a box of a channel; to multiply a vector
# by a tap.
PACKED, LINE, HALVES_LINE, PLANE, BOX, TAP = 0.4, 5, 20, 230, 30, 0.7
# In one pass to write a vector of a place: of halves through floats, of words and of others.
HALVES_WRITTEN, WORDS_WRITTEN, WRITTEN = 4.6, 2.6, 2.9
# Through sums to multiply a vector of words by a tap, to write a row of outputs and an output, to begin a class.
WORDS_SUMS_TAP, SUMS_ROW, SUMS_WRITTEN, SUMS_CLASS = 2.5, 70, 0.25, 150


def depthwise_cycles(work: Work) -> float:
    """Cycles of a call, lanes along groups or positions."""
    return groups_cycles(work) if work.path.along_groups else positions_cycles(work)


def groups_cycles(work: Work) -> float:
    """Lanes along groups, the last block's filled or not."""
    layout, geometry, item = work.layout, work.geometry, ITEMSIZE[work.dtype]
    positions, tiles = work.positions_and_tiles
    taps = sum(len(c.shifts) for c in layout.classes)
    cycles = GROUPS_BLOCK + GROUPS_PACKED[item] * layout.new_elements * work.lanes
    cycles += GROUPS_TAP * taps * positions + GROUPS_TILE * len(layout.classes) * tiles
    outputs = geometry.outputs / geometry.out_channels
    rows = GROUPS_ROW * geometry.out_channels * outputs / geometry.output_shape[-1]
    return work.blocks * (layout.boxes * cycles + GROUPS_WRITTEN[item] * outputs * work.lanes) + rows


def positions_cycles(work: Work) -> float:
    """Lanes along positions, of floats or words."""
    layout, geometry = work.layout, work.geometry
    *rows, width = layout.box
    if work.one_pass.joins_rows:
        width *= rows.pop()
    lines = math.prod(rows)
    vectors = lines * math.ceil(width / work.lanes)
    row, (_, plane) = layout.axes[-1].pitch, layout.line_and_plane
    halves, boxes = ITEMSIZE[work.dtype] == 2, geometry.group * layout.boxes
    packed = BOX + (PACKED + (HALVES_LINE if halves else LINE) / row + PLANE / plane) * layout.new_elements
    products = vectors * sum(len(c.places) * len(c.shifts) for c in layout.classes)
    if work.one_pass.possible:
        written = WORDS_WRITTEN if work.path.words else HALVES_WRITTEN if halves else WRITTEN
        places = sum(len(c.places) for c in layout.classes)
        return boxes * (packed + TAP * products + written * vectors * places)
    tap = WORDS_SUMS_TAP if work.path.words else TAP
    of_output = SUMS_ROW / geometry.output_shape[-1] + SUMS_WRITTEN
    outputs = geometry.outputs
    return boxes * (packed + tap * products + SUMS_CLASS * len(layout.classes)) + of_output * outputs

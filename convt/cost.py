"""Estimated cycles of one thread, for choosing between paths.

The factors are fits to the layers of asv_benchmarks, 150 others and the random ones of choices.py there, measured
with AVX-512 and AMX, dot products on Zen 4 and Zen 5. They need not be exact: a choice between two paths matters
where one is much faster, and there it shows.
"""

import math
from collections.abc import Sequence

from convt._levels import (
    CACHE_LINE,
    JOINED_LINE,
    LONG_ROW,
    MANY_SUMS,
    MAX_ROWS,
    MOST_ZEROS,
    ROW_STRIP,
    TILE_CHANNELS,
    TileLimits,
    lines_stream_bytes,
)
from convt.arguments import INT64_MAX
from convt.cost_factors import OTHERS
from convt.depthwise_cost import depthwise_cycles
from convt.dtypes import ITEMSIZE
from convt.geometry import Geometry
from convt.one_pass import INTERLEAVED_PLACES, SHORT_ROWS_CHANNELS
from convt.paths import CHANNEL_TILES, POSITION_WORDS, POSITIONS
from convt.row_weights import ROW_TILE
from convt.tiling import BoxLayout, share_inside, taps_of_row
from convt.work import Work

# Below this many input channels, adding up columns would round more often than one chain of multiply-adds does.
FEW_CHANNELS = 4
# The fewest input channels for which products of pieces pay, by the pieces of an element.
FEW_PIECES = {1: 1, 2: 4, 3: 16}

# What a tap of a vector of columns takes, by the vectors of its tile and the taps of its run, lanes along
# channels. Wide tiles load less for as many products: 228 random layers, by AVX-512 and AVX2, took 0.95 to 0.99 of
# the time on average. So do runs, which load an input once for all their taps: 12 layers took 0.94 and 0.96.
# A vector alone waits for its loads, but where products take two cycles: the chosen path took 1.013, not 1.040
# times as long as the best so (120 layers of 16 outputs, Zen 4).
VECTOR_TIMES = {1: (1.4, 1.15, 1.1), 2: (1.0, 0.94, 0.91), 3: (0.95, 0.93), 4: (0.94,)}
HALF_TILE_TIME = 0.7  # of a vector: 8 outputs 0.70 and 0.74, 24 0.85, 40 0.86 of two and three (Zen 4)
FAR_VECTOR = 1.02  # the same of wide tiles of weights from memory
# Of outputs of so many bytes rows that share cache lines take longer to write and, but on AMD's processors (370
# layers), so do all that are written through transpositions. A fit: stores begin to pass the caches elsewhere.
QUICK_OUTPUTS, SLOW_OUTPUTS_TIME = 1 << 22, 2.5
# An output that leaves the second-level cache, written to the pages of more than two vectors of channels at once.
FAR_OUTPUTS, PAGES_CYCLES = 1 << 21, 0.3
# To write an output whose neighbours lie beside it in a tile: other channels, or other places of a cell.
COPYING_CYCLES, PLACES_CYCLES = 0.2, 0.8
# By rows of cells in tile registers: what a tile of few positions takes besides, as a part of a whole one (12 of
# 16 take 0.9 of the time, 8 take 0.73), the time of one that waits for its sums, as a row has no second one, and
# more for products with weights beyond the first-level cache.
SHORT_TILE, LONE_TILE = 0.46, 1.1
FIRST_LEVEL_WEIGHTS, FAR_WEIGHTS_CYCLES = 40000, 8
FEW_CELLS, FEW_CELLS_CYCLES = 8, 15  # of a row, and to begin each of their many places
# To see for a run whether a tap lies beyond the border, and for a tile to leave out one that does, which is not
# foreseen: a fit. With 0 for that choices took 1.021 of the best paths' time, not 1.020 (bfloat16, 800 layers).
LISTED_TAP_CYCLES, LEFT_OUT_CYCLES = 2, 16

# Of phases of rows: to look whether a kernel position of an outer axis meets an output, to begin a tap of a row,
# to read one of its inputs, a product, and an output. Of 705 random layers, most of kernels that are dilated or
# larger than their images, 39 (AVX-512) and 45 (AVX2) go another way since taps are counted by dilation, and
# inputs read: 0.71 and 0.87 of the time. One channel a group, kernel 5, stride 5, was left to phase rows at 2.6
# times position lanes' time without the last.
ROW_LISTED_CYCLES, ROW_TAP_CYCLES, ROW_READ_CYCLES, ROW_PRODUCT_CYCLES, ROW_OUTPUT_CYCLES = 10, 20, 1.0, 0.6, 2.5

FEW_COLUMNS = 32  # of columns first
# A vector of products, and that of many columns, which leaves the first-level cache before it is added up: 26
# random layers of float32 and 30 of float64 whose path changed with it, most of few channels, took 0.79 and 0.81
# of the time (0.37 to 1.08).
PRODUCT_CYCLES, MANY_PRODUCT_CYCLES = 1.35, 6.0
APART_CYCLES = 10  # to set a row of products apart from the next one, with zeros between them
KEPT_CYCLES = 2  # a vector of products that a box keeps for the next one
# To begin a column of products of a plane in place. Of 1,206 layers, 550 of them of small groups, 31 (float32) and
# 18 (float64) go another way so, by AVX2 44 and 35: 0.82, 0.75, 0.76 and 0.77 of the time.
COLUMN_CYCLES = 30

# How much slower a tile of few rows is, whose every vector of input serves few products.
FEW_ROWS = {1: 3.0, 2: 1.7, 3: 1.35, 4: 1.15}
# Of several taps of many words. Their loads take 2 to 4 cycles each, as every class reads the input from the
# second-level cache: the chosen path took 1.01 instead of 1.05 times as long as the best (120 layers of up to
# 8 outputs, Zen 5). Not where products take two cycles: 1.017 then, not 1.029 (70 layers, Zen 4).
MANY_WORDS, FEW_ROWS_OF_WORDS = 24, {1: 5.0, 2: 2.6, 3: 1.8, 4: 1.3}
# Of a vector of sums for each channel, lanes along positions, of doubles and bfloat16 not written in one pass.
SEVERAL_TAPS_OF_DOUBLES = 0.65
# The same for each word of two bfloat16 channels.
WORDS_OF_ONE_TAP, WORDS_OF_JOINED_ROWS, WORDS_OF_SEVERAL = 0.6, 0.6, 0.58
# The input of so many channels or words leaves the first-level cache.
MANY_CHANNELS, MANY_CHANNELS_TIME = 1 << 8, 1.15

# A large input, in one pass to few columns of one tap. Columns first fetch it earlier: 64 channels of 400x400 to 1
# to 8, kernel 2, stride 2, took 0.33 to 0.85 of the time so, 16 channels 1.0 to 1.1, where first measured,
# but 0.92 to 1.27 on the Xeon with AMX.
FAR_INPUT, FAR_CHANNELS = 1 << 23, 16
# A cache line of it where more channels, of floats or doubles, are packed before they are multiplied. Few outputs
# of them, whose path changed with it, took 0.57 to 0.92 of the time (23 random layers); of 32 to 128 channels 1.02
# to 1.22.
FAR_PACKED_CHANNELS, FAR_LINE_CYCLES = 128, 6.0

# Larger weights come from memory in every call, at so many bytes a cycle: the last for dot products but those of
# runs of images, which read some again: 1024 channels, 2x2, bfloat16, took 1.8 times as long as without runs.
CACHED_WEIGHTS = 1 << 24
COLUMNS_STREAM_SPEED, TILE_STREAM_SPEED, DOT_STREAM_SPEED = 7, 4.5, 12
# Larger ones than these come from beyond the second-level cache for every box, fetched early along channels.
NEAR_WEIGHTS, FAR_SPEED, FETCHED_SPEED = 1 << 20, 8, 16
NEAR_TILE = 3 << 19  # bytes of a tile of columns that stay in the second-level cache

# Products of bfloat16 pieces that an element's product is made of, by the pieces of an element.
PRODUCTS = {1: 1, 2: 4, 3: 6}
DOT_ROW_CYCLES = 4  # a row of dot products' outputs in one pass: 1 to 5 cycles (rows of 10 to 60, Zen 4)
DEPTHWISE_DOTS_TIME = 2.2  # times what dot products take for one channel a group: 140 random layers, Zen 5

# What up to so many columns of the channels of `Factors.waiting` wait for their input, columns first where it
# lies, times what others do. Of 400 random layers of few outputs 36 (float32) and 31 (float64) go another way so:
# 0.84 and 0.88 of the time.
READ_TIME, READ_COLUMNS = 0.5, 16
PLANE_CYCLES = 30  # to begin a plane of a channel of packed input, lanes along positions
WORDS_PACKING_CYCLES = 0.25  # an element of it in a word
THREE_WORDS_CYCLES = 0.35  # an output of three places that are interleaved in one pass, as they are no words


def estimate(work: Work, in_order: bool = False) -> float:
    """Cycles of a call; inf if it should not be. `in_order`: of weights that are multiplied in the order given."""
    geometry, layout, path = work.geometry, work.layout, work.path
    if path.along_groups or (geometry.is_depthwise and path in (POSITIONS, POSITION_WORDS)):
        return depthwise_cycles(work)
    if work.tap_channels < max(FEW_PIECES.get(work.pieces, 0), FEW_CHANNELS if path.columns_first else 0):
        return math.inf
    if path.columns_first and layout.most_taps <= 1 and not (work.in_place or in_order):
        return math.inf  # nothing to add up, nor a copy to save
    multiplied = tile_cycles if path.tiles else channel_cycles if path.along_channels else position_cycles
    blocks, rest = divmod(geometry.group_outputs, work.block)
    of_box = blocks * multiplied(work, work.block) + (multiplied(work, rest) if rest else 0)
    # The factors of vectors were fitted to full boxes.
    cycles = geometry.group * (layout.full_boxes if path.tiles else layout.boxes) * of_box
    cycles += (channels_stored if path.along_channels else positions_stored)(work)
    cycles += packing_cycles(work)
    weights = work.weights_bytes
    if path.tiles and weights > NEAR_WEIGHTS:  # the factors of vectors have it
        readings = layout.boxes * readings_of_box(work)
        cycles += readings * weights / (FETCHED_SPEED if path.along_channels else FAR_SPEED)
    if weights >= CACHED_WEIGHTS:
        tile_speed = DOT_STREAM_SPEED if work.dots and not path.image_runs else TILE_STREAM_SPEED
        vector_speed = COLUMNS_STREAM_SPEED if path.columns_first else work.factors.stream_speed
        streamed = weights / (tile_speed if path.tiles else vector_speed)
        cycles = max(cycles, streamed) + min(cycles, streamed) / 8
    return DEPTHWISE_DOTS_TIME * cycles if geometry.is_depthwise and work.dots else cycles


def phase_rows_cycles(geometry: Geometry) -> float:
    """Cycles without boxes, in phases of rows: fewer only where kernels reach far beyond small images."""
    *outer, inner = geometry.axes
    of_group = -(-geometry.group_outputs // ROW_TILE)  # tiles, each of which reads the inputs anew
    parts = geometry.batch * geometry.group * of_group * -(-inner.output // (inner.stride * ROW_STRIP))
    looks = parts * math.prod(axis.output for axis in outer) * sum(axis.kernel for axis in outer)
    taps = parts * math.prod(axis.input * axis.kernel for axis in outer)
    taps *= min(inner.kernel, inner.stride * (inner.input + ROW_STRIP) // inner.dilation + 1)  # that reach a strip
    taps *= geometry.group_inputs
    outputs = ROW_OUTPUT_CYCLES * geometry.outputs
    read = geometry.macs // max(1, geometry.group_outputs) * of_group
    # More is no float, of many axes.
    looks, taps, read, macs = (min(n, INT64_MAX) for n in (looks, taps, read, geometry.macs))
    products = ROW_READ_CYCLES * read + ROW_PRODUCT_CYCLES * macs
    return ROW_LISTED_CYCLES * looks + ROW_TAP_CYCLES * taps + products + outputs


def packing_cycles(work: Work) -> float:
    """Cycles to pack the input."""
    layout, path, item = work.layout, work.path, ITEMSIZE[work.dtype]
    places = work.geometry.group * layout.boxes * layout.new_elements
    packed = places * work.geometry.group_inputs
    if path == POSITION_WORDS:
        return (WORDS_PACKING_CYCLES + PLANE_CYCLES / layout.line_and_plane[1]) * packed
    if path.tiles and not path.along_channels:
        return pairs_packed(work, places)
    if path.tiles:
        of_element = work.tile_factors.packed + work.tile_factors.packed_piece * work.pieces
        if not work.dots:  # few channels take as long as half of what a register holds
            packed = max(packed, places * TILE_CHANNELS / 2)
        return (1.5 if path.image_runs else 1) * of_element * packed
    if path.image_runs:  # but for small boxes, whose neighbours' inputs they pack too
        return packed
    far = 0.0
    if item > 2 and reads_far_input(work, FAR_PACKED_CHANNELS):
        far = FAR_LINE_CYCLES * packed * item / CACHE_LINE
    if path.along_channels:
        return far + work.factors.packed[item] * places * -(-work.tap_channels // work.lanes) * work.lanes
    if path.columns_first and not work.in_place:
        packed *= work.blocks  # portions are packed for each
    cycles = work.factors.read[item] * packed
    waiting = work.factors.waiting[layout.most_taps > 1]
    if work.in_place and work.tap_channels >= waiting and work.block * work.kernel <= READ_COLUMNS:
        cycles *= READ_TIME
    if not (work.in_place or work.one_pass.strips):
        cycles += far
    if not work.in_place:
        line, plane = layout.line_and_plane
        cycles += work.factors.line[item] * packed / line
        cycles += PLANE_CYCLES * packed / plane
    return cycles


def pairs_packed(work: Work, places: float) -> float:
    """Cycles to pack so many places in pairs of channels, lanes along positions."""
    lines = places / work.layout.line_and_plane[0]
    vectors = places / 16 + lines  # the last of a line filled or not
    pairs, factors = work.limits.pairs_of(work.tap_channels, along_channels=False), work.tile_factors
    return pairs * ((factors.pairs + factors.pairs_piece * work.pieces) * vectors + factors.pairs_line * lines)


def readings_of_box(work: Work) -> int:
    """How often a box reads the weights: in tile registers for every tile of positions if those of a tile of
    columns do not stay. Slices of them do, but the factors were fitted so."""
    layout, tile, lanes = work.layout, work.tile, work.lanes
    if work.path != CHANNEL_TILES:
        return 1
    near = layout.most_taps * work.tap_channels * work.vectors * lanes * work.weight_bytes <= NEAR_TILE
    return 1 if near else layout.runs * math.ceil(layout.run_length / tile.most)


def channels_stored(work: Work) -> float:
    """Cycles to write the outputs, most through transpositions."""
    path, item = work.path, ITEMSIZE[work.dtype]
    outputs, channels = work.geometry.outputs, work.geometry.group_outputs
    if path.by_rows:
        return work.tile_factors.row_written[work.pieces] * outputs
    if work.geometry.is_product:
        return COPYING_CYCLES * outputs
    if work.along_places:
        return PLACES_CYCLES * outputs
    factors = OTHERS if work.dots else work.factors
    # Of a position: pointers, vectors transposed, full or not, and each channel's element written.
    written = work.tile_factors.written if path.tiles else factors.written[item]
    if factors.slow_outputs and item > 2 and not path.tiles and outputs * item >= QUICK_OUTPUTS:
        written *= SLOW_OUTPUTS_TIME
    if path.columns_first and not path.tiles:
        written += factors.added_written
    if work.block > 2 * work.lanes and outputs * item >= FAR_OUTPUTS:
        written += PAGES_CYCLES
    pointers = factors.pointers * -(-channels // work.block)
    transposed = factors.filled * -(-channels // 16) * 16
    row = work.geometry.output_shape[-1]
    cycles = outputs * ((pointers + transposed) / channels + written + factors.row / row)
    # Two sums become one word, which is transposed; those of neighbours in tiles of images lie far apart.
    return 0.6 * cycles if item == 2 and not (path.tiles and path.image_runs) else cycles


def positions_stored(work: Work) -> float:
    """Cycles to write the outputs, interleaved, with some cycles a row."""
    outputs, row = work.geometry.outputs, work.geometry.output_shape[-1]
    item, cells = ITEMSIZE[work.dtype], work.layout.axes[-1].cells
    stride = work.geometry.axes[-1].stride
    if work.one_pass.possible and (work.dots or work.path.words):
        threes = THREE_WORDS_CYCLES * outputs if work.path.words and stride == 3 else 0.0
        return threes + DOT_ROW_CYCLES * outputs / row
    if work.one_pass.possible and work.path.tiles:
        rows_end = cells % 16 and max(axis.places for axis in work.layout.axes) > 1  # within tiles, that is
        of_row = work.tile_factors.one_pass_row * item
        return of_row * outputs / max(cells, 32) if rows_end else 0.0
    if work.one_pass.possible:  # vectors, the last of a row filled or not
        vectors = 1.0 if work.one_pass.joins_rows else math.ceil(cells / work.lanes) * work.lanes / cells
        written = work.factors.one_pass_written[item] * vectors
        if item == 4 and stride > 1 and work.layout.most_taps == 1 and outputs * item < FAR_OUTPUTS:
            written += work.factors.one_pass_places
        if outputs * item >= FAR_OUTPUTS and copies_lines(work):
            written += work.factors.one_pass_copied[item]
        return written * outputs
    # Through sums rows that share cache lines do not pass the caches, as other large outputs do.
    halves = item == 2
    shared = not halves and work.row_bytes % CACHE_LINE and work.row_bytes < LONG_ROW
    filled = 0.1 * item * outputs if shared and outputs * item >= QUICK_OUTPUTS else 0.0
    more = 0.0 if stride in INTERLEAVED_PLACES else work.factors.more_places
    if work.path.tiles:
        begun = 64 if cells % work.lanes else 32
        return filled + outputs * (work.tile_factors.summed + 0.3 * (not halves) + more + begun / row)
    factors = OTHERS if work.path.words else work.factors
    of_row = factors.sums_row[0 if cells < work.lanes else 1 if cells % work.lanes else 2]
    places = FEW_CELLS_CYCLES / cells if cells <= FEW_CELLS and stride > 4 else 0.0
    vectors = factors.sums_vector * math.ceil(cells / work.lanes) / cells
    return filled + outputs * (factors.sums_written + vectors + 0.4 * halves + more + of_row / row + places)


def copies_lines(work: Work) -> bool:
    """Whether large outputs in one pass are copied from lines of sums: about what `choose_stores` asks, but never
    of one input channel, whose estimates are closer so."""
    if work.one_pass.rows_are_vectors or work.one_pass.shares_loads:
        return False
    large = work.input_bytes + work.output_bytes >= lines_stream_bytes(work.row_bytes)
    return work.one_pass.joins_rows or (large and work.row_bytes % CACHE_LINE > 0)


def taps_inside(layout: BoxLayout, shifts: Sequence[tuple[int, ...]], axes: range, gap: int = 1) -> float:
    """Taps of an average position: all but those beyond the borders of some axes that can be left out, where a
    tile takes every `gap`th position."""
    taps = float(len(shifts))
    for a in axes if shifts else ():
        axis = layout.axes[a]
        most = MOST_ZEROS * gap if a == layout.run_axis else axis.cells
        taps *= share_inside({shift[a - 1] for shift in shifts}, axis.cells, axis.input, most)
    return taps


def listed_cycles(work: Work, shifts: Sequence[tuple[int, ...]], columns: int) -> float:
    """Cycles to find the taps of a class that the runs of a box leave out, for each tile of its columns."""
    if not work.layout.looped_axes:
        return 0.0
    taps, inside = len(shifts), taps_inside(work.layout, shifts, work.layout.looped_axes)
    tiles = math.ceil(columns / (work.vectors * work.lanes))
    return work.layout.runs * tiles * (LISTED_TAP_CYCLES * taps + LEFT_OUT_CYCLES * (taps - inside))


def channel_cycles(work: Work, block: int) -> float:
    """Cycles to multiply a block of so many channels of a box, lanes along channels: two vectors a cycle."""
    layout, tile, lanes = work.layout, work.tile, work.lanes
    if work.path.columns_first:
        products = work.tap_channels / 2 * vectors_time(block * work.kernel, work.vectors, work.limits)
        return products * layout.input_elements + column_additions(work, block) + work.factors.block
    vectors = begun = once = 0.0
    tiles = 0  # of all columns
    bordered = tile.bordered_axes(layout.run_axis, layout.box)
    for c in layout.classes:
        taps, columns = taps_inside(layout, c.shifts, bordered, layout.parts), block * len(c.places)
        run = taps_of_run(taps_of_row(c.shifts, layout.gap), work.vectors, work.limits)
        vectors += taps * vectors_time(columns, work.vectors, work.limits, run)
        of_class = -(-columns // (work.vectors * lanes))
        begun += work.factors.tap * taps * of_class
        tiles += of_class
        once += listed_cycles(work, c.shifts, columns)
    # Several taps read the input again, and the zeros between rows that are joined.
    again = (work.factors.images if layout.image_runs else 1) * (1.03 if layout.most_taps > 1 else 0.98)
    positions, tiles_of_columns = work.positions_and_tiles
    once += work.factors.tile * tiles * tiles_of_columns + work.factors.block
    return (again * work.tap_channels * vectors / 2 + begun) * positions + once


def vectors_time(columns: int, vectors: int, limits: TileLimits, run: int = 1, far: bool = False) -> float:
    """What a tap of a `run` of so many columns takes in tiles of `vectors`, their weights far or not."""
    tiles, left = divmod(columns, vectors * limits.lanes)
    rest = vectors_of_columns(left, limits)
    of_whole, of_rest = (VECTOR_TIMES[max(int(v), 1 + limits.two_cycles)][run - 1] for v in (vectors, rest))
    return tiles * vectors * (FAR_VECTOR if far else of_whole) + rest * of_rest


def vectors_of_columns(columns: int, limits: TileLimits) -> float:
    """Vectors of so many columns, the last of which may be multiplied by half: as `BoxTable.tile_width`."""
    whole, rest = divmod(columns, limits.lanes)
    return whole + (HALF_TILE_TIME if 0 < rest <= limits.half_tile else rest > 0)


def taps_of_run(taps: int, vectors: int, limits: TileLimits) -> int:
    """Of so many taps of a row, how many share the loads of inputs in tiles of `vectors`: as in `channels`."""
    return max(1, min(taps, limits.weights // vectors, len(VECTOR_TIMES[vectors])))


def column_additions(work: Work, block: int) -> float:
    """Cycles to add up the products of a box, of whole images, for so many channels, lanes along these."""
    layout, vectors, factors = work.layout, math.ceil(block / work.lanes), work.tile_factors
    positions = math.prod(layout.box)
    products = positions * products_inside(layout)
    if not work.path.tiles:
        return work.factors.added * (1 + vectors) * products
    sums = positions * sum(len(c.places) for c in layout.classes)
    of_product = factors.added_product + factors.added_row / layout.axes[-1].cells
    return of_product * products + vectors * (factors.added_vector * products + factors.added_sum * sums)


def products_inside(layout: BoxLayout) -> float:
    """Products that the outputs of a cell of whole images add up on average: those of its inputs."""
    inside = 0.0
    for c in (c for c in layout.classes if c.shifts):
        products = float(len(c.places) * len(c.shifts))
        for axis, shifts in zip(layout.axes[1:], zip(*c.shifts, strict=True), strict=True):
            products *= share_inside(set(shifts), axis.cells, axis.input, axis.cells)
        inside += products
    return inside


def position_cycles(work: Work, block: int) -> float:
    """Cycles to multiply a block of so many channels of a box, lanes along positions, which load the input anew
    for every tap and tile."""
    layout, tile, lanes = work.layout, work.tile, work.lanes
    if work.path.columns_first:
        columns = block * work.kernel
        if work.in_place:
            return columns * in_place_cycles(work, columns)
        of_product = PRODUCT_CYCLES if columns <= FEW_COLUMNS else MANY_PRODUCT_CYCLES
        new_positions = tile.cost(math.ceil(layout.new_elements))
        multiplied = new_positions * (work.factors.wide_columns * work.tap_channels / 2 + of_product)
        kept = KEPT_CYCLES * (layout.input_elements - layout.new_elements)
        return columns * (multiplied + kept) / lanes
    depth = math.ceil(work.tap_channels / 2) if work.path.words else work.tap_channels
    cycles = 0.0
    for c in layout.classes:
        taps, n = len(c.shifts), block * len(c.places)
        positions = positions_in_one_pass(work) if work.one_pass.possible else positions_in_tiles(work, n)
        read = taps_inside(layout, c.shifts, axes_left_out(work))
        words = work.path.words and taps > 1 and depth >= MANY_WORDS and not work.limits.two_cycles
        few_rows = FEW_ROWS_OF_WORDS if words else FEW_ROWS
        cycles += read * n * few_rows.get(n, 1) * tap_cycles(work, taps, n) * positions / lanes
    if waits_for_input(work):
        cycles += work.factors.far_line * layout.input_elements * ITEMSIZE[work.dtype] / CACHE_LINE
    if depth >= MANY_CHANNELS and (layout.most_taps > 1 or not work.one_pass.possible):
        cycles *= MANY_CHANNELS_TIME
    if work.path.words:
        return depth * cycles
    if work.one_pass.possible:
        return depth * cycles + work.factors.one_pass_block
    return depth * cycles * work.factors.through_sums


def axes_left_out(work: Work) -> range:
    """The axes at whose ends rows in one pass leave out taps: the first and the last ones that no row of a tile
    reads."""
    layout = work.layout
    across = not (layout.rows_fill_tiles(work.limits) or work.one_pass.joins_rows) and len(layout.axes) == 3
    return range(1, 2) if work.one_pass.leaves_out_taps and not across else range(0)


def in_place_cycles(work: Work, columns: int) -> float:
    """Of columns first, lanes along positions, those of one of so many columns, multiplied line by line where x
    lies."""
    layout, first, last = work.layout, work.layout.axes[1], work.layout.axes[-1]
    inside = layout.new_elements * math.prod(min(1, axis.input / axis.pitch) for axis in layout.axes[2:])
    rows = layout.new_elements / layout.input_elements * first.pitch * layout.boxes_along
    beyond = max(0, -first.origin) + max(0, first.cells + first.reach - first.input)
    inside *= max(0, rows - beyond) / rows
    line, width = work.line_in_place, work.widest_tile
    few = columns <= FEW_COLUMNS
    of_one = 1.0 if few else work.factors.wide_columns
    multiplied = of_one * work.tap_channels / 2 * inside * math.ceil(line / width) * width / line
    added = (PRODUCT_CYCLES if few else MANY_PRODUCT_CYCLES) * layout.new_elements
    added += KEPT_CYCLES * (layout.input_elements - layout.new_elements)
    apart = APART_CYCLES * inside / last.input if 0 < last.input != last.pitch else 0.0
    begun = COLUMN_CYCLES * inside / max(1, math.prod(axis.input for axis in layout.axes[-2:]))
    return (multiplied + added) / work.lanes + apart + begun


def reads_far_input(work: Work, channels: int) -> bool:
    """Whether a large input of more than so many channels comes from beyond the caches."""
    return work.input_bytes >= FAR_INPUT and work.tap_channels > channels


def waits_for_input(work: Work) -> bool:
    """Whether few columns of one tap read a large input of many channels, in one pass."""
    columns = work.block * sum(len(c.places) for c in work.layout.classes)
    few = work.blocks == 1 and columns <= min(FEW_COLUMNS, work.tap_channels // 2)
    one_tap = work.layout.most_taps == 1 and work.one_pass.possible and not work.path.words
    return few and one_tap and reads_far_input(work, FAR_CHANNELS)


def tap_cycles(work: Work, taps: int, columns: int) -> float:
    """Cycles of one of some taps for a vector of sums and a channel, of a class of so many columns."""
    if work.path.words:
        if work.one_pass.joins_rows:
            return WORDS_OF_JOINED_ROWS
        return WORDS_OF_ONE_TAP if taps == 1 else WORDS_OF_SEVERAL
    if taps == 1:
        if work.one_pass.joins_rows and work.limits.sums >= MANY_SUMS:
            return work.factors.joined_tap
        in_strips = work.one_pass.strips and work.tap_channels > SHORT_ROWS_CHANNELS  # few channels gain little
        return work.factors.strip_tap if in_strips else work.factors.one_tap
    if work.one_pass.possible or work.dtype in ("float16", "float32"):
        return work.factors.several_taps[columns >= MAX_ROWS]
    return SEVERAL_TAPS_OF_DOUBLES


def positions_in_one_pass(work: Work) -> float:
    """Positions of a box, its rows in whole vectors, those that are joined as one."""
    *rows, width = work.layout.box
    ends = 0.0  # of lines, whose last tiles or strips are narrow; of short ones, images of 10x13 and 14x14, a fit
    if work.one_pass.joins_rows:
        width *= rows.pop()
        ends = max(2.5, width / (JOINED_LINE * work.lanes))
        if work.one_pass.rows_are_vectors and not work.path.words:
            # Written where they belong: 50 of 400 random layers, rows of 4 to 40, took 0.91 of the time so.
            ends = 0.5 + width / (16 * work.lanes)
    return math.prod(rows) * (-(-width // work.lanes) + ends) * work.lanes


def positions_in_tiles(work: Work, rows: int) -> float:
    """Positions of a box, its runs in whole tiles, so many rows in tiles of about as many each."""
    layout = work.layout
    tiles = math.ceil(rows / work.limits.rows)
    width = work.limits.vectors_of(math.ceil(rows / tiles)) * work.lanes
    return float(math.ceil(layout.run_length / width) * width * layout.runs)


def row_cycles(work: Work, block: int) -> float:
    """Cycles to multiply a block of so many channels of a box row by row in tile registers."""
    layout, factors, height = work.layout, work.tile_factors, work.tile_height
    rows = math.prod(layout.box[:-1])
    tiles = math.ceil(layout.box[-1] / height) * (SHORT_TILE + (1 - SHORT_TILE) * height / work.lanes)
    if layout.box[-1] == height:
        tiles *= LONE_TILE
    taps, places = sum(len(c.shifts) for c in layout.classes), len(layout.classes)
    depth, columns = math.ceil(work.tap_channels / TILE_CHANNELS), math.ceil(block / work.lanes)
    product = factors.by_rows[work.pieces]
    # Of the tiles that are multiplied together, of one place or two.
    if 2 * work.lanes * taps / places * depth * TILE_CHANNELS * work.weight_bytes > FIRST_LEVEL_WEIGHTS:
        product += FAR_WEIGHTS_CYCLES
    return rows * (tiles * columns * taps * depth * product + factors.row * places / layout.axes[-1].places)


def tile_cycles(work: Work, block: int) -> float:
    """Cycles to multiply a block of so many channels of a box in pieces: 16 positions by 16 columns a tile
    register, or as many in vectors."""
    begun = work.tile_factors.box / work.blocks if work.path.along_channels else 0.0
    if work.path.by_rows:
        return begun + row_cycles(work, block)
    layout, path, tile = work.layout, work.path, work.tile
    half_tiles = layout.runs * tile.positions(layout.run_length) / 16
    bordered = tile.bordered_axes(layout.run_axis, layout.box)
    taps_and_columns = [(taps_inside(layout, c.shifts, bordered), block * len(c.places)) for c in layout.classes]
    factors, added = work.tile_factors, 0.0
    factor = factors.along_channels if path.along_channels else factors.along_positions
    if path.image_runs:
        factor = factors.images
    if path.columns_first:
        factor, half_tiles = factors.columns, math.ceil(layout.new_elements / 16)
        if work.dots and path.along_channels:
            # In tiles of any number: few positions took 0.37 to 1.1 of the time.
            half_tiles = tile.positions(layout.input_elements) / 16
        taps_and_columns = [(1.0, block * work.kernel)]
        if path.along_channels:
            added = column_additions(work, block)
        else:
            kept = KEPT_CYCLES * (layout.input_elements - layout.new_elements) / work.lanes
            of_column = factors.column + factors.column_run * layout.runs
            added = (factors.added * half_tiles + kept + of_column) * block * work.kernel
    else:
        added += sum(listed_cycles(work, c.shifts, block * len(c.places)) for c in layout.classes)
    product, store = factors.product * PRODUCTS[work.pieces], factors.store
    depth: float = -(-work.tap_channels // TILE_CHANNELS)
    if work.dots:
        depth = math.ceil(work.tap_channels / 2) / 16
    elif work.one_pass.possible:
        factor, product, store = 1.0, factors.one_pass[work.pieces], factors.one_pass_store[work.pieces]
    if path.columns_first and not path.along_channels:
        store = factors.column_store
    unit = 8 if work.dots and not path.along_channels else 16  # of columns
    multiplied = sum(
        -(-columns // unit) * unit / 16 * ((product * depth + factors.tap) * taps + store)
        for taps, columns in taps_and_columns
    )
    return begun + added + factor * half_tiles * multiplied

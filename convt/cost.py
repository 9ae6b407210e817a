"""Estimated cycles of one thread, for choosing between paths.

The factors are fits to the layers of asv_benchmarks and forty others, measured with AVX-512 and AMX. They need not
be exact: a choice between two paths matters where one is much faster, and there it shows.
"""

import math
from collections.abc import Sequence

from convt._box_compute import STREAM_LIMITS
from convt._box_table import tiles_in_one_pass
from convt.geometry import ITEMSIZE, Geometry
from convt.paths import POSITION_TILES, Path
from convt.tiling import BoxLayout, Tile

# Below this many input channels, adding up columns would round more often than one chain of multiply-adds does.
FEW_CHANNELS = 4
# And below this many, the products of pieces; tile registers would be half empty then.
FEW_PIECES = 16

# How much slower a tile of few rows is, whose every vector of input serves few products.
FEW_ROWS = {1: 3.0, 2: 2.0, 3: 1.6, 4: 1.3}

# Larger weights come from memory in every call, at so many bytes a cycle.
CACHED_WEIGHTS = 1 << 24
STREAM_SPEED, TILE_STREAM_SPEED = 7, 4.5
# Larger ones than these come from beyond the second-level cache for every box, fetched early along channels.
NEAR_WEIGHTS, FAR_SPEED, FETCHED_SPEED = 1 << 20, 8, 16

# Products of bfloat16 pieces that an element's product is made of, by the pieces of an element.
PRODUCTS = {1: 1, 2: 4, 3: 6}
# Of one product of two tile registers on random data, and of storing one.
TILE_CYCLES, TILE_STORE_CYCLES = 20, 60
LINE_CYCLES = 8  # to begin a row of packed input
# The same with lanes along positions in one pass, stored as outputs, by the pieces; more where a row of outputs
# ends within a tile.
ONE_PASS_CYCLES = {1: 36, 2: 110, 3: 175}
ONE_PASS_STORE_CYCLES = {1: 107, 2: 166, 3: 230}
ONE_PASS_ROW_CYCLES = 4  # and a byte of an element


def estimate(
    geometry: Geometry, dtype: str, layout: BoxLayout, path: Path, block: int, lanes: int, tile: Tile, pieces: int
) -> float:
    """Cycles of a call, `block` output channels at a time; inf if it should not be."""
    in_channels = geometry.in_channels // geometry.group
    kernel = math.prod(a.kernel for a in geometry.axes)
    if in_channels < (FEW_PIECES if path.tiles else FEW_CHANNELS if path.columns_first else 0):
        return math.inf
    boxes = geometry.group * layout.boxes * -(-geometry.out_channels // geometry.group // block)
    multiplied = tile_cycles if path.tiles else channel_cycles if path.along_channels else position_cycles
    cycles = boxes * multiplied(layout, path, block, lanes, tile, in_channels, kernel, pieces)
    cycles += stored(geometry, dtype, layout, path, block, lanes)
    packed = geometry.group * layout.boxes * layout.new_elements * in_channels
    if path == POSITION_TILES:
        cycles += 0.25 * packed
    elif path.tiles:  # vectors pack in a tenth of their time, in their factors
        cycles += (1.5 if path.image_runs else 1) * (0.3 + 0.25 * pieces) * packed
    elif path.image_runs:  # but for small boxes, whose neighbours' inputs they pack too
        cycles += (2 if dtype == "float64" else 1) * packed
    elif not path.along_channels:  # and for short rows
        cycles += LINE_CYCLES * packed / float(layout.axes[-1][-1])
    weights = geometry.out_channels * in_channels * kernel * (2 * pieces or (8 if dtype == "float64" else 4))
    if path.tiles and weights > NEAR_WEIGHTS:
        cycles += layout.boxes * weights / (FETCHED_SPEED if path.along_channels else FAR_SPEED)
    if weights >= CACHED_WEIGHTS:
        streamed = weights / (TILE_STREAM_SPEED if path.tiles else STREAM_SPEED)
        cycles = max(cycles, streamed) + min(cycles, streamed) / 8
    return cycles


def stored(geometry: Geometry, dtype: str, layout: BoxLayout, path: Path, block: int, lanes: int) -> float:
    """Cycles to write the outputs: through transpositions, or interleaved with some cycles a row."""
    outputs = math.prod(geometry.output_shape)
    halves = dtype in ("float16", "bfloat16")
    if path.along_channels:
        # Of a position: pointers, vectors transposed, full or not, and each channel's element written.
        channels = geometry.out_channels // geometry.group
        written = 0.7 if path.tiles else 3.1 if dtype == "float64" else 1.45
        cycles = (
            outputs / channels * (6 * -(-channels // (2 * lanes)) + 0.35 * -(-channels // 16) * 16)
            + written * outputs
        )
        # Two sums become one word, which is transposed; those of neighbours in runs of images lie far apart.
        return 0.6 * cycles if path.tiles and halves and not path.image_runs else cycles
    row = geometry.output_shape[-1]
    scalar = geometry.axes[-1].stride > 2  # most numbers of places are interleaved one by one
    item = ITEMSIZE[dtype]
    # Large results pass the caches, but for rows that share cache lines.
    stream_bytes, long_row = STREAM_LIMITS
    shared = not halves and outputs * item >= stream_bytes and row * item % 64 and row * item < long_row
    filled = 0.1 * item * outputs if shared else 0.0
    if path == POSITION_TILES and tiles_in_one_pass(layout, block):
        strides, cells = layout.axes[:, 1], layout.axes[-1, 3]
        rows_end = cells % 16 and max(strides) > 1  # within tiles, that is
        return filled + (ONE_PASS_ROW_CYCLES * item * outputs / cells if rows_end else 0.0)
    if path.tiles:
        return filled + outputs * (0.65 + 0.3 * (not halves) + 2.5 * scalar + (64 if row % lanes else 32) / row)
    return filled + outputs * (0.3 + 0.4 * halves + 1.8 * scalar + (32 if row % lanes else 8) / row)


def taps_inside(layout: BoxLayout, shifts: Sequence[tuple[int, ...]]) -> float:
    """Taps of an average run: all but those that it leaves out at the borders."""
    taps = float(len(shifts))
    for a in layout.looped_axes if shifts else ():
        n, _, _, cells, *_ = layout.axes[a]
        on_axis = {shift[a - 1] for shift in shifts}
        taps *= sum(max(0, min(cells, n - s) - max(0, -s)) for s in on_axis) / (cells * len(on_axis))
    return taps


def channel_cycles(
    layout: BoxLayout, path: Path, block: int, lanes: int, tile: Tile, in_channels: int, kernel: int, pieces: int
) -> float:
    """Cycles to multiply one block of channels of a box, lanes along channels: two FMAs each."""
    if path.columns_first:
        addition = 2 if block % lanes == 0 else 4 * lanes  # of a vector, or element by element
        return (in_channels / 2 + addition) * -(-block * kernel // lanes) * layout.input_elements
    vectors = sum(taps_inside(layout, c.shifts) * -(-block * len(c.places) // lanes) for c in layout.classes)
    # Several taps read the input again, and the zeros between rows.
    again = 1.03 if any(len(c.shifts) > 1 for c in layout.classes) else 0.98
    positions = layout.runs * tile.cost(layout.run_length) * tile.most / tile.cost(tile.most)
    return again * in_channels * vectors * positions / 2


def position_cycles(
    layout: BoxLayout, path: Path, block: int, lanes: int, tile: Tile, in_channels: int, kernel: int, pieces: int
) -> float:
    """The same with lanes along positions, which load the input anew for every tap and tile."""
    if path.columns_first:
        positions = tile.cost(math.ceil(layout.new_elements))
        return block * kernel * positions / lanes * (1.35 * in_channels / 2 + 1.35)
    positions = layout.runs * tile.cost(layout.run_length)
    rows = 0.0
    for c in layout.classes:
        n = block * len(c.places)
        rows += len(c.shifts) * n * FEW_ROWS.get(n, 1) * (1.1 if len(c.shifts) == 1 else 1.4 if n >= 8 else 2)
    return in_channels * rows * positions / lanes / 2


def tile_cycles(
    layout: BoxLayout, path: Path, block: int, lanes: int, tile: Tile, in_channels: int, kernel: int, pieces: int
) -> float:
    """The same in tile registers of 16 positions by 16 columns."""
    half_tiles = layout.runs * tile.cost(layout.run_length) / tile.cost(tile.most) * 2
    taps_and_columns = [(taps_inside(layout, c.shifts), block * len(c.places)) for c in layout.classes]
    factor, added = 1.3 if path.image_runs else 1.2 if path.along_channels else 0.95, 0.0
    if path.columns_first:
        factor, half_tiles = 1.4, math.ceil(layout.new_elements / 16)
        taps_and_columns = [(1.0, block * kernel)]
        if path.along_channels:
            added = (2 if block % 16 == 0 else 64) * -(-block * kernel // 16) * layout.input_elements
        else:
            added = 3 * half_tiles * block * kernel
    product, store = TILE_CYCLES * PRODUCTS[pieces], TILE_STORE_CYCLES
    if path == POSITION_TILES and tiles_in_one_pass(layout, block):
        factor, product, store = 1.0, ONE_PASS_CYCLES[pieces], ONE_PASS_STORE_CYCLES[pieces]
    return added + factor * half_tiles * sum(
        -(-columns // 16) * (product * -(-in_channels // 32) * taps + store) for taps, columns in taps_and_columns
    )

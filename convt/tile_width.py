"""How many vectors of columns the tiles of a path are wide."""

import math
from collections import Counter

from convt._levels import TileLimits
from convt.cost import CACHED_WEIGHTS, FAR_OUTPUTS, NEAR_TILE, PAGES_CYCLES, taps_of_run, vectors_time
from convt.dtypes import ITEMSIZE, VECTOR_ITEMSIZE
from convt.geometry import Geometry
from convt.paths import Path
from convt.tiling import SUMS_BYTES, Cells, taps_of_row

WIDE_TILE = 5 << 16  # bytes of the weights of four vectors: more come as if from memory
FAR_POSITIONS = 256  # so many use weights from memory often enough: float64 of 5 layers took 0.86 to 0.98
WIDER_TIME = 0.98  # of that in tiles of two, at most, is what makes tiles wide
LEAST_CELLS = 64  # of a box then: smaller ones read the weights more often, or end within a tile
LEAST_IMAGES = 8  # of a run then
COLUMNS_POSITIONS = 128  # fewer, of columns first, wait for weights: 1.04 to 1.1 times as long in wide tiles


def widest_class(geometry: Geometry, cells: Cells, path: Path) -> int:
    """Most columns that a class has of an output channel."""
    return geometry.kernel_positions if path.columns_first else max(len(c.places) for c in cells.classes)


def all_in_half_tiles(geometry: Geometry, cells: Cells, path: Path, limits: TileLimits) -> bool:
    """Whether half a vector has the columns of every class."""
    return geometry.group_outputs * widest_class(geometry, cells, path) <= limits.half_tile


def column_vectors(
    geometry: Geometry,
    cells: Cells,
    dtype: str,
    path: Path,
    limits: TileLimits,
    input_bytes: int,
) -> int:
    """Vectors of columns of a whole tile of a path: two or, of vectors along channels, one where no class has more
    columns than a vector, and otherwise up to `limits.columns`.

    Chosen before boxes are laid out, of which an estimate for each width would need its own; `input_bytes` is what
    the packed input of a box may take.
    """
    if path.along_groups:
        return 1
    if not path.along_channels or path.tiles:
        return 2
    lanes = limits.lanes
    item, group_inputs = VECTOR_ITEMSIZE[dtype], geometry.group_inputs
    channels, kernel = geometry.group_outputs, geometry.kernel_positions
    if channels * widest_class(geometry, cells, path) <= lanes:
        return 1
    positions = math.prod(a.input for a in geometry.axes)
    streamed = geometry.out_channels * group_inputs * kernel * item >= CACHED_WEIGHTS
    streamed = streamed and geometry.batch * positions < FAR_POSITIONS
    if path.columns_first:
        columns = min(channels, 2 * lanes) * kernel
        many = not streamed and geometry.batch * positions >= COLUMNS_POSITIONS
        return 3 if many and vectors_time(columns, 3, limits) < vectors_time(columns, 2, limits) else 2
    gap = 0 if path.image_runs else cells.gap
    places = sum(len(c.places) for c in cells.classes)
    most_taps = max(len(c.shifts) for c in cells.classes)
    weights_bytes = most_taps * group_inputs * lanes * item  # of a vector in a tile
    cell_bytes = places * lanes * item  # of its sums
    classes = Counter((len(c.places), len(c.shifts), taps_of_row(c.shifts, gap)) for c in cells.classes)
    far_outputs = geometry.outputs * ITEMSIZE[dtype] >= FAR_OUTPUTS and channels > 2 * lanes

    def suits(vectors: int) -> bool:
        """Whether a tile's weights make few slices and boxes have many cells, or whole images as with pairs."""
        of_box = SUMS_BYTES // (vectors * cell_bytes)
        if of_box < LEAST_CELLS or vectors * weights_bytes > NEAR_TILE:
            return False
        if path.image_runs and limits.sums // vectors < LEAST_IMAGES:
            return False
        whole = SUMS_BYTES // (2 * cell_bytes) >= positions and positions * group_inputs * item <= input_bytes
        return of_box >= positions or not whole

    def time(vectors: int) -> float:
        """Of all products of a position and, beyond that of pairs, of storing them."""
        far = streamed or (vectors > 3 and vectors * weights_bytes > WIDE_TILE)
        blocks, rest = divmod(channels, vectors * lanes)
        cycles = PAGES_CYCLES * places * channels if far_outputs and vectors > 2 else 0.0
        for (n, taps, taps_of_a_row), alike in classes.items():
            run = taps_of_run(taps_of_a_row, vectors, limits)
            of_block = vectors_time(vectors * lanes * n, vectors, limits, run, far)
            of_rest = vectors_time(rest * n, vectors, limits, run, far)
            cycles += alike * taps * group_inputs / 2 * (blocks * of_block + of_rest)
        return cycles

    best = min(filter(suits, range(3, limits.columns + 1)), key=time, default=2)
    return best if time(best) < WIDER_TIME * time(2) else 2

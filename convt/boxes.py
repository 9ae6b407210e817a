"""How large the boxes of a path are, and what they would cost."""

import itertools
import math
from dataclasses import replace
from typing import NamedTuple, Optional

from convt._levels import (
    CACHE_LINE,
    MOST_TILE_VECTORS,
    MOST_TURNED,
    ROW_PLACES,
    TileLimits,
    multiplies_words,
    tile_limits,
)
from convt.cost import CACHED_WEIGHTS, estimate
from convt.dtypes import ITEMSIZE, VECTOR_ITEMSIZE
from convt.geometry import Geometry
from convt.merged_taps import MergedTaps, merge_taps
from convt.paths import CHANNEL_TILES, CHANNELS, POSITION_TILES, Path
from convt.shares import even_part, even_parts, splits
from convt.tile_width import all_in_half_tiles, column_vectors
from convt.tiling import BoxLayout, Cells, ScratchLimits, Tile, lay_out, lay_out_whole_images
from convt.work import Work

# Bytes per thread of a box's packed input.
INPUT_BYTES = 1 << 20
# Less where several blocks of channels read the input again, and for vectors where box, weights and sums fit the
# second-level cache together: 2 to 7 % of layers of 64 and 128 channels, 13 % of float64 sam_up1. Larger weights
# want to be read less often (16 %), and rows of few vectors, which are multiplied across, to be many (8 %).
SMALL_INPUT_BYTES = 1 << 19
SMALL_WEIGHTS_BYTES = 1 << 20
# But of very many channels up to so many places, in twice that: 2048 of float64, kernel 4, ran at 51 and 57
# instead of 41 and 38 GFLOP/s. Their slices stay in the second-level cache one after the other.
DEEP_PLACES = 128
IMAGES_BYTES = 7 << 18  # 32 images of 4x4 with 512 channels: 10 to 20 % faster than 16 of them in tile registers
# By rows of cells: three eighths as much took 1.03 to 1.2 times as long, twice as much 0.95 to 1.18 (three layers,
# bfloat16 and float32).
BY_ROWS_BYTES = 1 << 19
# Of rows that are cut where a box would share as many with the next as it has: kernels 5 and 7 of one column took
# 0.68 to 0.81 of the time, others 0.86 to 1.05 (19 layers, rows of 64 to 1,000 cells, mean 0.90, Xeon with AMX).
LEAST_ROW_WIDTH = 32
# With columns first, of products, and of the packed input of tiles and along channels. Larger boxes share fewer of
# them with the next one, smaller ones stay in the second-level cache: a megabyte more costs about 5 %. Along
# channels, where boxes are whole images, the larger size is for those that the smaller one cannot hold: 7 to 10 %
# of float64, 512 channels, 16x16.
COLUMNS_BYTES = (1 << 20, 3 << 19)
COLUMNS_MEGABYTE = 0.05
# Of a block of channels, of products of every kernel position, lanes along positions: all blocks pack the input.
# With 256 float32, float64 and float16 took 0.97, 0.93 and 0.80 of the time with 96 (12 layers of 128 and more).
MOST_COLUMNS = 256
TILE_COLUMNS = 96  # of tiles, which are packed before
# Groups wait for their loads as well: by half as many three layers took 1.3 to 1.4 times as long on Zen 4.
GROUPS_WAITING = 4
# Packed input is kept for the next box if it shares at least a place for so many cells: 0.94 to 1.0 of the time.
SHARED_PART = 4
# Of a box that is not cut for more threads if weights come from memory, as every box reads all of them: threads
# share its blocks of channels. 1024 to 512 channels, 4x4, ran 1.8 instead of 1.2 times as fast on two threads as
# on one; 8x6 and 8x8 images ran 0.93 to 1.2 times as fast as in two boxes.
FEW_BOX_CELLS = 32
PRODUCTS_TIME = 15  # of a box, along channels, by that of packing its input
PRODUCT_TILES = 16  # of a block, where outputs are channels: they are written by rows of so many
MOST_PANEL_CHANNELS = 4096  # of which a tile's columns, in three pieces, take 0.8 MB
MOST_GIVEN_POSITIONS = 64  # of columns first with weights in the order given, but for tiles
MOST_PANEL_COLUMNS = 1 << 15  # of a block whose products are put in order
# What columns first save of a call by multiplying weights in the order given, in cycles per byte of a weight in
# the type of sums. Random layers that go another way so: float32 0.80 of the time (32 of 60), float64 0.77 (32 of
# 60), bfloat16 0.85 (38 of 75), float32 by AVX2 0.79 (25 of 60). Of kernel = stride 0.76, 0.69 and 0.87 (40, of
# which some do not). Halves that are widened gain nothing.
ORDER_CYCLES = 0.12
# Fewer bytes are packed in some microseconds, and one call gives the bits of a layer then.
LEAST_ORDER_BYTES = 1 << 18
# More positions are worth packing for; more bytes of products leave the second-level cache: 48 positions, 96 to
# 256 channels, 4x4x4, took 1.2 times as long.
MOST_ORDER_POSITIONS = 56
MOST_ORDER_TILE_POSITIONS = 32
MOST_ORDER_PRODUCTS = 1 << 18
EQUAL_SHARES = 1.125  # of the mean of threads' blocks, that a thread may have


class Boxes(NamedTuple):
    """Boxes for one of the vectorised paths, and their estimate."""

    work: Work
    scratch: ScratchLimits
    cycles: float

    @property
    def path(self) -> Path:
        """The path."""
        return self.work.path

    @classmethod
    def of(
        cls, geometry: Geometry, cells: Cells, dtype: str, isa: str, path: Path, pieces: int, once: bool = False
    ) -> Optional["Boxes"]:
        """The boxes of the least estimate for `path`, or None where none fits the scratch or it cannot be.

        Taps are not merged where many weights are used `once`, as to put them in order for it takes longer.
        """
        pieces = pieces if path.in_pieces else 0
        limits = tile_limits(isa, dtype == "float64", pieces if path.tiles else 0)
        if path.words and not (dtype == "bfloat16" and multiplies_words(isa)):
            return None
        if (path.image_runs or path.by_rows) and not cells.several_taps:
            return None  # no taps to leave out, or that share the loads of a place
        if path == POSITION_TILES and cells.several_taps:
            return None  # they multiply one tap: loads for others cross cache lines, in 50 cycles rather than 8
        if path.along_groups:
            if not geometry.is_depthwise:
                return None
            geometry = geometry._replace(group=1, in_channels=1)  # what a lane multiplies
        if path.by_rows:
            if limits.unit == 1 or cells.inner_places > ROW_PLACES:
                return None
            cells = cells.of_single_places()
        item, group_inputs, channels = VECTOR_ITEMSIZE[dtype], geometry.group_inputs, geometry.group_outputs
        group_weights_bytes = channels * group_inputs * geometry.kernel_positions * item
        merged = None
        in_order = once and geometry.group * group_weights_bytes >= LEAST_ORDER_BYTES
        if path == CHANNEL_TILES and limits.unit > 1 and not in_order:
            merge = merge_taps.__wrapped__ if geometry.has_long_kernel else merge_taps
            merged = merge(cells.classes, group_inputs, pieces)
        if merged:
            cells = cells._replace(classes=merged.classes)
        budgets = input_budgets(path, group_inputs * item, group_weights_bytes, cells.counts[-1] // limits.lanes)
        vectors = column_vectors(geometry, cells, dtype, path, limits, budgets[0])
        block = min(channels, block_channels(geometry, cells, dtype, path, vectors, limits))
        place, slack, columns = (item * n for n in elements(geometry, cells, path, pieces, block, limits, merged))
        tile = positions_of_tile(path, vectors, limits, all_in_half_tiles(geometry, cells, path, limits))
        best = None
        for budget, images in itertools.product(budgets, (tile.most, tile.most // 2) if path.image_runs else (0,)):
            if best and path.along_channels and path.columns_first:
                break  # the larger size is for images that the smaller one cannot hold
            scratch = ScratchLimits(place, budget - slack, columns)
            layout = lay_out_boxes(cells, path, tile, scratch, 1, images)
            if layout is None or (best and layout.box == best.work.layout.box):
                continue
            if keeps_for_next(path, layout, cells.spans[1], block == channels):
                layout = layout._replace(chain=layout.boxes_along)
            work = Work(geometry, dtype, isa, path, pieces, block, vectors, layout, tile, limits, merged)
            cycles = estimate(work)
            # Along channels the estimates were fitted to the smaller size as they are.
            if path.columns_first and (budget > COLUMNS_BYTES[0] or not path.along_channels):
                cycles *= 1 + COLUMNS_MEGABYTE * layout.input_elements * place / (1 << 20)
            if best is None or cycles < best.cycles:
                best = cls(work, scratch, cycles)
        return best

    @property
    def cycles_once(self) -> float:
        """Columns first along channels: the estimate for weights that are used once, less what others take to pack
        them but this path not."""
        work, tiles, positions = self.work, self.path.tiles, self.work.layout.input_elements
        item = VECTOR_ITEMSIZE[work.dtype]
        few = positions <= (MOST_ORDER_TILE_POSITIONS if tiles else MOST_ORDER_POSITIONS)
        few &= positions * work.block * work.kernel * item <= MOST_ORDER_PRODUCTS
        widened = ITEMSIZE[work.dtype] == 2 and not tiles
        in_panels = work.layout.boxes == 1 and self.columns_fit_panels
        if widened or not few or self.packed_bytes < LEAST_ORDER_BYTES or not in_panels:
            return self.cycles
        return estimate(work, in_order=True) - self.packing_cycles

    @property
    def packed_bytes(self) -> int:
        """Of the weights that reach outputs, in the type of sums: others are multiplied, but packed by no path."""
        used = sum(len(c.places) * len(c.shifts) for c in self.work.layout.classes)
        weights = self.work.geometry.out_channels * self.work.tap_channels * used
        return weights * VECTOR_ITEMSIZE[self.work.dtype]

    @property
    def packing_cycles(self) -> float:
        """To pack the weights."""
        return ORDER_CYCLES * self.packed_bytes

    def multiplied_in_panels(self, threads: int) -> Optional["Boxes"]:
        """The same where weights that are used once are multiplied panel by panel, or None if they should not be.

        Of columns first in their own order, otherwise block by block, packed when they are multiplied, from the
        caches. It must be the only box.
        """
        path = self.path
        if not path.along_channels or path.along_groups or path.by_rows or self.work.layout.boxes > 1:
            return None
        if self.work.merged:
            return None  # weights are put in order for it before
        if not path.columns_first:
            fits, block = self.blocks_fit_panels(threads), self.work.block
        else:
            fits, block = self.columns_fit_panels, self.block_of_columns(threads)
        return self._replace(work=replace(self.work, in_panels=True, block=block)) if fits else None

    def blocks_fit_panels(self, threads: int) -> bool:
        """Whether `pack_whole_vectors` of _box_weights can pack the blocks, and threads get equal shares."""
        work = self.work
        channels, lanes = work.geometry.group_outputs, work.lanes
        whole_vectors = work.block % lanes == channels % lanes == 0 and work.kernel > 1
        # 5 blocks for 2 threads took 1.14 times as long as 2 boxes.
        parts = even_parts(work.geometry.group, threads)
        equal_shares = -(-work.blocks // parts) * parts <= EQUAL_SHARES * work.blocks
        return whole_vectors and equal_shares and not (self.path.tiles and work.kernel > MOST_TURNED)

    @property
    def columns_fit_panels(self) -> bool:
        """Whether columns first gain at their number of positions and find room in the scratch.

        Their products take a row more than without panels. Threads must not matter: this decides on the path.
        """
        work, positions = self.work, self.work.layout.input_elements
        if work.block * work.kernel > MOST_PANEL_COLUMNS:
            return False
        if self.path.tiles:
            # Calls with the products of 289 positions of 512 channels took up to 7 % longer, of 196 up to 5 %.
            return 4 * positions <= work.tap_channels <= MOST_PANEL_CHANNELS
        # Nothing is packed: 64 positions or fewer took 0.47 to 1.03 of the time, 80 positions 1.0 to 1.15.
        return positions <= MOST_GIVEN_POSITIONS

    def block_of_columns(self, threads: int) -> int:
        """Output channels of a block, columns first, of which threads get equal shares if that can be.

        Whole vectors of weights, which are not copied, and at least a tile of them.
        """
        work, group = self.work, self.work.geometry.group
        channels, parts = work.geometry.group_outputs, even_parts(group, threads)
        if work.blocks % parts == 0 or splits(work.layout, group, channels, threads) == 1:
            return work.block  # equal shares, or one part however small the blocks
        unit = work.lanes // math.gcd(work.lanes, work.kernel)
        least = padded(-(-2 * work.lanes // work.kernel), unit)
        if least >= work.block:
            return work.block
        sizes = (work.block, *reversed(range(least, work.block, unit)))

        def of_a_thread(block: int) -> int:
            blocks = -(-channels // block)
            return -(-blocks // parts) * block

        return min(sizes, key=of_a_thread)

    def for_threads(self, cells: Cells, threads: int) -> "Boxes":
        """The same for so many threads: for each group's share of them a multiple in boxes, as far as there are
        cells, and chains of the length that is soonest done by all."""
        layout, group, path = self.work.layout, self.work.geometry.group, self.path
        # Lanes along groups, each block packs its own input: threads share these before they share boxes.
        of_group = -(-threads // (self.work.blocks if path.along_groups else group))
        wanted = of_group * -(-layout.boxes // of_group)
        few = math.prod(layout.box) <= FEW_BOX_CELLS and self.work.weights_bytes >= CACHED_WEIGHTS
        if layout.boxes != wanted and not (few and self.work.blocks >= of_group):
            images = layout.run_length if layout.image_runs else 0
            cells = cells._replace(classes=layout.classes)  # taps may be merged
            layout = lay_out_boxes(cells, path, self.work.tile, self.scratch, wanted, images) or layout

        def time(chained: BoxLayout) -> float:
            """Relative, of the thread with the most chains: what each box does anew, and what it always does."""
            always = 0 if path.columns_first else PRODUCTS_TIME * chained.input_elements
            rounds = -(-group * chained.chains // threads)
            return rounds * chained.chain * (chained.new_elements + always)

        if self.work.layout.chain > 1:
            lengths = (-(-layout.boxes_along // parts) for parts in range(1, 4 * threads + 1))
            layout = min((layout._replace(chain=length) for length in lengths), key=time)
        return self._replace(work=replace(self.work, layout=layout))


def block_channels(
    geometry: Geometry, cells: Cells, dtype: str, path: Path, vectors: int, limits: TileLimits
) -> int:
    """Output channels that a box is computed for at a time, if there are so many."""
    group_inputs, lanes = geometry.group_inputs, limits.lanes
    if path.along_groups:
        return lanes
    if path.by_rows:
        return lanes if cells.inner_places > 1 else 2 * lanes
    if path.along_channels:
        if fills_lines(cells, lanes, VECTOR_ITEMSIZE[dtype]) and not path.columns_first:
            return 1
        tiles = PRODUCT_TILES if geometry.is_product and not path.columns_first else 1
        return tiles * (2 if path.columns_first else vectors) * lanes
    if path.columns_first:
        most = max(1, (TILE_COLUMNS if path.tiles else MOST_COLUMNS) // geometry.kernel_positions)
        return most if path.tiles else even_part(geometry.group_outputs, most)
    # With many input channels wider blocks read the input less often (10 %). But halves of one place a cell would
    # go to as many rows as there are columns: with 64 of them bfloat16, 1x1, took 1.35 times as long in tile
    # registers, 1.1 times with 128 of 256 channels. Words of 32 pack slower: one call of hifigan_u1 1.2 times.
    columns = 64 if group_inputs < 256 else 128
    if path.words:
        columns = 64
    elif not path.tiles or (cells.places == 1 and ITEMSIZE[dtype] == 2):
        columns = 36 if cells.inner_places == 3 else 32  # whole tiles of 6 rows in one pass, or of 8
    return max(1, columns // cells.places)


def elements(
    geometry: Geometry,
    cells: Cells,
    path: Path,
    pieces: int,
    block: int,
    limits: TileLimits,
    merged: MergedTaps | None,
) -> tuple[int, int, int]:
    """Elements of scratch: of an input place, packed unless portions are, and its products where these come first;
    beyond the last place of a box; of the sums of a position. `BoxTable` counts those of a whole box."""
    lanes, group_inputs = limits.lanes, geometry.group_inputs
    unit = lanes if path.along_channels or path.tiles else 1  # which columns are padded to
    columns = sum(padded(block * len(c.places), unit) for c in cells.classes)
    read = padded(group_inputs, unit)
    if path.tiles:
        read = limits.pairs_of(group_inputs, path.along_channels) * pieces
    elif path.words:
        read = padded(group_inputs, 2) // 2
    if merged:
        read = merged.channels // 2 * pieces
    elif path.along_channels:
        read = (read // lanes | 1) * lanes
    if path.by_rows:
        return read, 0, 0
    products = padded(block * geometry.kernel_positions, unit) if path.columns_first else 0
    slack = 0
    if path.columns_first and not (path.along_channels or path.tiles):
        read, slack = 0, lanes * MOST_TILE_VECTORS * products  # packed portion by portion
    elif not path.along_channels:
        slack = lanes * (MOST_TILE_VECTORS * products + (0 if path.tiles else read))
    elif path.tiles:
        slack = (limits.unit - 1) * products  # those of whole tiles are written
    return read + products, slack, columns


def positions_of_tile(path: Path, vectors: int, limits: TileLimits, half: bool = False) -> Tile:
    """Positions that are multiplied at once by so many vectors of columns, `half` a one in every tile."""
    most = limits.sums // vectors
    if path.tiles and (limits.unit > 1 or not path.along_channels):
        # Half a tile takes 0.68 of the time of a whole one.
        leave_out = path.along_channels and not path.by_rows
        return Tile(2 * limits.lanes, unit=limits.lanes, load=17, leave_out=leave_out)
    if path.along_channels:
        waiting = GROUPS_WAITING if path.along_groups else limits.waiting
        waiting = (4 if half else 2) * waiting if vectors == 1 else waiting  # as many sums as of two vectors
        return Tile(most, load=limits.load, waiting=waiting, leave_out=not path.along_groups)
    # Of 8 rows. Of 6, as on AVX2, half: in whole ones float64 fsrcnn took 11 % longer.
    whole = most // 4 * limits.lanes
    return Tile(whole, unit=whole)


def lay_out_boxes(
    cells: Cells, path: Path, tile: Tile, scratch: ScratchLimits, wanted: int, images: int
) -> BoxLayout | None:
    """At least `wanted` boxes, as far as there are cells; `images` make a run, where it is of images."""
    if path.along_channels and path.columns_first:
        return lay_out_whole_images(cells, scratch, wanted)
    if path.along_groups:
        cells = cells.of_single_places()  # a vector has lanes of one place, however few channels there are
    return lay_out(cells, tile, scratch, wanted, images, LEAST_ROW_WIDTH if path.by_rows else 0)


def input_budgets(path: Path, place_bytes: int, weights_bytes: int, row_vectors: int) -> tuple[int, ...]:
    """Bytes that the input places of a box may take, to choose from, where a packed one takes `place_bytes`,
    beside such weights and for rows of so many whole vectors of cells."""
    if path.image_runs:
        return (IMAGES_BYTES,)
    if path.by_rows:
        return (BY_ROWS_BYTES,)
    if path.columns_first:
        return COLUMNS_BYTES
    if path.tiles:
        small = not path.along_channels
    else:
        small = weights_bytes <= SMALL_WEIGHTS_BYTES and (path.along_channels or row_vectors >= MOST_TILE_VECTORS)
    if path == CHANNELS and not small:
        return (max(INPUT_BYTES, min(DEEP_PLACES * place_bytes, 2 * INPUT_BYTES)),)
    return (SMALL_INPUT_BYTES if small else INPUT_BYTES,)


def keeps_for_next(path: Path, layout: BoxLayout, span: tuple[int, int], one_block: bool) -> bool:
    """Whether a box keeps what the next one along axis 1 shares with it, `span` being the shifts on that axis.

    Columns first keep products, if one block of channels has them all. Along channels, where packing is costly,
    boxes keep the packed places that they share, if these are not few. (An image is cut up only where a box holds
    no other.)
    """
    if path.columns_first:
        return not path.along_channels and one_block
    if not path.along_channels or path.along_groups or path.image_runs or layout.boxes_along == 1:
        return False
    return SHARED_PART * (span[1] - span[0]) >= layout.box[1]


def fills_lines(cells: Cells, lanes: int, item: int) -> bool:
    """Whether lanes along the places of a cell's rows fill vectors, and outputs that are copied cache lines."""
    row = cells.inner_places
    return row * item % CACHE_LINE == 0 and all(
        len({p % row for p in c.places}) % lanes == 0 for c in cells.classes
    )


def padded(n: int, unit: int) -> int:
    """`n` in whole units."""
    return -(-n // unit) * unit

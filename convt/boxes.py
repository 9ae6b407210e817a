"""How large the boxes of a path are, and what they would cost."""

import itertools
import math
from typing import NamedTuple, Optional

from convt._box_one_pass import SHORT_LINE_VECTORS
from convt._levels import multiplies_words, tile_limits
from convt.cost import Work, estimate, tile_vectors
from convt.geometry import ITEMSIZE, Geometry
from convt.paths import CHANNELS, Path
from convt.tiling import BoxLayout, Cells, Tile, lay_out, lay_out_images

# Bytes per thread of a box's packed input, products of every kernel position included where these come first.
INPUT_BYTES = 1 << 20
# For what several blocks of channels read again, and for vectors beside weights that stay in the second-level
# cache with box and sums: 2 to 7 % of layers of 64 and 128 channels, 13 % of float64 sam_up1. Larger weights want
# to be read less often (16 %), and rows of few vectors, which are multiplied across, to be many (8 %).
SMALL_INPUT_BYTES = 1 << 19
SMALL_WEIGHTS_BYTES = 1 << 20
# But of very many channels up to so many places, in twice that: 2048 of float64, kernel 4, ran at 51 and 57
# instead of 41 and 38 GFLOP/s. Their slices stay in the second-level cache one after the other.
DEEP_PLACES = 128
IMAGES_BYTES = 7 << 18  # 32 images of 4x4 with 512 channels: 10 to 20 % faster than 16 of them in tile registers
# Products of 81 kernel positions lie beside the input. Larger boxes share fewer of them with the next one, smaller
# ones stay in the second-level cache: a megabyte more costs about 5 %. Along channels, where boxes are whole
# images, the larger size is for those that the smaller one cannot hold: 7 to 10 % of float64, 512 channels, 16x16.
COLUMNS_BYTES = (1 << 20, 3 << 19)
COLUMNS_MEGABYTE = 0.05
# Packed input is kept for the next box if it shares at least a place for so many cells: 0.94 to 1.0 of the time.
SHARED_PART = 4
PRODUCTS_TIME = 15  # of a box, along channels, by that of packing its input
PRODUCT_TILES = 16  # of a block, where outputs are channels: they are written by rows of so many
MOST_PANEL_CHANNELS = 4096  # of which a tile's columns, in three pieces, take 0.8 MB
MOST_GIVEN_POSITIONS = 64
MOST_PANEL_COLUMNS = 1 << 15


class Boxes(NamedTuple):
    """Boxes for one of the vectorised paths."""

    geometry: Geometry
    path: Path
    block: int  # output channels at a time
    vectors: int  # of a whole tile's columns
    pieces: int  # bfloat16 ones of an element; 0 for multiply-adds
    layout: BoxLayout
    limits: tuple[Tile, int, int, int]
    cycles: float
    in_panels: bool = False  # weights that are used once are multiplied panel by panel, in their own order

    @classmethod
    def of(
        cls, geometry: Geometry, cells: Cells, dtype: str, isa: str, path: Path, pieces: int
    ) -> Optional["Boxes"]:
        """The boxes of the least estimate for `path`, or None where none fits the scratch or it cannot be."""
        item = 8 if dtype == "float64" else 4
        pieces = pieces if path.in_pieces else 0
        if path.words and not (dtype == "bfloat16" and multiplies_words(isa)):
            return None
        tile_limit = tile_limits(isa, dtype == "float64", pieces if path.tiles else 0)
        lanes = tile_limit.lanes
        channels = geometry.out_channels // geometry.group
        in_channels = geometry.in_channels // geometry.group
        kernel = math.prod(a.kernel for a in geometry.axes)
        weights_bytes = channels * in_channels * kernel * item
        budgets = input_budgets(path, in_channels * item, weights_bytes, cells.counts[-1] // lanes)
        vectors = tile_vectors(geometry, cells, dtype, path, tile_limit, budgets[0])
        most = tile_limit.sums // vectors
        if path.along_channels:
            block = (2 if path.columns_first else vectors) * lanes
            if geometry.is_product and not path.columns_first:
                block *= PRODUCT_TILES
            if fills_lines(cells, lanes, item) and not path.columns_first:
                block = 1
            block = min(channels, block)
        elif path.columns_first:
            block = min(channels, max(1, 96 // kernel))
        else:
            # Many input channels want to be read less often (10 %), but halves of one place a cell, not streamed
            # on AMX, go to as many rows as there are columns: with 64 of them bfloat16, 1x1, took 1.35 times as
            # long, and 1.1 times with 128 of 256 channels. Words of 32 pack slower: one call of
            # hifigan_u1 1.2 times.
            most_columns = 64 if in_channels < 256 else 128
            if path.words:
                most_columns = 64
            elif not path.tiles or (cells.places == 1 and ITEMSIZE[dtype] == 2):
                most_columns = 32
            block = min(channels, max(1, most_columns // cells.places))
        # Columns of sums and elements of input per place; the last are padded to whole vectors or tiles.
        unit = lanes if path.along_channels or path.tiles else 1
        columns = sum(padded(block * len(c.places), unit) for c in cells.classes)
        stored = padded(in_channels, unit)
        if path.tiles:
            together = 32 if tile_limit.unit > 1 or path.along_channels else 2  # as `BoxTable.packed_pairs`
            stored = padded(in_channels, together) // 2 * pieces
        elif path.words:
            stored = padded(in_channels, 2) // 2
        if path.along_channels:
            stored = (stored // lanes | 1) * lanes
        read = stored
        if path.columns_first:
            stored += padded(block * kernel, unit)  # the products lie beside the input
        image_counts: tuple[int, ...] = (0,)
        if path.image_runs:
            if not any(low < high for low, high in cells.spans):
                return None  # no taps to leave out
            image_counts = (most, most // 2)
        slack = 0  # elements beyond the last place
        if not path.along_channels:
            slack = lanes * (8 * (stored - read) + (0 if path.tiles else read))
            if path.tiles and not path.columns_first and any(low < high for low, high in cells.spans):
                return None  # tiles of positions begin at every 16th
        elif path.tiles:
            slack = (tile_limit.unit - 1) * (stored - read)  # products of whole tiles are written
        if path.tiles and (tile_limit.unit > 1 or not path.along_channels):
            tile = Tile(2 * lanes, unit=lanes, load=17)  # half a tile takes 0.68 of the time of a whole one
        elif path.along_channels:
            tile = Tile(most)
        else:
            # Positions of a tile of 8 rows. Of 6, as on AVX2, half: in whole ones float64 fsrcnn took 11 % longer.
            whole = most // 4 * lanes
            tile = Tile(whole, unit=whole, load=0)
        best = None
        for budget, images in itertools.product(budgets, image_counts):
            if best and path.along_channels and path.columns_first:
                break  # the larger size is for images that the smaller one cannot hold
            limits = (tile, stored * item, budget - slack * item, columns * item)
            layout = cls.laid_out(cells, path, limits, 1, images)
            if layout is None or (best and layout.box == best.layout.box):
                continue
            if keeps_for_next(path, layout, cells.spans[1], block == channels):
                layout = layout._replace(chain=layout.boxes_along)
            cycles = estimate(Work(geometry, dtype, isa, layout, path, block, vectors, tile_limit, tile, pieces))
            # Along channels the estimates were fitted to the smaller size as they are.
            if path.columns_first and (budget > COLUMNS_BYTES[0] or not path.along_channels):
                cycles *= 1 + COLUMNS_MEGABYTE * layout.input_elements * stored * item / (1 << 20)
            if best is None or cycles < best.cycles:
                best = cls(geometry, path, block, vectors, pieces, layout, limits, cycles)
        return best

    @staticmethod
    def laid_out(
        cells: Cells, path: Path, limits: tuple[Tile, int, int, int], wanted: int, images: int
    ) -> BoxLayout | None:
        """At least `wanted` boxes, as far as there are cells; `images` make a run, where it is of images."""
        if path.along_channels and path.columns_first:
            return lay_out_images(cells, *limits[1:], wanted)
        return lay_out(cells, *limits, wanted, images)

    def fit_panels(self, threads: int) -> bool:
        """Whether weights that are used once are multiplied panel by panel, in their own order.

        It must be the only one, of few positions, and a group have blocks of channels enough for the threads.
        Columns are limited by the scratch: their products take a row more than without panels.
        """
        path, geometry = self.path, self.geometry
        in_channels = geometry.in_channels // geometry.group
        if not path.along_channels or not path.columns_first or self.layout.boxes > 1:
            return False
        if self.block * math.prod(a.kernel for a in geometry.axes) > MOST_PANEL_COLUMNS:
            return False
        positions = self.layout.input_elements
        if path.tiles:
            # Calls with the products of 289 positions of 512 channels took up to 7 % longer, of 196 up to 5 %.
            few = 4 * positions <= in_channels <= MOST_PANEL_CHANNELS
        else:
            # Nothing is packed: 64 positions or fewer took 0.47 to 1.03 of the time, 80 positions 1.0 to 1.15.
            few = positions <= MOST_GIVEN_POSITIONS
        return few and -(-geometry.out_channels // geometry.group // self.block) >= threads

    def for_threads(self, cells: Cells, threads: int) -> "Boxes":
        """The same for so many threads: for each group's share of them a multiple in boxes, as far as there are
        cells, and chains of the length that is soonest done by all."""
        layout, group = self.layout, self.geometry.group
        of_group = -(-threads // group)
        wanted = of_group * -(-layout.boxes // of_group)
        if layout.boxes != wanted:
            images = layout.run_length if layout.image_runs else 0
            layout = self.laid_out(cells, self.path, self.limits, wanted, images) or layout

        def time(chained: BoxLayout) -> float:
            """Relative, of the thread with the most chains: what each box does anew, and what it always does."""
            always = 0 if self.path.columns_first else PRODUCTS_TIME * chained.input_elements
            rounds = -(-group * chained.chains // threads)
            return rounds * chained.chain * (chained.new_elements + always)

        if self.layout.chain > 1:
            lengths = (-(-layout.boxes_along // parts) for parts in range(1, 4 * threads + 1))
            layout = min((layout._replace(chain=length) for length in lengths), key=time)
        return self._replace(layout=layout)


def input_budgets(path: Path, place_bytes: int, weights_bytes: int, row_vectors: int) -> tuple[int, ...]:
    """Bytes that the packed input of a box may take, to choose from, where an input place takes `place_bytes`,
    beside such weights and for rows of so many whole vectors of cells."""
    if path.image_runs:
        return (IMAGES_BYTES,)
    if path.columns_first:
        return COLUMNS_BYTES
    if path.tiles:
        small = not path.along_channels
    else:
        small = weights_bytes <= SMALL_WEIGHTS_BYTES and (path.along_channels or row_vectors >= SHORT_LINE_VECTORS)
    if path == CHANNELS and not small:
        return (max(INPUT_BYTES, min(DEEP_PLACES * place_bytes, 2 * INPUT_BYTES)),)
    return (SMALL_INPUT_BYTES if small else INPUT_BYTES,)


def keeps_for_next(path: Path, layout: BoxLayout, span: tuple[int, int], one_block: bool) -> bool:
    """Whether a box keeps what the next one along axis 1 shares with it, `span` being the shifts on that axis.

    Columns first keep products, if one block of channels has them all; along channels, where packing is costly, so
    are the places of the input that are packed, if they are not few. (An image is cut up only where a box holds no
    other.)
    """
    if path.columns_first:
        return not path.along_channels and one_block
    if not path.along_channels or path.image_runs or layout.boxes_along == 1:
        return False
    return SHARED_PART * (span[1] - span[0]) >= layout.box[1]


def fills_lines(cells: Cells, lanes: int, item: int) -> bool:
    """Whether lanes along the places of a cell's rows fill vectors, and outputs that are copied cache lines."""
    row = min(cells.axes[-1].stride, cells.axes[-1].output)
    return row * item % 64 == 0 and all(len({p % row for p in c.places}) % lanes == 0 for c in cells.classes)


def padded(n: int, unit: int) -> int:
    """`n` in whole units."""
    return -(-n // unit) * unit

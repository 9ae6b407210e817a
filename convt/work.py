"""What a path does of a call: in which boxes, blocks of channels and tiles. Costs, boxes and tables are of it."""

import math
from dataclasses import dataclass
from functools import cached_property

from convt._box_table import TOGETHER, columns_gain_in_place, row_tile
from convt._levels import TileLimits, stream_bytes
from convt.cost_factors import DOTS, OF_LEVELS, OTHERS, REGISTERS, Factors, TileFactors
from convt.dtypes import ITEMSIZE, VECTOR_ITEMSIZE
from convt.geometry import Geometry
from convt.merged_taps import MergedTaps
from convt.one_pass import OnePass, Rows, find_one_pass
from convt.paths import POSITION_COLUMNS, Path
from convt.tiling import BoxLayout, Tile

# Vectors of products that tiles may make beyond the end of a line rather than pack it: 16 images of 10x10 of 320
# channels to 1, kernel 3, took 0.43 of the time, 32 of 5x5 of 192 to 1, kernel 4, 0.37.
MOST_BEYOND = 64


@dataclass(frozen=True)
class Work:
    """A call, computed in boxes of a path.

    Attributes
    ----------
    geometry : Geometry
        With coalesced axes; along groups, as if all were one with one input channel.
    dtype, isa : str
    path : Path
    pieces : int
        bfloat16 ones of an element; 0 for multiply-adds.
    block : int
        Output channels at a time.
    vectors : int
        Of a whole tile's columns.
    layout : BoxLayout
    tile : Tile
        Its positions.
    limits : TileLimits
        Of the level's tiles.
    merged : MergedTaps, optional
        What the taps of the layout are made of.
    in_panels : bool
        Along channels: weights are read as they were given while the only box is computed, of columns first in
        their own order, otherwise packed a block at a time.
    """

    geometry: Geometry
    dtype: str
    isa: str
    path: Path
    pieces: int
    block: int
    vectors: int
    layout: BoxLayout
    tile: Tile
    limits: TileLimits
    merged: MergedTaps | None = None
    in_panels: bool = False

    @property
    def lanes(self) -> int:
        """Of a vector."""
        return self.limits.lanes

    @cached_property
    def tap_channels(self) -> int:
        """Input channels of a tap of a group: of several where taps are merged."""
        return self.merged.taps * self.merged.channels if self.merged else self.geometry.group_inputs

    @cached_property
    def blocks(self) -> int:
        """Blocks of output channels of a group."""
        return -(-self.geometry.group_outputs // self.block)

    @cached_property
    def kernel(self) -> int:
        """Kernel positions."""
        return len(self.merged.kernel) if self.merged else self.geometry.kernel_positions

    @cached_property
    def weight_bytes(self) -> int:
        """Of a packed weight."""
        return 2 * self.pieces or VECTOR_ITEMSIZE[self.dtype]

    @cached_property
    def weights_bytes(self) -> int:
        """Of all packed weights, without padding."""
        return self.geometry.out_channels * self.tap_channels * self.kernel * self.weight_bytes

    @cached_property
    def input_bytes(self) -> int:
        """Of the whole input."""
        return self.geometry.inputs * ITEMSIZE[self.dtype]

    @cached_property
    def output_bytes(self) -> int:
        """Of the result."""
        return self.geometry.outputs * ITEMSIZE[self.dtype]

    @property
    def row_bytes(self) -> int:
        """Of a row of the result."""
        return self.geometry.output_shape[-1] * ITEMSIZE[self.dtype]

    @property
    def stream_bytes(self) -> int:
        """Of a result that passes the caches, if it has so many."""
        return stream_bytes(self.isa, ITEMSIZE[self.dtype] == 2, self.geometry.group_inputs)

    @property
    def factors(self) -> Factors:
        """Those of estimates."""
        return OF_LEVELS.get(self.isa, OTHERS)

    @property
    def tile_factors(self) -> TileFactors:
        """Those of estimates of products of pieces."""
        return DOTS if self.dots else REGISTERS

    @property
    def tile_height(self) -> int:
        """Positions of a tile register: of a row of cells that two tiles hold, half of them, and of one, all."""
        cells = self.layout.axes[-1].box
        if not self.path.by_rows or cells > 2 * self.lanes:
            return self.lanes
        return -(-cells // 2) if cells > self.lanes else cells

    @property
    def along_places(self) -> bool:
        """Whether lanes along channels hold places of one channel, which follow each other in many outputs."""
        return self.path.along_channels and self.block == 1 and self.layout.axes[-1].places >= self.lanes

    @property
    def dots(self) -> bool:
        """Whether pieces are multiplied in vectors, not in tile registers."""
        return self.path.tiles and self.limits.unit == 1

    @property
    def positions_and_tiles(self) -> tuple[float, int]:
        """Lanes along channels: as many positions, of whole tiles, as take as long as the runs of a box, and these
        tiles."""
        length, runs = math.ceil(self.layout.run_length / self.layout.parts), self.layout.runs * self.layout.parts
        return runs * self.tile.positions(length), runs * math.ceil(length / self.tile.most)

    @cached_property
    def in_place(self) -> bool:
        """Whether columns first, lanes along positions, are multiplied where x lies, if it is contiguous.

        `gains_in_place` and `read_in_place` of the loops decide so for the arrays of a call.
        """
        if self.path != POSITION_COLUMNS or ITEMSIZE[self.dtype] == 2:
            return False
        columns = min(self.block, self.geometry.group_outputs) * self.kernel
        channel = math.prod(a.input for a in self.geometry.axes) * ITEMSIZE[self.dtype]
        channel %= 1 << 32  # of which remainders matter; `explain` is asked for larger ones than there can be
        if not columns_gain_in_place(columns, self.limits.rows, self.limits.sums, channel):
            return False
        # Behind the last channel of the last image there is no memory to read.
        only_one = self.geometry.batch == self.geometry.group == 1
        return self.line_in_place >= (self.widest_tile if only_one else self.least_line)

    @cached_property
    def line_in_place(self) -> float:
        """Positions that are multiplied as one line then: of images or, with zeros between them, of planes."""
        line = self.layout.new_elements / self.layout.box[0]
        if any(axis.input != axis.pitch for axis in self.layout.axes[2:]):
            line = min(line, math.prod(a.input for a in self.geometry.axes[-2:]))
        return line

    @cached_property
    def least_line(self) -> int:
        """Positions of the shortest line that is multiplied in place: what its tiles compute beyond its end takes
        less than to pack it."""
        return max(1, self.widest_tile - MOST_BEYOND * self.lanes // (self.block * self.kernel))

    @cached_property
    def widest_tile(self) -> int:
        """Positions of the widest tile of columns first, lanes along positions: that of the fewest rows."""
        vectors = 1
        for channels in (self.block, self.geometry.group_outputs % self.block):
            left = channels * self.kernel
            while left:
                rows = row_tile(left, self.limits.rows, TOGETHER)
                vectors = max(vectors, self.limits.vectors_of(rows))
                left -= rows
        return vectors * self.lanes

    @cached_property
    def one_pass(self) -> OnePass:
        """How sums in registers are written as outputs, if they are."""
        rows = Rows(
            self.layout,
            self.block,
            self.limits,
            group_inputs=self.geometry.group_inputs,
            item=ITEMSIZE[self.dtype],
            input_bytes=self.input_bytes,
            output_bytes=self.output_bytes,
            past_caches=self.output_bytes >= self.stream_bytes,
        )
        return find_one_pass(rows, self.path)

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A box layout and the kernels of a level, as the loops over boxes and weights read them."""

cimport cython

import math
from hashlib import blake2b
from typing import NamedTuple

import numpy as np

from convt._levels cimport TILE_CHANNELS, find_level, is_amd

from convt._levels import stream_bytes, tile_limits
from convt.tiling import TapClass, classes_sharing_loads, runs_of_lines, taps_of_row


def tiles_in_one_pass(layout, Py_ssize_t block):
    """Whether tiles of sums of `block` channels, lanes along positions, are written as outputs: of whole cells, alike.

    Through sums in the second-level cache halves take 1.1 to 2.6 times as long, floats 1.0 to 1.3 times; floats whose
    rows are not whole cache lines 0.9 times, but those are faster along channels.
    """
    rows = [(row[OUTPUT], row[STRIDE]) for row in layout.axes]
    places = sum(len(c.places) for c in layout.classes)
    return (
        len(layout.classes) == 1
        and layout.axes[layout.axes.shape[0] - 1, STRIDE] in (1, 2, 4, 8)
        and block * places <= ONE_PASS_COLUMNS
        and not any(outputs % stride for outputs, stride in rows)
    )


class OnePass(NamedTuple):
    """How vectors of sums, lanes along positions, are written as outputs."""

    possible: bool = False
    pairs: bool = False  # two classes together make a row of outputs
    shares_loads: bool = False  # of one input channel, which rows of outputs have in common
    strips: bool = False  # the input is packed strip by strip
    joins_rows: bool = False  # rows of cells are multiplied as one line, where they follow each other in memory


cdef bint reads_one_place(layout):
    """Whether every cell reads one place of the input, which is its own, and has all its rows of outputs."""
    if len(layout.classes) > 1 or len(layout.classes[0].shifts) != 1:
        return False
    axes = layout.axes
    if axes[:, ORIGIN].any() or axes[:, REACH].any() or (axes[:, CELLS] > axes[:, INPUT]).any():
        return False
    return not (axes[:-1, CELLS] * axes[:-1, STRIDE] > axes[:-1, OUTPUT]).any()


cdef bint ends_are_few(layout, Py_ssize_t lanes, Py_ssize_t in_channels):
    """Whether vectors that reach beyond the ends of rows cost less than sums that go through memory."""
    cdef Py_ssize_t width = layout.axes[layout.axes.shape[0] - 1, BOX]
    places = sum(len(c.places) for c in layout.classes)
    products = in_channels * sum(len(c.places) * len(c.shifts) for c in layout.classes) / places
    return (lanes - width % lanes) % lanes * products <= UNFILLED_PRODUCTS * width


cdef bint worth_joining(layout, Py_ssize_t lanes, Py_ssize_t item, bint streamed):
    """Whether rows of cells that read one place each should be multiplied as one line.

    That leaves no vector of a row part filled, but outputs are copied: 0.80 to 0.97 of the time for rows of up to four
    vectors where it saves one of eight, 0.83 to 1.0 for longer ones that are copied anyway, as they pass the caches but
    are not whole cache lines; 1.0 to 1.26 otherwise. It is decided for rows that follow each other in memory; where
    those of x do not, small layers take 1.1 to 1.4 times as long as they would along channels.
    """
    if layout.axes.shape[0] == 2:
        return False
    rows, last = layout.axes[layout.axes.shape[0] - 2], layout.axes[layout.axes.shape[0] - 1]
    width, vectors = last[BOX], (last[BOX] - 1) // lanes + 1
    if width < last[CELLS] or last[CELLS] < last[INPUT] or last[OUTPUT] < lanes or width % lanes == 0:
        return False
    if width < SHORT_ROW * lanes:
        return 8 * ((rows[BOX] * width - 1) // lanes + 1) <= 7 * rows[BOX] * vectors
    return streamed and last[OUTPUT] * item % CACHE_LINE > 0


cdef bint shares_loads(layout):
    """Whether tiles of one input channel are worth sharing what their rows and lines read.

    Where all rows have all taps, those of four or more share it as those of any class, in tiles of more vectors: 0.88
    (float64) to 1.08 of the time; one of dilated taps, which make no runs, took 0.95.
    """
    if len(layout.classes) > 1:
        return True
    shifts = {(0, *shift) for shift in layout.classes[0].shifts}
    few = len(layout.classes[0].places) < MAX_SHARED_ROWS
    return few and any((*outer, row + 1, column) in shifts for *outer, row, column in shifts)


def vectors_in_one_pass(
    geometry, layout, Py_ssize_t block, str level, bint double, bint plain, bint words
):
    """How vectors of sums, lanes along positions, are written as outputs. `plain` says that these are stored in the
    type that sums are made in; `words`, that they are made of words of two channels and written as bfloat16.

    For rows of four outputs a cell that took 0.5 to 0.9 of the time up to 128 channels, 0.93 to 1.17 for 256; without
    strips 1.15 to 1.2 for 16 channels, where rows leave a fifth of their vectors unfilled or registers are few.
    """
    cdef Py_ssize_t lanes, most_sums, in_channels = geometry.in_channels // geometry.group
    lanes, most_sums, *_ = tile_limits(level, double, 0)
    last, classes = layout.axes[layout.axes.shape[0] - 1], layout.classes
    width, inner = last[BOX], last[STRIDE]
    if sum(len(c.places) for c in classes) // inner > MAX_OUTER:
        return OnePass()
    if in_channels == 1 and (inner in (1, 2, 4, 8) or (inner == 3 and not words)) and shares_loads(layout):
        return OnePass(True, shares_loads=True)
    if inner not in (1, 2, 4):
        return OnePass()
    # The last axis is the innermost: a class of even places comes before that of the odd ones beside them.
    alternate = inner == 2 and all(len({p % 2 for p in c.places}) == 1 for c in classes)
    four_in_one = inner == 4 and all(len({p % 4 for p in c.places}) == 4 for c in classes)
    if words:
        # Through sums 16 channels took 1.2 times as long, 128 and 512 of them 1.03 and 1.02; rows of 56, which fill 7
        # of 8 lanes, 0.9.
        possible = (inner < 4 or four_in_one) and ends_are_few(layout, lanes, in_channels)
        return OnePass(possible, possible and alternate)
    if not plain and in_channels > HALVES_CHANNELS:
        return OnePass()
    strips = in_channels > SHORT_ROWS_CHANNELS and block * len(classes[0].places) > min(MAX_ROWS, most_sums // 2)
    strips = strips and reads_one_place(layout)
    # Several short rows share a vector otherwise: slower by 1.1 to 4 times for few channels, faster for many. Strips of
    # vectors that are filled to 7 of 8 took 0.93 of the time for 32 to 128 channels, 1.05 for 256 and 512.
    part_filled = width % lanes and width < SHORT_ROW * lanes
    filled = 8 * width >= 7 * ((width - 1) // lanes + 1) * lanes
    if inner == 4:
        if in_channels > STRIPS_CHANNELS or not four_in_one:
            return OnePass()
        if in_channels > FOUR_PLACES_CHANNELS and not strips and (not filled or most_sums < MANY_SUMS):
            return OnePass()
    item = 8 if double else 4
    streamed = math.prod(geometry.output_shape) * item >= stream_bytes(level)
    joins_rows = strips and worth_joining(layout, lanes, item, streamed)
    enough = filled and strips and in_channels <= STRIPS_CHANNELS
    if part_filled and in_channels > SHORT_ROWS_CHANNELS and not enough and not joins_rows:
        return OnePass()
    if alternate:
        # 48 to 512 channels, kernel 4, stride 2, took 0.90 to 0.98 of the time (measured on Zen 4 alone; with eight
        # rows of a class, as half of them read the input twice as often); few registers hold fewer.
        if most_sums >= MANY_SUMS:
            suits = in_channels <= PAIRS_CHANNELS or ends_are_few(layout, lanes, in_channels)
        else:
            suits = in_channels * layout.most_taps <= PAIRS_PRODUCTS
        suits = suits or max(block * len(c.places) for c in classes) <= 2
        return OnePass(suits, suits)
    # All places of a row lie in one class, and in one tile: `tile_width` keeps them together.
    return OnePass(True, strips=strips, joins_rows=joins_rows)


cdef Py_ssize_t row_tile(Py_ssize_t left, Py_ssize_t most, Py_ssize_t together) noexcept nogil:
    """Rows of the next tile with lanes along positions when `left` are left, in whole numbers of `together` while those
    and `most` are."""
    cdef Py_ssize_t tiles = (left + most - 1) // most
    cdef Py_ssize_t rows = (left + tiles - 1) // tiles, whole = (rows + together - 1) // together * together
    return whole if left % together == 0 and whole <= most else rows


@cython.final
cdef class ClassList:
    """Tap classes in flat arrays; those of class i lie at [first[i], first[i + 1])."""

    def __init__(self, classes, origin, steps, Py_ssize_t scale, Py_ssize_t gap):
        self.n = len(classes)
        self.first_tap = np.cumsum([0] + [len(c.shifts) for c in classes], dtype=np.int64)
        self.first_place = np.cumsum([0] + [len(c.places) for c in classes], dtype=np.int64)
        self.first_kernel = np.cumsum([0] + [len(c.shifts) * len(c.places) for c in classes], dtype=np.int64)
        kernel = [k for c in classes for row in c.kernel for k in row]
        # What is packed for a tap that a place lacks is multiplied by nothing.
        self.kernel_index = np.maximum(np.array(kernel or [0], dtype=np.int64), 0)
        shifts = np.array([shift for c in classes for shift in c.shifts] or [origin], dtype=np.int64)
        self.shifts = shifts
        self.row_taps = np.array([taps_of_row(c.shifts, gap) for c in classes], dtype=np.int64)
        self.tap_offset = ((shifts - origin) @ steps * scale).astype(np.intp)

    cdef Py_ssize_t taps(self, Py_ssize_t i) noexcept nogil:
        return self.first_tap[i + 1] - self.first_tap[i]

    cdef Py_ssize_t places(self, Py_ssize_t i) noexcept nogil:
        return self.first_place[i + 1] - self.first_place[i]


@cython.final
cdef class BoxTable:
    """A box layout as the loops read it, with the channels of a group cut into blocks.

    Parameters
    ----------
    geometry : convt.geometry.Geometry
    layout : convt.tiling.BoxLayout
    level : str
    double : bool
        Whether sums are made in float64.
    plain : bool
        Whether inputs and outputs are stored in the type that sums are made in.
    along_channels : bool
        Lanes along output channels; otherwise along positions.
    columns_first : bool
        Multiply every input position by every kernel position first, then add up the products of each place. With
        lanes along positions for few output channels, whose classes would be short of rows; with lanes along
        channels for images so small that the zeros around them would cost more than the additions.
    block : int
        Output channels of a block.
    vectors : int
        Of a whole tile's columns, with lanes along channels or in tile registers.
    pieces : int
        bfloat16 pieces that tile registers multiply an element in; 0 for vectors.
    words : bool
        Vectors of words of two bfloat16 channels.
    in_panels : bool
        Of columns first along channels: weights are read as they were given while a box is computed, in their own
        order.
    """

    def __init__(
        self, geometry, layout, str level, bint double, bint plain, bint along_channels, bint columns_first,
        Py_ssize_t block, Py_ssize_t vectors, int pieces, bint words, bint in_panels
    ):
        cdef Py_ssize_t b, i, width, offset_w = 0, offset_b = 0, slices = 1
        self.level = find_level(level)
        self.double = double
        self.lanes = self.level.f64.lanes if double else self.level.f32.lanes
        self.most_sums = self.level.f64.most_sums if double else self.level.f32.most_sums
        self.whole_tile = vectors * self.lanes
        self.along_channels = along_channels
        self.columns_first = columns_first
        self.in_panels = in_panels
        self.pieces = pieces
        self.words = words
        self.guarded = pieces or words
        self.halves = &self.level.tiles.halves if self.guarded else &self.level.halves
        self.axes = layout.axes
        self.steps = np.array(layout.steps, dtype=np.int64)
        self.n_axes = self.axes.shape[0]
        self.run_axis, self.image_runs = layout.run_axis, layout.image_runs
        self.chain, self.chains = layout.chain, layout.chains
        if pieces and not along_channels and not columns_first and layout.run_axis:
            raise ValueError("layout: tiles of positions want one run, from place 0 on")
        self.input_elements = layout.input_elements
        self.group = geometry.group
        self.in_channels = geometry.in_channels // geometry.group
        self.out_channels = geometry.out_channels // geometry.group
        self.kernel = int(np.prod([axis.kernel for axis in geometry.axes], dtype=np.int64))
        self.block = block
        self.blocks = (self.out_channels + block - 1) // block
        self.stream_bytes = self.level.stream_bytes if plain else self.level.tiles.stream_bytes
        if self.in_channels == 1 and is_amd():
            self.stream_bytes = max(self.stream_bytes, ONE_CHANNEL_STREAM)
        self.depth = self.in_channels
        self.unit = 1
        if pieces:
            self.most_sums = self.level.tiles.most_sums
            self.unit = self.level.tiles.unit
            self.channel_pairs = (self.in_channels + 1) // 2
            self.depth = (self.in_channels + TILE_CHANNELS - 1) // TILE_CHANNELS * TILE_CHANNELS // 2 * pieces
        if words:
            self.depth = (self.in_channels + 1) // 2
        if along_channels:
            # An odd number of vectors: the rows of a tile should not meet in few sets of the cache.
            self.x_step = ((self.depth - 1) // self.lanes + 1 | 1) * self.lanes
        else:
            # An odd number of vectors: steps near a multiple of 4 KB would meet in few sets of the caches.
            self.line = ((self.input_elements - 1) // self.lanes + 1 + self.slack() | 1) * self.lanes
            # What a tile reads past a channel's input may be the next one's, as it goes nowhere.
            self.x_step = ((self.input_elements - 1) // self.lanes + 1 | 1) * self.lanes
            if pieces:
                self.x_step = (self.packed_pairs() * pieces | 1) * self.lanes
        item = sizeof(double) if double else sizeof(float)
        if along_channels and not columns_first and not pieces:
            slices += layout.most_taps * self.in_channels * self.whole_tile * item // SLICE_BYTES
        self.gap = 1
        if along_channels and not (columns_first or pieces or layout.image_runs):
            self.gap = layout.gap
        self.slice = ((self.in_channels - 1) // slices // TILE_CHANNELS + 1) * TILE_CHANNELS
        width = 2 * self.lanes
        rows = max(1, self.depth) if pieces else GIVEN_CHANNELS
        panel_bytes = PANEL_BYTES if self.most_sums >= MANY_SUMS else FEW_REGISTERS_PANEL_BYTES
        self.panel = max(1, panel_bytes // (rows * width * item)) * width
        self.panel = min(self.panel, (block * self.kernel + width - 1) // width * width)
        self.place_step = self.x_step * self.steps[self.n_axes - 1]
        classes = layout.classes
        self.most_rows = min(MAX_ROWS, self.most_sums // 2)  # as many as leave registers for two vectors each
        self.together = 2
        if pieces:
            self.one_pass = not along_channels and not columns_first and tiles_in_one_pass(layout, block)
        elif not along_channels and not columns_first:
            one_pass = vectors_in_one_pass(geometry, layout, block, level, double, plain, words)
            self.one_pass, self.pairs, self.shares_loads, self.strips, self.joins_rows = one_pass
        if self.shares_loads:
            self.most_rows = MAX_SHARED_ROWS if self.most_sums >= MANY_SUMS else MAX_SHARED_ROWS // 2
            classes = classes_sharing_loads(classes, layout.axes[self.n_axes - 1, STRIDE], self.most_rows)
            self.together = len(classes[0].places)
            self.most_rows = max(1, self.most_rows // self.together) * self.together
            self.runs = np.array([run for c in classes for run in runs_of_lines(c.shifts)], dtype=np.uint8)
            self.users = np.array(
                [
                    sum((c.kernel[row % self.together][t] >= 0) << row for row in range(MAX_ROWS))
                    for c in classes
                    for t in range(len(c.shifts))
                ],
                dtype=np.uint8,
            )
        origin, steps = layout.axes[1:, ORIGIN], np.array(layout.steps[1:])
        scale = self.x_step if along_channels else 1
        self.classes = ClassList(classes, origin, steps, scale, layout.gap)
        self.products = self.classes
        if columns_first:
            every = TapClass(
                tuple(range(self.kernel)), (tuple(origin),), tuple((k,) for k in range(self.kernel))
            )
            self.products = ClassList([every], origin, steps, scale, 0)
        if columns_first and not along_channels:
            kept = np.zeros(self.kernel, dtype=np.int64)
            for c in classes:
                for row in c.kernel:
                    kept[list(row)] = [layout.axes[1, REACH] - shift[0] for shift in c.shifts]
            self.kept = kept * layout.steps[1]
        self.places = sum(len(c.places) for c in classes)
        self.list_size = max(self.places, layout.most_taps, 1)
        self.inner_places = layout.axes[self.n_axes - 1, STRIDE]
        self.along_places = along_channels and block == 1 and self.inner_places >= self.lanes
        if self.pairs and (self.in_channels <= PAIRS_CHANNELS or self.most_sums < MANY_SUMS):
            self.most_rows //= 2  # of each class, the sums of both in registers
        if self.one_pass and self.inner_places == 4 and not pieces:
            self.together = 4
            self.most_rows = self.most_rows // 4 * 4
        if self.one_pass and not pieces:
            self.size_strips()
        self.place_of_index = np.array([place for c in classes for place in c.places] or [0], dtype=np.int64)
        of_place = np.empty((2, self.places), dtype=np.int64)
        for i, c in enumerate(classes):
            of_place[0, list(c.places)] = i
            of_place[1, list(c.places)] = np.arange(len(c.places))
        self.class_of_place, self.index_of_place = of_place
        weight_offset = np.empty((self.blocks, self.products.n), dtype=np.int64)
        bias_offset = np.empty((self.blocks, self.products.n), dtype=np.int64)
        for b in range(self.blocks):
            for i in range(self.products.n):
                weight_offset[b, i] = offset_w
                width = self.padded(self.columns(self.products, b, i))
                offset_w += width * self.products.taps(i) * self.depth
                # Along channels the bias is added to outputs, otherwise to columns or, of columns first, to their sums.
                bias_offset[b, i] = b * block if along_channels else offset_b
                offset_b += width + (self.block_width(b) if columns_first else 0)
        self.weight_offset, self.bias_offset = weight_offset, bias_offset
        self.group_weights = 0 if in_panels else offset_w
        self.group_biases = self.out_channels if along_channels else offset_b
        self.positions = self.count_positions()
        self.input_size, self.panel_size = self.count_input(), self.count_panel()
        self.sums_size, self.products_size = self.count_sums(), self.count_products()

    @property
    def packed_elements(self):
        """Elements of the packed weights and of the packed bias, of which whole vectors are read."""
        return self.group * self.group_weights, self.group * self.group_biases + MAX_LANES

    @property
    def packing_digest(self):
        """Equal for tables of one layer that read the same packed weights."""
        digest = blake2b(digest_size=16)
        digest.update(np.asarray(self.products.first_tap).tobytes())
        digest.update(np.asarray(self.products.first_place).tobytes())
        digest.update(np.asarray(self.products.kernel_index).tobytes())
        digest.update(bytes([self.most_rows, self.together, self.whole_tile // self.lanes]))
        digest.update(self.slice.to_bytes(8, "little"))
        return digest.digest()

    @property
    def weight_blocks(self):
        """Blocks of output channels in a group."""
        return self.blocks

    @property
    def workspace(self):
        """Scratch bytes per thread."""
        return (
            (self.input_size + self.panel_size + self.sums_size + self.products_size)
            * (sizeof(double) if self.double else sizeof(float))
            + MAX_LANES * MAX_LANES * sizeof(double)
            + self.list_size * (sizeof(void *) + sizeof(Py_ssize_t))
            + 6 * CACHE_LINE
        )

    cdef Py_ssize_t block_width(self, Py_ssize_t block) noexcept nogil:
        return min(self.block, self.out_channels - block * self.block)

    cdef Py_ssize_t columns(self, ClassList classes, Py_ssize_t block, Py_ssize_t i) noexcept nogil:
        """Output channels times places of class i: the columns of its matrix product."""
        return self.block_width(block) * classes.places(i)

    cdef Py_ssize_t tile_width(self, Py_ssize_t left) noexcept nogil:
        """Columns of the next register tile when `left` are left, its padding included."""
        if self.along_channels or self.pieces:
            return min(self.whole_tile, self.padded(left))
        return row_tile(left, self.most_rows, self.together)

    cdef Py_ssize_t tile_positions(self, Py_ssize_t width) noexcept nogil:
        """Most positions of a tile of so many columns, lanes along channels."""
        return self.most_sums // 2 if self.unit > 1 else self.most_sums * self.lanes // width

    cdef Py_ssize_t padded(self, Py_ssize_t n) noexcept nogil:
        """Columns `n` with the padding of their tiles."""
        return (n + self.lanes - 1) // self.lanes * self.lanes if self.along_channels or self.pieces else n

    cdef Py_ssize_t sums_step(self, Py_ssize_t n) noexcept nogil:
        """Elements from the sums of `n` columns of a position to those of the next, lanes along channels: those that
        lie whole kilobytes apart would meet in few sets of the caches."""
        cdef Py_ssize_t step = self.padded(n), item = sizeof(double) if self.double else sizeof(float)
        return step + self.lanes if self.along_channels and step * item % SETS_BYTES == 0 else step

    cdef Py_ssize_t count_positions(self):
        """Positions of a full box's sums; with lanes along positions also the step from one column to the next."""
        cdef Py_ssize_t a, length = self.axes[0, BOX] if self.image_runs else 1, runs = 1
        for a in range(self.image_runs, self.n_axes):
            if a < self.run_axis:
                runs *= self.axes[a, BOX]
            else:
                length += (self.axes[a, BOX] - 1) * self.steps[a]
        length *= runs
        if self.along_channels:
            return length
        return ((length - 1) // self.lanes + 1 + self.slack() | 1) * self.lanes

    cdef Py_ssize_t slack(self) noexcept nogil:
        """Vectors that kernels may read and write past the positions of a line; tile registers only fill the last."""
        return SLACK if not self.pieces or self.columns_first else 0

    cdef void size_strips(self):
        """Vectors of positions that are multiplied in one pass by one tile of a block and then by the next."""
        cdef Py_ssize_t columns = self.columns(self.classes, 0, 0), rows = self.tile_width(columns)
        cdef Py_ssize_t together = 2 if self.pairs and rows <= MAX_ROWS // 2 else 1
        cdef Py_ssize_t width = min(SLACK, self.most_sums // (rows * together))
        cdef Py_ssize_t item = sizeof(double) if self.double else sizeof(float)
        cdef Py_ssize_t vector_bytes = max(1, self.depth * self.lanes * item)
        self.tile_vectors = width
        self.near = self.chunk_vectors = max(CHUNK, CHUNK_VECTORS // max(1, self.depth))
        if rows < columns or self.classes.n > (2 if self.pairs else 1):
            # Whole tiles wide, however many channels.
            self.near = min(self.near, max(1, NEAR_BYTES // vector_bytes // width) * width)

    cdef Py_ssize_t more_positions(self) noexcept nogil:
        """Positions beyond a box's that tiles read and write; along positions lines are padded for them."""
        return self.unit - 1 if self.along_channels else 0

    cdef Py_ssize_t packed_pairs(self) noexcept nogil:
        """Pairs of input channels that are packed, with lanes along positions: tile registers want whole ones."""
        return self.channel_pairs if self.unit == 1 else self.depth // self.pieces

    cdef Py_ssize_t count_input(self):
        """Elements of a packed box of input."""
        if not self.along_channels:
            if not self.pieces:
                places = self.x_step
                if self.strips:  # every row is padded to whole vectors
                    rows = int(np.prod([self.axes[a, BOX] for a in range(self.n_axes - 1)]))
                    places = max(places, rows * ((self.axes[self.n_axes - 1, BOX] - 1) // self.lanes + 1) * self.lanes)
                return self.depth * places + SLACK * self.lanes
            return (self.input_elements + self.lanes - 1) // self.lanes * self.x_step
        return (self.input_elements + self.more_positions()) * self.x_step

    cdef Py_ssize_t count_sums(self):
        """Elements of a block's sums; block 0 is as wide as any."""
        cdef Py_ssize_t i, width = 0
        for i in range(self.classes.n):
            width += self.sums_step(self.columns(self.classes, 0, i))
        return width * (self.positions + self.more_positions()) + SLACK * self.lanes

    cdef Py_ssize_t count_products(self):
        """Elements of a block's products at every place of the packed input, where these are made first."""
        cdef Py_ssize_t n = self.padded(self.columns(self.products, 0, 0))
        if not self.columns_first:
            return 0
        if not self.along_channels:
            return n * self.line + SLACK * self.lanes
        if self.in_panels:
            return n * (self.input_elements + self.more_positions() + 1) + self.lanes
        return n * (self.input_elements + self.more_positions())

    cdef Py_ssize_t count_panel(self):
        """Elements of a panel of weights, packed for tile registers, and of what is read of it at once, widened."""
        cdef Py_ssize_t rows = self.depth + TILE_CHANNELS if self.pieces else GIVEN_CHANNELS
        return rows * self.panel if self.in_panels else 0

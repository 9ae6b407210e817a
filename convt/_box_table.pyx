"""A box layout and the kernels of a level, as the loops over boxes and weights read them."""

cimport cython

from hashlib import blake2b

import numpy as np

from convt._levels cimport (
    CACHE_LINE, CHAIN, MANY_SUMS, MAX_ROWS, MOST_TILE_VECTORS, MOST_TURNED, ONE_CLASS, PAGE, PIECE_STEP, SET_STEP,
    SHARED_LOADS, TILE_CHANNELS, TWO_CLASSES, TWO_CLASSES_CHANNELS, find_level, out_vectors, tap_class_t, tap_t,
    tile_vectors,
)

from convt._levels import lines_stream_bytes, sets_wait
from convt.dtypes import ITEMSIZE
from convt.shared_loads import MAX_SHARED_ROWS, classes_sharing_loads, runs_of_lines, taps_of_pair
from convt.tiling import TapClass, taps_of_row


TOGETHER = 2  # rows of a tile, unless more make a cell


cpdef Py_ssize_t row_tile(Py_ssize_t left, Py_ssize_t most, Py_ssize_t together) noexcept nogil:
    """Rows of the next tile with lanes along positions when `left` are left, in whole numbers of `together` while those
    and `most` are."""
    cdef Py_ssize_t tiles = (left + most - 1) // most
    cdef Py_ssize_t rows = (left + tiles - 1) // tiles, whole = (rows + together - 1) // together * together
    return whole if left % together == 0 and whole <= most else rows


cdef enum:
    FAR_PAGE = 1 << 16  # what is so many bytes apart, or a multiple, meets in few sets of a second-level cache
    MANY_COLUMNS = 64  # of columns first, whose tiles each read all channels again


cpdef bint columns_gain_in_place(
    Py_ssize_t columns, Py_ssize_t rows, Py_ssize_t sums, Py_ssize_t channel_bytes
) noexcept nogil:
    """Whether so many columns first, lanes along positions in tiles of so many rows and vectors of sums, gain where x
    lies, its channels so many bytes apart: 0.65 to 1.0 of the time (13 layers).

    Not in the tiles of few registers where channels meet in one set of the first-level cache (1.1 to 2.3 times), nor in
    many tiles where they meet in few sets of the second-level one: 56 to 128 channels to 1 and 3, kernels 5 and 9, took
    0.79 to 0.96 of the time packed, up to 64 columns 0.93 to 1.4 times as long (Xeon with AMX).
    """
    if sums >= MANY_SUMS:
        return columns <= MANY_COLUMNS or channel_bytes % FAR_PAGE > 0
    return columns <= rows or channel_bytes % PAGE > 0


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
        # Of single taps whole chains, which native weights have as well.
        self.chain = np.maximum(CHAIN // np.maximum(np.diff(self.first_tap), 1), 1)
        self.row_taps = np.array([taps_of_row(c.shifts, gap) for c in classes], dtype=np.int64)
        self.tap_offset = ((shifts - origin) @ steps * scale).astype(np.intp)
        self.whole_taps = np.stack([self.tap_offset, np.zeros_like(self.tap_offset)], axis=1)

    cdef Py_ssize_t taps(self, Py_ssize_t i) noexcept nogil:
        return self.first_tap[i + 1] - self.first_tap[i]

    cdef const tap_t *as_taps(self, Py_ssize_t i) noexcept nogil:
        """The taps of class i, wherever they read."""
        return <const tap_t *> &self.whole_taps[self.first_tap[i], 0]

    cdef Py_ssize_t places(self, Py_ssize_t i) noexcept nogil:
        return self.first_place[i + 1] - self.first_place[i]


cdef inline void *carve(size_t *memory, size_t size) noexcept nogil:
    """The next `size` bytes, in whole cache lines."""
    cdef size_t part = memory[0]
    memory[0] += (size + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
    return <void *> part


@cython.final
cdef class BoxTable:
    """A box layout as the loops read it, with the channels of a group cut into blocks.

    Parameters
    ----------
    work : convt.work.Work
    """

    def __init__(self, work):
        # Each step reads what those before it set; `set_portions` changes the x_step that taps' offsets are made by.
        layout = work.layout
        self.set_work(work)
        self.set_layout(layout)
        self.set_steps()
        self.set_slices(layout)
        classes = self.set_one_pass(work.one_pass, layout)
        self.list_classes(classes, layout)
        if self.in_portions:
            self.set_portions()
            self.widest_tile, self.least_line = work.widest_tile, work.least_line
        if self.one_pass and not self.pieces:
            self.count_output_tiles()
            self.size_strips()
            self.border_lines = 1 if layout.rows_fill_tiles(work.limits) else self.one_pass_vectors
        self.list_offsets()
        self.size_scratch(ITEMSIZE[work.dtype] == 2)

    cdef set_work(self, work):
        """Path, channels, and the level and its tiles."""
        geometry, path = work.geometry, work.path
        self.level = find_level(work.isa)
        self.double = work.dtype == "float64"
        self.item = sizeof(double) if self.double else sizeof(float)
        self.along_channels, self.columns_first = path.along_channels, path.columns_first
        self.along_groups = path.along_groups
        self.pieces = work.pieces if path.tiles else 0
        self.in_panels = work.in_panels
        self.by_rows, self.tile_height = path.by_rows, work.tile_height
        self.words = path.words
        self.guarded = path.in_pieces
        self.along_places = work.along_places
        self.in_portions = self.columns_first and not (self.along_channels or self.pieces)
        self.group = geometry.group
        self.tap_channels, self.place_channels = work.tap_channels, work.geometry.group_inputs
        self.merged_kernel = np.array(work.merged.kernel, dtype=np.int64).T.copy() if work.merged else None
        self.input_chunks = (self.tap_channels + TILE_CHANNELS - 1) // TILE_CHANNELS
        self.packed_pairs = work.limits.pairs_of(self.tap_channels, self.along_channels) if self.pieces else 0
        self.group_outputs = geometry.group_outputs
        self.kernel = work.kernel
        self.block, self.blocks = work.block, work.blocks
        self.lanes, self.most_sums, self.unit = work.limits.lanes, work.limits.sums, work.limits.unit
        self.half_tile = work.limits.half_tile if path.along_channels else 0
        self.whole_tile = work.vectors * self.lanes
        self.most_rows, self.together = work.limits.rows, TOGETHER
        self.halves = &self.level.tiles.halves if self.guarded else self.level.halves
        self.stream_bytes = work.stream_bytes
        self.lines_stream_bytes = lines_stream_bytes(work.row_bytes)
        self.sets_wait = sets_wait()

    cdef set_layout(self, layout):
        """Axes, and what boxes and runs are."""
        self.axes = np.array(layout.axes, dtype=np.int64)
        self.steps = np.array(layout.steps, dtype=np.int64)
        self.n_axes = self.axes.shape[0]
        self.run_axis, self.image_runs = layout.run_axis, layout.image_runs
        self.chain, self.chains = layout.chain, layout.chains
        if self.pieces and not self.along_channels and not self.columns_first and layout.run_axis:
            raise ValueError("layout: tiles of positions want one run, from place 0 on")
        self.input_elements, self.positions = layout.input_elements, layout.runs * layout.run_length
        self.inner_places = self.axes[self.n_axes - 1, PLACES]
        self.gap = 1
        if self.along_channels and not (self.columns_first or self.pieces or layout.image_runs):
            self.gap = layout.gap
        self.row_runs = self.along_channels and not (self.columns_first or self.along_groups)
        self.row_runs = self.row_runs and self.unit == 1 and layout.rows_are_runs

    cdef set_steps(self):
        """How the packed input lies in memory."""
        cdef Py_ssize_t places
        self.depth = self.tap_channels
        if self.pieces:
            self.channel_pairs = (self.tap_channels + 1) // 2
            self.depth = self.input_chunks * TILE_CHANNELS // 2 * self.pieces
        if self.words:
            self.depth = (self.tap_channels + 1) // 2
        self.planes, self.piece_step, self.chunk_step = 1, PIECE_STEP, PIECE_STEP * self.pieces
        if self.merged_kernel is not None:
            self.x_step = self.tap_channels // len(self.merged_kernel) // 2
            self.beyond = (self.input_chunks * TILE_CHANNELS // 2 - 1) // self.x_step
            places = self.input_elements + self.more_positions() + self.beyond
            self.planes, self.chunk_step = self.pieces, PIECE_STEP
            self.piece_step = self.odd_vectors(places * self.x_step, 1)
        elif self.along_channels:
            self.x_step = self.odd_vectors(self.depth, 0)
        else:
            self.product_step = self.odd_vectors(self.input_elements, self.slack())
            self.positions = self.odd_vectors(self.positions, self.slack())
            # What a tile reads past a channel's input may be the next one's, as it goes nowhere.
            self.x_step = self.odd_vectors(self.input_elements, 0)
            if self.pieces:
                self.x_step = (self.packed_pairs * self.pieces | 1) * self.lanes
        self.place_step = self.x_step * self.steps[self.n_axes - 1]

    cdef set_slices(self, layout):
        """Into what the input channels are cut, and the columns of weights that are used once."""
        cdef Py_ssize_t slices = 1, width = 2 * self.lanes, panel_bytes, tile_bytes, unit
        cdef Py_ssize_t rows = max(1, self.depth) if self.pieces else GIVEN_CHANNELS
        whole = self.columns_first or self.by_rows or self.merged_kernel is not None
        whole = whole or (self.pieces and self.unit == 1)  # dot products
        if self.along_channels and not whole:
            tile_bytes = layout.most_taps * self.tap_channels * self.whole_tile
            tile_bytes *= 2 * self.pieces if self.pieces else self.item
            if tile_bytes >= SLICE_BYTES:
                slices = (tile_bytes - 1) // PIECES_SLICE_BYTES + 1 if self.pieces else tile_bytes // SLICE_BYTES + 1
        # Of single taps whole chains, which native weights, of which nothing is sliced, have as well.
        unit = CHAIN if layout.most_taps == 1 and not self.pieces else TILE_CHANNELS
        self.slice = ((self.tap_channels - 1) // slices // unit + 1) * unit
        panel_bytes = PANEL_BYTES if self.most_sums >= MANY_SUMS else FEW_REGISTERS_PANEL_BYTES
        self.panel = max(1, panel_bytes // (rows * width * self.item)) * width
        self.panel = min(self.panel, (self.block * self.kernel + width - 1) // width * width)

    cdef set_one_pass(self, one_pass, layout):
        """Rows of tiles whose sums are written as outputs. Returns the classes of places, cut for these tiles."""
        classes = layout.classes
        self.one_pass, self.strips = one_pass.possible, one_pass.strips
        self.joins_rows, self.rows_are_vectors = one_pass.joins_rows, one_pass.rows_are_vectors
        self.shares_loads, self.leaves_out_taps = one_pass.shares_loads, one_pass.leaves_out_taps
        self.kind = TWO_CLASSES if one_pass.two_classes else SHARED_LOADS if self.shares_loads else ONE_CLASS
        self.tile_classes = 2 if one_pass.two_classes else 1
        if self.joins_rows and self.rows_are_vectors and self.inner_places not in (2, 4):
            raise ValueError(f"one_pass: rows of whole vectors of {self.inner_places} places a cell cannot be joined")
        if one_pass.whole_lines:
            self.most_rows = WHOLE_LINES_ROWS
        if self.shares_loads:
            self.most_rows = MAX_SHARED_ROWS if self.most_sums >= MANY_SUMS else MAX_SHARED_ROWS // 2
            classes = classes_sharing_loads(classes, self.inner_places, self.most_rows)
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
        if one_pass.two_classes and (self.tap_channels <= TWO_CLASSES_CHANNELS or self.most_sums < MANY_SUMS):
            self.most_rows //= 2  # of each class, the sums of both in registers
        if self.one_pass and self.inner_places > 2 and not (self.pieces or self.shares_loads):
            self.together = self.inner_places
            self.most_rows = self.most_rows // self.together * self.together
        return classes

    cdef list_classes(self, classes, layout):
        """Classes and products, the places of classes, and what boxes keep of products."""
        origin, steps = np.array([axis.origin for axis in layout.axes[1:]]), np.array(layout.steps[1:])
        scale = self.x_step if self.along_channels else 1
        self.classes = ClassList(classes, origin, steps, scale, layout.gap)
        self.products = self.classes
        if self.columns_first:
            every = TapClass(
                tuple(range(self.kernel)), (tuple(origin),), tuple((k,) for k in range(self.kernel))
            )
            self.products = ClassList([every], origin, steps, scale, 0)
        if self.columns_first and not self.along_channels:
            kept = np.zeros(self.kernel, dtype=np.int64)
            for c in classes:
                for row in c.kernel:
                    kept[list(row)] = [layout.axes[1].reach - shift[0] for shift in c.shifts]
            self.kept = kept * layout.steps[1]
        self.places = sum(len(c.places) for c in classes)
        self.list_size = max(self.places, layout.most_taps, 1)
        self.place_of_index = np.array([place for c in classes for place in c.places] or [0], dtype=np.int64)
        of_place = np.empty((2, self.places), dtype=np.int64)
        for i, c in enumerate(classes):
            of_place[0, list(c.places)] = i
            of_place[1, list(c.places)] = np.arange(len(c.places))
        self.class_of_place, self.index_of_place = of_place
        if self.by_rows:
            self.list_pairs(classes, origin, steps)

    cdef list_pairs(self, classes, origin, steps):
        """The taps of every two places of a row of outputs, or of one."""
        lists = []
        for row in range(0, self.places, self.inner_places):
            for place in range(row, row + self.inner_places, 2):
                first = second = classes[self.class_of_place[place]]
                if place + 1 < row + self.inner_places:
                    second = classes[self.class_of_place[place + 1]]
                lists.append(taps_of_pair(first.shifts, second.shifts))
        taps = [tap for of_pair in lists for tap in of_pair] or [(tuple(origin), 0)]
        offsets = (np.array([shift for shift, _ in taps]) - origin) @ steps * self.x_step
        self.first_pair_tap = np.cumsum([0] + [len(of_pair) for of_pair in lists], dtype=np.int64)
        self.pair_taps = np.stack([offsets, [users for _, users in taps]], axis=1).astype(np.int64)

    cdef set_portions(self):
        """Whole rows, or whole tiles of a row and no more than that."""
        cdef Py_ssize_t width = self.axes[self.n_axes - 1, PITCH]
        self.portion = min(self.input_elements, PORTION_BYTES // max(1, self.depth * self.item))
        if self.portion >= width:
            self.portion -= self.portion % width
        else:
            self.portion = min(width, self.whole_tiles(self.portion // self.lanes))
        self.x_step = self.odd_vectors(self.portion, 0)
        # Where x is multiplied in place, the last chunk is nearly twice as long as others at most.
        self.joined_step = self.odd_vectors(2 * self.whole_tiles(CHUNK), 0)

    cdef list_offsets(self):
        """Where the weights, bias and sums of blocks and classes lie."""
        cdef Py_ssize_t b, i, width, offset_w = 0, offset_b = 0
        self.weight_offset = np.empty((self.blocks, self.products.n), dtype=np.int64)
        self.bias_offset = np.empty((self.blocks, self.products.n), dtype=np.int64)
        for b in range(self.blocks):
            if self.in_panels:
                offset_w = 0  # each block is packed to where the one before it was
            for i in range(self.products.n):
                self.weight_offset[b, i] = offset_w
                width = self.padded(self.columns(self.products, b, i))
                offset_w += width * self.products.taps(i) * self.depth
                # Along channels the bias is added to outputs, otherwise to columns or, of columns first, to their sums.
                self.bias_offset[b, i] = b * self.block if self.along_channels else offset_b
                offset_b += width + (self.block_width(b) if self.columns_first else 0)
            self.block_weights = max(self.block_weights, offset_w)
        self.sums_before = np.zeros((self.blocks, self.classes.n + 1), dtype=np.int64)
        for b in range(self.blocks):
            for i in range(self.classes.n):
                self.sums_before[b, i + 1] = self.sums_before[b, i] + self.sums_step(self.columns(self.classes, b, i))
        self.group_weights = 0 if self.in_panels else offset_w
        self.group_biases = self.group_outputs if self.along_channels else offset_b

    cdef size_scratch(self, bint halves):
        """What boxes of elements, which are `halves` or not, need."""
        cdef Py_ssize_t columns = self.block * self.kernel
        self.wide_size = columns + MAX_LANES if halves else 0
        self.turned_size = columns * TURNED_CHANNELS if self.pieces and self.kernel <= MOST_TURNED else 0
        self.groups_together = 1
        if self.shares_loads:
            self.groups_together = max(1, GROUPS_BYTES // (self.x_step * self.item))
        self.input_size, self.panel_size = self.count_input(), self.count_panel()
        self.sums_size, self.products_size = self.count_sums(), self.count_products()
        cdef Scratch parts
        self.workspace = self.lay_out(0, &parts)

    cdef size_t lay_out(self, size_t memory, Scratch *scratch) noexcept nogil:
        """The parts of a thread's memory, which begins with a cache line. Returns the place behind them."""
        scratch.input = carve(&memory, self.input_size * self.item)
        scratch.panel = carve(&memory, self.panel_size * self.item)
        scratch.products = carve(&memory, self.products_size * self.item)
        scratch.sums = carve(&memory, self.sums_size * self.item)
        scratch.square = carve(&memory, MAX_LANES * MAX_LANES * self.item)
        scratch.rows = <const void **> carve(&memory, self.list_size * sizeof(void *))
        scratch.steps = <Py_ssize_t *> carve(&memory, self.list_size * sizeof(Py_ssize_t))
        scratch.run_taps = <tap_t *> carve(&memory, self.list_size * sizeof(tap_t))
        scratch.tile_taps = <tap_t *> carve(&memory, self.list_size * sizeof(tap_t))
        return memory

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
        if self.merged_kernel is not None:
            digest.update(self.merged_kernel.tobytes())
        return digest.digest()

    cdef Py_ssize_t block_width(self, Py_ssize_t block) noexcept nogil:
        return min(self.block, self.group_outputs - block * self.block)

    cdef Py_ssize_t columns(self, ClassList classes, Py_ssize_t block, Py_ssize_t i) noexcept nogil:
        """Output channels times places of class i: the columns of its matrix product."""
        return self.block_width(block) * classes.places(i)

    cdef void set_tap_class(
        self, ClassList classes, Py_ssize_t block, Py_ssize_t i, Py_ssize_t done, const void *weights,
        const void *bias, tap_class_t *of,
    ) noexcept nogil:
        """Class i of a block for a tile with lanes along positions, from its column number `done` on. `weights` and
        `bias` are those of a group.

        Returned as a value it would be copied by vectors, which wait for all stores of the tile before: compressai_out3
        took 1.1 times as long (float32, AMX).
        """
        cdef Py_ssize_t first = classes.first_tap[i]
        of.taps, of.chain = classes.taps(i), classes.chain[i]
        of.tap_offset = &classes.tap_offset[0] + first
        of.w = <const char *> weights + (self.weight_offset[block, i] + done * of.taps * self.depth) * self.item
        of.bias = <const char *> bias + (self.bias_offset[block, i] + done) * self.item
        of.users = of.runs = NULL
        if self.shares_loads:
            of.users, of.runs = &self.users[0] + first, &self.runs[0] + first

    cdef Py_ssize_t tile_width(self, Py_ssize_t left) noexcept nogil:
        """Columns of the next register tile when `left` are left, its padding included."""
        cdef Py_ssize_t whole = left // self.lanes * self.lanes
        if self.along_channels or self.pieces:
            if 0 < whole < min(left, self.whole_tile) and left - whole <= self.half_tile:
                return whole  # and half a vector then
            return min(self.whole_tile, self.padded(left))
        return row_tile(left, self.most_rows, self.together)

    cdef Py_ssize_t whole_tiles(self, Py_ssize_t vectors) noexcept nogil:
        """Positions of about so many vectors, lanes along these: whole tiles of the first columns."""
        cdef Py_ssize_t of_tile = tile_vectors(self.most_sums, self.tile_width(self.columns(self.products, 0, 0)))
        return max(1, (vectors + of_tile - 1) // of_tile) * of_tile * self.lanes

    cdef Py_ssize_t tile_positions(self, Py_ssize_t width) noexcept nogil:
        """Most positions of a tile of so many columns, lanes along channels."""
        return self.most_sums // 2 if self.unit > 1 else self.most_sums * self.lanes // width

    cdef Py_ssize_t padded(self, Py_ssize_t n) noexcept nogil:
        """Columns `n` with the padding of their tiles."""
        return (n + self.lanes - 1) // self.lanes * self.lanes if self.along_channels or self.pieces else n

    cdef Py_ssize_t sums_step(self, Py_ssize_t n) noexcept nogil:
        """Elements from the sums of `n` columns of a position to those of the next, lanes along channels: those that
        lie whole kilobytes apart would meet in few sets of the caches."""
        cdef Py_ssize_t step = self.padded(n)
        return step + self.lanes if self.along_channels and step * self.item % SET_STEP == 0 else step

    cdef Py_ssize_t odd_vectors(self, Py_ssize_t n, Py_ssize_t more) noexcept nogil:
        """Elements of the vectors that hold `n` and of some more, in an odd number: steps near a multiple of 4 KB would
        meet in few sets of the caches."""
        return ((n - 1) // self.lanes + 1 + more | 1) * self.lanes

    cdef Py_ssize_t slack(self) noexcept nogil:
        """Vectors that kernels may read and write past the positions of a line; tile registers only fill the last."""
        return MOST_TILE_VECTORS if not self.pieces or self.columns_first else 0

    cdef count_output_tiles(self):
        """See that there is room for the tiles of a block, as `list_outputs` of _box_one_pass lists them; block 0 has
        as many as any."""
        cdef Py_ssize_t i, left, tiles = 0
        for i from 0 <= i < self.classes.n by self.tile_classes:
            left = self.columns(self.classes, 0, i)
            while left > 0:
                left -= self.tile_width(left)
                tiles += 1
        if tiles > MOST_OUTPUT_TILES:
            raise ValueError(f"work: expected at most {MOST_OUTPUT_TILES} tiles of a block in one pass, got {tiles}")

    cdef void size_strips(self):
        """Vectors of positions that are multiplied in one pass by one tile of a block and then by the next."""
        cdef Py_ssize_t columns = self.columns(self.classes, 0, 0), rows = self.tile_width(columns)
        cdef Py_ssize_t places = 1 if self.shares_loads else self.inner_places
        cdef Py_ssize_t width = out_vectors(self.most_sums, rows, self.kind, places)
        cdef Py_ssize_t vector_bytes = max(1, self.depth * self.lanes * self.item)
        self.one_pass_vectors = width
        self.strip_vectors = self.chunk_vectors = max(CHUNK, CHUNK_VECTORS // max(1, self.depth))
        if rows < columns or self.classes.n > self.tile_classes:
            # Whole tiles wide, however many channels.
            self.strip_vectors = min(self.strip_vectors, max(1, NEAR_BYTES // vector_bytes // width) * width)

    cdef Py_ssize_t more_positions(self) noexcept nogil:
        """Positions beyond a box's that tiles read and write; along positions lines are padded for them."""
        return self.unit - 1 if self.along_channels else 0

    cdef Py_ssize_t count_input(self):
        """Elements of a packed box of input, that of all groups that are computed together."""
        if not self.along_channels:
            if self.in_portions:
                columns = self.columns(self.products, 0, 0)
                return self.depth * self.x_step + columns * self.joined_step + MOST_TILE_VECTORS * self.lanes
            if not self.pieces:
                places = self.x_step
                if self.strips:  # every row is padded to whole vectors
                    rows = int(np.prod([self.axes[a, BOX] for a in range(self.n_axes - 1)]))
                    places = max(places, rows * ((self.axes[self.n_axes - 1, BOX] - 1) // self.lanes + 1) * self.lanes)
                return self.groups_together * self.depth * places + MOST_TILE_VECTORS * self.lanes
            return (self.input_elements + self.lanes - 1) // self.lanes * self.x_step
        if self.merged_kernel is not None:
            return self.planes * self.piece_step
        return (self.input_elements + self.more_positions()) * self.x_step

    cdef Py_ssize_t count_sums(self):
        """Elements of a block's sums; block 0 is as wide as any."""
        cdef Py_ssize_t width = 0 if self.by_rows else self.sums_before[0, self.classes.n]
        return width * (self.positions + self.more_positions()) + MOST_TILE_VECTORS * self.lanes

    cdef Py_ssize_t count_products(self):
        """Elements of a block's products at every place of the packed input, where these are made first."""
        cdef Py_ssize_t n = self.padded(self.columns(self.products, 0, 0))
        if not self.columns_first:
            return 0
        if not self.along_channels:
            return n * self.product_step + MOST_TILE_VECTORS * self.lanes
        if self.in_panels:
            return n * (self.input_elements + self.more_positions() + 1) + self.lanes
        return n * (self.input_elements + self.more_positions())

    cdef Py_ssize_t count_panel(self):
        """Elements of a panel of weights, packed if it is not multiplied as given, and of what that needs."""
        cdef Py_ssize_t rows = self.depth + TILE_CHANNELS if self.pieces else GIVEN_CHANNELS
        if not self.in_panels:
            return 0
        if self.columns_first and self.tap_channels > CHAIN and not self.pieces:
            rows += self.input_elements  # whose chains behind the first are summed there
        return rows * self.panel if self.columns_first else self.block_weights + self.wide_size + self.turned_size

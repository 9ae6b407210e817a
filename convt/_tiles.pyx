# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The vectorised levels: boxes of cells, packed, multiplied by micro-kernels and stored.

`convt.tiling` explains cells, classes, boxes and runs. A task is a box, a group and a range of output channels:

1. pack the box's input, zeros around it, so that every cell of a run has its taps at the same offsets;
2. for each block of channels and each class, call the micro-kernel along the runs: its sums go to a scratch that
   stays in cache, one chain of fused multiply-adds per output;
3. write the block's output rows once, places interleaved, rounded to the storage type.

Lanes lie along output channels (input packed position by position, sums transposed on their way out) or along
positions (input packed channel by channel) where output channels are few. The order of a sum depends on neither
boxes nor threads.
"""

cimport cython
cimport numpy as cnp
from cython.parallel cimport prange, threadid
from libc.math cimport ldexp
from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from convt._elements cimport BFLOAT16, DType, FLOAT32, FLOAT64, read, write

from hashlib import blake2b

import numpy as np

from convt.arrays import empty_aligned
from convt.geometry import DTYPES
from convt.tiling import TapClass

cnp.import_array()

cdef extern from "kernels.h" nogil:
    ctypedef struct kernels_f32 "convt_kernels_f32":
        int lanes
        int max_positions
        void (*channels)(
            int, int, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, const float *, Py_ssize_t,
            const float *, const float *, Py_ssize_t, const float *, float *, Py_ssize_t
        ) noexcept nogil
        void (*positions)(
            int, Py_ssize_t, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, const float *, Py_ssize_t,
            const float *, const float *, float *, Py_ssize_t
        ) noexcept nogil
        void (*transpose)(const float **, Py_ssize_t, float *, Py_ssize_t, bint) noexcept nogil
        void (*accumulate)(Py_ssize_t, Py_ssize_t, const float **, float, float *) noexcept nogil
        void (*add_rows)(Py_ssize_t, Py_ssize_t, const float *, Py_ssize_t, float *, Py_ssize_t) noexcept nogil
        void (*interleave)(Py_ssize_t, Py_ssize_t, const float **, float *, bint) noexcept nogil
        void (*drain)() noexcept nogil
        void (*lines)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const char *, Py_ssize_t, float *, Py_ssize_t
        ) noexcept nogil
        bint (*finite)(const float *, Py_ssize_t) noexcept nogil
    ctypedef struct kernels_f64 "convt_kernels_f64":
        int lanes
        int max_positions
        void (*channels)(
            int, int, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, const double *, Py_ssize_t,
            const double *, const double *, Py_ssize_t, const double *, double *, Py_ssize_t
        ) noexcept nogil
        void (*positions)(
            int, Py_ssize_t, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, const double *, Py_ssize_t,
            const double *, const double *, double *, Py_ssize_t
        ) noexcept nogil
        void (*transpose)(const double **, Py_ssize_t, double *, Py_ssize_t, bint) noexcept nogil
        void (*accumulate)(Py_ssize_t, Py_ssize_t, const double **, double, double *) noexcept nogil
        void (*add_rows)(Py_ssize_t, Py_ssize_t, const double *, Py_ssize_t, double *, Py_ssize_t) noexcept nogil
        void (*interleave)(Py_ssize_t, Py_ssize_t, const double **, double *, bint) noexcept nogil
        void (*drain)() noexcept nogil
        void (*lines)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const char *, Py_ssize_t, double *, Py_ssize_t
        ) noexcept nogil
        bint (*finite)(const double *, Py_ssize_t) noexcept nogil
    ctypedef struct halves_t "convt_halves":
        void (*widen)(bint, const uint16_t *, Py_ssize_t, float *) noexcept nogil
        void (*narrow)(bint, const float *, Py_ssize_t, uint16_t *) noexcept nogil
        void (*interleave_narrow)(bint, Py_ssize_t, Py_ssize_t, const float **, uint16_t *) noexcept nogil
        void (*transpose_narrow)(
            bint, const float **, Py_ssize_t, uint16_t *, Py_ssize_t
        ) noexcept nogil
    ctypedef struct tiles_t "convt_tiles":
        void (*configure)() noexcept nogil
        void (*release)() noexcept nogil
        void (*channels)(
            int, int, int, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, const float *, Py_ssize_t,
            const float *, const float *, Py_ssize_t, const float *, float *, Py_ssize_t
        ) noexcept nogil
        void (*positions)(
            int, int, Py_ssize_t, Py_ssize_t, const Py_ssize_t *, Py_ssize_t, const float *, Py_ssize_t,
            const float *, const float *, float *, Py_ssize_t
        ) noexcept nogil
        bint (*split_channels)(
            int, int, const void **, Py_ssize_t, float *, Py_ssize_t, uint32_t, uint32_t
        ) noexcept nogil
        bint (*split_positions)(
            int, int, const void *, const void *, Py_ssize_t, float *, Py_ssize_t, uint32_t, uint32_t
        ) noexcept nogil
        void (*split_left)(int, const float *, float *, Py_ssize_t) noexcept nogil
        void (*split_right)(int, const float *, Py_ssize_t, float *, Py_ssize_t) noexcept nogil
        void (*magnitudes)(const float *, Py_ssize_t, uint32_t *, uint32_t *) noexcept nogil
    ctypedef struct convt_level:
        const char *name
        int (*runs_here)() noexcept nogil
        kernels_f32 f32
        kernels_f64 f64
        halves_t halves
        tiles_t tiles
    const convt_level convt_levels[]

ctypedef fused real_t:
    float
    double

cdef enum:
    STREAM_BYTES = 1 << 22
    LONG_ROW = 1 << 12
    MAX_AXES = 8
    MAX_LANES = 16
    MAX_LINE = 32  # elements of a cache line
    INTERLEAVED = 512  # floats that wait to be narrowed
    MAX_ROWS = 8  # of a tile with lanes along positions
    SLACK = 8  # vectors that `positions` may read and write past a run
    CHUNK = 12  # vectors of positions; what divides by the widths of most tiles of `positions`
    CACHE_LINE = 64
    TILE_POSITIONS = 32  # that tile registers multiply at once
    TILE_CHANNELS = 32
    MOST_TURNED = 256  # kernel positions of which 32 channels fit the caches
    TILE_FLOATS = 256  # of memory that one tile register holds

cdef enum:
    INPUT, STRIDE, OUTPUT, CELLS, BOX, ORIGIN, REACH, PITCH  # columns of BoxTable.axes


cdef struct Operands:
    DType dtype
    bint plain  # stored in the type that sums are made in
    bint stream  # y is so large that its stores should pass the caches
    uint32_t least, most  # magnitudes of x that tile registers hold in pieces, as the bits of floats
    const char *x
    char *y
    const cnp.npy_intp *x_strides
    const cnp.npy_intp *y_strides


# Where a box begins and how many cells it has, per axis.
cdef struct Box:
    int64_t begin[MAX_AXES]
    int64_t size[MAX_AXES]


def levels():
    """Names of the levels that this build has and this processor runs, least capable first."""
    cdef int i = 0
    found = []
    while convt_levels[i].name != NULL:
        if convt_levels[i].runs_here():
            found.append(convt_levels[i].name.decode())
        i += 1
    return found


def has_tiles(str level):
    """Whether the level has tile registers."""
    return find_level(level).tiles.channels != NULL


def lanes_and_positions(str level, bint double, int pieces):
    """Elements of a vector, and most positions of a tile with lanes along channels."""
    cdef const convt_level *found = find_level(level)
    if pieces:
        return found.f32.lanes, TILE_POSITIONS
    if double:
        return found.f64.lanes, found.f64.max_positions
    return found.f32.lanes, found.f32.max_positions


cdef const convt_level *find_level(str level) except NULL:
    cdef int i = 0
    while convt_levels[i].name != NULL:
        if convt_levels[i].name.decode() == level:
            return &convt_levels[i]
        i += 1
    raise ValueError(f"level: expected one of this build's, got {level!r}")


@cython.final
cdef class ClassList:
    """Tap classes in flat arrays; those of class i lie at [first[i], first[i + 1])."""

    cdef Py_ssize_t n
    cdef int64_t[::1] first_tap, first_place, first_kernel
    cdef int64_t[::1] kernel_index  # [place][tap]
    cdef Py_ssize_t[::1] tap_offset  # from a cell's place in the packed input
    cdef int64_t[:, ::1] shifts  # [tap][spatial axis]

    def __init__(self, classes, origin, steps, Py_ssize_t scale):
        self.n = len(classes)
        self.first_tap = np.cumsum([0] + [len(c.shifts) for c in classes], dtype=np.int64)
        self.first_place = np.cumsum([0] + [len(c.places) for c in classes], dtype=np.int64)
        self.first_kernel = np.cumsum([0] + [len(c.shifts) * len(c.places) for c in classes], dtype=np.int64)
        kernel = [k for c in classes for row in c.kernel for k in row]
        self.kernel_index = np.array(kernel or [0], dtype=np.int64)
        shifts = np.array([shift for c in classes for shift in c.shifts] or [origin], dtype=np.int64)
        self.shifts = shifts
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
    along_channels : bool
        Lanes along output channels; otherwise along positions.
    columns_first : bool
        Multiply every input position by every kernel position first, then add up the products of each place. With
        lanes along positions for few output channels, whose classes would be short of rows; with lanes along
        channels for images so small that the zeros around them would cost more than the additions.
    block : int
        Output channels of a block.
    pieces : int
        bfloat16 pieces that tile registers multiply an element in; 0 for vectors.
    """

    cdef const convt_level *level
    cdef int64_t[:, ::1] axes
    cdef int64_t[::1] steps
    cdef Py_ssize_t n_axes, run_axis, boxes, input_elements
    cdef Py_ssize_t group, in_channels, out_channels, block, blocks
    cdef Py_ssize_t lanes, max_positions, x_step, depth, places, inner_places
    cdef int pieces
    cdef bint along_channels, double, columns_first
    cdef int64_t[::1] class_of_place, index_of_place
    cdef ClassList classes
    cdef ClassList products  # the classes, unless columns_first makes one product of all kernel positions
    cdef int64_t[:, ::1] weight_offset, bias_offset  # [block][product], in elements of one group
    cdef Py_ssize_t group_weights, group_biases, kernel

    def __init__(
        self, geometry, layout, str level, bint double, bint along_channels, bint columns_first, Py_ssize_t block,
        int pieces
    ):
        cdef Py_ssize_t b, i, width, offset_w = 0, offset_b = 0
        self.level = find_level(level)
        self.double = double
        self.lanes = self.level.f64.lanes if double else self.level.f32.lanes
        self.max_positions = self.level.f64.max_positions if double else self.level.f32.max_positions
        self.along_channels = along_channels
        self.axes = layout.axes
        self.steps = np.array(layout.steps, dtype=np.int64)
        self.n_axes = self.axes.shape[0]
        self.run_axis = layout.run_axis
        self.boxes = layout.boxes
        self.input_elements = layout.input_elements
        self.group = geometry.group
        self.in_channels = geometry.in_channels // geometry.group
        self.out_channels = geometry.out_channels // geometry.group
        self.kernel = int(np.prod([axis.kernel for axis in geometry.axes], dtype=np.int64))
        self.block = block
        self.blocks = (self.out_channels + block - 1) // block
        self.pieces = pieces
        self.depth = self.in_channels
        if pieces:
            self.max_positions = TILE_POSITIONS
            self.depth = (self.in_channels + TILE_CHANNELS - 1) // TILE_CHANNELS * TILE_CHANNELS // 2 * pieces
        if along_channels and pieces:
            # An odd number of cache lines: the rows of a tile should not meet in few sets of the cache.
            self.x_step = (self.depth // self.lanes | 1) * self.lanes
        elif along_channels:
            self.x_step = (self.in_channels + self.lanes - 1) // self.lanes * self.lanes
        else:
            # An odd number of vectors: steps near a multiple of 4 KB would meet in few sets of the caches.
            self.x_step = ((self.input_elements - 1) // self.lanes + 1 + SLACK | 1) * self.lanes
        self.columns_first = columns_first
        classes = layout.classes
        origin, steps = layout.axes[1:, ORIGIN], np.array(layout.steps[1:])
        scale = self.x_step if along_channels else 1
        self.classes = ClassList(classes, origin, steps, scale)
        self.products = self.classes
        if columns_first:
            every = TapClass(
                tuple(range(self.kernel)), (tuple(origin),), tuple((k,) for k in range(self.kernel))
            )
            self.products = ClassList([every], origin, steps, scale)
        self.places = sum(len(c.places) for c in classes)
        self.inner_places = layout.axes[self.n_axes - 1, STRIDE]
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
                bias_offset[b, i] = offset_b
                width = self.padded(self.columns(self.products, b, i))
                offset_b += width + (self.block_width(b) if columns_first else 0)
                offset_w += width * self.products.taps(i) * self.depth
        self.weight_offset, self.bias_offset = weight_offset, bias_offset
        self.group_weights, self.group_biases = offset_w, offset_b

    @property
    def packed_elements(self):
        """Elements of the packed weights and of the packed bias."""
        return self.group * self.group_weights, self.group * self.group_biases

    @property
    def packing_digest(self):
        """Equal for tables of one layer that read the same packed weights."""
        digest = blake2b(digest_size=16)
        digest.update(np.asarray(self.products.first_tap).tobytes())
        digest.update(np.asarray(self.products.first_place).tobytes())
        digest.update(np.asarray(self.products.kernel_index).tobytes())
        return digest.digest()

    @property
    def weight_blocks(self):
        """Blocks of output channels in a group."""
        return self.blocks

    @property
    def workspace(self):
        """Scratch bytes per thread."""
        return (
            (self.input_size() + self.sums_size() + self.products_size())
            * (sizeof(double) if self.double else sizeof(float))
            + MAX_LANES * MAX_LANES * sizeof(double)
            + max(self.inner_places, self.kernel) * (sizeof(void *) + sizeof(Py_ssize_t))
            + 5 * CACHE_LINE
        )

    cdef Py_ssize_t block_width(self, Py_ssize_t block) noexcept nogil:
        return min(self.block, self.out_channels - block * self.block)

    cdef Py_ssize_t columns(self, ClassList classes, Py_ssize_t block, Py_ssize_t i) noexcept nogil:
        """Output channels times places of class i: the columns of its matrix product."""
        return self.block_width(block) * classes.places(i)

    cdef Py_ssize_t tile_width(self, Py_ssize_t left) noexcept nogil:
        """Columns of the next register tile when `left` are left, its padding included."""
        cdef Py_ssize_t tiles = (left + MAX_ROWS - 1) // MAX_ROWS
        if self.along_channels or self.pieces:
            return 2 * self.lanes if left > self.lanes else self.lanes
        return (left + tiles - 1) // tiles

    cdef Py_ssize_t padded(self, Py_ssize_t n) noexcept nogil:
        """Columns `n` with the padding of their tiles."""
        return (n + self.lanes - 1) // self.lanes * self.lanes if self.along_channels or self.pieces else n

    cdef Py_ssize_t positions(self) noexcept nogil:
        """Positions of a full box's sums; with lanes along positions also the step from one column to the next."""
        cdef Py_ssize_t a, length = 1, runs = 1
        for a in range(self.n_axes):
            if a < self.run_axis:
                runs *= self.axes[a, BOX]
            else:
                length += (self.axes[a, BOX] - 1) * self.steps[a]
        return runs * length + (0 if self.along_channels else SLACK * self.lanes)

    cdef Py_ssize_t more_positions(self) noexcept nogil:
        """Positions beyond a box's that tile registers read and write."""
        return TILE_POSITIONS - 1 if self.pieces else 0

    cdef Py_ssize_t input_size(self) noexcept nogil:
        """Elements of a packed box of input."""
        if not self.along_channels:
            return self.depth * self.x_step  # places of a channel, or of two in pieces
        return (self.input_elements + self.more_positions()) * self.x_step

    cdef Py_ssize_t sums_size(self) noexcept nogil:
        """Elements of a block's sums; block 0 is as wide as any."""
        cdef Py_ssize_t i, width = 0
        for i in range(self.classes.n):
            width += self.padded(self.columns(self.classes, 0, i))
        return width * (self.positions() + self.more_positions()) + SLACK * self.lanes

    cdef Py_ssize_t products_size(self) noexcept nogil:
        """Elements of a block's products at every place of the packed input, where these are made first."""
        cdef Py_ssize_t n = self.padded(self.columns(self.products, 0, 0))
        if not self.columns_first:
            return 0
        if not self.along_channels:
            return n * self.x_step + SLACK * self.lanes
        return n * (self.input_elements + self.more_positions())


cdef inline void transpose(
    BoxTable table, const real_t **rows, Py_ssize_t offset, real_t *out, Py_ssize_t out_step, bint stream=False
) noexcept nogil:
    if real_t is float:
        table.level.f32.transpose(rows, offset, out, out_step, stream)
    else:
        table.level.f64.transpose(rows, offset, out, out_step, stream)


cdef inline void read_line(
    BoxTable table, const Operands *operands, const char *source, Py_ssize_t step, Py_ssize_t n, real_t *line
) noexcept nogil:
    """`read` with the level's own conversions where the elements are consecutive halves."""
    if real_t is float and not operands.plain and step == sizeof(uint16_t):
        table.level.halves.widen(operands.dtype == BFLOAT16, <const uint16_t *> source, n, line)
    else:
        read(operands.dtype, source, step, n, line)


cdef inline void write_line(
    BoxTable table, const Operands *operands, const real_t *line, Py_ssize_t n, char *target, Py_ssize_t step
) noexcept nogil:
    """`write` likewise."""
    if real_t is float and not operands.plain and step == sizeof(uint16_t):
        table.level.halves.narrow(operands.dtype == BFLOAT16, line, n, <uint16_t *> target)
    else:
        write(operands.dtype, line, n, target, step)


# ---------------------------------------------------------------------------------------------- weights

cdef bint pack_whole_vectors(
    BoxTable table, const real_t *w, const real_t *w_end, Py_ssize_t block, real_t *weights
) noexcept nogil:
    """`pack_block`'s weights where every vector of columns is one place of consecutive channels: by transposition.

    Returns whether that could be done; False leaves the weights to be packed one by one.
    """
    cdef Py_ssize_t lanes = table.lanes, width = table.block_width(block), vectors = width // lanes
    cdef Py_ssize_t i, t, v, c, k, count, place, column, n, n_taps, tile, done, channel, chunk, chunks
    cdef Py_ssize_t *place_of  # in the packed weights, of each kernel position and vector; then their tiles' widths
    cdef Py_ssize_t *tile_of
    cdef real_t *turned  # of each kernel position and vector, the channels that tiles hold
    cdef const real_t *source
    cdef const real_t *rows[MAX_LANES]
    cdef real_t square[MAX_LANES * MAX_LANES]
    cdef real_t copies[MAX_LANES * MAX_LANES]
    if not table.along_channels or width % lanes or table.pieces and table.kernel > MOST_TURNED:
        return False
    chunk = TILE_CHANNELS if table.pieces else table.in_channels
    chunks = (table.in_channels + chunk - 1) // chunk
    i = chunk * lanes * sizeof(real_t) if table.pieces else 0
    place_of = <Py_ssize_t *> calloc(table.kernel * vectors, 2 * sizeof(Py_ssize_t) + i)
    if place_of == NULL:
        return False
    tile_of = place_of + table.kernel * vectors
    turned = <real_t *> (tile_of + table.kernel * vectors)
    for i in range(table.kernel * vectors):
        place_of[i] = -1  # a kernel position that reaches no input
    for i in range(table.products.n):
        n_taps = table.products.taps(i)
        n = table.columns(table.products, block, i)
        for place in range(table.products.places(i)):
            for v in range(vectors):
                column = place * width + v * lanes
                done = column // (2 * lanes) * 2 * lanes
                tile = table.tile_width(n - done)
                for t in range(n_taps):
                    k = table.products.kernel_index[table.products.first_kernel[i] + place * n_taps + t]
                    tile_of[k * vectors + v] = tile
                    place_of[k * vectors + v] = (
                        table.weight_offset[block, i] + (done * n_taps + t * tile) * table.depth
                        + (column - done) * (TILE_FLOATS // MAX_LANES if table.pieces else 1)
                    )
    for c in range(chunks * chunk):
        channel = c % chunk
        for v in range(vectors if c < table.in_channels else 0):
            source = w + (c * table.out_channels + v * lanes) * table.kernel
            for k from 0 <= k < table.kernel by lanes:
                count = min(lanes, table.kernel - k)
                for i in range(lanes):
                    rows[i] = source + i * table.kernel + k
                    if rows[i] + lanes > w_end:  # reading a whole vector would leave the array
                        memcpy(copies + i * lanes, rows[i], count * sizeof(real_t))
                        rows[i] = copies + i * lanes
                transpose(table, rows, 0, square, lanes)
                for i in range(count):
                    t = (k + i) * vectors + v
                    if table.pieces:
                        copy_vector(turned + (t * chunk + channel) * lanes, square + i * lanes, lanes)
                    elif place_of[t] >= 0:
                        copy_vector(weights + place_of[t] + c * tile_of[t], square + i * lanes, lanes)
        for t in range(0 if c < table.in_channels else table.kernel * vectors):
            memset(turned + (t * chunk + channel) * lanes, 0, lanes * sizeof(real_t))
        if real_t is float and table.pieces and channel == chunk - 1:
            for t in range(table.kernel * vectors):
                if place_of[t] >= 0:
                    table.level.tiles.split_right(
                        table.pieces, turned + t * chunk * lanes, lanes,
                        weights + place_of[t] + c // chunk * table.pieces * lanes * tile_of[t], lanes * tile_of[t],
                    )
    free(place_of)
    return True


cdef inline void copy_vector(real_t *target, const real_t *source, Py_ssize_t lanes) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(lanes * sizeof(real_t) // 16):  # inlined, unlike a copy of unknown size
        memcpy(<char *> target + 16 * i, <const char *> source + 16 * i, 16)


cdef bint pack_block(
    BoxTable table, const real_t *w, const real_t *w_end, const real_t *b, Py_ssize_t block, real_t *weights,
    real_t *bias,
) noexcept nogil:
    """One block of one group: per class and tile ``[tap][channel][column]``, columns padded with zeros.

    `w` is the group's ``[channel][output channel][kernel]``, contiguous. Returns whether all weights are finite.
    """
    cdef Py_ssize_t width = table.block_width(block)
    cdef Py_ssize_t i, t, j, done, tile, n, n_taps, n_places, column, m, place
    cdef const int64_t *kernel_index
    cdef real_t *target
    cdef Py_ssize_t offset[2 * MAX_LANES]
    cdef bint finite = True, packed
    w += block * table.block * table.kernel
    packed = pack_whole_vectors(table, w, w_end, block, weights)
    for i in range(table.products.n):
        target = weights + table.weight_offset[block, i]
        n_taps = table.products.taps(i)
        n_places = table.products.places(i)
        kernel_index = &table.products.kernel_index[0] + table.products.first_kernel[i]
        n = table.columns(table.products, block, i)
        done = 0
        while done < n:
            tile = table.tile_width(n - done)
            for t in range(n_taps):
                for j in range(tile):
                    column = min(done + j, n - 1)
                    place = column // width if table.along_channels else column % n_places
                    m = column % width if table.along_channels else column // n_places
                    offset[j] = m * table.kernel + kernel_index[place * n_taps + t]
                if not packed:
                    gather_columns(table, w, offset, min(tile, n - done), tile, target)
                target += table.depth * tile
                if table.pieces:
                    continue  # whose magnitudes are looked at before
                if real_t is float:
                    finite &= table.level.f32.finite(target - table.depth * tile, table.depth * tile)
                else:
                    finite &= table.level.f64.finite(target - table.depth * tile, table.depth * tile)
            for j in range(tile):
                column = min(done + j, n - 1)
                m = column % width if table.along_channels else column // n_places
                # The products of columns_first have no bias; it is added with them, from behind these zeros.
                bias[table.bias_offset[block, i] + done + j] = 0 if table.columns_first else b[block * table.block + m]
            done += tile
        if table.columns_first:
            for m in range(width):
                bias[table.bias_offset[block, i] + table.padded(n) + m] = b[block * table.block + m]
    return finite


cdef void gather_columns(
    BoxTable table, const real_t *w, const Py_ssize_t *offset, Py_ssize_t n, Py_ssize_t tile, real_t *target
) noexcept nogil:
    """One tap of one tile: w[channel][offset[column]] for n columns, filled up with zeros."""
    cdef Py_ssize_t c, j, chunk = TILE_CHANNELS if table.pieces else table.in_channels
    cdef Py_ssize_t channel_step = table.out_channels * table.kernel
    # [channel][column], or [column][channel] for the left operand of tile registers.
    cdef Py_ssize_t step = tile if table.along_channels or not table.pieces else 1
    cdef Py_ssize_t column_step = 1 if table.along_channels or not table.pieces else TILE_CHANNELS
    cdef real_t wide[TILE_CHANNELS * 2 * MAX_LANES]
    cdef real_t *row = target
    for c in range((table.in_channels + chunk - 1) // chunk * chunk):
        if table.pieces:
            row = wide + c % chunk * step
        for j in range(tile):
            row[j * column_step] = w[c * channel_step + offset[j]] if j < n and c < table.in_channels else 0
        row += step
        if real_t is float and table.pieces and c % chunk == chunk - 1:
            for j from 0 <= j < tile by MAX_LANES:
                if table.along_channels:
                    table.level.tiles.split_right(
                        table.pieces, wide + j, tile, target + j // MAX_LANES * TILE_FLOATS, MAX_LANES * tile
                    )
                else:
                    table.level.tiles.split_left(
                        table.pieces, wide + j * TILE_CHANNELS, target + j // MAX_LANES * TILE_FLOATS, MAX_LANES * tile
                    )
            target += table.pieces * MAX_LANES * tile


cdef bint pack_all(
    BoxTable table, const real_t[:, :, ::1] w, const real_t[::1] b, real_t[::1] weights, real_t[::1] bias, int n_threads
) noexcept nogil:
    cdef Py_ssize_t task, g, infinite = 0
    for task in prange(table.group * table.blocks, schedule="dynamic", num_threads=n_threads):
        g = task // table.blocks
        infinite += not pack_block(
            table, &w[0, 0, 0] + g * table.in_channels * table.out_channels * table.kernel,
            &w[0, 0, 0] + w.shape[0] * w.shape[1] * w.shape[2], &b[g * table.out_channels], task % table.blocks,
            &weights[0] + g * table.group_weights, &bias[g * table.group_biases],
        )
    return infinite == 0


cdef bint find_magnitudes(BoxTable table, const float[:, :, ::1] w, uint32_t *least, uint32_t *most) noexcept nogil:
    """The magnitudes of x that can be multiplied in pieces by these weights; False if there are none.

    Nothing may be subnormal or overflow: the least piece of an element is 2**-23 of it, a sum may have 2**24 terms.
    """
    cdef uint32_t low, high
    cdef float bound
    table.level.tiles.magnitudes(&w[0, 0, 0], w.shape[0] * w.shape[1] * w.shape[2], &low, &high)
    bound = ldexp(1, -102)
    memcpy(least, &bound, 4)
    bound = ldexp(1, 100)
    memcpy(most, &bound, 4)
    if high == 0:
        return True
    if low < least[0] or high > most[0]:
        return False
    memcpy(&bound, &low, 4)
    bound = ldexp(1, -102) / min(bound, 1)
    memcpy(least, &bound, 4)
    memcpy(&bound, &high, 4)
    bound = ldexp(1, 100) / max(bound, 1)
    memcpy(most, &bound, 4)
    return least[0] < most[0]


def pack(BoxTable table not None, w, b, int n_threads):
    """Weights and bias in the layout of `table`.

    Parameters
    ----------
    table : BoxTable
    w : ndarray
        ``(C, M/group, prod(K))``, contiguous, in the type that sums are made in.
    b : ndarray
        ``(M,)``, likewise.
    n_threads : int

    Returns
    -------
    (ndarray, ndarray, (int, int)) or None
        Packed weights and bias, and the least and greatest magnitude of x other than 0 that they can be multiplied by
        in pieces, as the bits of floats. None if a weight is Inf or NaN, which must not meet the zeros around the
        input, or has no such x.
    """
    cdef uint32_t least = 0, most = 0
    if table.pieces and not find_magnitudes(table, w, &least, &most):
        return None
    n_weights, n_bias = table.packed_elements
    weights, bias = empty_aligned((max(1, n_weights),), w.dtype), np.empty(n_bias, w.dtype)
    if table.double:
        finite = pack_all[double](table, w, b, weights, bias, n_threads)
    else:
        finite = pack_all[float](table, w, b, weights, bias, n_threads)
    return (weights, bias, (least, most)) if finite else None


# ---------------------------------------------------------------------------------------------- input

# The part of a packed box's axis that holds input: [begin, end) of its places; `first` is the input index of place 0.
cdef struct Inside:
    int64_t first
    Py_ssize_t begin
    Py_ssize_t end


cdef inline Inside part_inside(BoxTable table, const Box *box, Py_ssize_t a) noexcept nogil:
    cdef Inside part
    cdef int64_t pitch = table.axes[a, PITCH]
    part.first = box.begin[a] + table.axes[a, ORIGIN]
    part.begin = min(max(0, -part.first), pitch)
    part.end = min(table.axes[a, INPUT], box.begin[a] + box.size[a] + table.axes[a, REACH]) - part.first
    part.end = max(part.begin, min(part.end, pitch))
    return part


cdef void pack_along_channels(
    BoxTable table, const Operands *operands, const char *x, Py_ssize_t row_step, Py_ssize_t rows, Py_ssize_t n,
    real_t *target, Py_ssize_t target_row, real_t *square,
) noexcept nogil:
    """`n` places of `rows` rows of every channel from `x` on, position by position: target[row][place][channel]."""
    cdef Py_ssize_t step = operands.x_strides[table.n_axes], channel_step = operands.x_strides[1]
    cdef Py_ssize_t c, row, p, i, j, count, lanes = table.lanes
    cdef bint direct = operands.plain and step == sizeof(real_t)
    cdef const real_t *lines[MAX_LANES]
    cdef const char *source
    for c from 0 <= c < table.in_channels by lanes:
        for row in range(rows):
            for p from 0 <= p < n by lanes:
                count = min(lanes, n - p)
                for i in range(lanes):
                    # Channels beyond the last one repeat it; nothing reads them.
                    source = x + min(c + i, table.in_channels - 1) * channel_step + row * row_step + p * step
                    if direct and count == lanes:
                        lines[i] = <const real_t *> source
                    else:
                        read_line(table, operands, source, step, count, square + i * lanes)
                        lines[i] = square + i * lanes
                if count == lanes:
                    transpose(table, lines, 0, target + row * target_row + p * table.x_step + c, table.x_step)
                else:
                    for i in range(count):
                        for j in range(lanes):
                            target[row * target_row + (p + i) * table.x_step + c + j] = lines[j][i]


cdef bint pack_pieces(
    BoxTable table, const Operands *operands, const char *x, Py_ssize_t row_step, Py_ssize_t rows, Py_ssize_t n,
    float *target, Py_ssize_t target_row,
) noexcept nogil:
    """`pack_along_channels` for tile registers: target[row][place][32 channels][piece][32].

    Returns whether an element cannot be multiplied in pieces.
    """
    cdef Py_ssize_t step = operands.x_strides[table.n_axes], channel_step = operands.x_strides[1]
    cdef Py_ssize_t c, row, p, i, count, channels
    cdef bint direct = step == (sizeof(float) if operands.plain else sizeof(uint16_t)), refused = False
    cdef int precision = 24 if operands.plain or not direct else 8 if operands.dtype == BFLOAT16 else 11  # bits
    cdef float wide[TILE_CHANNELS * MAX_LANES]
    cdef const void *lines[TILE_CHANNELS]
    cdef const char *source
    for c from 0 <= c < table.in_channels by TILE_CHANNELS:
        channels = min(TILE_CHANNELS, table.in_channels - c)
        for i in range(channels, TILE_CHANNELS):
            lines[i] = NULL  # 0
        for row in range(rows):
            for p from 0 <= p < n by MAX_LANES:
                count = min(MAX_LANES, n - p)
                source = x + c * channel_step + row * row_step + p * step
                for i in range(channels):
                    if direct:
                        lines[i] = source + i * channel_step
                    else:
                        read(operands.dtype, source + i * channel_step, step, count, wide + i * MAX_LANES)
                        lines[i] = wide + i * MAX_LANES
                refused |= table.level.tiles.split_channels(
                    table.pieces, precision, lines, count,
                    target + row * target_row + p * table.x_step + c // 2 * table.pieces, table.x_step,
                    operands.least, operands.most,
                )
    return refused


cdef void pack_along_positions(
    BoxTable table, const Operands *operands, const char *x, Py_ssize_t row_step, Py_ssize_t rows,
    Py_ssize_t before, Py_ssize_t n, Py_ssize_t after, real_t *target,
) noexcept nogil:
    """`rows` rows of one channel, each `n` places from `x` on with zeros before and after them."""
    cdef Py_ssize_t row, step = operands.x_strides[table.n_axes]
    if operands.plain and step == sizeof(real_t):
        if real_t is float:
            table.level.f32.lines(rows, before, n, after, x, row_step, target, before + n + after)
        else:
            table.level.f64.lines(rows, before, n, after, x, row_step, target, before + n + after)
        return
    for row in range(rows):
        memset(target, 0, before * sizeof(real_t))
        read_line(table, operands, x + row * row_step, step, n, target + before)
        memset(target + before + n, 0, after * sizeof(real_t))
        target += before + n + after


cdef bint pack_pairs(
    BoxTable table, const Operands *operands, const char *x, Py_ssize_t row_step, const Inside *rows,
    const Inside *columns, Py_ssize_t height, Py_ssize_t width, float *target,
) noexcept nogil:
    """Rows of every channel with zeros around them, lanes along positions, in pieces:
    target[32 channels][piece][pair of channels][place]. `x` is the first place inside.

    Returns whether an element cannot be multiplied in pieces.
    """
    cdef Py_ssize_t step = operands.x_strides[table.n_axes], channel_step = operands.x_strides[1]
    cdef Py_ssize_t pair, piece, row, i, c, count, chunk, n = columns.end - columns.begin
    cdef Py_ssize_t piece_step = 16 * table.x_step
    cdef bint direct = step == (sizeof(float) if operands.plain else sizeof(uint16_t)), refused = False
    cdef int precision = 24 if operands.plain or not direct else 8 if operands.dtype == BFLOAT16 else 11  # bits
    cdef float wide[2][INTERLEAVED]
    cdef const void *lines[2]
    cdef const char *source
    cdef float *begin
    chunk = n if direct else INTERLEAVED
    for pair in range(table.depth // table.pieces):
        for row in range(height):
            begin = target + (pair // 16 * 16 * table.pieces + pair % 16) * table.x_step + row * width
            if row < rows.begin or row >= rows.end:
                for piece in range(table.pieces):
                    memset(begin + piece * piece_step, 0, width * sizeof(float))
                continue
            for piece in range(table.pieces):
                memset(begin + piece * piece_step, 0, columns.begin * sizeof(float))
                memset(begin + piece * piece_step + columns.end, 0, (width - columns.end) * sizeof(float))
            for i from 0 <= i < n by max(chunk, 1):
                count = min(chunk, n - i)
                for c in range(2):
                    source = x + (2 * pair + c) * channel_step + (row - rows.begin) * row_step + i * step
                    lines[c] = source
                    if 2 * pair + c >= table.in_channels:
                        lines[c] = NULL  # 0
                    elif not direct:
                        read(operands.dtype, source, step, count, wide[c])
                        lines[c] = wide[c]
                refused |= table.level.tiles.split_positions(
                    table.pieces, precision, lines[0], lines[1], count, begin + columns.begin + i, piece_step,
                    operands.least, operands.most,
                )
    return refused


cdef bint pack_input(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t group, real_t *target, real_t *square
) noexcept nogil:
    """The box's input, zeros around it, a channel's neighbouring rows after each other as they lie in memory.

    Returns whether an element cannot be multiplied in pieces.
    """
    cdef Py_ssize_t last = table.n_axes - 1
    cdef Py_ssize_t height = table.axes[last - 1, PITCH], width = table.axes[last, PITCH]
    cdef Py_ssize_t row_step = operands.x_strides[last if last > 1 else 0]
    cdef Py_ssize_t blocks = 1, block, rest, a, c, r, size = height * width
    cdef Inside columns = part_inside(table, box, last), rows, part
    cdef bint refused = False
    cdef int64_t place
    cdef const char *x
    cdef real_t *begin
    for a in range(last - 1):
        blocks *= table.axes[a, PITCH]
    for block in range(blocks):
        rest = block
        rows = part_inside(table, box, last - 1)
        x = operands.x + group * table.in_channels * operands.x_strides[1]
        for a in range(last - 2, -1, -1):
            part = part_inside(table, box, a)
            place = rest % table.axes[a, PITCH]
            rest //= table.axes[a, PITCH]
            if place < part.begin or place >= part.end:
                rows.end = rows.begin  # nothing but zeros
            x += (part.first + place) * operands.x_strides[a + 1 if a else 0]
        x += (rows.first + rows.begin) * row_step + (columns.first + columns.begin) * operands.x_strides[last + 1]
        if table.along_channels:
            begin = target + block * size * table.x_step
            for r in range(height):
                if r < rows.begin or r >= rows.end:
                    memset(begin + r * width * table.x_step, 0, width * table.x_step * sizeof(real_t))
                    continue
                memset(begin + r * width * table.x_step, 0, columns.begin * table.x_step * sizeof(real_t))
                memset(
                    begin + (r * width + columns.end) * table.x_step, 0,
                    (width - columns.end) * table.x_step * sizeof(real_t),
                )
            begin += (rows.begin * width + columns.begin) * table.x_step
            if real_t is float and table.pieces:
                refused |= pack_pieces(
                    table, operands, x, row_step, rows.end - rows.begin, columns.end - columns.begin, begin,
                    width * table.x_step,
                )
            else:
                pack_along_channels(
                    table, operands, x, row_step, rows.end - rows.begin, columns.end - columns.begin, begin,
                    width * table.x_step, square,
                )
        elif real_t is float and table.pieces:
            refused |= pack_pairs(
                table, operands, x, row_step, &rows, &columns, height, width, target + block * size
            )
        else:
            for c in range(table.in_channels):
                begin = target + c * table.x_step + block * size
                memset(begin, 0, rows.begin * width * sizeof(real_t))
                pack_along_positions(
                    table, operands, x + c * operands.x_strides[1], row_step, rows.end - rows.begin,
                    columns.begin, columns.end - columns.begin, width - columns.end, begin + rows.begin * width,
                )
                memset(begin + rows.end * width, 0, (height - rows.end) * width * sizeof(real_t))
    place = blocks * size
    if table.along_channels:
        memset(target + place * table.x_step, 0, (table.input_elements - place) * table.x_step * sizeof(real_t))
    else:
        for c in range(table.depth):
            memset(target + c * table.x_step + place, 0, (table.x_step - place) * sizeof(real_t))
    return refused


# ---------------------------------------------------------------------------------------------- products

cdef inline Py_ssize_t count_runs(BoxTable table, const Box *box, Py_ssize_t *length) noexcept nogil:
    """The runs of a box; `length` becomes the positions of each."""
    cdef Py_ssize_t a, runs = 1
    length[0] = 1
    for a in range(table.n_axes):
        if a < table.run_axis:
            runs *= box.size[a]
        else:
            length[0] += (box.size[a] - 1) * table.steps[a]
    return runs


cdef inline Py_ssize_t run_begin(BoxTable table, const Box *box, Py_ssize_t run) noexcept nogil:
    """The first place of a run in the packed input."""
    cdef Py_ssize_t a, base = 0
    for a in range(table.run_axis - 1, -1, -1):
        base += run % box.size[a] * table.steps[a]
        run //= box.size[a]
    return base


cdef void multiply_along_channels(
    BoxTable table,
    ClassList classes,
    const Box *box,
    Py_ssize_t block,
    Py_ssize_t runs,
    Py_ssize_t length,
    const real_t *input,
    const real_t *weights,
    const real_t *bias,
    real_t *out,
) noexcept nogil:
    """The sums of `runs` runs of `length` positions: class after class, [position][column]."""
    cdef Py_ssize_t i, run, n_taps, n, done, tile, t, p, p_end, soon_step, base, step
    cdef Py_ssize_t tiles = (length + table.max_positions - 1) // table.max_positions
    cdef const Py_ssize_t *offsets
    cdef const real_t *w
    cdef const real_t *soon
    cdef const real_t *added
    for i in range(classes.n):
        n_taps = classes.taps(i)
        offsets = &classes.tap_offset[0] + classes.first_tap[i]
        w = weights + table.weight_offset[block, i]
        n = table.columns(classes, block, i)
        step = table.padded(n)
        done = 0
        while done < n:
            tile = table.tile_width(n - done)
            added = bias + table.bias_offset[block, i] + done
            # A tile's weights stay in the second-level cache while all positions pass; each fetches its share of the
            # next tile's.
            soon_step = (tile + runs * tiles - 1) // (runs * tiles)
            for run in range(runs):
                base = run_begin(table, box, run)
                for t in range(tiles):
                    if table.pieces:
                        p = t * TILE_POSITIONS
                        p_end = min(length, p + TILE_POSITIONS)
                    else:
                        p = t * length // tiles
                        p_end = (t + 1) * length // tiles
                    soon = w + n_taps * table.depth * (tile + (run * tiles + t) * soon_step)
                    if real_t is float and table.pieces:
                        table.level.tiles.channels(
                            table.pieces, p_end - p, tile // table.lanes, n_taps, offsets, table.depth,
                            input + (base + p) * table.x_step, table.x_step, w, soon, soon_step, added,
                            out + (run * length + p) * step + done, step,
                        )
                    elif real_t is float:
                        table.level.f32.channels(
                            p_end - p, tile // table.lanes, n_taps, offsets, table.in_channels,
                            input + (base + p) * table.x_step, table.x_step, w, soon, soon_step, added,
                            out + (run * length + p) * step + done, step,
                        )
                    else:
                        table.level.f64.channels(
                            p_end - p, tile // table.lanes, n_taps, offsets, table.in_channels,
                            input + (base + p) * table.x_step, table.x_step, w, soon, soon_step, added,
                            out + (run * length + p) * step + done, step,
                        )
            w += n_taps * table.depth * tile
            done += tile
        out += step * table.positions()


cdef void add_columns_along_channels(
    BoxTable table, const Box *box, Py_ssize_t block, const real_t *products, const real_t *added, real_t *sums
) noexcept nogil:
    """Sums [position][column] of whole images from the products of their input positions, [position][column]."""
    cdef Py_ssize_t last = table.n_axes - 1, width = table.block_width(block)
    cdef Py_ssize_t product_step = table.padded(table.columns(table.products, block, 0))
    cdef Py_ssize_t i, t, place, position, row, rest, a, begin, end, step, n_taps, rows = 1, cells
    cdef int64_t index, source
    cdef const int64_t *kernel_index
    cdef bint inside
    cells = table.axes[last, CELLS]
    for a in range(last):
        rows *= box.size[a]
    for i in range(table.classes.n):
        n_taps = table.classes.taps(i)
        step = table.padded(table.columns(table.classes, block, i))
        for place in range(table.classes.places(i)):
            for position in range(rows * cells):
                memcpy(sums + position * step + place * width, added, width * sizeof(real_t))
            kernel_index = &table.classes.kernel_index[0] + table.classes.first_kernel[i] + place * n_taps
            for t in range(n_taps):
                index = table.classes.first_tap[i] + t
                begin = max(0, -table.classes.shifts[index, last - 1])
                end = min(cells, table.axes[last, INPUT] - table.classes.shifts[index, last - 1])
                for row in range(rows if begin < end else 0):
                    rest = row
                    inside = True
                    position = table.classes.shifts[index, last - 1]
                    for a in range(last - 1, -1, -1):
                        source = rest % box.size[a] + (table.classes.shifts[index, a - 1] if a else 0)
                        rest //= box.size[a]
                        inside &= 0 <= source < (table.axes[a, INPUT] if a else box.size[0])
                        position += source * table.steps[a]
                    if not inside:
                        continue
                    if real_t is float:
                        table.level.f32.add_rows(
                            end - begin, width,
                            products + (position + begin) * product_step + kernel_index[t] * width, product_step,
                            sums + (row * cells + begin) * step + place * width, step,
                        )
                    else:
                        table.level.f64.add_rows(
                            end - begin, width,
                            products + (position + begin) * product_step + kernel_index[t] * width, product_step,
                            sums + (row * cells + begin) * step + place * width, step,
                        )
        sums += step * table.positions()


cdef void multiply_along_positions(
    BoxTable table,
    ClassList classes,
    Py_ssize_t block,
    const real_t *input,
    Py_ssize_t length,
    const real_t *weights,
    const real_t *bias,
    real_t *out,
    Py_ssize_t out_step,
) noexcept nogil:
    """`length` sums of every class, place and channel of a block: class after class, [column][position].

    A chunk of positions of every input channel is read from memory once and then, from the caches, for every tile.
    """
    cdef Py_ssize_t i, n, n_taps, done, tile, chunk, column
    cdef const Py_ssize_t *offsets
    cdef const real_t *w
    cdef const real_t *added
    for chunk from 0 <= chunk < length by CHUNK * table.lanes:
        column = 0
        for i in range(classes.n):
            n_taps = classes.taps(i)
            offsets = &classes.tap_offset[0] + classes.first_tap[i]
            w = weights + table.weight_offset[block, i]
            n = table.columns(classes, block, i)
            done = 0
            while done < n:
                tile = table.tile_width(n - done)
                added = bias + table.bias_offset[block, i] + done
                if real_t is float and table.pieces:
                    table.level.tiles.positions(
                        table.pieces, tile // table.lanes, min(CHUNK * table.lanes, length - chunk), n_taps, offsets,
                        table.depth, input + chunk, table.x_step, w, added, out + column * out_step + chunk, out_step,
                    )
                elif real_t is float:
                    table.level.f32.positions(
                        tile, min(CHUNK * table.lanes, length - chunk), n_taps, offsets, table.in_channels,
                        input + chunk, table.x_step, w, added, out + column * out_step + chunk, out_step,
                    )
                else:
                    table.level.f64.positions(
                        tile, min(CHUNK * table.lanes, length - chunk), n_taps, offsets, table.in_channels,
                        input + chunk, table.x_step, w, added, out + column * out_step + chunk, out_step,
                    )
                w += n_taps * table.depth * tile
                done += tile
                column += tile


cdef void add_columns_along_positions(
    BoxTable table,
    const Box *box,
    Py_ssize_t block,
    const real_t *products,
    const real_t *added,
    real_t *sums,
    const real_t **terms,
) noexcept nogil:
    """Sums [column][position] from the products of every input place, [kernel position of a channel][place]."""
    cdef Py_ssize_t i, t, m, place, run, base, n_taps, runs, length, positions = table.positions()
    cdef const int64_t *kernel_index
    runs = count_runs(table, box, &length)
    for i in range(table.classes.n):
        n_taps = table.classes.taps(i)
        for m in range(table.block_width(block)):
            for place in range(table.classes.places(i)):
                kernel_index = &table.classes.kernel_index[0] + table.classes.first_kernel[i] + place * n_taps
                for run in range(runs):
                    base = run_begin(table, box, run)
                    for t in range(n_taps):
                        terms[t] = (
                            products + (m * table.kernel + kernel_index[t]) * table.x_step
                            + table.classes.tap_offset[table.classes.first_tap[i] + t] + base
                        )
                    if real_t is float:
                        table.level.f32.accumulate(length, n_taps, terms, added[m], sums + run * length)
                    else:
                        table.level.f64.accumulate(length, n_taps, terms, added[m], sums + run * length)
                sums += positions


cdef void multiply(
    BoxTable table,
    const Box *box,
    Py_ssize_t block,
    const real_t *input,
    const real_t *weights,
    const real_t *bias,
    real_t *products,
    real_t *sums,
    const real_t **terms,
) noexcept nogil:
    """Every sum of one block of channels of a box."""
    cdef Py_ssize_t run, runs, length
    if table.along_channels and table.columns_first:
        multiply_along_channels(
            table, table.products, box, block, 1, box.size[0] * table.steps[0], input, weights, bias, products
        )
        add_columns_along_channels(
            table, box, block, products,
            bias + table.bias_offset[block, 0] + table.padded(table.columns(table.products, block, 0)), sums,
        )
    elif table.along_channels:
        runs = count_runs(table, box, &length)
        multiply_along_channels(
            table, table.classes, box, block, runs, length, input, weights, bias, sums
        )
    elif table.columns_first:
        multiply_along_positions(
            table, table.products, block, input, table.input_elements, weights, bias, products, table.x_step
        )
        add_columns_along_positions(
            table, box, block, products,
            bias + table.bias_offset[block, 0] + table.columns(table.products, block, 0), sums, terms,
        )
    else:
        runs = count_runs(table, box, &length)
        for run in range(runs):
            multiply_along_positions(
                table, table.classes, block, input + run_begin(table, box, run), length, weights, bias,
                sums + run * length, table.positions(),
            )


# ---------------------------------------------------------------------------------------------- output

cdef void store_channels(
    BoxTable table,
    const Operands *operands,
    Py_ssize_t channels,
    const real_t **columns_of_place,
    const Py_ssize_t *step_of_place,
    int64_t cell,
    int64_t begin,
    int64_t end,
    char *y,
    real_t *square,
) noexcept nogil:
    """Outputs [begin, end) of a row whose first cell is `cell`, `channels` of them, sums lying along channels."""
    cdef Py_ssize_t step = operands.y_strides[table.n_axes], channel_step = operands.y_strides[1]
    # A whole cache line of a row at once: streamed in parts, with other rows in between, it would cost twice.
    cdef bint halves = not operands.plain and step == sizeof(uint16_t)
    cdef Py_ssize_t item = sizeof(real_t) if operands.plain else sizeof(uint16_t)
    cdef Py_ssize_t lanes = table.lanes, line = max(lanes, CACHE_LINE // item)
    cdef Py_ssize_t piece = 2 * lanes if halves else lanes
    cdef char *target
    cdef Py_ssize_t m, i, part, count
    cdef bint direct = operands.plain and step == sizeof(real_t)
    cdef int64_t o, j, e
    cdef const real_t *rows[MAX_LINE]
    o = begin
    while o < end:
        if end - o < line and end - begin >= line:
            o = end - line  # once more over the last few, in the same cache line
        j = o // table.inner_places
        e = o - j * table.inner_places
        j -= cell
        for i in range(min(line, end - o)):
            rows[i] = columns_of_place[e] + j * step_of_place[e]
            e += 1
            if e == table.inner_places:
                e = 0
                j += 1
        for i in range(max(0, end - o), line):
            rows[i] = rows[0]
        for m from 0 <= m < channels by lanes:
            for part from 0 <= part < min(line, end - o) by piece:
                count = min(piece, end - o - part)
                target = y + m * channel_step + (o + part) * step
                if direct and count == piece and m + lanes <= channels:
                    transpose(
                        table, rows + part, m, <real_t *> target, channel_step // sizeof(real_t), operands.stream
                    )
                elif real_t is float and halves and count == piece and m + lanes <= channels:
                    table.level.halves.transpose_narrow(
                        operands.dtype == BFLOAT16, rows + part, m, <uint16_t *> target,
                        channel_step // sizeof(uint16_t),
                    )
                else:
                    for j from 0 <= j < count by lanes:
                        transpose(table, rows + part + j, m, square, lanes)
                        for i in range(min(lanes, channels - m)):
                            write_line(
                                table, operands, square + i * lanes, min(lanes, count - j),
                                target + i * channel_step + j * step, step,
                            )
        o += line
        if operands.stream and o == begin + line:
            # Go on from the first aligned place, over a few once more.
            o -= <size_t> (y + o * step) % CACHE_LINE // item


cdef void interleave_halves(
    BoxTable table, const Operands *operands, Py_ssize_t n, const float **row_of_place, uint16_t *out
) noexcept nogil:
    """`n` cells of a row. More than two places are interleaved in a piece of the first-level cache before."""
    cdef float wide[INTERLEAVED]
    cdef const float *rows[MAX_LINE]
    cdef Py_ssize_t e, i, count, chunk = INTERLEAVED // table.inner_places // table.lanes * table.lanes
    if table.inner_places <= 2:
        table.level.halves.interleave_narrow(operands.dtype == BFLOAT16, n, table.inner_places, row_of_place, out)
        return
    for i from 0 <= i < n by chunk:
        count = min(chunk, n - i)
        for e in range(table.inner_places):
            rows[e] = row_of_place[e] + i
        table.level.f32.interleave(count, table.inner_places, rows, wide, False)
        table.level.halves.narrow(
            operands.dtype == BFLOAT16, wide, count * table.inner_places, out + i * table.inner_places
        )


cdef void store_positions(
    BoxTable table,
    const Operands *operands,
    Py_ssize_t channels,
    const real_t **row_of_place,
    const Py_ssize_t *step_of_place,
    int64_t begin,
    int64_t end,
    char *y,
) noexcept nogil:
    """Outputs [begin, end) of a row that starts with a cell, `channels` of them, sums lying along positions."""
    cdef Py_ssize_t step = operands.y_strides[table.n_axes]
    cdef Py_ssize_t m, e, i, whole = (end - begin) // table.inner_places
    cdef bint direct = operands.plain and step == sizeof(real_t)
    cdef bint halves = not operands.plain and step == sizeof(uint16_t) and table.inner_places <= MAX_LINE
    cdef char *row
    for m in range(channels):
        row = y + m * operands.y_strides[1] + begin * step
        if real_t is float and halves:
            interleave_halves(table, operands, whole, <const float **> row_of_place, <uint16_t *> row)
        elif direct:
            if real_t is float:
                table.level.f32.interleave(whole, table.inner_places, row_of_place, <real_t *> row, operands.stream)
            else:
                table.level.f64.interleave(whole, table.inner_places, row_of_place, <real_t *> row, operands.stream)
        for e in range(table.inner_places):
            i = whole if direct or halves else 0
            if i * table.inner_places + e < end - begin:
                write(
                    operands.dtype, row_of_place[e] + i,
                    (end - begin - e + table.inner_places - 1) // table.inner_places - i,
                    row + (i * table.inner_places + e) * step, table.inner_places * step,
                )
            row_of_place[e] += step_of_place[e]


cdef void store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const real_t *sums, real_t *square, const real_t **columns_of_place, Py_ssize_t *step_of_place,
) noexcept nogil:
    """Write every output of one block of channels, the first of which is `channel` of y."""
    cdef Py_ssize_t last = table.n_axes - 1
    cdef Py_ssize_t rows = 1, row, rest, outer, place_rest, outer_places, a, e, i, index, position, run, radix
    cdef Py_ssize_t length, positions = table.positions(), column
    cdef Py_ssize_t width = table.block_width(block)
    cdef int64_t o, end, begin
    cdef int64_t idx[MAX_AXES]
    cdef char *y
    cdef bint inside
    cdef const real_t *of_class
    outer_places = table.places // table.inner_places
    for a in range(last):
        rows *= box.size[a]
    count_runs(table, box, &length)
    begin = box.begin[last] * table.inner_places
    end = min(table.axes[last, OUTPUT], (box.begin[last] + box.size[last]) * table.inner_places)
    for row in range(rows):
        rest = row
        run = position = 0
        radix = 1
        for a in range(last - 1, -1, -1):
            idx[a] = rest % box.size[a]
            rest //= box.size[a]
            if a < table.run_axis:
                run += idx[a] * radix
                radix *= box.size[a]
            else:
                position += idx[a] * table.steps[a]
        position += run * length
        for outer in range(outer_places):
            inside = True
            y = operands.y + channel * operands.y_strides[1]
            place_rest = outer
            for a in range(last - 1, -1, -1):
                o = (box.begin[a] + idx[a]) * table.axes[a, STRIDE] + place_rest % table.axes[a, STRIDE]
                place_rest //= table.axes[a, STRIDE]
                if o >= table.axes[a, OUTPUT]:
                    inside = False
                y += o * operands.y_strides[a + 1 if a else 0]
            if not inside:
                continue
            for e in range(table.inner_places):
                index = outer * table.inner_places + e
                i = table.class_of_place[index]
                of_class = class_sums(table, block, i, sums, positions)
                column = table.index_of_place[index]
                if table.along_channels:
                    step_of_place[e] = table.padded(table.columns(table.classes, block, i))
                    columns_of_place[e] = of_class + position * step_of_place[e] + column * width
                else:
                    step_of_place[e] = positions * table.classes.places(i)
                    columns_of_place[e] = of_class + column * positions + position
            if table.along_channels:
                store_channels(
                    table, operands, width, columns_of_place, step_of_place, box.begin[last], begin, end, y, square
                )
            else:
                store_positions(table, operands, width, columns_of_place, step_of_place, begin, end, y)


cdef inline const real_t *class_sums(
    BoxTable table, Py_ssize_t block, Py_ssize_t tap_class, const real_t *sums, Py_ssize_t positions
) noexcept nogil:
    """Where the sums of a class begin."""
    cdef Py_ssize_t i
    for i in range(tap_class):
        sums += table.padded(table.columns(table.classes, block, i)) * positions
    return sums


# ---------------------------------------------------------------------------------------------- tasks

cdef bint run_task(
    BoxTable table,
    const Operands *operands,
    const real_t *weights,
    const real_t *bias,
    Py_ssize_t splits,
    Py_ssize_t task,
    char *scratch,
) noexcept nogil:
    """One box of one group, and one part of the group's blocks of channels; parts are the fastest index.

    Returns whether the box's input cannot be multiplied in pieces: its outputs are not written then.
    """
    cdef Py_ssize_t part = task % splits
    cdef Py_ssize_t rest = task // splits % table.boxes
    cdef Py_ssize_t group = task // splits // table.boxes
    cdef Py_ssize_t a, block, pieces
    cdef Box box
    cdef real_t *input = <real_t *> scratch
    cdef real_t *sums = input + aligned(table.input_size(), sizeof(real_t))
    cdef real_t *products = sums + aligned(table.sums_size(), sizeof(real_t))
    cdef real_t *square = products + aligned(table.products_size(), sizeof(real_t))
    cdef const real_t **columns_of_place = <const real_t **> (square + MAX_LANES * MAX_LANES)
    cdef Py_ssize_t *step_of_place = <Py_ssize_t *> (columns_of_place + max(table.inner_places, table.kernel))
    for a in range(table.n_axes - 1, -1, -1):
        pieces = (table.axes[a, CELLS] + table.axes[a, BOX] - 1) // table.axes[a, BOX]
        box.begin[a] = rest % pieces * table.axes[a, BOX]
        box.size[a] = min(table.axes[a, BOX], table.axes[a, CELLS] - box.begin[a])
        rest //= pieces
    if pack_input(table, operands, &box, group, input, square):
        return True
    if table.pieces:
        table.level.tiles.configure()
    for block in range(part * table.blocks // splits, (part + 1) * table.blocks // splits):
        multiply(
            table, &box, block, input, weights + group * table.group_weights, bias + group * table.group_biases,
            products, sums, columns_of_place,
        )
        store(
            table, operands, &box, group * table.out_channels + block * table.block, block, sums, square,
            columns_of_place, step_of_place,
        )
    if table.pieces:
        table.level.tiles.release()
    if operands.stream:
        table.level.f32.drain()
    return False


cdef inline Py_ssize_t aligned(Py_ssize_t elements, Py_ssize_t item) noexcept nogil:
    return (elements * item + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE // item


cdef bint run_tasks(
    BoxTable table,
    const Operands *operands,
    const real_t[::1] weights,
    const real_t[::1] bias,
    Py_ssize_t splits,
    Py_ssize_t tasks,
    char *scratch,
    Py_ssize_t scratch_step,
    int n_threads,
) noexcept nogil:
    """Returns whether a task refused its input."""
    cdef Py_ssize_t task, refused = 0
    for task in prange(tasks, schedule="dynamic", num_threads=n_threads):
        refused += run_task(
            table, operands, &weights[0], &bias[0], splits, task, scratch + threadid() * scratch_step
        )
    return refused > 0


def run(
    cnp.ndarray x not None,
    cnp.ndarray y not None,
    weights,
    bias,
    magnitudes,
    BoxTable table not None,
    str dtype not None,
    Py_ssize_t splits,
    int n_threads,
):
    """Compute y, every element of it.

    Returns whether that was possible: tile registers refuse magnitudes that they would lose. y is then undefined.

    Parameters
    ----------
    x, y : ndarray
        ``(N, C, *I)`` and ``(N, M, *O)``, aligned, native byte order, any strides; `y` overlaps nothing, has elements.
    weights, bias : ndarray
        As `pack` makes them for `table`.
    magnitudes : (int, int)
        Likewise.
    table : BoxTable
    dtype : {"float16", "bfloat16", "float32", "float64"}
        What the bytes of `x` and `y` are.
    splits : int
        Parts that a group's blocks of channels are dealt out in.
    n_threads : int
    """
    cdef Operands operands
    cdef Py_ssize_t tasks = table.group * table.boxes * splits
    cdef Py_ssize_t step = (table.workspace + 4095) // 4096 * 4096
    # Allocated here, so that a MemoryError comes before anything is written.
    cdef cnp.ndarray scratch = np.empty(n_threads * step + CACHE_LINE, dtype=np.int8)
    cdef char *aligned_scratch = cnp.PyArray_BYTES(scratch)
    aligned_scratch += CACHE_LINE - <size_t> aligned_scratch % CACHE_LINE
    operands.dtype = <DType> <int> DTYPES.index(dtype)
    operands.plain = operands.dtype == FLOAT32 or operands.dtype == FLOAT64
    # A row whose ends share cache lines with its neighbours' is streamed only where it is long.
    row_bytes = y.shape[y.ndim - 1] * y.itemsize
    operands.stream = operands.plain and y.nbytes >= STREAM_BYTES
    operands.stream &= row_bytes % CACHE_LINE == 0 or row_bytes >= LONG_ROW
    operands.least, operands.most = magnitudes
    operands.x = cnp.PyArray_BYTES(x)
    operands.y = cnp.PyArray_BYTES(y)
    operands.x_strides = cnp.PyArray_STRIDES(x)
    operands.y_strides = cnp.PyArray_STRIDES(y)
    if table.double:
        return not run_tasks[double](table, &operands, weights, bias, splits, tasks, aligned_scratch, step, n_threads)
    return not run_tasks[float](table, &operands, weights, bias, splits, tasks, aligned_scratch, step, n_threads)

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

cimport numpy as cnp
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.string cimport memcpy, memset

from convt._box_table cimport (
    BOX, CACHE_LINE, CELLS, CHUNK, INPUT, MAX_AXES, MAX_LANES, MAX_OUTER, MAX_ROWS, ORIGIN, OUTPUT, PITCH, REACH,
    STRIDE, TILE_CHANNELS, TILE_FLOATS, TILE_POSITIONS,
    BoxTable, ClassList, real_t, tap_class_t, transpose,
)
from convt._elements cimport BFLOAT16, DType, FLOAT32, FLOAT64, read, write

import numpy as np

from convt.geometry import DTYPES

cnp.import_array()

cdef enum:
    STREAM_BYTES = 1 << 22
    LONG_ROW = 1 << 12
    MAX_LINE = 32  # elements of a cache line
    INTERLEAVED = 512  # floats that wait to be narrowed
    CHUNK_FLOATS = 6 << 10  # of packed input that stay in the first-level cache beside weights, for tile registers


cdef struct Operands:
    DType dtype
    bint plain  # stored in the type that sums are made in
    bint stream  # y is so large that its stores should pass the caches
    bint one_pass  # sums are written as outputs at once, where the table allows it
    uint32_t least, most  # magnitudes of x that tile registers hold in pieces, as the bits of floats
    const char *x
    char *y
    const cnp.npy_intp *x_strides
    const cnp.npy_intp *y_strides


# Where a box begins and how many cells it has, per axis.
cdef struct Box:
    int64_t begin[MAX_AXES]
    int64_t size[MAX_AXES]


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


cdef inline int precision_in_place(const Operands *operands, Py_ssize_t step) noexcept nogil:
    """Bits of precision of x if tile registers can be filled from where it lies; 0 if it must be copied as floats."""
    if step != <Py_ssize_t> (sizeof(float) if operands.plain else sizeof(uint16_t)):
        return 0
    return 24 if operands.plain else 8 if operands.dtype == BFLOAT16 else 11


cdef bint pack_pieces(
    BoxTable table, const Operands *operands, const char *x, Py_ssize_t row_step, Py_ssize_t rows, Py_ssize_t n,
    float *target, Py_ssize_t target_row,
) noexcept nogil:
    """`pack_along_channels` for tile registers: target[row][place][32 channels][piece][32].

    Returns whether an element cannot be multiplied in pieces.
    """
    cdef Py_ssize_t step = operands.x_strides[table.n_axes], channel_step = operands.x_strides[1]
    cdef Py_ssize_t c, row, p, i, count, channels, line_step = channel_step
    cdef int precision = precision_in_place(operands, step)
    cdef bint refused = False
    cdef float wide[TILE_CHANNELS * MAX_LANES]
    cdef const char *source
    for c from 0 <= c < table.in_channels by TILE_CHANNELS:
        channels = min(TILE_CHANNELS, table.in_channels - c)
        for row in range(rows):
            for p from 0 <= p < n by MAX_LANES:
                count = min(MAX_LANES, n - p)
                source = x + c * channel_step + row * row_step + p * step
                if not precision:
                    for i in range(channels):
                        read(operands.dtype, source + i * channel_step, step, count, wide + i * MAX_LANES)
                    source = <const char *> wide
                    line_step = MAX_LANES * sizeof(float)
                refused |= table.level.tiles.split_channels(
                    table.pieces, precision or 24, source, line_step, channels, count,
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


cdef inline bint split_pair(
    BoxTable table, const Operands *operands, int precision, const void **lines, Py_ssize_t before, Py_ssize_t n,
    Py_ssize_t after, float *target, Py_ssize_t place,
) noexcept nogil:
    return table.level.tiles.split_positions(
        table.pieces, precision, lines[0], lines[1], before, n, after, target, place, table.x_step,
        operands.least, operands.most,
    )


cdef bint pack_pairs(
    BoxTable table, const Operands *operands, const char *x, Py_ssize_t row_step, Inside rows, Inside columns,
    Py_ssize_t height, Py_ssize_t width, float *target, Py_ssize_t place,
) noexcept nogil:
    """Rows of every channel with zeros around them, lanes along positions, in pieces, from place number `place` of
    target[16 places][32 channels][piece][pair of channels][16] on. `x` is the first place inside.

    Returns whether an element cannot be multiplied in pieces.
    """
    cdef Py_ssize_t step = operands.x_strides[table.n_axes], channel_step = operands.x_strides[1]
    cdef Py_ssize_t pair, row, i, c, n = columns.end - columns.begin, count, channels
    cdef int precision = precision_in_place(operands, step)
    cdef bint refused = False
    cdef float wide[2][INTERLEAVED]
    cdef float *begin
    cdef const void *lines[2]
    cdef const char *source
    if precision and n == width and row_step == n * step:
        # Rows that follow each other are one long row.
        columns.begin, columns.end = rows.begin * width, rows.end * width
        n = columns.end - columns.begin
        width *= height
        rows.begin, rows.end, height = 0, 1, 1
    for pair in range(table.depth // table.pieces):
        begin = target + pair // 16 * table.pieces * TILE_FLOATS + pair % 16 * MAX_LANES
        channels = min(2, table.in_channels - 2 * pair)
        for row in range(height):
            source = x + 2 * pair * channel_step + (row - rows.begin) * row_step
            for c in range(2):
                lines[c] = source + c * channel_step if c < channels else NULL  # 0
            if row < rows.begin or row >= rows.end:
                split_pair(table, operands, 24, lines, width, 0, 0, begin, place + row * width)
            elif precision:
                refused |= split_pair(
                    table, operands, precision, lines, columns.begin, n, width - columns.end, begin,
                    place + row * width,
                )
            else:
                split_pair(table, operands, 24, lines, width, 0, 0, begin, place + row * width)
                for i from 0 <= i < n by INTERLEAVED:
                    count = min(INTERLEAVED, n - i)
                    for c in range(channels):
                        read(operands.dtype, source + c * channel_step + i * step, step, count, wide[c])
                        lines[c] = wide[c]
                    refused |= split_pair(
                        table, operands, 24, lines, 0, count, 0, begin, place + row * width + columns.begin + i
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
            refused |= pack_pairs(table, operands, x, row_step, rows, columns, height, width, target, block * size)
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
    elif real_t is float and table.pieces:
        rows.begin = rows.end = 0
        size = (table.input_elements + MAX_LANES - 1) // MAX_LANES * MAX_LANES
        pack_pairs(table, operands, x, row_step, rows, columns, 1, size - place, target, place)
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
                        p = t * table.max_positions
                        p_end = min(length, p + table.max_positions)
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
    cdef Py_ssize_t i, n, n_taps, done, tile, chunk, column, step = CHUNK * table.lanes
    cdef const Py_ssize_t *offsets
    cdef const real_t *w
    cdef const real_t *added
    if table.pieces:
        step = max(1, CHUNK_FLOATS // table.depth // TILE_POSITIONS) * TILE_POSITIONS
    for chunk from 0 <= chunk < length by step:
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
                        table.pieces, tile // table.lanes, min(step, length - chunk), n_taps, table.depth,
                        input + chunk // MAX_LANES * table.x_step, table.x_step, w, added,
                        out + column * out_step + chunk, out_step,
                    )
                elif real_t is float:
                    table.level.f32.positions(
                        tile, min(step, length - chunk), n_taps, offsets, table.in_channels,
                        input + chunk, table.x_step, w, added, out + column * out_step + chunk, out_step,
                    )
                else:
                    table.level.f64.positions(
                        tile, min(step, length - chunk), n_taps, offsets, table.in_channels,
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
    cdef Py_ssize_t i, n, t, m, place, run, base, n_taps, runs, length, positions = table.positions()
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
                            products + (m * table.kernel + kernel_index[t]) * table.line
                            + table.classes.tap_offset[table.classes.first_tap[i] + t] + base
                        )
                    if real_t is float:
                        table.level.f32.accumulate(length, n_taps, terms, added[m], sums + run * length)
                    else:
                        table.level.f64.accumulate(length, n_taps, terms, added[m], sums + run * length)
                sums += positions
        n = table.columns(table.classes, block, i)
        sums += (table.padded(n) - n) * positions


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
            table, table.products, block, input, table.input_elements, weights, bias, products, table.line
        )
        add_columns_along_positions(
            table, box, block, products,
            bias + table.bias_offset[block, 0] + table.padded(table.columns(table.products, block, 0)), sums, terms,
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
    cdef Py_ssize_t piece = lanes
    cdef char *target
    cdef Py_ssize_t m, i, part, count
    cdef bint direct = operands.plain and step == sizeof(real_t)
    cdef int64_t o, j, e
    cdef const real_t *rows[MAX_LINE]
    if end - begin < line and not halves:
        line = lanes
    if halves:
        piece = 2 * lanes
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
                elif real_t is float and halves:
                    table.level.halves.transpose_narrow(
                        operands.dtype == BFLOAT16, count, min(lanes, channels - m), rows + part, m,
                        <uint16_t *> target, channel_step // sizeof(uint16_t),
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


cdef void multiply_and_store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const real_t *input, const real_t *weights, const real_t *bias, real_t *spare,
) noexcept nogil:
    """The outputs of one block of channels, the first of which is `channel` of y, in one pass: no sums in between.

    Outputs beyond the last row go to `spare`.
    """
    cdef Py_ssize_t last = table.n_axes - 1
    cdef Py_ssize_t rows = 1, row, rest, outer, place_rest, a, chunk, i, place, together = 2 if table.pairs else 1
    cdef int64_t o
    cdef int64_t idx[MAX_AXES]
    cdef char *y
    cdef char *row_of_outer[MAX_OUTER]
    for a in range(last):
        rows *= box.size[a]
    for row in range(rows):
        rest = row
        place = 0
        for a in range(last - 1, -1, -1):
            idx[a] = rest % box.size[a]
            rest //= box.size[a]
            place += idx[a] * table.steps[a]
        for outer in range(table.places // table.inner_places):
            y = operands.y + channel * operands.y_strides[1]
            y += box.begin[last] * table.inner_places * <Py_ssize_t> sizeof(real_t)
            place_rest = outer
            for a in range(last - 1, -1, -1):
                o = (box.begin[a] + idx[a]) * table.axes[a, STRIDE] + place_rest % table.axes[a, STRIDE]
                place_rest //= table.axes[a, STRIDE]
                if y != NULL and o < table.axes[a, OUTPUT]:
                    y += o * operands.y_strides[a + 1 if a else 0]
                else:
                    y = NULL
            row_of_outer[outer] = y
        for chunk from 0 <= chunk < box.size[last] by CHUNK * table.lanes:
            for i from 0 <= i < table.classes.n by together:
                multiply_into_rows(
                    table, operands, block, i, min(CHUNK * table.lanes, box.size[last] - chunk),
                    input + place + chunk, weights, bias, row_of_outer, chunk * table.inner_places, spare,
                )


cdef void multiply_into_rows(
    BoxTable table, const Operands *operands, Py_ssize_t block, Py_ssize_t first_class, Py_ssize_t n,
    const real_t *input, const real_t *weights, const real_t *bias, char **row_of_outer, Py_ssize_t begin,
    real_t *spare,
) noexcept nogil:
    """`n` cells of a class or, in pairs, of two: from place `begin` on of the rows of outputs that they belong to."""
    cdef Py_ssize_t i, c, place, column, columns, done = 0, tile, n_places = table.classes.places(first_class)
    cdef Py_ssize_t per_row = 1 if table.pairs else table.inner_places
    cdef real_t *targets[MAX_ROWS]
    cdef tap_class_t classes[2]
    cdef char *y
    columns = table.columns(table.classes, block, first_class)
    while done < columns:
        tile = table.tile_width(columns - done)
        for i in range(2 if table.pairs else 1):
            c = first_class + i
            classes[i].taps = table.classes.taps(c)
            classes[i].tap_offset = &table.classes.tap_offset[0] + table.classes.first_tap[c]
            classes[i].w = weights + table.weight_offset[block, c] + done * table.classes.taps(c) * table.depth
            classes[i].bias = bias + table.bias_offset[block, c] + done
        for i in range(tile // per_row):
            column = done + i * per_row
            place = table.place_of_index[table.classes.first_place[first_class] + column % n_places]
            y = row_of_outer[place // table.inner_places]
            targets[i] = spare
            if y != NULL:
                targets[i] = <real_t *> (y + column // n_places * operands.y_strides[1]) + begin
        if real_t is float:
            table.level.f32.positions_out(
                tile, n, table.in_channels, input, table.x_step, classes, table.pairs, table.inner_places, targets,
                operands.stream,
            )
        else:
            table.level.f64.positions_out(
                tile, n, table.in_channels, input, table.x_step, classes, table.pairs, table.inner_places, targets,
                operands.stream,
            )
        done += tile


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
        if operands.one_pass:
            multiply_and_store(
                table, operands, &box, group * table.out_channels + block * table.block, block, input,
                weights + group * table.group_weights, bias + group * table.group_biases, sums,
            )
            continue
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
    operands.one_pass = table.one_pass and y.strides[y.ndim - 1] == y.itemsize
    operands.least, operands.most = magnitudes
    operands.x = cnp.PyArray_BYTES(x)
    operands.y = cnp.PyArray_BYTES(y)
    operands.x_strides = cnp.PyArray_STRIDES(x)
    operands.y_strides = cnp.PyArray_STRIDES(y)
    if table.double:
        return not run_tasks[double](table, &operands, weights, bias, splits, tasks, aligned_scratch, step, n_threads)
    return not run_tasks[float](table, &operands, weights, bias, splits, tasks, aligned_scratch, step, n_threads)

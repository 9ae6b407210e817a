"""The input of a box, packed whole or portion by portion: zeros around it, ordered as micro-kernels read it."""

from libc.stdint cimport uint16_t
from libc.string cimport memmove, memset

from convt._box_operands cimport Box, Operands, precision_in_place, read_line
from convt._box_table cimport BOX, MAX_LANES, BoxTable
from convt._elements cimport read, real_t
from convt._levels cimport MOST_TILE_VECTORS, READS_AHEAD, TILE_CHANNELS, kernels_for
from convt._micro_kernels cimport transpose

cdef enum:
    STRIDED = 512  # floats that wait to be split, where x is not contiguous


cdef void pack_along_channels(
    BoxTable table, const Operands *operands, const char *x, Py_ssize_t channels, Py_ssize_t row_step, Py_ssize_t rows,
    Py_ssize_t n, real_t *target, Py_ssize_t target_row, real_t *square,
) noexcept nogil:
    """`n` places of `rows` rows of so many channels from `x` on, position by position: target[row][place][channel]."""
    cdef Py_ssize_t step = operands.x_strides[table.n_axes], channel_step = operands.x_strides[1]
    cdef Py_ssize_t c, row, p, i, count, offset, source_step, lanes = table.lanes
    cdef bint direct = operands.plain and step == sizeof(real_t)
    cdef const real_t *source
    cdef const char *end
    cdef const char *lines[MAX_LANES]
    cdef const real_t *copies[MAX_LANES]
    cdef real_t *begin
    cdef real_t *places[MAX_LANES]
    for i in range(lanes):
        copies[i] = square + i * lanes
    for c from 0 <= c < channels by lanes:
        for i in range(lanes):  # channels beyond the last one repeat it; what they make goes nowhere
            lines[i] = x + min(c + i, channels - 1) * channel_step
        for row in range(rows):
            for p from 0 <= p < n by lanes:
                if n > lanes:
                    p = min(p, n - lanes)  # whole vectors, over a few places once more
                count = min(lanes, n - p)
                offset = row * row_step + p * step
                begin = target + row * target_row + p * table.place_step + c
                if direct and count == lanes:
                    transpose(
                        table, <const real_t **> lines, offset // <Py_ssize_t> sizeof(real_t), begin, table.place_step
                    )
                    continue
                end = max(lines[0], lines[lanes - 1]) + offset + lanes * <Py_ssize_t> sizeof(real_t)
                source, source_step = square, lanes
                if direct and c + lanes <= channels and end <= operands.x_end:
                    source = <const real_t *> (lines[0] + offset)
                    source_step = channel_step // <Py_ssize_t> sizeof(real_t)
                else:
                    for i in range(lanes):
                        read_line(table, operands, lines[i] + offset, step, count, 0, square + i * lanes)
                if count == lanes:
                    transpose(table, copies, 0, begin, table.place_step)
                    continue
                for i in range(count):
                    places[i] = begin + i * table.place_step
                kernels_for(table.level, source).transpose_to(source, source_step, count, places)


cdef bint pack_pieces(
    BoxTable table, const Operands *operands, const char *x, Py_ssize_t row_step, Py_ssize_t rows, Py_ssize_t n,
    float *target, Py_ssize_t target_row,
) noexcept nogil:
    """`pack_along_channels` for tile registers: target[row][place][32 channels][piece][32] or, of merged taps,
    target[piece][row][place][channel].

    Returns whether an element cannot be multiplied in pieces.
    """
    cdef Py_ssize_t step = operands.x_strides[table.n_axes], channel_step = operands.x_strides[1]
    cdef Py_ssize_t c, row, p, i, count, channels, line_step = channel_step
    cdef int precision = precision_in_place(operands, step)
    cdef bint refused = False
    cdef float wide[TILE_CHANNELS * MAX_LANES]
    cdef const char *source
    for c from 0 <= c < table.place_channels by TILE_CHANNELS:
        channels = min(TILE_CHANNELS, table.place_channels - c)
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
                    target + row * target_row + p * table.place_step + c // TILE_CHANNELS * table.chunk_step,
                    table.place_step, table.piece_step, operands.least, operands.most,
                )
    return refused


cdef inline Py_ssize_t bytes_ahead(Py_ssize_t rows, Py_ssize_t row_bytes) noexcept nogil:
    """How far ahead halves of some rows are fetched: one long row goes on with what the next box packs.

    11 layers of words took 0.96 and 0.99 of the time so, in either order of the runs, 11 of float16 0.97 and 0.92, 64
    channels of 368x368 to one 0.73 and 0.81 and, of float16, 0.71 and 0.67 (Zen 4). On Zen 5 151 layers of words took
    1.01 times as long, one of them 1.25 times, with several rows fetched, too.
    """
    return row_bytes if rows == 1 and not READS_AHEAD else 0


cdef void pack_along_positions(
    BoxTable table, const Operands *operands, const char *x, Py_ssize_t row_step, Py_ssize_t rows,
    Py_ssize_t before, Py_ssize_t n, Py_ssize_t after, real_t *target,
) noexcept nogil:
    """`rows` rows of one channel, each `n` places from `x` on with zeros before and after them."""
    cdef Py_ssize_t row, step = operands.x_strides[table.n_axes]
    if before == 0 and after == 0 and row_step == n * step:
        rows, n = 1, rows * n  # which follow each other: one long row
    if operands.plain and step == sizeof(real_t):
        kernels_for(table.level, target).copy_lines(
            rows, before, n, after, x, row_step, target, before + n + after
        )
        return
    for row in range(rows):
        memset(target, 0, before * sizeof(real_t))
        read_line(table, operands, x + row * row_step, step, n, bytes_ahead(rows, n * step), target + before)
        memset(target + before + n, 0, after * sizeof(real_t))
        target += before + n + after


cdef bint pack_words(
    BoxTable table, const Operands *operands, const char *even, const char *odd, Py_ssize_t row_step, Py_ssize_t rows,
    Py_ssize_t before, Py_ssize_t n, Py_ssize_t after, float *target,
) noexcept nogil:
    """`pack_along_positions` of two channels of bfloat16, the second of which may be NULL for zeros.

    Returns whether an element is of a magnitude that products of pairs would lose.
    """
    cdef Py_ssize_t row, i, j, count, step = operands.x_strides[table.n_axes], pitch = before + n + after
    cdef bint refused = False
    cdef uint16_t lines[2][STRIDED]
    cdef const char *some = <const char *> lines[1] if odd != NULL else NULL
    if step == sizeof(uint16_t):
        if before == 0 and after == 0 and row_step == n * step:
            rows, n = 1, rows * n  # which follow each other: one long row
        return table.level.tiles.word_lines(
            rows, before, n, after, even, odd, row_step, bytes_ahead(rows, n * step), target, pitch,
            operands.least, operands.most,
        )
    for row in range(rows):
        memset(target, 0, pitch * sizeof(float))
        for i from 0 <= i < n by STRIDED:
            count = min(STRIDED, n - i)
            for j in range(count):
                lines[0][j] = (<const uint16_t *> (even + row * row_step + (i + j) * step))[0]
                if odd != NULL:
                    lines[1][j] = (<const uint16_t *> (odd + row * row_step + (i + j) * step))[0]
            refused |= table.level.tiles.word_lines(
                1, 0, count, 0, <const char *> lines[0], some, 0, 0, target + before + i, 0,
                operands.least, operands.most,
            )
        target += pitch
    return refused


cdef inline bint pack_channel(
    BoxTable table, const Operands *operands, const Plane *plane, const char *x, Py_ssize_t c, Py_ssize_t row,
    Py_ssize_t rows, Py_ssize_t column, Py_ssize_t width, real_t *target,
) noexcept nogil:
    """Of a plane of channel `c` of a group, or of two channels as words, some rows, lanes along positions, zeros
    included: `width` places of each from number `column` on. `x` is the first place inside of channel 0.

    Returns whether an element cannot be multiplied in words.
    """
    cdef Py_ssize_t first = min(max(plane.rows.begin, row), row + rows)
    cdef Py_ssize_t last = max(first, min(plane.rows.end, row + rows))
    cdef Py_ssize_t begin = min(max(plane.columns.begin, column), column + width)
    cdef Py_ssize_t end = max(begin, min(plane.columns.end, column + width))
    cdef Py_ssize_t before = begin - column, after = column + width - end, channel_step = operands.x_strides[1]
    cdef real_t *inside = target + (first - row) * width
    cdef bint refused = False
    x += (first - plane.rows.begin) * plane.row_step
    x += (begin - plane.columns.begin) * operands.x_strides[table.n_axes]
    if first > row:
        memset(target, 0, (first - row) * width * sizeof(real_t))
    if real_t is float and table.words:
        x += 2 * c * channel_step
        refused = pack_words(
            table, operands, x, x + channel_step if 2 * c + 1 < table.tap_channels else NULL, plane.row_step,
            last - first, before, end - begin, after, inside,
        )
    else:
        pack_along_positions(
            table, operands, x + c * channel_step, plane.row_step, last - first, before, end - begin, after, inside
        )
    if last < row + rows:
        memset(target + (last - row) * width, 0, (row + rows - last) * width * sizeof(real_t))
    return refused


cdef void pack_portion(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t begin, Py_ssize_t size, real_t *target
) noexcept nogil:
    """`size` places of every channel of a box, zeros around its input included, from place number `begin` on."""
    cdef Py_ssize_t width = part_inside(table, box, table.n_axes - 1).pitch, of_plane = plane_places(table, box)
    cdef Py_ssize_t end = begin + size, left, row, column, rows, part, channel
    cdef Plane plane
    target -= begin
    while begin < end:
        plane = nth_plane(table, operands, box, begin // of_plane)
        row, column = begin % of_plane // width, begin % of_plane % width
        left = min(end - begin, of_plane - begin % of_plane)
        rows, part = left // width, width
        if column or rows == 0:
            rows, part = 1, min(left, width - column)
        for channel in range(table.depth):
            pack_channel(
                table, operands, &plane, plane.x, channel, row, rows, column, part,
                target + channel * table.x_step + begin,
            )
        begin += rows * part
    # What whole vectors read behind the places goes nowhere. It is cleared, as subnormals there would be slow.
    target += end
    for channel in range(table.depth):
        memset(target + channel * table.x_step, 0, (table.x_step - size) * sizeof(real_t))
    memset(target + table.depth * table.x_step - size, 0, MOST_TILE_VECTORS * table.lanes * sizeof(real_t))


cdef bint pack_pairs(
    BoxTable table, const Operands *operands, const char *x, Py_ssize_t row_step, Inside rows, Inside columns,
    Py_ssize_t height, Py_ssize_t width, float *target, Py_ssize_t place,
) noexcept nogil:
    """Rows of every channel with zeros around them, lanes along positions, in pieces, from place number `place` of
    target[16 places][32 channels][piece][pair of channels][16] on. `x` is the first place inside.

    Returns whether an element cannot be multiplied in pieces.
    """
    cdef Py_ssize_t step = operands.x_strides[table.n_axes], channel_step = operands.x_strides[1], line_step
    cdef Py_ssize_t pair, row, c, n = columns.end - columns.begin, channels, strip, begin, end, first, last
    cdef int precision = precision_in_place(operands, step)
    cdef Py_ssize_t together = MAX_LANES if precision and table.unit > 1 else 1
    cdef bint refused = False
    cdef float wide[2][STRIDED]
    cdef float *pairs
    cdef const char *source
    if precision and n == width and row_step == n * step:
        # Rows that follow each other are one long row.
        columns.begin, columns.end = rows.begin * width, rows.end * width
        n = columns.end - columns.begin
        width *= height
        rows.begin, rows.end, height = 0, 1, 1
    # Whole lines, with nothing fetched ahead: of 127 random layers 82 took 0.96 (bfloat16) and 45 0.97 of the time
    # (float32) that they took by 128 places of 32 channels, the next ones fetched meanwhile (Xeon with AMX). Lines of
    # dot products were whole before; what fetched behind them went without a measurement.
    strip = width + MAX_LANES if precision else STRIDED
    for pair from 0 <= pair < table.packed_pairs by together:
        pairs = target + (pair // MAX_LANES * table.pieces * MAX_LANES + pair % MAX_LANES) * MAX_LANES
        for row in range(height):
            channels = table.tap_channels - 2 * pair if rows.begin <= row < rows.end else 0
            end = 0
            while end < width:
                begin = end
                end = min(width, begin + strip - (place + row * width + begin) % MAX_LANES)
                first = min(max(columns.begin, begin), end)
                last = max(first, min(columns.end, end))
                source = x + 2 * pair * channel_step + (row - rows.begin) * row_step + (first - columns.begin) * step
                line_step = channel_step
                if not precision:
                    for c in range(min(2, channels)):
                        read(operands.dtype, source + c * channel_step, step, last - first, wide[c])
                    source, line_step = <const char *> wide, sizeof(wide[0])
                refused |= table.level.tiles.split_positions(
                    table.pieces, precision or 24, source, line_step, channels, together, first - begin,
                    last - first, end - last, pairs, place + row * width + begin, table.x_step, operands.least,
                    operands.most,
                )
    return refused


cdef inline void clear_places(BoxTable table, real_t *target, Py_ssize_t begin, Py_ssize_t end) noexcept nogil:
    cdef Py_ssize_t plane
    for plane in range(table.planes):
        memset(
            target + plane * table.piece_step + begin * table.x_step, 0, (end - begin) * table.x_step * sizeof(real_t)
        )


cdef void clear_around(BoxTable table, Inside rows, Inside columns, real_t *target) noexcept nogil:
    """Zeros at the places around the input of a plane, lanes along channels."""
    cdef Py_ssize_t row, width = columns.pitch
    clear_places(table, target, 0, rows.begin * width)
    for row in range(rows.begin, rows.end):
        clear_places(table, target, row * width, row * width + columns.begin)
        clear_places(table, target, row * width + columns.end, (row + 1) * width)
    clear_places(table, target, rows.end * width, rows.pitch * width)


cdef bint pack_input(
    BoxTable table, const Operands *operands, const Box *box, real_t *target, real_t *square
) noexcept nogil:
    """The box's input, zeros around it, a channel's neighbouring rows after each other as they lie in memory, images as
    one row where they are, and the channels of its groups likewise. Places that the box before had too are moved from
    where they lay in `target`, unless their products are what is kept.

    Returns whether an element cannot be multiplied in pieces or words.
    """
    cdef Py_ssize_t last = table.n_axes - 1
    cdef Inside rows = part_inside(table, box, last - 1), columns = part_inside(table, box, last)
    cdef Py_ssize_t height = rows.pitch, width = columns.pitch, size = height * width
    cdef bint images = table.along_channels and not table.image_runs and images_are_rows(table, operands, box)
    cdef Py_ssize_t nth, channel, place = 0, n_rows, n, piece
    cdef Py_ssize_t shared = box.shared * table.steps[1], channels = box.groups * table.depth
    cdef bint refused = False
    cdef Plane plane
    cdef real_t *begin
    cdef const char *x
    if shared and not table.columns_first:
        for piece in range(table.planes):
            begin = target + piece * table.piece_step
            memmove(
                begin, begin + table.axes[1, BOX] * table.steps[1] * table.x_step,
                shared * table.x_step * sizeof(real_t),
            )
        target += shared * table.x_step
    for nth in range(count_planes(table, box, images)):
        plane = nth_plane(table, operands, box, nth, images)
        place += plane.rows.pitch * plane.columns.pitch
        rows = plane.rows
        if table.along_channels:
            begin = target + plane.place * table.x_step
            if not table.image_runs:
                clear_around(table, rows, plane.columns, begin)
            begin += rows.begin * table.steps[last - 1] * table.x_step + plane.columns.begin * table.place_step
            n_rows, n = plane.n_rows, plane.n
            if plane.row_step == n * operands.x_strides[last + 1] and table.steps[last - 1] == n * table.steps[last]:
                n_rows, n = 1, n_rows * n  # rows that follow each other are one long row
            if real_t is float and table.pieces:
                refused |= pack_pieces(
                    table, operands, plane.x, plane.row_step, n_rows, n, begin, table.steps[last - 1] * table.x_step
                )
            else:
                pack_along_channels(
                    table, operands, plane.x, box.groups * table.tap_channels, plane.row_step, n_rows, n, begin,
                    table.steps[last - 1] * table.x_step, square,
                )
        elif real_t is float and table.pieces:
            refused |= pack_pairs(
                table, operands, plane.x, plane.row_step, rows, columns, height, width, target, nth * size
            )
        else:
            for channel in range(channels):
                x = plane.x + channel // table.depth * table.tap_channels * operands.x_strides[1]
                begin = target + channel * table.x_step + nth * size
                refused |= pack_channel(
                    table, operands, &plane, x, channel % table.depth, 0, rows.pitch, 0, columns.pitch, begin
                )
    if table.along_channels:
        if not table.image_runs:  # the sums of images that a box does not have go nowhere
            clear_places(table, target, place, table.input_elements - shared + table.beyond)
    elif real_t is float and table.pieces:
        rows.begin = rows.end = 0
        size = (table.input_elements - shared + MAX_LANES - 1) // MAX_LANES * MAX_LANES
        pack_pairs(table, operands, operands.x, 0, rows, columns, 1, size - place, target, place)
    else:
        # What whole vectors read past the input goes nowhere. It is cleared, as subnormals there would be slow.
        for channel in range(channels):
            memset(target + channel * table.x_step + place, 0, (table.x_step - place) * sizeof(real_t))
        memset(target + channels * table.x_step, 0, MOST_TILE_VECTORS * table.lanes * sizeof(real_t))
    return refused

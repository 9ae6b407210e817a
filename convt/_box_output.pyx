# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The sums of a box, written to the outputs once: places interleaved, rounded to the storage type."""

from libc.stdint cimport int64_t, uint16_t

from convt._box_operands cimport Box, Operands, count_runs, find_row, row_of_outputs, write_line
from convt._box_table cimport CACHE_LINE, MAX_AXES, OUTPUT, BoxTable, real_t, transpose
from convt._elements cimport BFLOAT16, write

cdef enum:
    MAX_LINE = 32  # elements of a cache line
    INTERLEAVED = 512  # floats that wait to be narrowed


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
    cdef Py_ssize_t rows = 1, row, outer, outer_places, a, e, i, index, position, run, radix
    cdef Py_ssize_t length, positions = table.positions(), column
    cdef Py_ssize_t width = table.block_width(block)
    cdef int64_t end, begin
    cdef int64_t idx[MAX_AXES]
    cdef char *y
    cdef const real_t *of_class
    outer_places = table.places // table.inner_places
    for a in range(last):
        rows *= box.size[a]
    count_runs(table, box, &length)
    begin = box.begin[last] * table.inner_places
    end = min(table.axes[last, OUTPUT], (box.begin[last] + box.size[last]) * table.inner_places)
    for row in range(rows):
        find_row(table, box, row, idx)
        run = position = 0
        radix = 1
        for a in range(last - 1, -1, -1):
            if a < table.run_axis:
                run += idx[a] * radix
                radix *= box.size[a]
            else:
                position += idx[a] * table.steps[a]
        position += run * length
        for outer in range(outer_places):
            y = row_of_outputs(table, operands, box, idx, outer, channel)
            if y == NULL:
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

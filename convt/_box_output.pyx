"""The sums of a box, written to the outputs once: places interleaved, rounded to the storage type (`store`).

Of one pass, lines of sums or, of words, of outputs, which wait for that (`write_lines`, `write_joined`).
"""

from libc.stdint cimport int64_t, uint16_t

from convt._box_operands cimport (
    Box, Operands, array_axis, cells_of, count_runs, find_row, output_item, row_of_outputs, rows_follow, write_line,
    write_outputs,
)
from convt._box_table cimport OUTPUT, PLACES, BoxTable, Scratch
from convt._elements cimport BFLOAT16, real_t, write
from convt._levels cimport CACHE_LINE, MAX_AXES, MOST_LINES, kernels_for, lines_t
from convt._micro_kernels cimport transpose

cdef enum:
    MAX_LINE = 32  # elements of a cache line, or floats of two
    MOST_WIDE = 512  # sums of a row that wait, in order, to be written


cdef inline void store_line(
    BoxTable table, const Operands *operands, Py_ssize_t channels, const real_t **rows, const real_t *bias,
    Py_ssize_t n, char *y, real_t *square,
) noexcept nogil:
    """`n` consecutive outputs, up to `MOST_LINES` cache lines of them, of `channels` channels; rows[i] has the sums of
    the i-th, to which a bias is added."""
    cdef Py_ssize_t step = operands.y_strides[table.n_axes], channel_step = operands.y_strides[1]
    cdef Py_ssize_t m, c, i, part, count, lanes = table.lanes
    cdef Py_ssize_t some = lanes if n % lanes else max(lanes, CACHE_LINE // <Py_ssize_t> sizeof(real_t))
    cdef bint direct = operands.plain and step == sizeof(real_t)
    cdef bint halves = not operands.plain and step == sizeof(uint16_t)
    cdef char *target
    if halves:
        some = 2 * lanes
    if direct and n % (MOST_LINES * some) == 0:
        some *= MOST_LINES
    for m from 0 <= m < channels by lanes:
        for part from 0 <= part < n by some:
            count = min(some, n - part)
            target = y + m * channel_step + part * step
            if direct and count % lanes == 0:
                transpose(
                    table, rows + part, m, <real_t *> target, channel_step // <Py_ssize_t> sizeof(real_t), bias,
                    count // lanes, channels - m, operands.stream,
                )
            elif real_t is float and halves:
                table.halves.transpose_narrow(
                    operands.dtype == BFLOAT16, count, min(lanes, channels - m), rows + part, m, <const float *> bias,
                    <uint16_t *> target, channel_step // <Py_ssize_t> sizeof(uint16_t), operands.stream,
                )
            else:
                for i from 0 <= i < count by lanes:
                    transpose(table, rows + part + i, m, square, lanes, bias)
                    for c in range(min(lanes, channels - m)):
                        write_line(
                            table, operands, square + c * lanes, min(lanes, count - i),
                            target + c * channel_step + i * step, step,
                        )


# The next output of a plane of cells: its row, what of `sums_of_place` is that row's, the outputs left of it, and the
# place in a cell and the position of that cell's sums.
cdef struct Cursor:
    Py_ssize_t row
    Py_ssize_t first
    Py_ssize_t left
    Py_ssize_t place
    Py_ssize_t position


cdef inline void begin_row(
    BoxTable table, Py_ssize_t row, Py_ssize_t row_outputs, const Py_ssize_t *sum_step, Cursor *cursor
) noexcept nogil:
    cdef Py_ssize_t cell_rows = table.axes[table.n_axes - 2, PLACES]
    cursor.row = row
    cursor.first = row % cell_rows * table.inner_places
    cursor.left = row_outputs
    cursor.place = 0
    cursor.position = row // cell_rows * sum_step[table.n_axes - 2]


cdef inline void seek(
    BoxTable table, Py_ssize_t row, Py_ssize_t output, Py_ssize_t row_outputs, const Py_ssize_t *sum_step,
    Cursor *cursor,
) noexcept nogil:
    """To output number `output` of the rows from number `row` on."""
    begin_row(table, row + output // row_outputs, row_outputs, sum_step, cursor)
    output %= row_outputs
    cursor.left -= output
    cursor.place = output % table.inner_places
    cursor.position += output // table.inner_places * sum_step[table.n_axes - 1]


cdef inline void list_sums(
    BoxTable table, const real_t **sums_of_place, const Py_ssize_t *step_of_place, Py_ssize_t row_outputs,
    const Py_ssize_t *sum_step, Cursor *cursor, Py_ssize_t n, const real_t **sums,
) noexcept nogil:
    """Where the sums of the next `n` outputs lie, those of one place after the other: output by output, most
    bfloat16 layers took 1 to 4 % longer."""
    cdef Py_ssize_t inner = table.inner_places, cell_step = sum_step[table.n_axes - 1]
    cdef Py_ssize_t i, j, count, place, position, step
    cdef const real_t *at
    while n:
        count = min(n, cursor.left)
        for j in range(min(inner, count)):
            place, position = cursor.place + j, cursor.position
            if place >= inner:
                place -= inner
                position += cell_step
            step = step_of_place[cursor.first + place]
            at = sums_of_place[cursor.first + place] + position * step
            step *= cell_step
            for i from j <= i < count by inner:
                sums[i] = at
                at += step
        sums += count
        n -= count
        cursor.left -= count
        if cursor.left == 0:
            begin_row(table, cursor.row + 1, row_outputs, sum_step, cursor)
        else:
            cursor.place += count
            cursor.position += cursor.place // inner * cell_step
            cursor.place %= inner


cdef inline void store_place(
    BoxTable table, const Operands *operands, Py_ssize_t channels, const real_t *bias, real_t *sums, char *y
) noexcept nogil:
    """An output of each of `channels` channels, which follow each other in memory. The bias is added to `sums`."""
    kernels_for(table.level, sums).add_rows(1, 1, channels, bias, 0, 0, sums, 0, 0)
    write_outputs(table, operands, <const real_t *> sums, channels, y)


cdef void store_channels(
    BoxTable table, const Operands *operands, Py_ssize_t channels, const real_t *bias, Py_ssize_t row,
    Py_ssize_t row_outputs, Py_ssize_t total, const Py_ssize_t *sum_step, char *y, const Scratch *scratch,
) noexcept nogil:
    """`total` outputs of each of `channels` channels, which follow each other in memory, sums lying along channels:
    rows of `row_outputs` from number `row` of a plane of cells on. `sum_step` holds the positions from a cell to the
    next, per axis.

    Whole cache lines: streamed in parts, with other channels in between, they would cost twice. Floats and doubles that
    are streamed go by aligned pairs of lines (aligned for the first channel): every second line of 16 and more rows
    went at 11 to 14 GB/s, pairs at 20. Where stores to one set of a cache wait, `MOST_LINES` of each channel go
    together.
    """
    cdef Py_ssize_t step = operands.y_strides[table.n_axes]
    cdef Py_ssize_t item = operands.item
    cdef Py_ssize_t line = max(table.lanes, CACHE_LINE // item)
    cdef Py_ssize_t together = 2 * line if operands.stream and operands.plain else line
    cdef Py_ssize_t most = MOST_LINES * line if operands.many_lines else together
    cdef Py_ssize_t unaligned = <size_t> y % (together * item) // item
    cdef Py_ssize_t done = 0, n, rest, i
    cdef real_t *square = <real_t *> scratch.square
    cdef const real_t *sums[MOST_LINES * MAX_LINE]  # of the next outputs; more than floats have
    cdef Cursor cursor
    begin_row(table, row, row_outputs, sum_step, &cursor)
    if channels > 1 and operands.y_strides[1] == item:  # the channels of a place are a row
        for done in range(total):
            list_sums(table, <const real_t **> scratch.rows, scratch.steps, row_outputs, sum_step, &cursor, 1, sums)
            store_place(table, operands, channels, bias, <real_t *> sums[0], y + done * step)
        return
    while done < total:
        n = min(most, total - done)
        # Up to a boundary: from the first output on or, if that lies within a line, over a few once more.
        if operands.stream and unaligned and done == 0:
            n = min(n, together if unaligned % line else together - unaligned)
        elif operands.stream and unaligned % line and done == together:
            done -= unaligned
            n = min(together, total - done)
            seek(table, row, done, row_outputs, sum_step, &cursor)
        rest = n % line
        if n > line:
            n -= rest
        elif rest and done >= line - rest:  # some outputs once more
            done -= line - rest
            n = line
            seek(table, row, done, row_outputs, sum_step, &cursor)
        list_sums(table, <const real_t **> scratch.rows, scratch.steps, row_outputs, sum_step, &cursor, n, sums)
        for i in range(n, line):
            sums[i] = sums[0]
        store_line(table, operands, channels, sums, bias, n, y + done * step, square)
        done += n


cdef inline void copy_runs(
    BoxTable table, Py_ssize_t cells, Py_ssize_t cell_step, const real_t **sums_of_place,
    const Py_ssize_t *step_of_place, Py_ssize_t position, Py_ssize_t places, real_t bias, real_t *target,
    Py_ssize_t target_step,
) noexcept nogil:
    """Some places of neighbouring cells from one of that position on, those that lie together at once."""
    cdef Py_ssize_t e = 0, n, step
    cdef const real_t *sums
    while e < places:
        n, step = 1, step_of_place[e]
        while e + n < places and step_of_place[e + n] == step and sums_of_place[e + n] == sums_of_place[e] + n:
            n += 1
        sums = sums_of_place[e] + position * step
        kernels_for(table.level, sums).biased_rows(cells, n, sums, cell_step * step, bias, target + e, target_step)
        e += n


cdef void store_places(
    BoxTable table, const Operands *operands, const real_t **sums_of_place, const Py_ssize_t *step_of_place,
    real_t bias, Py_ssize_t rows, Py_ssize_t row_outputs, const Py_ssize_t *sum_step, Py_ssize_t row_bytes, char *y,
) noexcept nogil:
    """`rows` rows of outputs of one channel, sums lying along a cell's places, which are in order in the first-level
    cache before they are written."""
    cdef Py_ssize_t cell_rows = table.axes[table.n_axes - 2, PLACES], inner = table.inner_places
    cdef Py_ssize_t row_step = sum_step[table.n_axes - 2], cell_step = sum_step[table.n_axes - 1]
    cdef Py_ssize_t row, first, cell, e, places, position, n, row_cells = (row_outputs - 1) // inner + 1
    cdef Py_ssize_t item = operands.y_strides[table.n_axes], cells = max(1, MOST_WIDE // inner)
    cdef real_t wide[MOST_WIDE]
    for row in range(rows):
        first = row % cell_rows * inner
        for cell from 0 <= cell < row_cells by cells:
            position = row // cell_rows * row_step + cell * cell_step
            for e from 0 <= e < inner by MOST_WIDE:
                places = min(inner - e, MOST_WIDE)
                n = min(cells * places, row_outputs - cell * inner - e)
                if n <= 0:
                    break
                copy_runs(
                    table, (n - 1) // places + 1, cell_step, sums_of_place + first + e, step_of_place + first + e,
                    position, places, bias, wide, places,
                )
                write_outputs(table, operands, wide, n, y + row * row_bytes + (cell * inner + e) * item)


cdef void interleave_halves(
    BoxTable table, const Operands *operands, Py_ssize_t n, const float **row_of_place, uint16_t *out
) noexcept nogil:
    """`n` cells of a row: in registers or, of some numbers of places, in a piece of the first-level cache before."""
    cdef float wide[MOST_WIDE]
    cdef const float *rows[MAX_LINE]
    cdef Py_ssize_t e, i, count, chunk = MOST_WIDE // table.inner_places // table.lanes * table.lanes
    if table.halves.interleave_narrow(operands.dtype == BFLOAT16, n, table.inner_places, row_of_place, out):
        return
    for i from 0 <= i < n by chunk:
        count = min(chunk, n - i)
        for e in range(table.inner_places):
            rows[e] = row_of_place[e] + i
        kernels_for(table.level, wide).interleave(count, table.inner_places, rows, wide, False)
        table.halves.narrow(
            operands.dtype == BFLOAT16, wide, count * table.inner_places, out + i * table.inner_places
        )


cdef inline void store_row(
    BoxTable table, const Operands *operands, const real_t **row_of_place, Py_ssize_t n, char *y
) noexcept nogil:
    """`n` outputs of a row of cells, sums lying along positions."""
    cdef Py_ssize_t step = operands.y_strides[table.n_axes], inner = table.inner_places
    cdef Py_ssize_t e, whole = n // inner
    if real_t is float and not operands.plain and step == sizeof(uint16_t) and inner <= MAX_LINE:
        interleave_halves(table, operands, whole, <const float **> row_of_place, <uint16_t *> y)
    elif operands.plain and step == sizeof(real_t):
        kernels_for(table.level, <real_t *> y).interleave(whole, inner, row_of_place, <real_t *> y, operands.stream)
    else:
        whole = 0
    if whole * inner < n:
        for e in range(inner):
            if whole * inner + e < n:
                write(
                    operands.dtype, row_of_place[e] + whole, (n - e + inner - 1) // inner - whole,
                    y + (whole * inner + e) * step, inner * step,
                )


cdef void store_positions(
    BoxTable table, const Operands *operands, Py_ssize_t channels, const real_t **sums_of_place,
    const Py_ssize_t *step_of_place, Py_ssize_t rows, Py_ssize_t row_outputs, Py_ssize_t row_step,
    Py_ssize_t row_bytes, char *y,
) noexcept nogil:
    """`rows` rows of outputs of `channels` channels, sums lying along positions, `row_step` from a row of cells to the
    next; `sums_of_place` is used up.
    """
    cdef Py_ssize_t cell_rows = table.axes[table.n_axes - 2, PLACES], inner = table.inner_places
    cdef Py_ssize_t m, row, e, first
    for row in range(rows):
        first = row % cell_rows * inner
        for m in range(channels):
            store_row(
                table, operands, sums_of_place + first, row_outputs, y + m * operands.y_strides[1] + row * row_bytes
            )
            for e in range(first, first + inner):
                sums_of_place[e] += step_of_place[e]
        for e in range(first, first + inner):
            sums_of_place[e] += row_step - channels * step_of_place[e]


cdef inline void find_sums(BoxTable table, const Box *box, Py_ssize_t *step) noexcept nogil:
    """Positions from the sums of a cell to those of the next one, per axis."""
    cdef Py_ssize_t a, next_run
    count_runs(table, box, &next_run)
    for a in range(table.n_axes - 1, -1, -1):
        step[a] = table.steps[a]
        if table.image_runs <= a < table.run_axis:
            step[a] = next_run
            next_run *= box.size[a]


cdef void find_places(
    BoxTable table, Py_ssize_t block, Py_ssize_t first, Py_ssize_t n, const real_t *sums, Py_ssize_t position,
    const real_t **sums_of_place, Py_ssize_t *step_of_place,
) noexcept nogil:
    """Where the sums of `n` places of the cell at `position` lie, from place number `first` on, and how far apart those
    of neighbouring cells, along channels, or of neighbouring channels are."""
    cdef Py_ssize_t i, tap_class, column, positions = table.positions
    cdef const real_t *of_class
    for i in range(n):
        tap_class = table.class_of_place[first + i]
        column = table.index_of_place[first + i]
        of_class = sums + table.sums_before[block, tap_class] * positions
        if table.along_channels:
            step_of_place[i] = table.sums_before[block, tap_class + 1] - table.sums_before[block, tap_class]
            sums_of_place[i] = of_class + position * step_of_place[i] + column * table.block_width(block)
        else:
            step_of_place[i] = positions * table.classes.places(tap_class)
            sums_of_place[i] = of_class + column * positions + position


cdef void store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const real_t *bias, const Scratch *scratch,
) noexcept nogil:
    """Write every output of one block of channels, the first of which is `channel` of y; along channels `bias` is added
    to its sums."""
    cdef Py_ssize_t last = table.n_axes - 1, rows_axis = last - 1, inner = table.inner_places
    cdef Py_ssize_t cell_rows = table.axes[rows_axis, PLACES], cells = box.size[rows_axis]
    cdef Py_ssize_t planes = cells_of(box, rows_axis), plane, outer, row, rows, row_step, row_bytes, n, as_one = 1
    cdef Py_ssize_t a, position, width = table.block_width(block)
    cdef Py_ssize_t item = operands.item
    cdef Py_ssize_t sum_step[MAX_AXES]
    cdef int64_t begin, end
    cdef int64_t idx[MAX_AXES]
    cdef const real_t **sums_of_place = <const real_t **> scratch.rows
    cdef char *y
    find_sums(table, box, sum_step)
    row_step = sum_step[rows_axis]
    begin = box.begin[last] * inner
    end = min(table.axes[last, OUTPUT], (box.begin[last] + box.size[last]) * inner)
    rows = min(table.axes[rows_axis, OUTPUT] - box.begin[rows_axis] * cell_rows, cells * cell_rows)
    row_bytes = operands.y_strides[array_axis(rows_axis)]
    n = end - begin
    # One long row; along positions, if its sums follow each other too.
    if rows_follow(table, operands) and (table.along_channels or (cell_rows == 1 and row_step * inner == n)):
        as_one = rows
    for plane in range(planes):
        find_row(table, box, plane * cells, idx)
        position = 0
        for a in range(rows_axis):
            position += idx[a] * sum_step[a]
        for outer from 0 <= outer < table.places // inner by cell_rows:
            y = row_of_outputs(table, operands, box, idx, outer, channel)
            if y == NULL:
                continue
            y += begin * operands.y_strides[last + 1]
            find_places(
                table, block, outer * inner, cell_rows * inner, <const real_t *> scratch.sums, position, sums_of_place,
                scratch.steps,
            )
            if table.along_places and operands.y_strides[last + 1] == item:
                store_places(
                    table, operands, sums_of_place, scratch.steps, (bias + table.bias_offset[block, 0])[0], rows, n,
                    sum_step, row_bytes, y,
                )
            elif table.along_channels:
                for row from 0 <= row < rows by as_one:
                    store_channels(
                        table, operands, width, bias + table.bias_offset[block, 0], row, n, as_one * n, sum_step,
                        y + row * row_bytes, scratch,
                    )
            else:
                store_positions(
                    table, operands, width, sums_of_place, scratch.steps, rows // as_one, as_one * n, row_step,
                    row_bytes, y,
                )


cdef void write_lines(
    BoxTable table, const Operands *operands, const lines_t *lines, const real_t *sums, Py_ssize_t channels,
    Py_ssize_t outers, char **row_of_outer, Py_ssize_t begin,
) noexcept nogil:
    """Lines of sums to y, `begin` outputs into its rows; those of a channel lie one right behind the other as in y."""
    cdef Py_ssize_t row_axis = table.n_axes - 2, m, outer, line, e, cell_rows = table.axes[row_axis, PLACES]
    cdef Py_ssize_t row_bytes = operands.y_strides[array_axis(row_axis)]
    cdef Py_ssize_t item = operands.y_strides[table.n_axes]
    # Not by row_bytes alone: the stride of an axis of one row is any number.
    cdef bint follow = rows_follow(table, operands) and lines.length == table.axes[table.n_axes - 1, OUTPUT]
    cdef char *y
    for m in range(channels):
        for outer from 0 <= outer < outers by cell_rows:
            if follow and row_of_outer[outer + cell_rows - 1] != NULL:
                y = row_of_outer[outer] + m * operands.y_strides[1]
                write_outputs(table, operands, sums, lines.count * cell_rows * lines.length, y)
                sums += lines.count * cell_rows * lines.length
                continue
            for line in range(lines.count):
                for e in range(outer, outer + cell_rows):
                    if row_of_outer[e] != NULL:
                        y = row_of_outer[e] + m * operands.y_strides[1] + line * cell_rows * row_bytes + begin * item
                        write_outputs(table, operands, sums, lines.length, y)
                    sums += lines.length


cdef inline void write_place(
    BoxTable table, const Operands *operands, Py_ssize_t rows, Py_ssize_t of_row, Py_ssize_t outputs,
    Py_ssize_t row_step, const real_t *sums, real_t *y,
) noexcept nogil:
    """The outputs of a place of a column in `rows` rows, `row_step` apart in y, each from the next `of_row` sums."""
    cdef Py_ssize_t row
    if operands.stream and not table.words:  # which are outputs already
        for row in range(rows):
            write_outputs(table, operands, sums + row * of_row, outputs, <char *> (y + row * row_step))
    else:
        kernels_for(table.level, y).copy_lines(
            rows, 0, outputs, 0, <const char *> sums, of_row * <Py_ssize_t> sizeof(real_t), y, row_step
        )


cdef void write_joined(
    BoxTable table, const Operands *operands, Py_ssize_t rows, Py_ssize_t length, const real_t *sums,
    Py_ssize_t channels, Py_ssize_t outers, char **row_of_outer,
) noexcept nogil:
    """`write_lines` for `rows` rows of cells that were multiplied as one: `length` sums or, of words, outputs for
    each place of a column.

    Two halves are copied as a float.
    """
    cdef Py_ssize_t last = table.n_axes - 1, cell_rows = table.axes[last - 1, PLACES], m, outer, e
    cdef Py_ssize_t together = <Py_ssize_t> sizeof(real_t) // output_item(table)
    cdef Py_ssize_t outputs = table.axes[last, OUTPUT] // together, of_row = length // together // rows
    cdef Py_ssize_t row_step = operands.y_strides[array_axis(last - 1)] // <Py_ssize_t> sizeof(real_t)
    cdef bint as_one = operands.stream and rows_follow(table, operands)
    cdef real_t *y
    length = rows * of_row
    for m in range(channels):
        for outer from 0 <= outer < outers by cell_rows:
            if as_one and row_of_outer[outer + cell_rows - 1] != NULL:
                y = <real_t *> (row_of_outer[outer] + m * operands.y_strides[1])
                kernels_for(table.level, y).stream_rows(rows * cell_rows, outputs, cell_rows, sums, of_row, length, y)
                sums += cell_rows * length
                continue
            for e in range(outer, outer + cell_rows):
                if row_of_outer[e] != NULL:
                    y = <real_t *> (row_of_outer[e] + m * operands.y_strides[1])
                    write_place(table, operands, rows, of_row, outputs, cell_rows * row_step, sums, y)
                sums += length

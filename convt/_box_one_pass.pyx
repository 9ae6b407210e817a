# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Boxes multiplied and stored in one pass: sums in registers are written as outputs.

With lanes along positions, where a row of outputs takes its places from one class or two (`multiply_and_store`), or in
tile registers (`multiply_tiles_and_store`).
"""

from libc.stdint cimport int64_t, uint16_t

from convt._box_input cimport first_input, read_in_place
from convt._box_operands cimport (
    Box, Operands, array_axis, find_place, find_row, next_row, precision_in_place, row_at, row_of_outputs,
    rows_follow, write_line,
)
from convt._box_table cimport (
    CHUNK, MAX_AXES, MAX_OUTER, MAX_ROWS, ONE_PASS_COLUMNS, OUTPUT, STRIDE, BoxTable, lines_t, real_t, tap_class_t,
    tile_rows_t,
)

cdef enum:
    CHUNK_VECTORS = 192  # of packed input, for few channels
    SHORT_LINE = 8  # vectors: as many as the tiles of `positions_out` have at most
    SHORT_LINES = 32  # at least, multiplied by a tile of weights at once: few are left after whole tiles

SHORT_LINE_VECTORS = SHORT_LINE  # for the sizes of boxes


cdef void list_outputs(
    BoxTable table, Py_ssize_t block, const real_t *weights, const real_t *bias, BlockOutputs *outputs,
) noexcept nogil:
    """The tiles of a block and the rows that they are written to; `weights` and `bias` are those of a group."""
    cdef Py_ssize_t together = 2 if table.pairs else 1, per_target = 1 if table.pairs else table.inner_places
    cdef Py_ssize_t first, i, j, c, columns, done, index, channel, place, n = 0
    cdef OutputTile *tile
    for first from 0 <= first < table.classes.n by together:
        columns = table.columns(table.classes, block, first)
        done = index = channel = 0
        while done < columns:
            tile = outputs.tiles + n
            tile.rows = table.tile_width(columns - done)
            for i in range(together):
                c = first + i
                tile.classes[i].taps = table.classes.taps(c)
                tile.classes[i].tap_offset = &table.classes.tap_offset[0] + table.classes.first_tap[c]
                tile.classes[i].w = weights + table.weight_offset[block, c] + done * table.classes.taps(c) * table.depth
                tile.classes[i].bias = bias + table.bias_offset[block, c] + done
            tile.targets = tile.rows // per_target
            for j in range(tile.targets):
                place = table.place_of_index[table.classes.first_place[first] + index]
                tile.outer[j] = place // table.inner_places
                tile.channel[j] = channel
                index += per_target
                if index == table.classes.places(first):
                    index = 0
                    channel += 1
            done += tile.rows
            n += 1
    for i in range(table.places // table.inner_places):
        find_place(table, i, outputs.place_of_outer[i])
    outputs.n_tiles, outputs.block = n, block
    outputs.weights, outputs.bias = <const char *> weights, <const char *> bias


cdef void change_group(BlockOutputs *outputs, int classes, const char *weights, const char *bias) noexcept nogil:
    """The tiles of a block with the weights and bias of another group."""
    cdef Py_ssize_t n, i
    cdef tap_class_t *tile_class
    for n in range(outputs.n_tiles):
        for i in range(classes):
            tile_class = &outputs.tiles[n].classes[i]
            tile_class.w = <const char *> tile_class.w + (weights - outputs.weights)
            tile_class.bias = <const char *> tile_class.bias + (bias - outputs.bias)
    outputs.weights, outputs.bias = weights, bias


cdef inline Py_ssize_t lines_together(
    BoxTable table, const Box *box, const int64_t *idx, Py_ssize_t some
) noexcept nogil:
    """Rows of cells from row `idx` of a box on that are multiplied together, about `some`.

    The last cells of their axis, if they lack some outputs, come alone.
    """
    cdef Py_ssize_t axis = table.n_axes - 2, left = box.size[axis] - idx[axis], count = left
    if left >= 2 * some:
        count = (left - 1) // (left // some) + 1
    if (box.begin[axis] + idx[axis] + count) * table.axes[axis, STRIDE] > table.axes[axis, OUTPUT]:
        return max(1, count - 1)
    return count


cdef void narrow_lines(
    BoxTable table, const Operands *operands, const lines_t *lines, const float *sums, Py_ssize_t channels,
    Py_ssize_t outers, char **row_of_outer, Py_ssize_t begin,
) noexcept nogil:
    """Lines of outputs to halves, those of a channel in `sums` one right behind the other as in y; `begin` outputs into
    its rows."""
    cdef Py_ssize_t row_axis = table.n_axes - 2, m, outer, line, e, stride = table.axes[row_axis, STRIDE]
    cdef Py_ssize_t row_bytes = operands.y_strides[array_axis(row_axis)], item = sizeof(uint16_t)
    cdef bint follow = lines.length * item == row_bytes
    cdef char *y
    for m in range(channels):
        for outer from 0 <= outer < outers by stride:
            if follow and row_of_outer[outer + stride - 1] != NULL:
                y = row_of_outer[outer] + m * operands.y_strides[1]
                write_line(table, operands, sums, lines.count * stride * lines.length, y, item)
                sums += lines.count * stride * lines.length
                continue
            for line in range(lines.count):
                for e in range(outer, outer + stride):
                    if row_of_outer[e] != NULL:
                        y = row_of_outer[e] + m * operands.y_strides[1] + line * stride * row_bytes + begin * item
                        write_line(table, operands, sums, lines.length, y, item)
                    sums += lines.length


cdef void multiply_and_store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const real_t *input, const real_t *weights, const real_t *bias, real_t *spare, BlockOutputs *outputs,
) noexcept nogil:
    """The outputs of one block of channels, the first of which is `channel` of y, in one pass: no sums in between, but
    for halves some lines of floats in `spare`.

    Outputs beyond the last row go there, too. `outputs` are those of the same or another block and group.
    """
    cdef Py_ssize_t last = table.n_axes - 1, row_axis = last - 1, stride = table.axes[row_axis, STRIDE], some_lines
    cdef Py_ssize_t rows = 1, row, outer, outers = table.places // table.inner_places, a, chunk, i, j, place, begin
    cdef Py_ssize_t chunk_vectors = max(CHUNK, CHUNK_VECTORS // max(1, table.in_channels)), vectors
    cdef bint beyond
    cdef lines_t lines
    cdef int64_t idx[MAX_AXES]
    cdef char *row_of_outer[MAX_OUTER]
    cdef real_t *targets[MAX_ROWS]
    cdef OutputTile *tile
    cdef Py_ssize_t steps[MAX_AXES]
    for a in range(last):
        steps[a] = table.steps[a]
    lines.x_channel = table.x_step
    if read_in_place(table, operands, box):
        input = <const real_t *> first_input(table, operands, box)
        for a in range(last):
            steps[a] = operands.x_strides[array_axis(a)] // <Py_ssize_t> sizeof(real_t)
        lines.x_channel = operands.x_strides[1] // <Py_ssize_t> sizeof(real_t)
    if outputs.block != block:
        list_outputs(table, block, weights, bias, outputs)
    elif outputs.bias != <const char *> bias:  # weights may be none
        change_group(outputs, 2 if table.pairs else 1, <const char *> weights, <const char *> bias)
    for a in range(last):
        idx[a] = 0
        rows *= box.size[a]
    lines.channels = table.in_channels
    lines.x_line = steps[row_axis]
    lines.out_line = stride * operands.y_strides[array_axis(row_axis)] // <Py_ssize_t> sizeof(real_t)
    vectors = (box.size[last] - 1) // table.lanes + 1
    some_lines = SHORT_LINES if vectors < SHORT_LINE else max(1, chunk_vectors // vectors)
    row = 0
    while row < rows:
        place = 0
        for a in range(last):
            place += idx[a] * steps[a]
        beyond = False
        for outer in range(outers):
            row_of_outer[outer] = row_at(table, operands, box, idx, outputs.place_of_outer[outer], channel)
            beyond |= row_of_outer[outer] == NULL
        lines.count = 1 if beyond else lines_together(table, box, idx, some_lines)
        for chunk from 0 <= chunk < box.size[last] by chunk_vectors * table.lanes:
            begin = (box.begin[last] + chunk) * table.inner_places
            lines.length = min(chunk_vectors * table.lanes, box.size[last] - chunk) * table.inner_places
            lines.length = min(lines.length, table.axes[last, OUTPUT] - begin)
            if not operands.plain:
                lines.out_line = stride * lines.length
            for i in range(outputs.n_tiles):
                tile = outputs.tiles + i
                for j in range(tile.targets):
                    targets[j] = spare
                    outer = tile.outer[j]
                    if not operands.plain:
                        outer += tile.channel[j] * outers
                        targets[j] += (outer // stride * lines.count * stride + outer % stride) * lines.length
                    elif row_of_outer[outer] != NULL:
                        targets[j] = <real_t *> (row_of_outer[outer] + tile.channel[j] * operands.y_strides[1]) + begin
                if real_t is float:
                    table.level.f32.positions_out(
                        tile.rows, table.pairs, table.inner_places, tile.classes, &lines, input + place + chunk,
                        targets, operands.stream,
                    )
                else:
                    table.level.f64.positions_out(
                        tile.rows, table.pairs, table.inner_places, tile.classes, &lines, input + place + chunk,
                        targets, operands.stream,
                    )
            if real_t is float and not operands.plain:
                narrow_lines(
                    table, operands, &lines, spare, table.block_width(block), outers, row_of_outer, begin
                )
        row += lines.count
        idx[row_axis] += lines.count - 1
        next_row(table, box, idx)


cdef void list_rows(
    BoxTable table, const Operands *operands, const Box *box, char **first, tile_rows_t *rows
) noexcept nogil:
    """Where the rows of a box's outputs begin, those of channel 0 and of a cell's first places; what is one row in
    memory counts as one. `first` has room for a pointer per row of cells."""
    cdef Py_ssize_t last = table.n_axes - 1, a, row, n = 1, merged = 1
    cdef int64_t idx[MAX_AXES]
    cdef int64_t place[MAX_AXES]
    rows.precision = precision_in_place(operands, operands.y_strides[last + 1])
    rows.places = table.inner_places
    rows.stream = operands.stream
    rows.first = first
    for a in range(last):
        n *= box.size[a]
    if rows_follow(table, operands) and table.axes[last - 1, STRIDE] == 1:
        merged = box.size[last - 1]
    rows.width = merged * box.size[last]
    find_place(table, 0, place)
    find_row(table, box, 0, idx)
    for row in range(n):
        if row % merged == 0:
            first[row // merged] = (
                row_at(table, operands, box, idx, place, 0)
                + box.begin[last] * table.inner_places * operands.y_strides[last + 1]
            )
        next_row(table, box, idx)


cdef void multiply_tiles_and_store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const float *input, const float *weights, const float *bias, tile_rows_t *rows,
) noexcept nogil:
    """`multiply_and_store` in tile registers, for cells that read one input each."""
    cdef Py_ssize_t inner = table.inner_places, outers = table.places // inner
    cdef Py_ssize_t columns = table.columns(table.classes, block, 0), taps = table.classes.taps(0)
    cdef Py_ssize_t a, i, cells = 1
    cdef Py_ssize_t offsets[ONE_PASS_COLUMNS]
    cdef int64_t idx[MAX_AXES]
    for a in range(table.n_axes):
        cells *= box.size[a]
    find_row(table, box, 0, idx)
    for i in range(columns // inner):
        offsets[i] = (
            row_of_outputs(table, operands, box, idx, i % outers, channel + i // outers)
            - row_of_outputs(table, operands, box, idx, 0, 0)
        )
    rows.offsets = offsets
    table.level.tiles.positions_out(
        table.pieces, columns, cells, taps, table.depth, input, table.x_step,
        weights + table.weight_offset[block, 0], bias + table.bias_offset[block, 0], rows,
    )

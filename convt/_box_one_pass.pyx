"""Boxes multiplied and stored in one pass: sums in registers are written as outputs, or to a few lines in between.

With lanes along positions, where a row of outputs takes its places from one class or two (`multiply_and_store`), or in
tile registers, of cells that read one input (`multiply_tiles_and_store`). Of several, row by row along channels, sums
wait in the first-level cache (`multiply_tile_rows`).
"""

from libc.stdint cimport int64_t
from libc.string cimport memset

from convt._box_input cimport first_input, read_in_place
from convt._box_operands cimport (
    Box, Operands, array_axis, cells_of, find_place, find_row, next_row, output_item, precision_in_place, row_at,
    row_of_outputs, rows_follow,
)
from convt._box_output cimport write_joined, write_lines
from convt._box_table cimport INPUT, ORIGIN, OUTPUT, PLACES, REACH, BoxTable
from convt._elements cimport real_t
from convt._levels cimport (
    CACHE_LINE, JOINED_LINE, LONG_ROW, MANY_SUMS, MAX_AXES, MAX_OUTER, MAX_ROWS, MOST_TILE_VECTORS,
    ONE_PASS_COLUMNS, ROW_PLACES, TILE_FLOATS, kernels_for, lines_t, output_row_t, shared_tap_t, tap_class_t,
    tile_pair_t, tile_rows_t,
)
from convt._micro_kernels cimport positions_out

cdef enum:
    SHORT_LINES = 32  # at least, multiplied by a tile of weights at once: few are left after whole tiles


cdef void list_outputs(
    BoxTable table, Py_ssize_t block, const real_t *weights, const real_t *bias, BlockOutputs *outputs,
) noexcept nogil:
    """The tiles of a block and the rows that they are written to; `weights` and `bias` are those of a group."""
    cdef Py_ssize_t per_target = table.inner_places if table.tile_classes == 1 else 1
    cdef Py_ssize_t first, i, j, columns, done, index, channel, place, n = 0
    cdef OutputTile *tile
    for first from 0 <= first < table.classes.n by table.tile_classes:
        columns = table.columns(table.classes, block, first)
        done = index = channel = 0
        while done < columns:
            tile = outputs.tiles + n
            tile.rows = table.tile_width(columns - done)
            for i in range(table.tile_classes):
                table.set_tap_class(table.classes, block, first + i, done, weights, bias, &tile.classes[i])
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


cdef void change_group(
    BoxTable table, BlockOutputs *outputs, const char *weights, const char *bias
) noexcept nogil:
    """The tiles of a block with the weights and bias of another group."""
    cdef Py_ssize_t n, i
    cdef tap_class_t *tile_class
    if outputs.bias == bias:  # of no taps there are no weights, which do not differ then
        return
    for n in range(outputs.n_tiles):
        for i in range(table.tile_classes):
            tile_class = &outputs.tiles[n].classes[i]
            tile_class.w = <const char *> tile_class.w + (weights - outputs.weights)
            tile_class.bias = <const char *> tile_class.bias + (bias - outputs.bias)
    outputs.weights, outputs.bias = weights, bias


cdef inline Py_ssize_t lines_together(
    BoxTable table, const Operands *operands, const Box *box, const int64_t *idx, Py_ssize_t some
) noexcept nogil:
    """Rows of cells from row `idx` of a box on that are multiplied together, about `some`.

    Of rows that are joined, `some` make whole vectors: so many or, of up to half as many more, all. The last cells of
    their axis come alone if they lack some outputs.
    """
    cdef Py_ssize_t axis = table.n_axes - 2, left = box.size[axis] - idx[axis], count = left
    if operands.joined_rows:
        count = left if 2 * left < 3 * some else some
    elif left >= 2 * some:
        count = (left - 1) // (left // some) + 1
    if (box.begin[axis] + idx[axis] + count) * table.axes[axis, PLACES] > table.axes[axis, OUTPUT]:
        return max(1, count - 1)
    return count


# Rows of cells that are multiplied together.
cdef struct RowsTogether:
    Py_ssize_t row  # of a box, the first of them
    Py_ssize_t count
    Py_ssize_t cells  # of a line, which joined rows make one of
    Py_ssize_t outputs  # likewise, of each row of outputs
    int64_t idx[MAX_AXES]  # of the first
    char *row_of_outer[MAX_OUTER]  # where the first's outputs go, NULL beyond y


# Into what the rows of a box are cut in one pass.
cdef struct RowParts:
    Py_ssize_t vectors  # of a row, the last filled or not
    Py_ssize_t some_lines  # about as many rows of cells are computed together
    Py_ssize_t chunk_vectors  # and so many vectors of each


cdef inline RowParts row_parts(BoxTable table, const Operands *operands, const Box *box) noexcept nogil:
    cdef Py_ssize_t last = table.n_axes - 1, item = table.item, rows_bytes
    cdef Py_ssize_t strip = table.strip_vectors, whole = table.lanes  # rows that make whole vectors
    cdef RowParts parts
    parts.vectors = parts.chunk_vectors = (box.size[last] - 1) // table.lanes + 1
    parts.some_lines = max(1, table.chunk_vectors // parts.vectors)
    if parts.vectors < MOST_TILE_VECTORS:
        parts.some_lines = SHORT_LINES
    if operands.joined_rows:
        while whole % 2 == 0 and whole // 2 * box.size[last] % table.lanes == 0:
            whole //= 2
        parts.some_lines = max(1, JOINED_LINE * table.lanes // (whole * box.size[last])) * whole
        parts.chunk_vectors *= 2 * parts.some_lines  # all that `lines_together` may take
    elif operands.in_lines and not operands.plain:
        parts.chunk_vectors = table.chunk_vectors
    elif operands.in_lines:
        rows_bytes = table.axes[last, OUTPUT] * item * table.axes[last - 1, PLACES]
        parts.some_lines = max(parts.some_lines, LONG_ROW // rows_bytes + 1)
        parts.chunk_vectors = LONG_ROW // (item * table.lanes * table.inner_places) // strip * strip + strip
        if parts.vectors < 2 * parts.chunk_vectors:
            parts.chunk_vectors = parts.vectors
    elif operands.in_strips and parts.vectors % table.one_pass_vectors:  # one or two left make tiles across lines
        parts.some_lines = max(parts.some_lines, table.one_pass_vectors)
    return parts


cdef inline Py_ssize_t whole_vectors(BoxTable table, Py_ssize_t cells) noexcept nogil:
    """As many cells, rounded up; lanes are a power of two."""
    return (cells + table.lanes - 1) & -table.lanes


cdef inline Py_ssize_t strip_cells(BoxTable table, const Operands *operands, Py_ssize_t left) noexcept nogil:
    """Cells of the next strip of a line of which so many are left. Rows that are joined leave two vectors rather than
    one, if strips are wider."""
    cdef Py_ssize_t strip = table.strip_vectors, most = strip * table.lanes
    if operands.joined_rows and strip > 2 and most < left <= most + table.lanes:
        most -= table.lanes
    elif operands.in_strips and not operands.joined_rows and strip % 2 and table.lanes < left <= 2 * table.lanes:
        # Across lines they fill the strip, as two do not: six layers of rows of 32 and 44 to 56 channels took 0.98 of
        # the time. Along one line it makes no difference. Three and more that are left are taken at once: in parts that
        # fill strips across lines, images 80 wide of 64 channels took 1.05 times as long.
        most = table.lanes
    return min(most, left)


cdef inline Py_ssize_t lines_of_strip(BoxTable table, Py_ssize_t cells) noexcept nogil:
    """Lines of so many cells that make about a strip: tiles lie across whole numbers of lines. 64 to 3 channels,
    kernel 4, 32 x 32, took 0.82 of the time it took with tiles over some lines twice."""
    cdef Py_ssize_t lines = max(1, table.strip_vectors * table.lanes // whole_vectors(table, cells))
    cdef Py_ssize_t across = table.one_pass_vectors
    return lines if lines <= across else lines // across * across


cdef inline void pack_strip(
    BoxTable table, const Operands *operands, const lines_t *strip, Py_ssize_t cells, const char *x,
    const char *next_strip, real_t *target,
) noexcept nogil:
    """`cells` cells of each line of a strip, all channels of them, from `x` on. The next strip is fetched.

    What a tile reads lies together: 256 channels that lay a plane apart took 1.13 times as long (a bench of products).
    """
    cdef Py_ssize_t row_step = operands.x_strides[array_axis(table.n_axes - 2)]
    kernels_for(table.level, target).filled_lines(
        table.tap_channels, operands.x_strides[1], strip.count, row_step, cells, x, next_strip - x, target,
        strip.x_channel, strip.x_line,
    )


cdef inline bint meets_border(
    BoxTable table, const Box *box, const RowsTogether *rows, Py_ssize_t before, Py_ssize_t behind
) noexcept nogil:
    """Whether row number `before` of those together has taps before the input, or number `behind` has some behind it.

    With the first and the last row of a strip: whether any has such taps; with its last and first: whether all of them
    have one in common.
    """
    cdef Py_ssize_t a, rows_axis = table.n_axes - 2
    cdef int64_t cell
    for a in range(1, rows_axis + 1):
        cell = box.begin[a] + rows.idx[a]
        if cell + table.axes[a, ORIGIN] + (before if a == rows_axis else 0) < 0:
            return True
        if cell + table.axes[a, REACH] + (behind if a == rows_axis else 0) >= table.axes[a, INPUT]:
            return True
    return False


cdef inline Py_ssize_t lines_at_border(
    BoxTable table, const Box *box, const RowsTogether *rows, Py_ssize_t line, Py_ssize_t count
) noexcept nogil:
    """How many of `count` lines of a strip to multiply at once: at the border those of one tile, if it divides them,
    as taps are left out that lie beyond the input for all of them."""
    cdef Py_ssize_t some = table.border_lines
    return some if count % some == 0 and meets_border(table, box, rows, line, line + count - 1) else count


cdef void leave_out_taps(
    BoxTable table, const Box *box, const RowsTogether *rows, Py_ssize_t first_row, Py_ssize_t last_row,
    const OutputTile *tile, tap_class_t *inside,
) noexcept nogil:
    """A tile's classes from the first tap to the last one that lie within the input for one of some rows, or with one
    tap if none does. Others between these are multiplied by zeros: those of rows, where planes have taps."""
    cdef Py_ssize_t i, t, a, of_table, first, end, rows_axis = table.n_axes - 2
    cdef int64_t low, high
    cdef bint reads
    for i in range(table.tile_classes):
        inside[i] = tile.classes[i]
        of_table = inside[i].tap_offset - &table.classes.tap_offset[0]
        first, end = 0, 0
        for t in range(inside[i].taps):
            reads = True
            for a in range(1, rows_axis + 1):
                low = high = box.begin[a] + rows.idx[a] + table.classes.shifts[of_table + t, a - 1]
                if a == rows_axis:
                    low, high = low + first_row, high + last_row
                reads &= high >= 0 and low < table.axes[a, INPUT]
            if reads:
                first = first if end else t
                end = t + 1
        inside[i].taps = max(end - first, min(1, inside[i].taps))
        inside[i].tap_offset += first
        inside[i].w = <const char *> inside[i].w + first * table.depth * tile.rows * table.item


cdef inline void write_tile(
    BoxTable table, const OutputTile *tile, const tap_class_t *classes, const lines_t *lines, const real_t *x,
    Py_ssize_t moved, bint stream,
) noexcept nogil:
    """Lines of outputs of a tile, so many bytes behind its targets; `classes` are its own, or a part of their taps."""
    cdef Py_ssize_t j
    cdef void *targets[MAX_ROWS]
    for j in range(tile.targets):
        targets[j] = <char *> tile.target[j] + moved
    positions_out(table, tile.rows, classes, lines, x, targets, stream)


cdef void multiply_lines(
    BoxTable table, const Operands *operands, const Box *box, const RowsTogether *rows, const lines_t *lines,
    const BlockOutputs *outputs, const char *source, real_t *input,
) noexcept nogil:
    """Lines of outputs of all tiles of a block, for rows together, strip by strip. Unless `source` is NULL, each is
    packed from there into `input`: whole vectors by its first tile, which reads them where they lie, if there are
    registers for that.

    So 11 layers took 0.97 (float32) and 0.98 of the time (float64) that they took with whole boxes packed before.
    """
    cdef Py_ssize_t all_cells = (lines.length - 1) // table.inner_places + 1, begin = 0, cells, together, width
    cdef Py_ssize_t end, first_row, last_row, row_cells = box.size[table.n_axes - 1]
    cdef Py_ssize_t line, i, moved, item = output_item(table), outputs_before
    cdef Py_ssize_t row_step = operands.x_strides[array_axis(table.n_axes - 2)]
    cdef bint stream = operands.stream and not operands.in_lines, copies, bordered = False
    cdef lines_t part = lines[0]
    cdef const tap_class_t *classes
    cdef tap_class_t inside[2]
    cdef const char *strip = NULL
    cdef const char *next_strip = NULL
    cdef real_t *x
    part.packed = NULL
    part.soon = NULL
    part.soon_channel, part.soon_vector = operands.x_strides[1], 0
    while begin < all_cells:
        cells = strip_cells(table, operands, all_cells - begin)
        width = whole_vectors(table, cells)
        part.length = min(cells * table.inner_places, lines.length - begin * table.inner_places)
        outputs_before = begin * table.inner_places
        if lines.row:
            part.row_left = lines.row - outputs_before % lines.row
            outputs_before += outputs_before // lines.row * lines.row_skip
        together = lines_of_strip(table, cells)
        copies = source != NULL and table.most_sums >= MANY_SUMS and cells == width
        line = end = 0
        while line < lines.count:
            if line == end:  # of a strip
                end = min(line + together, lines.count)
            part.count = end - line
            if table.leaves_out_taps:
                part.count = lines_at_border(table, box, rows, line, end - line)
                first_row, last_row = line, line + part.count - 1
                if operands.joined_rows:
                    first_row, last_row = begin // row_cells, (begin + cells - 1) // row_cells
                bordered = meets_border(table, box, rows, last_row, first_row)
            x = input + begin + line * lines.x_line
            if operands.in_strips:
                part.x_line = width
                part.x_channel = part.count * part.x_line
                x = input + (begin * lines.count + line * part.x_line) * table.tap_channels
            if source != NULL:
                strip = source + begin * <Py_ssize_t> sizeof(real_t) + line * row_step
                next_strip = strip + part.count * row_step
                if lines.count == 1 or (line + part.count == lines.count and begin + cells < all_cells):
                    next_strip = source + (begin + cells) * <Py_ssize_t> sizeof(real_t)
                # Where each of its vectors ends: arrays seldom begin with a cache line, and the first line of a strip
                # is the last one of the strip before. By AVX-512 12 layers took 0.986 of the time (float32) and 0.976
                # (float64), the best 0.95 and 0.93.
                next_strip += CACHE_LINE - 1
                part.soon_vector = row_step if together > 1 else table.lanes * sizeof(real_t)
                if not copies:
                    pack_strip(table, operands, &part, cells, strip, next_strip, x)
            moved = (outputs_before + line * lines.out_line) * item
            for i in range(outputs.n_tiles):
                # Each of the first tiles fetches another vector of the next strip, or two if tiles are few: 64 channels
                # of 400x400 to 16, kernel 1, took 0.66 of the time.
                part.soon = next_strip + i * part.soon_vector if source != NULL and i < table.one_pass_vectors else NULL
                part.soon_second = 0
                if i + outputs.n_tiles < table.one_pass_vectors:
                    part.soon_second = outputs.n_tiles * part.soon_vector
                classes = &outputs.tiles[i].classes[0]
                if bordered:
                    leave_out_taps(table, box, rows, first_row, last_row, outputs.tiles + i, inside)
                    classes = &inside[0]
                if i or not copies:
                    write_tile(table, outputs.tiles + i, classes, &part, x, moved, stream)
                    continue
                part.packed, part.packed_line, part.packed_channel = x, part.x_line, part.x_channel
                part.x_line = row_step // <Py_ssize_t> sizeof(real_t)
                part.x_channel = operands.x_strides[1] // <Py_ssize_t> sizeof(real_t)
                write_tile(table, outputs.tiles, classes, &part, <const real_t *> strip, moved, stream)
                part.packed, part.x_line, part.x_channel = NULL, part.packed_line, part.packed_channel
            line += part.count
        begin += cells


cdef inline void find_targets(
    BoxTable table, const Operands *operands, const lines_t *lines, char **row_of_outer, Py_ssize_t begin,
    real_t *spare, BlockOutputs *outputs,
) noexcept nogil:
    """Where the first of some lines of outputs goes, `begin` into its row: of each tile to y or, in lines, to `spare`;
    what lies beyond y goes there, too."""
    cdef Py_ssize_t outers = table.places // table.inner_places, cell_rows = table.axes[table.n_axes - 2, PLACES]
    cdef Py_ssize_t i, j, outer, row
    cdef OutputTile *tile
    cdef char *target
    for i in range(outputs.n_tiles):
        tile = outputs.tiles + i
        for j in range(tile.targets):
            target = <char *> spare
            outer = tile.outer[j]
            if operands.in_lines:
                outer += tile.channel[j] * outers
                row = outer // cell_rows * lines.count * cell_rows + outer % cell_rows
                target += row * lines.length * output_item(table)
            elif row_of_outer[outer] != NULL:
                target = row_of_outer[outer] + tile.channel[j] * operands.y_strides[1] + begin * output_item(table)
            tile.target[j] = target


cdef inline lines_t lines_of_box(
    BoxTable table, const Operands *operands, const Box *box, real_t **input, Py_ssize_t *steps
) noexcept nogil:
    """What all lines of a box have in common, and its input and `steps` from row to row: packed, or those of x."""
    cdef Py_ssize_t last = table.n_axes - 1, a
    cdef lines_t lines
    memset(&lines, 0, sizeof(lines))
    for a in range(last):
        steps[a] = table.steps[a]
    lines.x_channel = table.x_step
    if read_in_place(table, operands, box):
        input[0] = <real_t *> first_input(table, operands, box)
        for a in range(last):
            steps[a] = operands.x_strides[array_axis(a)] // <Py_ssize_t> sizeof(real_t)
        lines.x_channel = operands.x_strides[1] // <Py_ssize_t> sizeof(real_t)
    lines.channels = table.depth
    lines.x_line = steps[last - 1]
    lines.out_line = table.axes[last - 1, PLACES] * operands.y_strides[array_axis(last - 1)] // output_item(table)
    lines.row = table.axes[last, OUTPUT] if operands.joined_rows and not operands.in_lines else 0
    lines.row_skip = lines.out_line - lines.row
    return lines


cdef inline void take_rows(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t some, Py_ssize_t channel,
    const BlockOutputs *outputs, RowsTogether *rows,
) noexcept nogil:
    """About `some` rows from `rows.idx` on, whose outputs are those of a channel and the following."""
    cdef Py_ssize_t last = table.n_axes - 1, inner = table.inner_places, outer
    cdef bint beyond = False
    for outer in range(table.places // inner):
        rows.row_of_outer[outer] = row_at(table, operands, box, rows.idx, outputs.place_of_outer[outer], channel)
        beyond |= rows.row_of_outer[outer] == NULL
    rows.count = 1 if beyond else lines_together(table, operands, box, rows.idx, some)
    rows.cells = box.size[last]
    rows.outputs = min(rows.cells * inner, table.axes[last, OUTPUT] - box.begin[last] * inner)
    if operands.joined_rows:
        rows.cells *= rows.count
        rows.outputs = rows.cells * inner


cdef inline void multiply_rows(
    BoxTable table, const Operands *operands, const Box *box, const RowParts *parts, RowsTogether *rows,
    lines_t *lines, real_t *input, bint packed, real_t *spare, BlockOutputs *outputs,
) noexcept nogil:
    """The outputs of one group's block, a chunk of the rows' cells at a time; `input` is that of the rows or, in
    strips, of the box."""
    cdef Py_ssize_t last = table.n_axes - 1, inner = table.inner_places, outers = table.places // inner, chunk, begin, a
    cdef Py_ssize_t channels = table.block_width(outputs.block), x
    cdef const char *source = NULL
    lines.count = 1 if operands.joined_rows else rows.count
    for chunk from 0 <= chunk < rows.cells by parts.chunk_vectors * table.lanes:
        begin = (box.begin[last] + chunk) * inner
        lines.length = min(parts.chunk_vectors * table.lanes * inner, rows.outputs - chunk * inner)
        if operands.in_lines:
            lines.out_line = table.axes[last - 1, PLACES] * lines.length
        find_targets(table, operands, lines, rows.row_of_outer, begin, spare, outputs)
        x = chunk
        if operands.in_strips:
            x = (rows.row * parts.vectors * table.lanes + chunk * lines.count) * table.tap_channels
        if not packed:
            source = first_input(table, operands, box) + chunk * <Py_ssize_t> sizeof(real_t)
            for a in range(last):
                source += rows.idx[a] * operands.x_strides[array_axis(a)]
        multiply_lines(table, operands, box, rows, lines, outputs, source, input + x)
        if operands.in_lines and operands.joined_rows:
            write_joined(table, operands, rows.count, lines.length, spare, channels, outers, rows.row_of_outer)
        elif operands.in_lines:
            write_lines(table, operands, lines, spare, channels, outers, rows.row_of_outer, begin)


cdef void multiply_and_store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    real_t *input, bint packed, const real_t *weights, const real_t *bias, real_t *spare, BlockOutputs *outputs,
) noexcept nogil:
    """The outputs of one block of channels of each of a box's groups, the first of which is `channel` of y, in one
    pass: no sums in between but some lines of them in `spare`, where outputs want that. `outputs` are those of the same
    or another block and group. Unless the input is `packed`, it is packed strip by strip, that of one group.
    """
    cdef Py_ssize_t last = table.n_axes - 1, n = cells_of(box, last), outer, a, place, group
    cdef Py_ssize_t steps[MAX_AXES]
    cdef RowParts parts = row_parts(table, operands, box)
    cdef lines_t lines = lines_of_box(table, operands, box, &input, steps)
    cdef RowsTogether rows
    if outputs.block != block:
        list_outputs(table, block, weights, bias, outputs)
    for a in range(last):
        rows.idx[a] = 0
    rows.row = 0
    while rows.row < n:
        take_rows(table, operands, box, parts.some_lines, channel, outputs, &rows)
        place = 0
        for a in range(last if not operands.in_strips else 0):
            place += rows.idx[a] * steps[a]
        for group in range(box.groups):
            change_group(
                table, outputs, <const char *> (weights + group * table.group_weights),
                <const char *> (bias + group * table.group_biases),
            )
            multiply_rows(
                table, operands, box, &parts, &rows, &lines,
                input + (group * table.depth * lines.x_channel + place), packed, spare, outputs,
            )
            for outer in range(table.places // table.inner_places):
                if rows.row_of_outer[outer] != NULL:
                    rows.row_of_outer[outer] += table.group_outputs * operands.y_strides[1]
        rows.row += rows.count
        rows.idx[last - 1] += rows.count - 1
        next_row(table, box, rows.idx)


cdef void list_rows(
    BoxTable table, const Operands *operands, const Box *box, char **first, tile_rows_t *rows
) noexcept nogil:
    """Where the rows of a box's outputs begin, those of channel 0 and of a cell's first places; what is one row in
    memory counts as one. `first` has room for a pointer per row of cells."""
    cdef Py_ssize_t last = table.n_axes - 1, row, as_one = 1
    cdef int64_t idx[MAX_AXES]
    cdef int64_t place[MAX_AXES]
    rows.precision = precision_in_place(operands, operands.y_strides[last + 1])
    rows.places = table.inner_places
    rows.stream = operands.stream
    rows.fetch = operands.fetch
    rows.first = first
    if rows_follow(table, operands) and table.axes[last - 1, PLACES] == 1:
        as_one = box.size[last - 1]
    rows.width = as_one * box.size[last]
    find_place(table, 0, place)
    find_row(table, box, 0, idx)
    for row in range(cells_of(box, last)):
        if row % as_one == 0:
            first[row // as_one] = (
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
    cdef Py_ssize_t i
    cdef Py_ssize_t offsets[ONE_PASS_COLUMNS]
    cdef int64_t idx[MAX_AXES]
    find_row(table, box, 0, idx)
    for i in range(columns // inner):
        offsets[i] = (
            row_of_outputs(table, operands, box, idx, i % outers, channel + i // outers)
            - row_of_outputs(table, operands, box, idx, 0, 0)
        )
    rows.offsets = offsets
    table.level.tiles.positions_out(
        table.pieces, columns, cells_of(box, table.n_axes), taps, table.channel_pairs, input, table.x_step,
        weights + table.weight_offset[block, 0], bias + table.bias_offset[block, 0], rows,
    )


cdef void find_pairs(
    BoxTable table, Py_ssize_t block, Py_ssize_t outer, const float *weights, tile_pair_t *pairs
) noexcept nogil:
    """The pairs of tiles that make a row of outputs of a block: of two places or, where there is but one, of up to 32
    channels."""
    cdef Py_ssize_t inner = table.inner_places, n = (inner + 1) // 2, columns = table.block_width(block), i, j, nth
    cdef Py_ssize_t of_class
    for i in range(n):
        nth = outer * n + i
        pairs[i].taps = table.first_pair_tap[nth + 1] - table.first_pair_tap[nth]
        pairs[i].tap = <const shared_tap_t *> &table.pair_taps[table.first_pair_tap[nth], 0]
        pairs[i].users = 3 if 2 * i + 1 < inner or columns > table.lanes else 1
        pairs[i].w_piece = table.tile_width(columns) // table.lanes * TILE_FLOATS
        for j in range(1 + (2 * i + 1 < inner)):
            of_class = table.class_of_place[outer * inner + 2 * i + j]
            pairs[i].w[j] = weights + table.weight_offset[block, of_class]
        if 2 * i + 1 == inner:
            pairs[i].w[1] = pairs[i].w[0] + TILE_FLOATS


cdef void multiply_tile_rows(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const float *input, const float *weights, const float *bias,
) noexcept nogil:
    """The outputs of a block in tile registers, row by row, for cells that read several inputs each: their sums wait in
    the first-level cache."""
    cdef Py_ssize_t last = table.n_axes - 1, inner = table.inner_places, a, outer, x
    cdef int64_t idx[MAX_AXES]
    cdef tile_pair_t pairs[ROW_PLACES]
    cdef output_row_t y
    y.precision = precision_in_place(operands, operands.y_strides[last + 1])
    y.places, y.stream, y.channels = inner, operands.stream, table.block_width(block)
    y.channel_step, y.height = operands.y_strides[1], table.tile_height
    y.outputs = min(box.size[last] * inner, table.axes[last, OUTPUT] - box.begin[last] * inner)
    for outer in range(table.places // inner):
        find_pairs(table, block, outer, weights, pairs)
        find_row(table, box, 0, idx)
        for _ in range(cells_of(box, last)):
            y.first = row_of_outputs(table, operands, box, idx, outer, channel)
            x = 0
            for a in range(last):
                x += idx[a] * table.steps[a]
            if y.first != NULL:
                y.first += box.begin[last] * inner * operands.y_strides[last + 1]
                table.level.tiles.row_out(
                    table.pieces, pairs, box.size[last], table.tap_channels, input + x * table.x_step, table.x_step,
                    bias + table.bias_offset[block, 0], &y,
                )
            next_row(table, box, idx)

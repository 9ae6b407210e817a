# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The vectorised levels: boxes of cells, multiplied by micro-kernels.

`convt.tiling` explains cells, classes, boxes and runs. A task is a chain of boxes, mostly of one, a group and a range
of output channels. For each box:

1. pack the box's input, zeros around it, so that every cell of a run has its taps at the same offsets (`_box_input`);
   taps that a whole run has in those zeros are left out, and where a run is a cell's images, so are the zeros; what
   is read once is not packed but multiplied where it lies;
2. for each block of channels and each class, call the micro-kernel along the runs: its sums go to a scratch that
   stays in cache, one chain of fused multiply-adds per output; weights that are used once may be multiplied as they
   were given (`multiply_panels`);
3. write the block's output rows once, places interleaved, rounded to the storage type (`_box_output`).

Where a row of outputs takes its places from one class or two, 2 and 3 are one: `multiply_and_store`, and
`multiply_tiles_and_store` in tile registers.

Lanes lie along output channels (input packed position by position, sums transposed on their way out) or along
positions (input packed channel by channel) where output channels are few. The order of a sum depends on neither
boxes nor threads.
"""

cimport numpy as cnp
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t
from libc.string cimport memcpy, memmove, memset

from convt._box_input cimport Inside, first_input, pack_input, part_inside, read_in_place
from convt._box_operands cimport (
    Box, Operands, Scratch, count_runs, find_place, find_row, next_row, precision_in_place, row_at, row_of_outputs,
    rows_follow,
)
from convt._box_output cimport store
from convt._box_table cimport (
    BOX, CACHE_LINE, CELLS, GIVEN_CHANNELS, INPUT, MAX_AXES, MAX_LANES, MAX_OUTER, MAX_ROWS, NO_TAP,
    ONE_PASS_COLUMNS, ORIGIN, OUTPUT, REACH, STRIDE, TILE_POSITIONS, BoxTable, ClassList, lines_t, real_t,
    tap_class_t, tile_rows_t,
)
from convt._box_weights cimport Given, begin_panel, pack_panel, panel_rows
from convt._elements cimport DType, FLOAT32, FLOAT64

from convt._memory import WORKSPACES
from convt.geometry import DTYPES

cnp.import_array()

cdef enum:
    STREAM_BYTES = 1 << 22
    LONG_ROW = 1 << 12
    CHUNK = 12  # vectors of positions; what divides by the widths of most tiles of `positions`
    CHUNK_VECTORS = 192  # of packed input, for few channels
    AHEAD = 8  # channels of x that are fetched early where it lies: 12 to 18 % of 512 channels
    SHORT_LINE = 8  # vectors: as many as the tiles of `positions_out` have at most
    SHORT_LINES = 32  # at least, multiplied by a tile of weights at once: few are left after whole tiles
    MOST_OUTPUT_TILES = 2 * MAX_OUTER  # of a block: as many as places, or as columns of several channels
    CHUNK_FLOATS = 6 << 10  # of packed input that stay in the first-level cache beside weights, for tile registers

STREAM_LIMITS = STREAM_BYTES, LONG_ROW  # of a result and of its row, for the estimate
SHORT_LINE_VECTORS = SHORT_LINE  # for the sizes of boxes


# ---------------------------------------------------------------------------------------------- products

cdef inline Py_ssize_t run_begin(BoxTable table, const Box *box, Py_ssize_t run) noexcept nogil:
    """The first place of a run in the packed input."""
    cdef Py_ssize_t a, base = 0
    for a in range(table.run_axis - 1, table.image_runs - 1, -1):
        base += run % box.size[a] * table.steps[a]
        run //= box.size[a]
    return base


cdef inline const Py_ssize_t *run_taps(
    BoxTable table, ClassList classes, const Box *box, Py_ssize_t i, Py_ssize_t run, Py_ssize_t *inside
) noexcept nogil:
    """Offsets of the taps of class i. Those that only meet what lies beyond the input, on the axes that a run has one
    cell of, are left out; `inside` has room for the list then."""
    cdef Py_ssize_t a, t, first = classes.first_tap[i]
    cdef const Py_ssize_t *offsets = &classes.tap_offset[0] + first
    cdef int64_t cell, place
    for a in range(table.run_axis - 1, 0, -1):
        cell = box.begin[a] + run % box.size[a]
        run //= box.size[a]
        for t in range(classes.taps(i)):
            place = cell + classes.shifts[first + t, a - 1]
            if place < 0 or place >= table.axes[a, INPUT]:
                if offsets != inside:
                    memcpy(inside, offsets, classes.taps(i) * sizeof(Py_ssize_t))
                    offsets = inside
                inside[t] = NO_TAP
    return offsets


cdef inline void multiply_tile(
    BoxTable table, Py_ssize_t positions, Py_ssize_t width, Py_ssize_t taps, const Py_ssize_t *offsets,
    const real_t *input, const real_t *w, const real_t *soon, Py_ssize_t soon_step, real_t *out, Py_ssize_t out_step,
) noexcept nogil:
    """`channels` of the level."""
    cdef int vectors = width // table.lanes
    if real_t is float and table.pieces:
        table.level.tiles.channels(
            table.pieces, positions, vectors, taps, offsets, table.depth, input, table.x_step, w, soon, soon_step, out,
            out_step,
        )
    elif real_t is float:
        table.level.f32.channels(
            positions, vectors, taps, offsets, table.in_channels, input, table.x_step, w, soon, soon_step, out, out_step
        )
    else:
        table.level.f64.channels(
            positions, vectors, taps, offsets, table.in_channels, input, table.x_step, w, soon, soon_step, out, out_step
        )


cdef inline Py_ssize_t tile_begin(
    BoxTable table, Py_ssize_t length, Py_ssize_t tiles, Py_ssize_t tile
) noexcept nogil:
    """The first position of a tile of a run: whole tiles and a rest in tile registers, even ones in vectors."""
    return min(length, tile * table.max_positions) if table.pieces else tile * length // tiles


cdef void multiply_along_channels(
    BoxTable table,
    ClassList classes,
    const Box *box,
    Py_ssize_t block,
    Py_ssize_t runs,
    Py_ssize_t length,
    const real_t *input,
    const real_t *weights,
    real_t *out,
    Py_ssize_t *inside,
) noexcept nogil:
    """The sums of `runs` runs of `length` positions: class after class, [position][column], without their bias.

    `inside` has room for the taps of a class.
    """
    cdef Py_ssize_t i, run, n_taps, n, done, tile, t, p, p_end, soon_step, base, step
    cdef Py_ssize_t tiles = (length + table.max_positions - 1) // table.max_positions
    cdef const Py_ssize_t *offsets
    cdef const real_t *w
    cdef const real_t *soon
    for i in range(classes.n):
        n_taps = classes.taps(i)
        w = weights + table.weight_offset[block, i]
        n = table.columns(classes, block, i)
        step = table.padded(n)
        done = 0
        while done < n:
            tile = table.tile_width(n - done)
            # A tile's weights stay in the second-level cache while all positions pass; each fetches its share of the
            # next tile's.
            soon_step = (tile + runs * tiles - 1) // (runs * tiles)
            for run in range(runs):
                base = run_begin(table, box, run)
                offsets = run_taps(table, classes, box, i, run, inside)
                for t in range(tiles):
                    p, p_end = tile_begin(table, length, tiles, t), tile_begin(table, length, tiles, t + 1)
                    soon = w + n_taps * table.depth * (tile + (run * tiles + t) * soon_step)
                    multiply_tile(
                        table, p_end - p, tile, n_taps, offsets, input + (base + p) * table.x_step, w, soon, soon_step,
                        out + (run * length + p) * step + done, step,
                    )
            w += n_taps * table.depth * tile
            done += tile
        out += step * table.positions()


cdef bint multiply_panels(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t block, Py_ssize_t length, real_t *products,
    const Scratch *scratch,
) noexcept nogil:
    """The products of columns first, [position][column], with weights that are used once, in panels of columns in
    their own order. Instead of many weights the products of few positions are put in order: calls with 8 MB of weights
    and more take 0.66 to 1.02 of the time, most 0.75 to 0.9.

    Returns whether weights cannot be multiplied so.
    """
    cdef Py_ssize_t n = table.columns(table.products, block, 0), step = table.padded(n), first, width
    cdef real_t *out = products + step  # a row further, so that rows can be put in order to where the last one was
    for first from 0 <= first < n by table.panel:
        width = min(table.panel, n - first)
        if real_t is float and table.pieces:
            if pack_panel(table, operands, box.group, block, first, width, <float *> scratch.panel):
                return True
            multiply_panel(table, length, width, scratch, out + first, step)
        elif multiply_given(table, operands, box, block, first, width, length, scratch, out + first):
            return True
    order_columns(table, block, length, out, products)
    return False


cdef void multiply_panel(
    BoxTable table, Py_ssize_t length, Py_ssize_t width, const Scratch *scratch, float *out, Py_ssize_t step
) noexcept nogil:
    """The products with a packed panel of weights."""
    cdef Py_ssize_t tiles = (length + table.max_positions - 1) // table.max_positions, done = 0, tile, t, p, p_end
    cdef const float *input = <const float *> scratch.input
    cdef const float *w = <const float *> scratch.panel
    while done < width:
        tile = table.tile_width(width - done)
        for t in range(tiles):
            p, p_end = tile_begin(table, length, tiles, t), tile_begin(table, length, tiles, t + 1)
            multiply_tile(
                table, p_end - p, tile, 1, &table.products.tap_offset[0], input + p * table.x_step, w, w, 0,
                out + p * step + done, step,
            )
        w += tile * table.depth
        done += tile


cdef bint multiply_given(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t block, Py_ssize_t first, Py_ssize_t width,
    Py_ssize_t length, const Scratch *scratch, real_t *out,
) noexcept nogil:
    """The products with a panel of weights that is not packed, some channels at a time.

    Returns whether they are not finite, as those of every position are if a weight is not.
    """
    cdef Py_ssize_t step = table.padded(table.columns(table.products, block, 0)), c, p, channels, w_step
    cdef const real_t *input = <const real_t *> scratch.input
    cdef const real_t *w
    cdef Given given
    begin_panel(table, operands, box.group, block, first, width, &given)
    for p in range(length):
        memset(out + p * step, 0, table.padded(width) * sizeof(real_t))
    for c from 0 <= c < table.in_channels by GIVEN_CHANNELS:
        channels = min(GIVEN_CHANNELS, table.in_channels - c)
        w = panel_rows(table, &given, c, channels, <real_t *> scratch.panel, &w_step)
        if real_t is float:
            table.level.f32.native_tiles(
                length, channels, table.padded(width), input + c, table.x_step, w, w_step, out, step
            )
        else:
            table.level.f64.native_tiles(
                length, channels, table.padded(width), input + c, table.x_step, w, w_step, out, step
            )
    if real_t is float:
        return not table.level.f32.finite(out, width)
    else:
        return not table.level.f64.finite(out, width)


cdef void order_columns(
    BoxTable table, Py_ssize_t block, Py_ssize_t length, const real_t *source, real_t *target
) noexcept nogil:
    """Rows of [channel][kernel position] as [kernel position][channel]."""
    cdef Py_ssize_t step = table.padded(table.columns(table.products, block, 0)), lanes = table.lanes
    cdef Py_ssize_t width = table.block_width(block), m, k, i
    cdef const real_t *rows[MAX_LANES]
    cdef real_t *targets[MAX_LANES]
    for _ in range(length):
        for m from 0 <= m < width // lanes * lanes by lanes:
            for k from 0 <= k < table.kernel by lanes:
                for i in range(lanes):
                    rows[i] = source + (m + i) * table.kernel + k
                    targets[i] = target + (k + i) * width + m
                if real_t is float:
                    table.level.f32.transpose_to(rows, min(lanes, table.kernel - k), targets)
                else:
                    table.level.f64.transpose_to(rows, min(lanes, table.kernel - k), targets)
        for m in range(width // lanes * lanes, width):
            for k in range(table.kernel):
                target[k * width + m] = source[m * table.kernel + k]
        source += step
        target += step


cdef void add_columns_along_channels(
    BoxTable table, const Box *box, Py_ssize_t block, const real_t *products, real_t *sums
) noexcept nogil:
    """Sums [position][column] of whole images from the products of their input positions, [position][column], without
    their bias."""
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
        memset(sums, 0, rows * cells * step * sizeof(real_t))
        for place in range(table.classes.places(i)):
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
    Py_ssize_t x_step,
    Py_ssize_t ahead,
    Py_ssize_t length,
    const real_t *weights,
    const real_t *bias,
    real_t *out,
    Py_ssize_t out_step,
) noexcept nogil:
    """`length` sums of every class, place and channel of a block: class after class, [column][position].

    A chunk of positions of every input channel is read from memory once and then, from the caches, for every tile.
    `ahead` is 0 for packed input, or how far before its use x is fetched.
    """
    cdef Py_ssize_t i, n, n_taps, done, tile, chunk = 0, size, column, step = CHUNK * table.lanes
    cdef const Py_ssize_t *offsets
    cdef const real_t *w
    cdef const real_t *added
    if table.pieces:
        step = max(1, CHUNK_FLOATS // table.depth // TILE_POSITIONS) * TILE_POSITIONS
    while chunk < length:
        size = min(step, length - chunk)
        if ahead and length - chunk < 2 * step:
            size = length - chunk  # the tiles of a short chunk would read beyond x
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
                        table.pieces, tile // table.lanes, size, n_taps, table.depth,
                        input + chunk // MAX_LANES * x_step, x_step, w, added, out + column * out_step + chunk,
                        out_step,
                    )
                elif real_t is float:
                    table.level.f32.positions(
                        tile, size, n_taps, offsets, table.in_channels, input + chunk, x_step, ahead, w, added,
                        out + column * out_step + chunk, out_step,
                    )
                else:
                    table.level.f64.positions(
                        tile, size, n_taps, offsets, table.in_channels, input + chunk, x_step, ahead, w, added,
                        out + column * out_step + chunk, out_step,
                    )
                w += n_taps * table.depth * tile
                done += tile
                column += tile
        chunk += size


cdef void multiply_places(
    BoxTable table,
    const Operands *operands,
    const Box *box,
    Py_ssize_t block,
    const real_t *input,
    const real_t *weights,
    const real_t *bias,
    real_t *products,
) noexcept nogil:
    """Products of every input place, [kernel position of a channel][place]; the box before has made some of them."""
    cdef Py_ssize_t shared = box.shared * table.steps[1], columns = table.columns(table.products, block, 0)
    cdef Py_ssize_t length = table.input_elements - shared - (table.axes[1, BOX] - box.size[1]) * table.steps[1]
    cdef Py_ssize_t column, image, end, x_step = operands.x_strides[1] // <Py_ssize_t> sizeof(real_t)
    cdef const char *x
    cdef Inside part
    for column in range(columns if shared else 0):
        memmove(
            products + column * table.line, products + column * table.line + table.axes[1, BOX] * table.steps[1],
            shared * sizeof(real_t),
        )
    products += shared
    if not read_in_place(table, operands, box):
        multiply_along_positions(
            table, table.products, block, input, table.x_step, 0, length, weights, bias, products, table.line
        )
        return
    part = part_inside(table, box, 1)
    x = first_input(table, operands, box) + (part.first + part.begin - box.begin[1]) * operands.x_strides[2]
    for image in range(box.size[0]):
        multiply_along_positions(
            table, table.products, block, <const real_t *> x, x_step, AHEAD * x_step, part.end - part.begin, weights,
            bias, products + part.begin, table.line,
        )
        end = table.steps[0] if image < box.size[0] - 1 else length
        for column in range(columns):
            memset(products + column * table.line, 0, part.begin * sizeof(real_t))
            memset(products + column * table.line + part.end, 0, (end - part.end) * sizeof(real_t))
        products += table.steps[0]
        length -= table.steps[0]
        x += operands.x_strides[0]


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


cdef bint multiply(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t block, const real_t *weights,
    const real_t *bias, const Scratch *scratch,
) noexcept nogil:
    """Every sum of one block of channels of a box; along channels without its bias.

    Returns whether weights that are used once cannot be multiplied so.
    """
    cdef real_t *input = <real_t *> scratch.input
    cdef real_t *products = <real_t *> scratch.products
    cdef real_t *sums = <real_t *> scratch.sums
    cdef Py_ssize_t run, runs, length
    if table.along_channels and table.columns_first:
        length = box.size[0] * table.steps[0]
        if not table.in_panels:
            multiply_along_channels(
                table, table.products, box, block, 1, length, input, weights, products, scratch.steps
            )
        elif multiply_panels(table, operands, box, block, length, products, scratch):
            return True
        add_columns_along_channels(table, box, block, products, sums)
    elif table.along_channels:
        runs = count_runs(table, box, &length)
        multiply_along_channels(table, table.classes, box, block, runs, length, input, weights, sums, scratch.steps)
    elif table.columns_first:
        multiply_places(table, operands, box, block, input, weights, bias, products)
        add_columns_along_positions(
            table, box, block, products,
            bias + table.bias_offset[block, 0] + table.padded(table.columns(table.products, block, 0)), sums,
            <const real_t **> scratch.rows,
        )
    else:
        runs = count_runs(table, box, &length)
        for run in range(runs):
            multiply_along_positions(
                table, table.classes, block, input + run_begin(table, box, run), table.x_step, 0, length, weights, bias,
                sums + run * length, table.positions(),
            )
    return False


# A register tile of a class or, in pairs, of two, that is written as outputs.
cdef struct OutputTile:
    Py_ssize_t rows  # of sums of each class
    tap_class_t classes[2]
    Py_ssize_t targets
    Py_ssize_t outer[MAX_ROWS]  # the row of outputs of a cell that each target lies in
    Py_ssize_t offset[MAX_ROWS]  # of its channel from the block's first, in bytes


cdef Py_ssize_t list_tiles(
    BoxTable table, const Operands *operands, Py_ssize_t block, const real_t *weights, const real_t *bias,
    OutputTile *tiles,
) noexcept nogil:
    """The tiles of a block; returns their number."""
    cdef Py_ssize_t together = 2 if table.pairs else 1, per_target = 1 if table.pairs else table.inner_places
    cdef Py_ssize_t first, i, j, c, columns, done, index, channel, place, n = 0
    cdef OutputTile *tile
    for first from 0 <= first < table.classes.n by together:
        columns = table.columns(table.classes, block, first)
        done = index = channel = 0
        while done < columns:
            tile = tiles + n
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
                tile.offset[j] = channel * operands.y_strides[1]
                index += per_target
                if index == table.classes.places(first):
                    index = 0
                    channel += 1
            done += tile.rows
            n += 1
    return n


cdef inline Py_ssize_t lines_together(
    BoxTable table, const Box *box, const int64_t *idx, Py_ssize_t some
) noexcept nogil:
    """Rows of cells from row `idx` of a box on that are multiplied together, about `some`.

    The last cells of their axis, if they lack some outputs, come alone.
    """
    cdef Py_ssize_t axis = table.n_axes - 2, left = box.size[axis] - idx[axis]
    cdef Py_ssize_t count = (left - 1) // max(1, left // some) + 1
    if (box.begin[axis] + idx[axis] + count) * table.axes[axis, STRIDE] > table.axes[axis, OUTPUT]:
        return max(1, count - 1)
    return count


cdef void multiply_and_store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const real_t *input, const real_t *weights, const real_t *bias, real_t *spare,
) noexcept nogil:
    """The outputs of one block of channels, the first of which is `channel` of y, in one pass: no sums in between.

    Outputs beyond the last row go to `spare`.
    """
    cdef Py_ssize_t last = table.n_axes - 1, row_axis = last - 1, n_tiles, some_lines
    cdef Py_ssize_t rows = 1, row, outer, outers = table.places // table.inner_places, a, chunk, i, j, place, begin
    cdef Py_ssize_t chunk_vectors = max(CHUNK, CHUNK_VECTORS // max(1, table.in_channels)), vectors
    cdef bint beyond
    cdef lines_t lines
    cdef int64_t idx[MAX_AXES]
    cdef int64_t place_of_outer[MAX_OUTER][MAX_AXES]
    cdef char *row_of_outer[MAX_OUTER]
    cdef real_t *targets[MAX_ROWS]
    cdef OutputTile tiles[MOST_OUTPUT_TILES]
    cdef OutputTile *tile
    cdef Py_ssize_t steps[MAX_AXES]
    for a in range(last):
        steps[a] = table.steps[a]
    lines.x_channel = table.x_step
    if read_in_place(table, operands, box):
        input = <const real_t *> first_input(table, operands, box)
        for a in range(last):
            steps[a] = operands.x_strides[a + 1 if a else 0] // <Py_ssize_t> sizeof(real_t)
        lines.x_channel = operands.x_strides[1] // <Py_ssize_t> sizeof(real_t)
    n_tiles = list_tiles(table, operands, block, weights, bias, tiles)
    for outer in range(outers):
        find_place(table, outer, place_of_outer[outer])
    find_row(table, box, 0, idx)
    for a in range(last):
        rows *= box.size[a]
    lines.channels = table.in_channels
    lines.x_line = steps[row_axis]
    lines.out_line = (
        table.axes[row_axis, STRIDE] * operands.y_strides[last if row_axis else 0] // <Py_ssize_t> sizeof(real_t)
    )
    vectors = (box.size[last] - 1) // table.lanes + 1
    some_lines = SHORT_LINES if vectors < SHORT_LINE else max(1, chunk_vectors // vectors)
    row = 0
    while row < rows:
        place = 0
        for a in range(last):
            place += idx[a] * steps[a]
        beyond = False
        for outer in range(outers):
            row_of_outer[outer] = row_at(table, operands, box, idx, place_of_outer[outer], channel)
            beyond |= row_of_outer[outer] == NULL
        lines.count = 1 if beyond else lines_together(table, box, idx, some_lines)
        for chunk from 0 <= chunk < box.size[last] by chunk_vectors * table.lanes:
            lines.length = min(chunk_vectors * table.lanes, box.size[last] - chunk)
            begin = (box.begin[last] + chunk) * table.inner_places
            for i in range(n_tiles):
                tile = tiles + i
                for j in range(tile.targets):
                    targets[j] = spare
                    if row_of_outer[tile.outer[j]] != NULL:
                        targets[j] = <real_t *> (row_of_outer[tile.outer[j]] + tile.offset[j]) + begin
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


# ---------------------------------------------------------------------------------------------- tasks

cdef inline void *carve(char **scratch, Py_ssize_t size) noexcept nogil:
    """The next `size` bytes of a scratch, in whole cache lines."""
    cdef char *part = scratch[0]
    scratch[0] += (size + CACHE_LINE - 1) // CACHE_LINE * CACHE_LINE
    return part


cdef Scratch lay_out_scratch(BoxTable table, char *memory) noexcept nogil:
    cdef Scratch scratch
    cdef Py_ssize_t item = sizeof(double) if table.double else sizeof(float)
    scratch.input = carve(&memory, table.input_size() * item)
    scratch.panel = carve(&memory, table.panel_size() * item)
    scratch.products = carve(&memory, table.products_size() * item)
    scratch.sums = carve(&memory, table.sums_size() * item)
    scratch.square = carve(&memory, MAX_LANES * MAX_LANES * item)
    scratch.rows = <const void **> carve(&memory, max(table.places, table.kernel) * sizeof(void *))
    scratch.steps = <Py_ssize_t *> memory
    return scratch


cdef bint run_box(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t first_block, Py_ssize_t end_block,
    const real_t *weights, const real_t *bias, char *memory,
) noexcept nogil:
    """Some blocks of channels of a box. Returns whether its operands cannot be multiplied so."""
    cdef Py_ssize_t block, channel
    cdef Scratch scratch = lay_out_scratch(table, memory)
    cdef real_t *input = <real_t *> scratch.input
    cdef bint refused = False
    cdef tile_rows_t rows
    if not read_in_place(table, operands, box) and pack_input(
        table, operands, box, input, <real_t *> scratch.square
    ):
        return True
    if table.pieces:
        table.level.tiles.configure()
        if operands.one_pass:
            list_rows(table, operands, box, <char **> scratch.sums, &rows)
    weights += box.group * table.group_weights
    bias += box.group * table.group_biases
    for block in range(first_block, end_block):
        channel = box.group * table.out_channels + block * table.block
        if real_t is float and operands.one_pass and table.pieces:
            multiply_tiles_and_store(table, operands, box, channel, block, input, weights, bias, &rows)
        elif operands.one_pass:
            multiply_and_store(table, operands, box, channel, block, input, weights, bias, <real_t *> scratch.sums)
        else:
            refused = multiply(table, operands, box, block, weights, bias, &scratch)
            if refused:
                break
            store(table, operands, box, channel, block, bias, &scratch)
    if table.pieces:
        table.level.tiles.release()
    if operands.stream:
        table.level.f32.drain()
    return refused


cdef bint run_parts(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t first_block, Py_ssize_t end_block,
    const real_t *weights, const real_t *bias, char *scratch,
) noexcept nogil:
    """`run_box`, but apart from the last image, plane and row of a box what can be multiplied in place without them."""
    cdef Box part = box[0]
    cdef Py_ssize_t a = 0
    if operands.in_place and not table.columns_first and not read_in_place(table, operands, box):
        while a < table.n_axes - 2 and box.size[a] == 1:
            a += 1
        part.size[a] -= 1
        if part.size[a] and read_in_place(table, operands, &part):
            run_box(table, operands, &part, first_block, end_block, weights, bias, scratch)
            part.begin[a] += part.size[a]
            part.size[a] = 1
            return run_parts(table, operands, &part, first_block, end_block, weights, bias, scratch)
    return run_box(table, operands, box, first_block, end_block, weights, bias, scratch)


cdef bint run_task(
    BoxTable table,
    const Operands *operands,
    const real_t *weights,
    const real_t *bias,
    Py_ssize_t splits,
    Py_ssize_t task,
    char *scratch,
) noexcept nogil:
    """A chain of boxes of one group, and one part of the group's blocks of channels; parts are the fastest index.

    Returns whether operands of a box cannot be multiplied so: some of its outputs are not written then.
    """
    cdef Py_ssize_t part = task % splits
    cdef Py_ssize_t rest = task // splits % table.chains
    cdef Py_ssize_t a, size, pieces
    cdef int64_t end
    cdef Box box
    for a in range(table.n_axes - 1, -1, -1):
        size = table.axes[a, BOX] * (table.chain if a == 1 else 1)
        pieces = (table.axes[a, CELLS] + size - 1) // size
        box.begin[a] = rest % pieces * size
        box.size[a] = min(table.axes[a, BOX], table.axes[a, CELLS] - box.begin[a])
        rest //= pieces
    box.group = task // splits // table.chains
    box.shared = 0
    end = min(table.axes[1, CELLS], box.begin[1] + table.chain * table.axes[1, BOX])
    while box.begin[1] < end:
        box.size[1] = min(table.axes[1, BOX], end - box.begin[1])
        if run_parts(
            table, operands, &box, part * table.blocks // splits, (part + 1) * table.blocks // splits, weights, bias,
            scratch,
        ):
            return True
        box.begin[1] += table.axes[1, BOX]
        box.shared = table.axes[1, REACH] - table.axes[1, ORIGIN]
    return False


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
    """Returns whether a task refused its operands."""
    cdef Py_ssize_t task, refused = 0
    for task in prange(tasks, schedule="dynamic", num_threads=n_threads):
        refused += run_task(
            table, operands, &weights[0], &bias[0], splits, task, scratch + threadid() * scratch_step
        )
    return refused > 0


cdef bint reads_once(BoxTable table, const Operands *operands) noexcept nogil:
    """Whether a copy of x would be read no more often than x itself: where a tile of places has all columns, or rows
    are long enough to keep what they share in the caches.

    More tiles want a copy, as channels that lie a power of two apart meet in few sets of the caches: up to 1.8 times.
    """
    cdef Py_ssize_t a, columns = table.columns(table.classes, 0, 0)
    if table.pieces or table.along_channels:
        return False
    if table.columns_first:
        return table.n_axes == 2
    for a in range(1, table.n_axes):
        if table.axes[a, ORIGIN] or table.axes[a, REACH] or table.axes[a, CELLS] > table.axes[a, INPUT]:
            return False
    return operands.one_pass and table.blocks == 1 and table.classes.n == 1 and table.tile_width(columns) == columns


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

    Returns whether that was possible: tile registers refuse magnitudes that they would lose, panels weights that are
    not finite. y is undefined otherwise.

    Parameters
    ----------
    x, y : ndarray
        ``(N, C, *I)`` and ``(N, M, *O)``, aligned, native byte order, any strides; `y` overlaps nothing, has elements.
    weights, bias : ndarray
        As `pack` makes them for `table`; both stay in use during the call.
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
    cdef Py_ssize_t a, last_input = 0
    cdef Py_ssize_t tasks = table.group * table.chains * splits
    cdef Py_ssize_t step = (table.workspace + 4095) // 4096 * 4096
    # Allocated here, so that a MemoryError comes before anything is written.
    cdef cnp.ndarray scratch = WORKSPACES.take(n_threads * step + CACHE_LINE)
    cdef char *aligned_scratch = cnp.PyArray_BYTES(scratch)
    aligned_scratch += CACHE_LINE - <size_t> aligned_scratch % CACHE_LINE
    operands.dtype = <DType> <int> DTYPES.index(dtype)
    operands.plain = operands.dtype == FLOAT32 or operands.dtype == FLOAT64
    operands.least, operands.most = magnitudes
    operands.x = cnp.PyArray_BYTES(x)
    operands.y = cnp.PyArray_BYTES(y)
    if table.in_panels:
        operands.w = cnp.PyArray_BYTES(weights)
        weights = bias  # nothing is packed
    operands.x_strides = cnp.PyArray_STRIDES(x)
    operands.y_strides = cnp.PyArray_STRIDES(y)
    # A row whose ends share cache lines with its neighbours' is streamed only where it is long; rows that are stored as
    # one count as one, along channels.
    row_bytes = y.shape[y.ndim - 1] * y.itemsize
    if table.along_channels and rows_follow(table, &operands):
        row_bytes *= table.axes[table.n_axes - 2, OUTPUT]
    operands.stream = operands.plain and y.nbytes >= STREAM_BYTES
    operands.stream &= row_bytes % CACHE_LINE == 0 or row_bytes >= LONG_ROW
    operands.one_pass = table.one_pass and y.strides[y.ndim - 1] == y.itemsize
    operands.in_place = operands.plain and x.strides[x.ndim - 1] == x.itemsize and reads_once(table, &operands)
    operands.in_place &= operands.x_strides[1] > 0
    for a in range(x.ndim):
        operands.in_place &= operands.x_strides[a] >= 0
        last_input += operands.x_strides[a] * (x.shape[a] - 1)
    operands.x_end = operands.x + (last_input + <Py_ssize_t> x.itemsize)
    if table.double:
        return not run_tasks[double](table, &operands, weights, bias, splits, tasks, aligned_scratch, step, n_threads)
    return not run_tasks[float](table, &operands, weights, bias, splits, tasks, aligned_scratch, step, n_threads)

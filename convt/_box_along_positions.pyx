"""The sums of one block of output channels of a box, lanes along positions, in a scratch that stays in cache.

Packed input is multiplied chunk by chunk, class by class. With columns first every input is multiplied by every kernel
position, where it lies or packed portion by portion, and the products of each output are added up.
"""

from libc.stdint cimport int64_t
from libc.string cimport memcpy, memmove, memset

from convt._box_input cimport (
    Plane, count_planes, images_are_rows, nth_plane, pack_portion, plane_places, read_in_place,
)
from convt._box_operands cimport Box, Operands, count_runs, run_begin
from convt._box_table cimport BOX, CHUNK, MAX_LANES, PITCH, BoxTable, Scratch
from convt._elements cimport real_t
from convt._levels cimport kernels_for, tap_class_t
from convt._micro_kernels cimport multiply_positions

cdef enum:
    # Input channels from which a chunk in place is half as long, where all tiles are alike: 0.94 to 0.98 of the time;
    # others 1.12.
    HALF_CHUNK_CHANNELS = 256
    # Input channels that columns first multiply by all columns before the next ones. All at once meet in few sets of
    # the caches where they lie multiples of a page apart: 512 and 1024 of 32x32 to 3 and 8 took 0.67 to 0.78 of the
    # time so, to one 0.86 to 0.91, 2048 to 3 and 12 of 30x40 0.72 to 0.82, others 0.93 to 1.04.
    NEAR_CHANNELS = 256
    AHEAD = 8  # channels of x that are fetched early where it lies: 12 to 18 % of 512 channels
    # But where these are multiples of so many bytes apart: they would put each other out of a first-level cache of
    # 8 ways before they are read (64 channels, AVX2: 43 to 49 GFLOP/s instead of 60 to 73).
    FEW_SETS = 1 << 11
    TILE_POSITIONS = 32  # that products of pieces are made of at once
    CHUNK_FLOATS = 6 << 10  # of packed input that stay in the first-level cache beside weights, for tile registers


cdef void multiply_chunk(
    BoxTable table, Py_ssize_t block, const real_t *input, Py_ssize_t x_step, Py_ssize_t ahead, Py_ssize_t later,
    Py_ssize_t size, const real_t *weights, const real_t *bias, real_t *out, Py_ssize_t out_step,
) noexcept nogil:
    """`size` sums of every class, place and channel of a block: class after class, [column][position]. Of the input,
    tiles fetch what lies `ahead` and, those of the first columns, what lies `later`, unless these are 0.

    Columns first multiply some channels by all columns before the next ones.
    """
    cdef Py_ssize_t i, n, done, tile, column, first, channels, most = table.depth
    cdef tap_class_t of
    if table.in_portions:  # of one tap
        most = NEAR_CHANNELS
    for first from 0 <= first < table.depth by most:
        channels = min(most, table.depth - first)
        column = 0
        for i in range(table.products.n):
            n = table.columns(table.products, block, i)
            done = 0
            while done < n:
                tile = table.tile_width(n - done)
                table.set_tap_class(table.products, block, i, done, weights, bias, &of)
                if real_t is float and table.pieces:
                    table.level.tiles.positions(
                        table.pieces, min(tile, n - done), size, of.taps, table.channel_pairs, input, x_step,
                        <const float *> of.w, <const float *> of.bias, out + column * out_step, out_step,
                    )
                else:
                    if first:
                        of.w, of.bias = <const real_t *> of.w + first * tile, NULL
                    multiply_positions(
                        table, tile, size, &of, channels, input + first * x_step, x_step, ahead,
                        0 if column else later, out + column * out_step, out_step,
                    )
                done += tile
                column += tile


cdef void multiply_chunks(
    BoxTable table, Py_ssize_t block, const real_t *input, Py_ssize_t length, const real_t *weights,
    const real_t *bias, real_t *out, Py_ssize_t out_step,
) noexcept nogil:
    """`length` sums of every column, of packed input: a chunk of positions of every channel is read for the first
    columns and then, from the caches, for the others."""
    cdef Py_ssize_t chunk, begin, step
    if table.pieces:
        step = max(1, CHUNK_FLOATS // table.depth // TILE_POSITIONS) * TILE_POSITIONS
    else:
        step = table.whole_tiles(CHUNK)
    for chunk from 0 <= chunk < length by step:
        begin = chunk // MAX_LANES * table.x_step if table.pieces else chunk
        multiply_chunk(
            table, block, input + begin, table.x_step, 0, 0, min(step, length - chunk), weights, bias, out + chunk,
            out_step,
        )


cdef void set_apart(
    BoxTable table, const Plane *plane, Py_ssize_t begin, Py_ssize_t end, const real_t *joined, real_t *products,
    Py_ssize_t columns,
) noexcept nogil:
    """The products of places [begin, end) of those that a plane holds to where they lie, with zeros between rows."""
    cdef Py_ssize_t width = plane.columns.pitch, before = plane.columns.begin, after = width - plane.columns.end
    cdef Py_ssize_t rows, n, first, left, right, item = sizeof(real_t)
    cdef const real_t *source
    cdef real_t *line
    cdef real_t *target = products + (plane.rows.begin + begin // plane.n) * width
    while begin < end:
        first = begin % plane.n
        n = min(plane.n - first, end - begin)
        rows = (end - begin) // plane.n if n == plane.n else 1
        source, line = joined, target
        left, right = 0 if first else before * item, 0 if first + n < plane.n else after * item
        for _ in range(columns):
            if n == plane.n:
                kernels_for(table.level, line).copy_lines(
                    rows, before, n, after, <const char *> source, n * item, line, width
                )
            else:
                memset(line, 0, left)
                memcpy(line + before + first, source, n * item)
                memset(line + plane.columns.end, 0, right)
            source += table.joined_step
            line += table.product_step
        target += rows * width
        begin += rows * n
        joined += rows * n


cdef void multiply_plane(
    BoxTable table, const Operands *operands, Py_ssize_t block, const Plane *plane, const real_t *weights,
    const real_t *bias, real_t *joined, real_t *products,
) noexcept nogil:
    """The products of a plane where x lies, with zeros around them. Rows that follow each other are multiplied as one
    and then, if there are zeros between them, set apart.

    Tiles of the first columns fetch the next chunk: 41 MB of 64 channels to 1 to 3, kernels 1 to 3, took 0.4 to 0.8 of
    the time (float32) and 0.47 to 0.65 (float64).
    """
    cdef Py_ssize_t x_step = operands.x_strides[1] // <Py_ssize_t> sizeof(real_t), length = plane.n_rows * plane.n
    cdef Py_ssize_t ahead = AHEAD * x_step if x_step * sizeof(real_t) % FEW_SETS else 0, chunk = 0, size, step, column
    cdef Py_ssize_t columns = table.columns(table.products, block, 0), width = plane.columns.pitch
    cdef Py_ssize_t begin = plane.rows.begin * width, end = plane.rows.end * width
    cdef bint half = table.depth >= HALF_CHUNK_CHANNELS and columns % table.most_rows == 0
    cdef bint apart = plane.n < width and plane.n_rows > 1
    if not apart:
        begin += plane.columns.begin
        end = begin + length
    step = table.whole_tiles(CHUNK // 2 if half else CHUNK)
    while chunk < length:
        # The tiles of a short chunk would read beyond the line.
        size = length - chunk if length - chunk < 2 * step else step
        multiply_chunk(
            table, block, <const real_t *> plane.x + chunk, x_step, ahead, step, size, weights, bias,
            joined if apart else products + begin + chunk, table.joined_step if apart else table.product_step,
        )
        if apart:
            set_apart(table, plane, chunk, chunk + size, joined, products, columns)
        chunk += size
    for column in range(columns):
        memset(products + column * table.product_step, 0, begin * sizeof(real_t))
        memset(products + column * table.product_step + end, 0, (plane.rows.pitch * width - end) * sizeof(real_t))


cdef void multiply_packed(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t block, Py_ssize_t length,
    const real_t *weights, const real_t *bias, real_t *packed, real_t *products,
) noexcept nogil:
    """The products of the first `length` places, of which a portion after the other is packed."""
    cdef Py_ssize_t width = table.axes[table.n_axes - 1, PITCH], begin, size, step = table.portion, portions
    if length > step >= width:  # of whole rows, about as many in each
        portions = (length + step - 1) // step
        step = (length // width + portions - 1) // portions * width
    for begin from 0 <= begin < length by step:
        size = min(step, length - begin)
        pack_portion(table, operands, box, begin, size, packed)
        multiply_chunks(table, block, packed, size, weights, bias, products + begin, table.product_step)


cdef void multiply_places(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t block, real_t *input, const real_t *weights,
    const real_t *bias, real_t *products,
) noexcept nogil:
    """Products of every input place, [kernel position of a channel][place]; the box before has made some of them."""
    cdef Py_ssize_t shared = box.shared * table.steps[1], columns = table.columns(table.products, block, 0)
    cdef Py_ssize_t length = table.input_elements - shared - (table.axes[1, BOX] - box.size[1]) * table.steps[1]
    length -= (table.axes[0, BOX] - box.size[0]) * table.steps[0]
    cdef Py_ssize_t column, kept, nth, place = 0
    cdef bint images
    cdef real_t *line
    cdef Plane plane
    products += shared
    for column in range(columns if shared else 0):
        kept = table.kept[column % table.kernel]
        line = products + column * table.product_step - kept
        memmove(line, line + table.axes[1, BOX] * table.steps[1], kept * sizeof(real_t))
    if table.pieces:
        multiply_chunks(table, block, input, length, weights, bias, products, table.product_step)
        return
    if read_in_place(table, operands, box):
        images = images_are_rows(table, operands, box)
        for nth in range(count_planes(table, box, images)):
            plane = nth_plane(table, operands, box, nth, images)
            multiply_plane(table, operands, block, &plane, weights, bias, input, products + plane.place)
            place += plane.rows.pitch * plane.columns.pitch
    else:
        place = count_planes(table, box) * plane_places(table, box)
        multiply_packed(table, operands, box, block, min(length, place), weights, bias, input, products)
    for column in range(columns):
        memset(products + column * table.product_step + place, 0, max(0, length - place) * sizeof(real_t))


cdef void add_columns(
    BoxTable table,
    const Box *box,
    Py_ssize_t block,
    const real_t *products,
    const real_t *added,
    real_t *sums,
    const real_t **terms,
) noexcept nogil:
    """Sums [column][position] from the products of every input place, [kernel position of a channel][place]."""
    cdef Py_ssize_t i, n, t, m, place, run, base, n_taps, runs, length, positions = table.positions
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
                            products + (m * table.kernel + kernel_index[t]) * table.product_step
                            + table.classes.tap_offset[table.classes.first_tap[i] + t] + base
                        )
                    kernels_for(table.level, sums).accumulate(length, n_taps, terms, added[m], sums + run * length)
                sums += positions
        n = table.columns(table.classes, block, i)
        sums += (table.padded(n) - n) * positions


cdef void sum_along_positions(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t block, const real_t *weights,
    const real_t *bias, const Scratch *scratch,
) noexcept nogil:
    """The sums of a block of channels of a box: [column][position], class after class."""
    cdef real_t *input = <real_t *> scratch.input
    cdef real_t *products = <real_t *> scratch.products
    cdef real_t *sums = <real_t *> scratch.sums
    cdef Py_ssize_t run, runs, length
    if table.columns_first:
        multiply_places(table, operands, box, block, input, weights, bias, products)
        bias += table.bias_offset[block, 0] + table.padded(table.columns(table.products, block, 0))
        add_columns(table, box, block, products, bias, sums, <const real_t **> scratch.rows)
        return
    runs = count_runs(table, box, &length)
    for run in range(runs):
        multiply_chunks(
            table, block, input + run_begin(table, box, run), length, weights, bias, sums + run * length,
            table.positions,
        )

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The sums of one block of output channels of a box, in a scratch that stays in cache.

The micro-kernels are called class by class along the runs: one chain of fused multiply-adds per output, slice by slice
of very many input channels. With columns first every input is multiplied by every kernel position, and the products of
each output are added up; weights that are used once may be multiplied as they were given then (`multiply_panels`), and
otherwise packed block by block.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memcpy, memmove, memset

from convt._box_input cimport (
    Plane, count_planes, images_are_rows, nth_image, nth_plane, pack_portion, plane_places, read_in_place,
)
from convt._box_operands cimport Box, Operands, Scratch, count_runs
from convt._box_table cimport (
    BOX, CELLS, CHUNK, GIVEN_CHANNELS, INPUT, MAX_LANES, ORIGIN, PITCH, REACH, BoxTable, ClassList,
)
from convt._box_weights cimport Given, begin_panel, pack_block_panel, pack_panel, panel_rows
from convt._levels cimport (
    MANY_SUMS, MOST_ZEROS, NO_TAP, PAGE, TILE_POSITIONS, WAITING_POSITIONS, positions_t, real_t, tap_t,
)
from convt._micro_kernels cimport accumulate, add_rows, all_finite, copy_lines, transpose_to

cdef enum:
    # Input channels from which a chunk in place is half as long, where all tiles are alike: 0.94 to 0.98 of the time;
    # others 1.12.
    HALF_CHUNK_CHANNELS = 256
    AHEAD = 8  # channels of x that are fetched early where it lies: 12 to 18 % of 512 channels
    # But where these are multiples of so many bytes apart: they would put each other out of a first-level cache of
    # 8 ways before they are read (64 channels, AVX2: 43 to 49 GFLOP/s instead of 60 to 73).
    FEW_SETS = 1 << 11
    CHUNK_FLOATS = 6 << 10  # of packed input that stay in the first-level cache beside weights, for tile registers


cdef inline Py_ssize_t run_begin(BoxTable table, const Box *box, Py_ssize_t run) noexcept nogil:
    """The first place of a run in the packed input."""
    cdef Py_ssize_t a, base = 0
    for a in range(table.run_axis - 1, table.image_runs - 1, -1):
        base += run % box.size[a] * table.steps[a]
        run //= box.size[a]
    return base


cdef inline const tap_t *find_run_taps(
    BoxTable table, ClassList classes, const Box *box, Py_ssize_t i, Py_ssize_t run, tap_t *inside
) noexcept nogil:
    """The taps of class i. Those that only meet what lies beyond the input, on the axes that a run has one cell of, are
    left out; `inside` has room for the list then."""
    cdef Py_ssize_t a, t, first = classes.first_tap[i]
    cdef const tap_t *taps = classes.as_taps(i)
    cdef int64_t cell, place
    for a in range(table.run_axis - 1, 0, -1):
        cell = box.begin[a] + run % box.size[a]
        run //= box.size[a]
        for t in range(classes.taps(i)):
            place = cell + classes.shifts[first + t, a - 1]
            if place < 0 or place >= table.axes[a, INPUT]:
                if taps != inside:
                    memcpy(inside, taps, classes.taps(i) * sizeof(tap_t))
                    taps = inside
                inside[t].offset = NO_TAP
    return taps


cdef inline const tap_t *find_tile_taps(
    BoxTable table, ClassList classes, Py_ssize_t i, int64_t cell, Py_ssize_t positions, const tap_t *taps,
    tap_t *at_end,
) noexcept nogil:
    """The taps of a run for a tile of `positions` of its row, the first of which is its cell number `cell`: with up to
    `MOST_ZEROS` that they meet beyond either end of the input. `at_end` has room for the list then."""
    cdef Py_ssize_t axis = table.n_axes - 1, t, first = classes.first_tap[i], gap = table.gap
    cdef int64_t beyond = cell + (positions - 1) * gap + 1 - table.axes[axis, INPUT], shift
    if not table.row_runs or positions < WAITING_POSITIONS:
        return taps
    if cell + table.axes[axis, ORIGIN] >= 0 and beyond + table.axes[axis, REACH] <= 0:
        return taps
    for t in range(classes.taps(i)):
        shift = classes.shifts[first + t, axis - 1]
        at_end[t].offset = taps[t].offset
        at_end[t].before = <int32_t> max(0, min(MOST_ZEROS, (gap - 1 - cell - shift) // gap))
        at_end[t].after = <int32_t> max(0, min(MOST_ZEROS, (gap - 1 + beyond + shift) // gap))
    return at_end


cdef inline void multiply_tile(
    BoxTable table, Py_ssize_t positions, Py_ssize_t width, Py_ssize_t n_taps, Py_ssize_t row_taps,
    const tap_t *taps, Py_ssize_t channels, bint begun, const real_t *input, const real_t *w,
    const real_t *soon, Py_ssize_t soon_step, real_t *out, Py_ssize_t out_step,
) noexcept nogil:
    """`channels` of the level. Products of pieces are made of all channels at once: sums of them are never `begun`."""
    cdef int vectors = width // table.lanes
    cdef Py_ssize_t x_step = table.gap * table.x_step
    if real_t is float and table.pieces:
        table.level.tiles.channels(
            table.pieces, positions, vectors, n_taps, taps, table.channel_pairs, input, x_step, w, soon, soon_step,
            out, out_step,
        )
    elif real_t is float:
        table.level.f32.channels(
            positions, vectors, n_taps, row_taps, taps, channels, input, x_step, w, soon, soon_step, begun, out,
            out_step,
        )
    else:
        table.level.f64.channels(
            positions, vectors, n_taps, row_taps, taps, channels, input, x_step, w, soon, soon_step, begun, out,
            out_step,
        )


cdef inline Py_ssize_t count_tiles(BoxTable table, Py_ssize_t length, Py_ssize_t width) noexcept nogil:
    """Tiles of a run, `width` columns wide."""
    cdef Py_ssize_t most = table.tile_positions(width)
    return (length + most - 1) // most


cdef inline Py_ssize_t tile_begin(
    BoxTable table, Py_ssize_t length, Py_ssize_t tiles, Py_ssize_t tile
) noexcept nogil:
    """The first position of a tile of a run: even ones or, where positions come in units, whole tiles and a rest."""
    return min(length, tile * table.most_sums // 2) if table.unit > 1 else tile * length // tiles


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
    const Scratch *scratch,
) noexcept nogil:
    """The sums of `runs` runs of `length` positions: class after class, [position][column], without their bias.

    Of many input channels a slice at a time: all positions pass while its weights stay in the second-level cache, then
    their sums go on with the next. A tile takes every `gap`th position of a run.
    """
    cdef Py_ssize_t i, run, n_taps, n, done, tile, t, p, p_end, soon_step, base, step, first, depth, gap = table.gap
    cdef Py_ssize_t tiles, count, part, begin, some, nth, slice = table.depth if table.pieces else table.slice
    cdef int64_t cell
    cdef const tap_t *taps
    cdef const tap_t *of_tile
    cdef const real_t *w
    cdef const real_t *soon
    for i in range(classes.n):
        n_taps = classes.taps(i)
        w = weights + table.weight_offset[block, i]
        n = table.columns(classes, block, i)
        step = table.padded(n) if table.columns_first else table.sums_step(n)
        done = 0
        while done < n:
            tile = table.tile_width(n - done)
            tiles = runs * gap * count_tiles(table, (length + gap - 1) // gap, tile)
            # Each tile of positions fetches its share of the weights that come next.
            soon_step = (tile + tiles - 1) // tiles
            for first from 0 <= first < table.depth by slice:
                depth = min(slice, table.depth - first)
                nth = 0
                for part in range(runs * gap):
                    run, begin = part // gap, part % gap
                    base = run_begin(table, box, run)
                    taps = find_run_taps(table, classes, box, i, run, scratch.run_taps)
                    some = (length - begin + gap - 1) // gap
                    count = count_tiles(table, some, tile)
                    p_end = 0
                    for t in range(count):
                        p, p_end = p_end, tile_begin(table, some, count, t + 1)
                        soon = w + n_taps * depth * (tile + nth * soon_step)
                        nth += 1
                        cell = box.begin[table.n_axes - 1] + begin + p * gap
                        of_tile = find_tile_taps(table, classes, i, cell, p_end - p, taps, scratch.tile_taps)
                        multiply_tile(
                            table, p_end - p, tile, n_taps, classes.row_taps[i], of_tile, depth, first > 0,
                            input + (base + begin + p * gap) * table.x_step + first, w, soon, soon_step,
                            out + (run * length + begin + p * gap) * step + done, gap * step,
                        )
                w += n_taps * depth * tile
            done += tile
        out += step * table.positions


cdef bint multiply_panels(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t block, Py_ssize_t length, real_t *products,
    const Scratch *scratch,
) noexcept nogil:
    """The products of columns first, [position][column], with weights that are used once, in panels of columns in
    the caller's order. To put the few products in order is cheaper than the many weights: in tile registers calls
    with 8 MB of weights and more take 0.66 to 1.02 of the time, most 0.75 to 0.9, with vectors see `Boxes.fit_panels`.

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
    cdef Py_ssize_t tiles = count_tiles(table, length, 2 * table.lanes), done = 0, tile, t, p, p_end
    cdef const float *input = <const float *> scratch.input
    cdef const float *w = <const float *> scratch.panel
    while done < width:
        tile = table.tile_width(width - done)
        for t in range(tiles):
            p, p_end = tile_begin(table, length, tiles, t), tile_begin(table, length, tiles, t + 1)
            multiply_tile(
                table, p_end - p, tile, 1, 1, table.products.as_taps(0), table.depth, False,
                input + p * table.x_step, w, w, 0, out + p * step + done, step,
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
    cdef Py_ssize_t step = table.padded(table.columns(table.products, block, 0)), p, channels, w_step, later
    cdef Py_ssize_t most, chunks, chunk, c = 0
    cdef bint copied, few
    cdef const real_t *input = <const real_t *> scratch.input
    cdef const real_t *w
    cdef Given given
    begin_panel(table, operands, box.group, block, first, width, &given)
    # Rows that meet in one set of a cache are copied where a tile has few positions, which reads them again and again:
    # by AVX2 0.65 to 0.99 of the time (9 layers of floats), of doubles 0.70 to 1.11.
    copied = table.most_sums < MANY_SUMS and given.channel_step % PAGE == 0
    # Of few positions the products wait for weights, which are fetched meanwhile, fewer channels at a time: their rows
    # meet in few sets of the caches. 512 to 256 channels, kernel 4, stride 2, 4x4: 0.8 of the time.
    few = operands.plain and length <= 2 * table.most_sums and not copied
    most = GIVEN_CHANNELS // 2 if few else GIVEN_CHANNELS
    chunks = (table.in_channels + most - 1) // most
    for p in range(length):
        memset(out + p * step, 0, table.padded(width) * sizeof(real_t))
    for chunk in range(chunks):
        channels = (chunk + 1) * table.in_channels // chunks - c
        w = panel_rows(table, &given, c, channels, not few, copied, <real_t *> scratch.panel, &w_step)
        later = 0
        if few and w != scratch.panel:  # not copied: the next channels' or, after the last ones', the next panel's
            later = channels * w_step if c + channels < table.in_channels else width - c * w_step
        if real_t is float:
            table.level.f32.native_tiles(
                length, channels, table.padded(width), input + c, table.x_step, w, w_step, later, out, step
            )
        else:
            table.level.f64.native_tiles(
                length, channels, table.padded(width), input + c, table.x_step, w, w_step, later, out, step
            )
        c += channels
    return not all_finite(table, out, width)


cdef void order_columns(
    BoxTable table, Py_ssize_t block, Py_ssize_t length, const real_t *source, real_t *target
) noexcept nogil:
    """Rows of [channel][kernel position] as [kernel position][channel]."""
    cdef Py_ssize_t step = table.padded(table.columns(table.products, block, 0)), lanes = table.lanes
    cdef Py_ssize_t width = table.block_width(block), m, k, i
    cdef real_t *targets[MAX_LANES]
    for _ in range(length):
        for m from 0 <= m < width // lanes * lanes by lanes:
            for k from 0 <= k < table.kernel by lanes:
                for i in range(lanes):
                    targets[i] = target + (k + i) * width + m
                transpose_to(
                    table, source + m * table.kernel + k, table.kernel, min(lanes, table.kernel - k), targets
                )
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
        step = table.sums_step(table.columns(table.classes, block, i))
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
                    add_rows(
                        table, end - begin, width,
                        products + (position + begin) * product_step + kernel_index[t] * width, product_step,
                        sums + (row * cells + begin) * step + place * width, step,
                    )
        sums += step * table.positions


cdef void multiply_chunk(
    BoxTable table, Py_ssize_t block, const real_t *input, Py_ssize_t x_step, Py_ssize_t ahead, Py_ssize_t later,
    Py_ssize_t size, const real_t *weights, const real_t *bias, real_t *out, Py_ssize_t out_step,
) noexcept nogil:
    """`size` sums of every class, place and channel of a block: class after class, [column][position]. Of the input,
    tiles fetch what lies `ahead` and, those of the first columns, what lies `later`, unless these are 0."""
    cdef Py_ssize_t i, n, n_taps, done, tile, column = 0
    cdef const Py_ssize_t *offsets
    cdef const real_t *w
    cdef const real_t *added
    cdef positions_t positions = table.level.tiles.word_positions if table.words else table.level.f32.positions
    for i in range(table.products.n):
        n_taps = table.products.taps(i)
        offsets = &table.products.tap_offset[0] + table.products.first_tap[i]
        w = weights + table.weight_offset[block, i]
        n = table.columns(table.products, block, i)
        done = 0
        while done < n:
            tile = table.tile_width(n - done)
            added = bias + table.bias_offset[block, i] + done
            if real_t is float and table.pieces:
                table.level.tiles.positions(
                    table.pieces, min(tile, n - done), size, n_taps, table.channel_pairs, input, x_step, w, added,
                    out + column * out_step, out_step,
                )
            elif real_t is float:
                positions(
                    tile, size, n_taps, offsets, table.depth, input, x_step, ahead, 0 if column else later, w, added,
                    out + column * out_step, out_step,
                )
            else:
                table.level.f64.positions(
                    tile, size, n_taps, offsets, table.depth, input, x_step, ahead, 0 if column else later, w, added,
                    out + column * out_step, out_step,
                )
            w += n_taps * table.depth * tile
            done += tile
            column += tile


cdef void multiply_along_positions(
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
                copy_lines(table, rows, before, n, after, <const char *> source, n * item, line, width)
            else:
                memset(line, 0, left)
                memcpy(line + before + first, source, n * item)
                memset(line + plane.columns.end, 0, right)
            source += table.joined_step
            line += table.line
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
        # The tiles of a short chunk would read beyond x.
        size = length - chunk if length - chunk < 2 * step else step
        multiply_chunk(
            table, block, <const real_t *> plane.x + chunk, x_step, ahead, step, size, weights, bias,
            joined if apart else products + begin + chunk, table.joined_step if apart else table.line,
        )
        if apart:
            set_apart(table, plane, chunk, chunk + size, joined, products, columns)
        chunk += size
    for column in range(columns):
        memset(products + column * table.line, 0, begin * sizeof(real_t))
        memset(products + column * table.line + end, 0, (plane.rows.pitch * width - end) * sizeof(real_t))


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
        multiply_along_positions(table, block, packed, size, weights, bias, products + begin, table.line)


cdef void multiply_places(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t block, real_t *input, const real_t *weights,
    const real_t *bias, real_t *products,
) noexcept nogil:
    """Products of every input place, [kernel position of a channel][place]; the box before has made some of them."""
    cdef Py_ssize_t shared = box.shared * table.steps[1], columns = table.columns(table.products, block, 0)
    cdef Py_ssize_t length = table.input_elements - shared - (table.axes[1, BOX] - box.size[1]) * table.steps[1]
    cdef Py_ssize_t column, kept, nth, planes, place
    cdef bint as_rows
    cdef real_t *line
    cdef Plane plane
    products += shared
    for column in range(columns if shared else 0):
        kept = table.kept[column % table.kernel]
        line = products + column * table.line - kept
        memmove(line, line + table.axes[1, BOX] * table.steps[1], kept * sizeof(real_t))
    if table.pieces:
        multiply_along_positions(table, block, input, length, weights, bias, products, table.line)
        return
    if read_in_place(table, operands, box):
        as_rows = images_are_rows(table, operands, box)
        planes = box.size[0] if as_rows else count_planes(table, box)
        for nth in range(planes):
            plane = nth_image(table, operands, box, nth) if as_rows else nth_plane(table, operands, box, nth)
            multiply_plane(table, operands, block, &plane, weights, bias, input, products + plane.place)
        place = planes * plane.rows.pitch * plane.columns.pitch
    else:
        place = count_planes(table, box) * plane_places(table, box)
        multiply_packed(table, operands, box, block, min(length, place), weights, bias, input, products)
    for column in range(columns):
        memset(products + column * table.line + place, 0, max(0, length - place) * sizeof(real_t))


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
                            products + (m * table.kernel + kernel_index[t]) * table.line
                            + table.classes.tap_offset[table.classes.first_tap[i] + t] + base
                        )
                    accumulate(table, length, n_taps, terms, added[m], sums + run * length)
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
                table, table.products, box, block, 1, length, input, weights, products, scratch
            )
        elif multiply_panels(table, operands, box, block, length, products, scratch):
            return True
        add_columns_along_channels(table, box, block, products, sums)
    elif table.along_channels:
        if table.in_panels:
            if pack_block_panel(table, operands, box.group, block, <real_t *> scratch.panel):
                return True
            weights = <const real_t *> scratch.panel
        runs = count_runs(table, box, &length)
        multiply_along_channels(table, table.classes, box, block, runs, length, input, weights, sums, scratch)
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
                table, block, input + run_begin(table, box, run), length, weights, bias, sums + run * length,
                table.positions,
            )
    return False

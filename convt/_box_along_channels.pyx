"""The sums of one block of output channels of a box, lanes along channels, in a scratch that stays in cache.

The micro-kernels are called class by class along the runs: chains of fused multiply-adds per output, slice by slice of
very many input channels. With columns first every input is multiplied by every kernel position, and the products of
each output are added up; weights that are used once may be multiplied as they were given then (`multiply_panels`), and
otherwise packed block by block.
"""

from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from convt._box_operands cimport Box, Operands, cells_of, count_runs, run_begin
from convt._box_table cimport GIVEN_CHANNELS, INPUT, MAX_LANES, ORIGIN, REACH, BoxTable, ClassList, Scratch
from convt._given_weights cimport Given
from convt._elements cimport real_t
from convt._levels cimport (
    ALL_PRODUCTS, BEGUN_SUMS, CHAIN, CHECKED_POSITIONS, LARGE_PRODUCTS, MANY_SUMS, MOST_ZEROS, NO_TAP, PAGE,
    SMALL_PRODUCTS, kernels_for, tap_t,
)
from convt._weight_panels cimport begin_panel, pack_block_panel, pack_panel, panel_rows

cdef enum:
    # Bytes from weights that one tile of positions reads, each once, to those that it fetches. The next tile of columns
    # instead: 250 MB took 1.6 times as long, 125 MB 1.2, 62 MB 1.02 (bfloat16 1.08 and 1.02). Two pieces of float16
    # took 1.1 times as long like this, three of float32 1.0.
    READ_ONCE_AHEAD = 16 << 10


cdef inline const tap_t *find_run_taps(
    BoxTable table, ClassList classes, const Box *box, Py_ssize_t i, Py_ssize_t run, const tap_t *taps, tap_t *inside
) noexcept nogil:
    """`taps` of class i for a run. Those that only meet what lies beyond the input, on the axes that a run has one cell
    of, are left out; `inside` has room for the list then."""
    cdef Py_ssize_t a, t, first = classes.first_tap[i], n_taps = classes.taps(i)
    cdef int64_t cell, place, input
    for a in range(table.run_axis - 1, 0, -1):
        cell = box.begin[a] + run % box.size[a]
        run //= box.size[a]
        input = table.axes[a, INPUT]
        if cell + table.axes[a, ORIGIN] >= 0 and cell + table.axes[a, REACH] < input:
            continue
        for t in range(n_taps):  # without branches, which would not be foreseen
            place = cell + classes.shifts[first + t, a - 1]
            inside[t].offset = taps[t].offset if 0 <= place < input else NO_TAP
            inside[t].before, inside[t].after = taps[t].before, taps[t].after
        taps = inside
    return taps


cdef inline const tap_t *find_tile_taps(
    BoxTable table, ClassList classes, Py_ssize_t i, int64_t cell, Py_ssize_t positions, const tap_t *taps,
    tap_t *at_end,
) noexcept nogil:
    """`taps` of class i for a tile of `positions` of a row, the first of which is its cell number `cell`: with up to
    `MOST_ZEROS` that they meet beyond either end of the input. `at_end` has room for the list then."""
    cdef Py_ssize_t axis = table.n_axes - 1, t, n, first = classes.first_tap[i], gap = table.gap
    cdef int64_t beyond = cell + (positions - 1) * gap + 1 - table.axes[axis, INPUT], shift
    cdef int32_t before, after
    if not table.row_runs or positions < CHECKED_POSITIONS:
        return taps
    if cell + table.axes[axis, ORIGIN] >= 0 and beyond + table.axes[axis, REACH] <= 0:
        return taps
    for t in range(classes.taps(i)):
        shift = classes.shifts[first + t, axis - 1]
        at_end[t].offset = taps[t].offset
        before = after = 0
        for n in range(MOST_ZEROS):
            before += cell + shift + n * gap < 0
            after += beyond + shift - n * gap > 0
        at_end[t].before, at_end[t].after = before, after
    return at_end


cdef inline int vectors_of_tile(BoxTable table, Py_ssize_t left) noexcept nogil:
    """Vectors of the next tile of the columns that are `left`; 0 for half a one."""
    return 0 if left <= table.half_tile else table.tile_width(left) // table.lanes


cdef inline void multiply_tile(
    BoxTable table, Py_ssize_t positions, int vectors, Py_ssize_t n_taps, Py_ssize_t row_taps,
    const tap_t *taps, Py_ssize_t channels, int products, const real_t *input, const real_t *w,
    const real_t *soon, Py_ssize_t soon_step, real_t *out, Py_ssize_t out_step,
) noexcept nogil:
    """`channels` of the level: these `products` of a slice of the channels."""
    cdef Py_ssize_t x_step = table.gap * table.x_step
    if table.along_groups:
        kernels_for(table.level, out).groups(positions, n_taps, taps, input, x_step, w, out, out_step)
    elif real_t is float and table.pieces:
        table.level.tiles.channels(
            products, table.pieces, positions, vectors, n_taps, taps,
            min(channels // table.pieces, table.channel_pairs), input, x_step, table.piece_step, w, soon, soon_step,
            out, out_step,
        )
    else:
        kernels_for(table.level, out).channels(
            positions, vectors, n_taps, row_taps, taps, channels, input, x_step, w, soon, soon_step,
            products & BEGUN_SUMS, out, out_step,
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


cdef void multiply_runs(
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
    their sums go on with the next; all small products of pieces come before the large ones. A tile takes every `gap`th
    position of a run.
    """
    cdef Py_ssize_t i, run, n_taps, n, done, tile, t, p, p_end, soon_step, base, step, first, depth, ahead
    cdef Py_ssize_t tiles, count, part, begin, some, nth, turn, gap = table.gap
    cdef Py_ssize_t slice = table.slice // 2 * table.pieces if table.pieces else table.slice
    cdef Py_ssize_t slices = (table.depth + slice - 1) // slice
    cdef bint twice = table.pieces > 1 and slices > 1
    cdef int products
    cdef int64_t cell
    cdef int vectors
    cdef bint one_tile
    cdef const tap_t *taps
    cdef const tap_t *of_run
    cdef const tap_t *of_tile
    cdef const real_t *w
    cdef const real_t *soon
    for i in range(classes.n):
        n_taps = classes.taps(i)
        n = table.columns(classes, block, i)
        step = table.padded(n) if table.columns_first else table.sums_step(n)
        done = 0
        while done < n:
            tile, vectors = table.tile_width(n - done), vectors_of_tile(table, n - done)
            tiles = runs * gap * count_tiles(table, (length + gap - 1) // gap, tile)
            # Of runs of one tile each, of the same cells of their rows, what it meets at its ends is found once.
            one_tile = tiles == runs and gap == 1
            taps = classes.as_taps(i)
            if one_tile:
                taps = find_tile_taps(
                    table, classes, i, box.begin[table.n_axes - 1], length, taps, scratch.tile_taps
                )
            # Each tile of positions fetches its share of the weights that come next.
            soon_step = (tile + tiles - 1) // tiles
            for turn in range(2 * slices if twice else slices):
                first = turn % slices * slice
                depth = min(slice, table.depth - first)
                products = ALL_PRODUCTS
                if twice:
                    products = SMALL_PRODUCTS if turn < slices else LARGE_PRODUCTS
                if turn:
                    products |= BEGUN_SUMS
                w = weights + table.weight_offset[block, i] + n_taps * (done * table.depth + first * tile)
                ahead = n_taps * depth * tile
                if tiles == 1 and table.pieces < 2:
                    ahead = min(ahead, READ_ONCE_AHEAD // <Py_ssize_t> sizeof(real_t))
                nth = 0
                for part in range(runs * gap):
                    run, begin = part // gap, part % gap
                    base = run_begin(table, box, run)
                    of_run = taps
                    if not table.along_groups:  # in which to find them takes longer than to multiply by zeros
                        of_run = find_run_taps(table, classes, box, i, run, taps, scratch.run_taps)
                    some = (length - begin + gap - 1) // gap
                    count = count_tiles(table, some, tile)
                    p_end = 0
                    for t in range(count):
                        p, p_end = p_end, tile_begin(table, some, count, t + 1)
                        soon = w + ahead + n_taps * depth * nth * soon_step
                        nth += 1
                        cell = box.begin[table.n_axes - 1] + begin + p * gap
                        of_tile = of_run
                        if not one_tile:
                            of_tile = find_tile_taps(table, classes, i, cell, p_end - p, of_run, scratch.tile_taps)
                        multiply_tile(
                            table, p_end - p, vectors, n_taps, classes.row_taps[i], of_tile, depth, products,
                            input + (base + begin + p * gap) * table.x_step + first, w, soon, soon_step,
                            out + (run * length + begin + p * gap) * step + done, gap * step,
                        )
            done += tile
        out += step * table.positions


cdef bint multiply_panels(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t block, Py_ssize_t length, real_t *products,
    const Scratch *scratch,
) noexcept nogil:
    """The products of columns first, [position][column], with weights that are used once, in panels of columns in
    the caller's order. To put the few products in order is cheaper than the many weights: in tile registers calls
    with 8 MB of weights and more take 0.66 to 1.02 of the time, most 0.75 to 0.9, with vectors see
    `Boxes.columns_fit_panels`.

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
    cdef int vectors
    cdef const float *input = <const float *> scratch.input
    cdef const float *w = <const float *> scratch.panel
    while done < width:
        tile, vectors = table.tile_width(width - done), vectors_of_tile(table, width - done)
        for t in range(tiles):
            p, p_end = tile_begin(table, length, tiles, t), tile_begin(table, length, tiles, t + 1)
            multiply_tile(
                table, p_end - p, vectors, 1, 1, table.products.as_taps(0), table.depth, ALL_PRODUCTS,
                input + p * table.x_step, w, w, 0, out + p * step + done, step,
            )
        w += tile * table.depth
        done += tile


cdef bint multiply_given(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t block, Py_ssize_t first, Py_ssize_t width,
    Py_ssize_t length, const Scratch *scratch, real_t *out,
) noexcept nogil:
    """The products with a panel of weights that is not packed, some channels at a time; chains behind the first
    one are summed apart, behind the panel, and added.

    Returns whether they are not finite, as those of every position are if a weight is not.
    """
    cdef Py_ssize_t step = table.padded(table.columns(table.products, block, 0)), p, channels, w_step, later
    cdef Py_ssize_t most, columns = table.padded(width), chain, chunks, chunk, c, end
    cdef bint copied, few
    cdef const real_t *input = <const real_t *> scratch.input
    cdef real_t *panel = <real_t *> scratch.panel
    cdef real_t *apart = panel + GIVEN_CHANNELS * table.panel  # [position][column]: of a chain behind the first
    cdef real_t *sums = out
    cdef Py_ssize_t sums_step = step
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
    for chain from 0 <= chain < table.tap_channels by CHAIN:
        for p in range(length):
            memset(sums + p * sums_step, 0, columns * sizeof(real_t))
        c, end = chain, min(chain + CHAIN, table.tap_channels)
        chunks = (end - c + most - 1) // most
        for chunk in range(chunks):
            channels = chain + (chunk + 1) * (end - chain) // chunks - c
            w = panel_rows(table, &given, c, channels, not few, copied, panel, &w_step)
            later = 0
            if few and w != panel:  # not copied: the next channels' or, after the last ones', the next panel's
                later = channels * w_step if c + channels < table.tap_channels else width - c * w_step
            kernels_for(table.level, sums).native_tiles(
                length, channels, columns, input + c, table.x_step, w, w_step, later, sums, sums_step
            )
            c += channels
        if chain:
            kernels_for(table.level, out).add_rows(length, 1, columns, apart, columns, 0, out, step, 0)
        sums, sums_step = apart, columns
    return not kernels_for(table.level, out).all_finite(out, width)


cdef inline void order_row(
    BoxTable table, Py_ssize_t width, const real_t *source, real_t *target
) noexcept nogil:
    """A row of [channel][kernel position] as [kernel position][channel]."""
    cdef Py_ssize_t lanes = table.lanes, first, m, k, i
    cdef real_t *targets[MAX_LANES]
    if width < lanes:
        for m in range(width):
            for k in range(table.kernel):
                target[k * width + m] = source[m * table.kernel + k]
        return
    for first from 0 <= first < width by lanes:
        m = min(first, width - lanes)  # the last vector again in part
        for k from 0 <= k < table.kernel by lanes:
            for i in range(lanes):
                targets[i] = target + (k + i) * width + m
            kernels_for(table.level, target).transpose_to(
                source + m * table.kernel + k, table.kernel, min(lanes, table.kernel - k), targets
            )


cdef void order_columns(
    BoxTable table, Py_ssize_t block, Py_ssize_t length, const real_t *source, real_t *target
) noexcept nogil:
    """The products of a block in the order of its classes, a row for each position."""
    cdef Py_ssize_t step = table.padded(table.columns(table.products, block, 0)), position
    for position in range(length):
        order_row(table, table.block_width(block), source + position * step, target + position * step)


cdef inline void add_column(
    BoxTable table, const Box *box, Py_ssize_t tap, Py_ssize_t width, const real_t *products, Py_ssize_t product_step,
    real_t *sums, Py_ssize_t step,
) noexcept nogil:
    """The products of one kernel position, added to the sums of a place that has this tap: plane by plane of its cells,
    the part of each that reads inputs."""
    cdef Py_ssize_t last = table.n_axes - 1, rows_axis = last - 1, cells = box.size[last], plane, rest, a
    cdef Py_ssize_t of_plane = box.size[rows_axis] * cells, planes = cells_of(box, rows_axis), position, begin, end
    cdef Py_ssize_t first_row = 0, end_row = box.size[rows_axis]
    cdef int64_t shift = table.classes.shifts[tap, last - 1], row_shift = 0, source
    cdef bint inside
    begin, end = max(0, -shift), min(cells, table.axes[last, INPUT] - shift)
    if rows_axis:
        row_shift = table.classes.shifts[tap, rows_axis - 1]
        first_row = max(0, -row_shift)
        end_row = min(end_row, table.axes[rows_axis, INPUT] - row_shift)
    if begin >= end or first_row >= end_row:
        return
    for plane in range(planes):
        rest = plane
        inside = True
        position = (first_row + row_shift) * table.steps[rows_axis] + shift + begin
        for a in range(rows_axis - 1, -1, -1):
            source = rest % box.size[a] + (table.classes.shifts[tap, a - 1] if a else 0)
            rest //= box.size[a]
            inside &= 0 <= source < (table.axes[a, INPUT] if a else box.size[0])
            position += source * table.steps[a]
        if inside:
            kernels_for(table.level, sums).add_rows(
                end_row - first_row, end - begin, width,
                products + position * product_step, table.steps[rows_axis] * product_step, product_step,
                sums + (plane * of_plane + first_row * cells + begin) * step, cells * step, step,
            )


cdef void add_columns(
    BoxTable table, const Box *box, Py_ssize_t block, const real_t *products, real_t *sums
) noexcept nogil:
    """Sums [position][column] of whole images from the products of their input positions, [position][column], without
    their bias."""
    cdef Py_ssize_t last = table.n_axes - 1, width = table.block_width(block), cells = box.size[last]
    cdef Py_ssize_t product_step = table.padded(table.columns(table.products, block, 0))
    cdef Py_ssize_t i, t, place, step, n_taps, rows = cells_of(box, last)
    cdef const int64_t *kernel_index
    for i in range(table.classes.n):
        n_taps = table.classes.taps(i)
        step = table.sums_step(table.columns(table.classes, block, i))
        memset(sums, 0, rows * cells * step * sizeof(real_t))
        for place in range(table.classes.places(i)):
            kernel_index = &table.classes.kernel_index[0] + table.classes.first_kernel[i] + place * n_taps
            for t in range(n_taps):
                add_column(
                    table, box, table.classes.first_tap[i] + t, width, products + kernel_index[t] * width,
                    product_step, sums + place * width, step,
                )
        sums += step * table.positions


cdef bint sum_along_channels(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t block, const real_t *weights,
    const Scratch *scratch,
) noexcept nogil:
    """The sums of a block of channels of a box, without their bias: [position][column], class after class.

    Returns whether weights that are used once cannot be multiplied so.
    """
    cdef real_t *input = <real_t *> scratch.input
    cdef real_t *products = <real_t *> scratch.products
    cdef real_t *sums = <real_t *> scratch.sums
    cdef Py_ssize_t runs, length
    if table.columns_first:
        length = box.size[0] * table.steps[0]
        if not table.in_panels:
            multiply_runs(table, table.products, box, block, 1, length, input, weights, products, scratch)
        elif multiply_panels(table, operands, box, block, length, products, scratch):
            return True
        add_columns(table, box, block, products, sums)
        return False
    if table.in_panels:
        if pack_block_panel(table, operands, box.group, block, <real_t *> scratch.panel):
            return True
        weights = <const real_t *> scratch.panel
    runs = count_runs(table, box, &length)
    multiply_runs(table, table.classes, box, block, runs, length, input, weights, sums, scratch)
    return False

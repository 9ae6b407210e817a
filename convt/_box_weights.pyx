# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Weights in the layouts that the kernels of boxes read.

A block of output channels is packed per class and tile as ``[tap][channel][column]``, columns being the block's
channels at each place of the class, slice by slice where input channels are very many; for tile registers as ``[32
channels][tap][piece][channel][column]``, and in words as ``[tap][word][column]``. A task packs a block, or a part of
its input channels where blocks are too few for the threads. Weights that are used once may be read or packed by
whoever multiplies them, a panel of columns or a block at a time.
"""

cimport numpy as cnp
from cython.parallel cimport prange, threadid
from libc.math cimport ldexp
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from convt._box_operands cimport Operands
from convt._box_table cimport BoxTable, MAX_LANES, MAX_VECTORS, TURNED_CHANNELS
from convt._elements cimport BFLOAT16, DType, FLOAT16, bits_of, value_of
from convt._levels cimport CACHE_LINE, MOST_TURNED, TILE_CHANNELS, TILE_FLOATS, real_t
from convt._machine cimport begin_floating, end_floating
from convt._micro_kernels cimport all_finite, transpose, transpose_to

import numpy as np

from convt._memory import RESULTS, WORKSPACES
from convt.arrays import empty_aligned
from convt.geometry import DTYPES

cnp.import_array()

LEAST = 2.0**-102  # magnitude that pieces, and sums of products of pieces, keep all digits of

cdef extern from * nogil:
    void prefetch "__builtin_prefetch" (const void *, int, int)

cdef enum:
    GATHERED_BYTES = 1 << 19  # of weights: bfloat16, 1026 channels, kernel 1024, to one took 0.88 to 0.93 of a call
    RUNS_BYTES = 1 << 14  # of channels that stay in the first-level cache while every tile copies its columns
    LEAST_RUNS = 4  # channels then
    SMALL_GROUP = 1 << 9  # weights and biases, of which the order is found but once
    FETCHED = 8192  # bytes of weights that are fetched before their use, at least
    # Any weights between these magnitudes, as the bits of floats, can be multiplied in pieces by any x between them:
    # 2**-51 and 2**50, see `multipliable`.
    EVER_LEAST = 76 << 23
    EVER_MOST = 177 << 23


cdef inline Py_ssize_t input_chunks(BoxTable table) noexcept nogil:
    """Input channels of a group, in whole tile registers."""
    return (table.in_channels + TILE_CHANNELS - 1) // TILE_CHANNELS


cdef void begin_columns(
    BoxTable table, Given *given, Py_ssize_t group, Py_ssize_t block, Py_ssize_t first, Py_ssize_t width
) noexcept nogil:
    """From all weights to `width` of those of each input channel, from one of a block's on; none has been seen."""
    cdef Py_ssize_t item = sizeof(uint16_t) if given.halves else sizeof(double) if table.double else sizeof(float)
    given.channel_step = table.out_channels * table.kernel * item
    given.first += group * table.in_channels * given.channel_step + (block * table.block * table.kernel + first) * item
    given.width = width
    given.channel_bytes = width * item
    given.ahead = max(1, FETCHED // given.channel_bytes) * given.channel_step
    given.finite = True
    memset(given.least, 255, sizeof(given.least))
    memset(given.most, 0, sizeof(given.most))


cdef inline void sum_up_magnitudes(const Given *given, uint32_t *magnitudes) noexcept nogil:
    """Of all lanes: the least other than 0, less 1, and the greatest."""
    cdef int i
    magnitudes[0], magnitudes[1] = given.least[0], given.most[0]
    for i in range(1, MAX_LANES):
        magnitudes[0] = min(magnitudes[0], given.least[i])
        magnitudes[1] = max(magnitudes[1], given.most[i])


cdef inline bint outside_magnitudes(const Given *given) noexcept nogil:
    """Whether a weight is not one that any x between the same magnitudes can be multiplied by in pieces."""
    cdef uint32_t magnitudes[2]
    sum_up_magnitudes(given, magnitudes)
    return magnitudes[1] > 0 and (magnitudes[0] + 1 < EVER_LEAST or magnitudes[1] > EVER_MOST)


cdef inline const real_t *widen_channel(BoxTable table, const Given *given, Py_ssize_t c, real_t *wide) noexcept nogil:
    """The weights of an input channel where they lie or, of halves, in `wide`."""
    cdef const char *first = given.first + c * given.channel_step
    if real_t is float and given.halves:
        table.halves.widen(given.dtype == BFLOAT16, <const uint16_t *> first, given.width, wide)
        return wide
    return <const real_t *> first


cdef inline void fetch_after(const Given *given, Py_ssize_t c) noexcept nogil:
    """What is read some time after the weights of input channel c.

    Channels lie pages apart, and of each only a block is read, which no processor foresees: 33 MB 7.3 -> 5.9 ms, and in
    blocks of a call 7.2 -> 5.6 by fetching more of them, after c is read.
    """
    cdef const char *first = given.first + c * given.channel_step + given.ahead
    cdef Py_ssize_t i
    for i from 0 <= i < given.channel_bytes by CACHE_LINE:
        prefetch(first + i, 0, 2)


cdef inline const real_t *read_channel(BoxTable table, Given *given, Py_ssize_t c, real_t *wide) noexcept nogil:
    """`widen_channel`, looked at, but for what `split_right` looks at.

    Whoever needs them next finds them in the first-level cache: passes of their own would read large weights from
    memory again. Later ones are fetched meanwhile, not before, when reading would wait for them.
    """
    cdef const real_t *source = widen_channel(table, given, c, wide)
    cdef uint32_t least, most
    if not table.guarded:
        given.finite &= all_finite(table, source, given.width)
    elif real_t is float and not table.along_channels:
        table.level.tiles.magnitudes(source, given.width, &least, &most)
        given.least[0] = min(given.least[0], least - 1)
        given.most[0] = max(given.most[0], most)
    fetch_after(given, c)
    return source


cdef inline bint joins_channels(BoxTable table, const Given *given) noexcept nogil:
    """Whether two channels become words as they are, without being widened."""
    return table.guarded and table.pieces <= 1 and given.dtype == BFLOAT16


cdef inline void join_channels(
    BoxTable table, Given *given, Py_ssize_t c, Py_ssize_t first, Py_ssize_t n, float *words, Py_ssize_t column_step,
    Py_ssize_t vector_step,
) noexcept nogil:
    """Words of `n` weights from `first` on of input channels c and c + 1, zeros for those that there are not: looked
    at, and those after them fetched."""
    cdef const char *even = NULL
    cdef const char *odd = NULL
    if c < table.in_channels:
        even = given.first + c * given.channel_step + first * <Py_ssize_t> sizeof(uint16_t)
    if c + 1 < table.in_channels:
        odd = even + given.channel_step
    table.level.tiles.join_rows(
        even, odd, n, table.whole_tile, words, column_step, vector_step, given.ahead, given.least, given.most
    )


cdef inline Py_ssize_t tap_offset(
    BoxTable table, Py_ssize_t n_taps, Py_ssize_t tile, Py_ssize_t t, Py_ssize_t channel
) noexcept nogil:
    """Where the weights of tap t of a tile of so many columns begin, for the slice that a channel is in: as if that
    began with channel 0, of `tile` elements each."""
    cdef Py_ssize_t first = channel // table.slice * table.slice
    if table.pieces:
        return t * tile * table.pieces * MAX_LANES
    return (first * (n_taps - 1) + t * min(table.slice, table.depth - first)) * tile


cdef inline Py_ssize_t chunk_step(BoxTable table, Py_ssize_t n_taps, Py_ssize_t tile) noexcept nogil:
    """Elements from the weights of 32 channels in pieces to those of the next."""
    return n_taps * tile * table.pieces * MAX_LANES


cdef inline Py_ssize_t column_offset(
    BoxTable table, const Given *given, Py_ssize_t block, Py_ssize_t i, Py_ssize_t t, Py_ssize_t column,
    Py_ssize_t *tile,
) noexcept nogil:
    """Where the weights of tap t of a column of class i begin, by `tap_offset`; `tile` becomes its tile's width."""
    cdef Py_ssize_t n_taps = table.products.taps(i), done = column // table.whole_tile * table.whole_tile
    tile[0] = table.tile_width(table.columns(table.products, block, i) - done)
    return (
        table.weight_offset[block, i] + done * n_taps * table.depth
        + tap_offset(table, n_taps, tile[0], t, given.begin)
        + (column - done) * (TILE_FLOATS // MAX_LANES if table.pieces else 1)
    )


cdef bint pack_whole_vectors(
    BoxTable table, Given *given, real_t *wide, Py_ssize_t block, real_t *weights
) noexcept nogil:
    """`pack_block`'s weights where every vector of columns is one place of consecutive channels: by transposition.

    Returns whether that could be done; False leaves the weights to be packed one by one.
    """
    cdef Py_ssize_t lanes = table.lanes, width = table.block_width(block), vectors = width // lanes
    cdef Py_ssize_t i, t, v, c, k, count, place, n_taps, tile, channel, step
    cdef Py_ssize_t turned_step = TURNED_CHANNELS * lanes
    cdef bint joined = joins_channels(table, given)
    cdef Py_ssize_t *place_of  # in the packed weights, of each vector and kernel position
    cdef Py_ssize_t *tile_of  # their tiles' widths
    cdef Py_ssize_t *next_of  # elements to the next channel, or to the next 32 in pieces
    # Of each vector and kernel position, the channels that tiles hold.
    cdef real_t *turned = wide + table.wide_size
    cdef const real_t *channels = NULL
    cdef const real_t *end = <const real_t *> given.array_end
    cdef const real_t *source
    cdef const real_t *rows
    cdef real_t *targets[MAX_LANES]
    cdef real_t copies[MAX_LANES * MAX_LANES]
    if not table.along_channels or width % lanes or table.kernel == 1 or table.pieces and table.kernel > MOST_TURNED:
        return False
    place_of = <Py_ssize_t *> calloc(table.kernel * vectors, 3 * sizeof(Py_ssize_t))
    if place_of == NULL:
        return False
    tile_of = place_of + table.kernel * vectors
    next_of = tile_of + table.kernel * vectors
    for i in range(table.kernel * vectors):
        place_of[i] = -1  # a kernel position that reaches no input
    for i in range(table.products.n):
        n_taps = table.products.taps(i)
        for place in range(table.products.places(i)):
            for v in range(vectors):
                for t in range(n_taps):
                    k = table.products.kernel_index[table.products.first_kernel[i] + place * n_taps + t]
                    place_of[v * table.kernel + k] = column_offset(
                        table, given, block, i, t, place * width + v * lanes, &tile
                    )
                    tile_of[v * table.kernel + k] = tile
                    next_of[v * table.kernel + k] = chunk_step(table, n_taps, tile) if table.pieces else tile
    if given.halves:
        end = wide + given.width + MAX_LANES
    for c from given.begin <= c < given.end by joined + 1:
        channel = c % TILE_CHANNELS
        if real_t is float and joined and c < table.in_channels:
            join_channels(table, given, c, 0, given.width, wide, 1, MAX_LANES)
            channels = wide
        elif c < table.in_channels:
            channels = read_channel(table, given, c, wide)
        for v in range(vectors if c < table.in_channels else 0):
            source = channels + v * lanes * table.kernel
            for k from 0 <= k < table.kernel by lanes:
                count = min(lanes, table.kernel - k)
                rows, step = source + k, table.kernel
                if rows + (lanes - 1) * step + lanes > end:  # reading whole vectors would leave the array
                    for i in range(lanes):
                        memcpy(copies + i * lanes, rows + i * step, count * sizeof(real_t))
                    rows, step = copies, lanes
                for i in range(count):
                    t = v * table.kernel + k + i
                    if table.pieces and not joined:
                        targets[i] = turned + t * turned_step + channel * lanes
                    elif place_of[t] < 0:
                        targets[i] = NULL
                    elif joined:
                        targets[i] = weights + place_of[t] + c // TILE_CHANNELS * next_of[t] + channel // 2 * lanes
                    else:
                        targets[i] = weights + place_of[t] + c * next_of[t]
                transpose_to(table, rows, step, count, targets)
        for t in range(0 if c < table.in_channels else table.kernel * vectors):
            if not joined:
                memset(turned + t * turned_step + channel * lanes, 0, lanes * sizeof(real_t))
            elif place_of[t] >= 0:
                memset(
                    weights + place_of[t] + c // TILE_CHANNELS * next_of[t] + channel // 2 * lanes, 0,
                    lanes * sizeof(real_t),
                )
        if real_t is float and table.pieces and not joined and channel == TILE_CHANNELS - 1:
            for t in range(table.kernel * vectors):
                if place_of[t] >= 0:
                    table.level.tiles.split_right(
                        table.pieces, turned + t * turned_step, lanes,
                        weights + place_of[t] + c // TILE_CHANNELS * next_of[t], lanes * tile_of[t], given.least,
                        given.most,
                    )
    free(place_of)
    return True


# Columns of packed weights that follow each other in a channel of those given.
cdef struct Run:
    Py_ssize_t source  # element of a channel
    Py_ssize_t target  # of the packed weights, of channel 0
    Py_ssize_t length
    Py_ssize_t tile  # its width: elements from one packed channel to the next


cdef bint pack_runs(BoxTable table, Given *given, real_t *wide, Py_ssize_t block, real_t *weights) noexcept nogil:
    """`pack_block`'s weights where every vector of columns is as many neighbours of a channel's weights, as outputs of
    a kernel of one position and places of a row of a cell are. Every tile takes its own from some channels that are in
    the first-level cache: one call of istft_1026to1 took 0.95 of the time, of 2048 to 512 channels with kernel 1 0.96.
    (From one channel at a time, 0.95 to 1.2 from process to process: each tile's cache lines then come one by one.)

    Returns whether that could be done.
    """
    cdef Py_ssize_t lanes = table.lanes, width = table.block_width(block), i, t, j, c, n, n_taps, column, tile
    cdef Py_ssize_t place, offset, first = 0, target, runs = 0, most = 0, begin, some, count
    cdef Py_ssize_t channel_step = given.channel_step // <Py_ssize_t> sizeof(real_t)
    cdef Run *all_runs
    cdef Run *run = NULL  # the last one
    cdef const int64_t *kernel_index
    cdef const real_t *source = wide
    if not table.along_channels or table.pieces:
        return False
    for i in range(table.products.n):
        n = table.columns(table.products, block, i)
        if n % lanes:
            return False
        most += table.products.taps(i) * n // lanes
    all_runs = <Run *> calloc(most + 1, sizeof(Run))
    if all_runs == NULL:
        return False
    for i in range(table.products.n):
        n_taps = table.products.taps(i)
        kernel_index = &table.products.kernel_index[0] + table.products.first_kernel[i]
        n = table.columns(table.products, block, i)
        for t in range(n_taps):
            for column in range(n):
                place = column // width
                offset = column % width * table.kernel + kernel_index[place * n_taps + t]
                if column % lanes:
                    if offset != first + column % lanes:
                        free(all_runs)
                        return False
                    continue
                first = offset
                target = column_offset(table, given, block, i, t, column, &tile)
                if column % table.whole_tile and first == run.source + run.length:
                    run.length += lanes
                    continue
                run = all_runs + runs
                run.source, run.target, run.length, run.tile = first, target, lanes, tile
                runs += 1
    if given.halves:
        channel_step = given.width
    some = max(LEAST_RUNS, RUNS_BYTES // (given.width * <Py_ssize_t> sizeof(real_t)))
    for begin from given.begin <= begin < given.end by some:
        count = min(some, given.end - begin)
        for c in range(count):
            read_channel(table, given, begin + c, wide + c * given.width)
        if not given.halves:
            source = <const real_t *> (given.first + begin * given.channel_step)
        for j in range(runs):
            for c in range(count):
                memcpy(
                    weights + all_runs[j].target + (begin + c) * all_runs[j].tile,
                    source + c * channel_step + all_runs[j].source, all_runs[j].length * sizeof(real_t),
                )
    free(all_runs)
    return True


cdef void pack_block(BoxTable table, Given *given, real_t *wide, Py_ssize_t block, real_t *weights) noexcept nogil:
    """One block of one group, or a part of a slice of its input channels, columns padded with zeros.

    `given` is ``[channel][output channel of the block][kernel]``; `wide` has room for it, if it is of halves.
    """
    cdef Py_ssize_t width = table.block_width(block)
    cdef Py_ssize_t i, t, j, c, done, tile, n, n_taps, n_places, column, m, place, channel_step = given.width
    cdef Py_ssize_t begin, some, end = given.end
    cdef const int64_t *kernel_index
    cdef const real_t *w = wide
    cdef real_t *target
    cdef Py_ssize_t offset[MAX_VECTORS * MAX_LANES]
    if pack_whole_vectors(table, given, wide, block, weights) or pack_runs(table, given, wide, block, weights):
        return
    if not given.halves:
        w = <const real_t *> given.first
        channel_step = given.channel_step // <Py_ssize_t> sizeof(real_t)
    # As many channels as stay in the second-level cache while every tile gathers its columns from them.
    some = max(1, GATHERED_BYTES // given.channel_bytes // TILE_CHANNELS) * TILE_CHANNELS
    for begin from given.begin <= begin < end by some:
        given.begin, given.end = begin, min(begin + some, end)
        for c in range(begin, 0 if table.words else min(given.end, table.in_channels)):
            read_channel(table, given, c, wide + c * given.width)
        if real_t is float and table.words:  # which are counted from here on
            given.begin, given.end = begin // 2, (given.end + 1) // 2
            for c in range(given.begin, given.end):
                join_channels(table, given, 2 * c, 0, given.width, wide + c * given.width, 1, MAX_LANES)
        for i in range(table.products.n):
            target = weights + table.weight_offset[block, i]
            n_taps = table.products.taps(i)
            n_places = table.products.places(i)
            kernel_index = &table.products.kernel_index[0] + table.products.first_kernel[i]
            n = table.columns(table.products, block, i)
            done = 0
            while done < n:
                tile = table.tile_width(n - done)
                for t in range(n_taps):
                    for j in range(tile):
                        column = min(done + j, n - 1)
                        place = column // width if table.along_channels else column % n_places
                        m = column % width if table.along_channels else column // n_places
                        offset[j] = m * table.kernel + kernel_index[place * n_taps + t]
                    gather_columns(
                        table, given, w, channel_step, offset, min(tile, n - done), tile,
                        chunk_step(table, n_taps, tile), target + tap_offset(table, n_taps, tile, t, begin),
                    )
                target += n_taps * table.depth * tile
                done += tile


cdef void spread_bias(BoxTable table, const real_t *b, Py_ssize_t block, real_t *bias) noexcept nogil:
    """The bias of one block of one group, lanes along positions: of every column, its padding included. The products of
    columns first have none; it is added with them, from behind zeros."""
    cdef Py_ssize_t i, j, n, width = table.block_width(block)
    cdef real_t *target
    b += block * table.block
    for i in range(table.products.n):
        n = table.columns(table.products, block, i)
        target = bias + table.bias_offset[block, i]
        if table.columns_first:
            memcpy(target + table.padded(n), b, width * sizeof(real_t))
            continue
        for j in range(table.padded(n)):
            target[j] = b[min(j, n - 1) // table.products.places(i)]


cdef void begin_panel(
    BoxTable table, const Operands *operands, Py_ssize_t group, Py_ssize_t block, Py_ssize_t first, Py_ssize_t width,
    Given *given,
) noexcept nogil:
    given.dtype, given.halves = operands.dtype, not operands.plain
    given.first, given.array_end = operands.w, operands.w_end
    begin_columns(table, given, group, block, first, width)


cdef const real_t *panel_rows(
    BoxTable table, Given *given, Py_ssize_t c, Py_ssize_t n, bint fetch, bint copied, real_t *wide,
    Py_ssize_t *step,
) noexcept nogil:
    """A panel's whole vectors of `n` input channels from `c` on, rows `step` apart: where they lie or, `copied`,
    widened and with zeros for what is not there, in `wide`. Those after them are fetched, where they lie only if
    `fetch` says so.
    """
    cdef Py_ssize_t padded = table.padded(given.width), channels = min(n, table.in_channels - c), i, kept
    cdef bint as_given = not copied and not given.halves and channels == n and padded == given.width
    cdef const real_t *source = <const real_t *> (given.first + c * given.channel_step)
    step[0] = given.channel_step // <Py_ssize_t> sizeof(real_t)
    for i in range(channels if fetch or not as_given else 0):
        widen_channel(table, given, c + i, wide + i * padded)
        fetch_after(given, c + i)
    if as_given:
        return source
    for i in range(n):
        if not given.halves and i < channels:
            memcpy(wide + i * padded, source + i * step[0], given.width * sizeof(real_t))
        kept = given.width if i < channels else 0
        memset(wide + i * padded + kept, 0, (padded - kept) * sizeof(real_t))
    step[0] = padded
    return wide


cdef bint pack_panel(
    BoxTable table, const Operands *operands, Py_ssize_t group, Py_ssize_t block, Py_ssize_t first, Py_ssize_t width,
    float *panel,
) noexcept nogil:
    """`width` columns of a block from column `first` on, in their own order, [channel][kernel position], each tile as
    `pack_block` packs it for tile registers.

    Returns whether a weight is outside the magnitudes that any x within the same ones can be multiplied by.
    """
    cdef Given given
    cdef Py_ssize_t c, i, v, done, tile, step, whole = width // table.whole_tile * table.whole_tile
    cdef float *wide = panel + table.padded(width) * table.depth
    cdef const float *source = NULL
    cdef float *target
    begin_panel(table, operands, group, block, first, width, &given)
    cdef bint joined = joins_channels(table, &given)
    for c from 0 <= c < table.in_channels by TILE_CHANNELS:
        if joined:
            for i in range(TILE_CHANNELS // 2):
                target = panel + c * table.whole_tile // 2 + i * MAX_LANES
                join_channels(table, &given, c + 2 * i, 0, whole, target, table.depth, TILE_FLOATS)
                target = panel + whole * table.depth + c * table.padded(width - whole) // 2 + i * MAX_LANES
                join_channels(table, &given, c + 2 * i, whole, width - whole, target, 0, TILE_FLOATS)
            continue
        source = panel_rows(table, &given, c, TILE_CHANNELS, True, False, wide, &step)
        done = 0
        while done < width:
            tile = table.tile_width(width - done)
            target = panel + done * table.depth + c // TILE_CHANNELS * chunk_step(table, 1, tile)
            for v from 0 <= v < tile by MAX_LANES:
                table.level.tiles.split_right(
                    table.pieces, source + done + v, step, target + v // MAX_LANES * TILE_FLOATS, MAX_LANES * tile,
                    given.least, given.most,
                )
            done += tile
    return outside_magnitudes(&given)


cdef bint pack_block_panel(
    BoxTable table, const Operands *operands, Py_ssize_t group, Py_ssize_t block, real_t *panel
) noexcept nogil:
    """A whole block, as `pack_block` packs one of whole vectors.

    Returns whether a weight is not finite or, for tile registers, as `pack_panel` does (or memory was refused).
    """
    cdef Given given
    cdef Py_ssize_t first, end = input_chunks(table) * TILE_CHANNELS if table.pieces else table.in_channels
    cdef real_t *wide = panel + table.block_weights
    begin_panel(table, operands, group, block, 0, table.block_width(block) * table.kernel, &given)
    for first from 0 <= first < end by table.slice:
        given.begin, given.end = first, min(end, first + table.slice)
        if not pack_whole_vectors(table, &given, wide, block, panel):
            return True
    return outside_magnitudes(&given) if table.guarded else not given.finite


cdef void gather_columns(
    BoxTable table, Given *given, const real_t *w, Py_ssize_t channel_step, const Py_ssize_t *offset,
    Py_ssize_t n, Py_ssize_t tile, Py_ssize_t next_chunk, real_t *target,
) noexcept nogil:
    """One tap of one tile: w[channel][offset[column]] for n columns, or w[word] ..., filled up with zeros; for tile
    registers `next_chunk` elements from 32 channels to the next."""
    cdef Py_ssize_t c, j
    cdef bint in_a_row = True  # as the places of a single output channel are
    # [channel][column], or [column][channel] for the left operand of tile registers.
    cdef Py_ssize_t step = tile if table.along_channels or not table.pieces else 1
    cdef Py_ssize_t column_step = 1 if table.along_channels or not table.pieces else TILE_CHANNELS
    cdef Py_ssize_t i, first, turned = 0  # columns that are transposed
    cdef Py_ssize_t channels = table.depth if table.words else table.in_channels
    cdef const real_t *source
    cdef const real_t *rows[MAX_LANES]
    cdef real_t wide[TILE_CHANNELS * 2 * MAX_LANES]
    cdef real_t *row = target + given.begin * step
    target += given.begin // TILE_CHANNELS * next_chunk
    for j in range(1, n):
        in_a_row &= offset[j] == offset[j - 1] + 1
    if in_a_row and column_step > 1:
        turned = n // table.lanes * table.lanes
    for c in range(given.begin, given.end):
        if table.pieces:
            row = wide + c % TILE_CHANNELS * step
        if n == tile and column_step == 1 and c < channels:
            source = w + c * channel_step
            if in_a_row:
                memcpy(row, source + offset[0], tile * sizeof(real_t))
            else:
                for j in range(tile):
                    row[j] = source[offset[j]]
        else:
            first = turned if c // table.lanes * table.lanes + table.lanes <= channels else 0
            for j from 0 <= j < (first if c % table.lanes == 0 else 0) by table.lanes:
                for i in range(table.lanes):
                    rows[i] = w + (c + i) * channel_step + offset[j]
                transpose(table, rows, 0, row + j * column_step, column_step)
            for j in range(first, tile):
                row[j * column_step] = w[c * channel_step + offset[j]] if j < n and c < channels else 0
        row += step
        if real_t is float and table.pieces and c % TILE_CHANNELS == TILE_CHANNELS - 1:
            for j from 0 <= j < tile by MAX_LANES:
                if table.along_channels:
                    table.level.tiles.split_right(
                        table.pieces, wide + j, tile, target + j // MAX_LANES * TILE_FLOATS, MAX_LANES * tile,
                        given.least, given.most,
                    )
                else:
                    table.level.tiles.split_left(
                        table.pieces, wide + j * TILE_CHANNELS, target + j // MAX_LANES * TILE_FLOATS, MAX_LANES * tile
                    )
            target += next_chunk


cdef bint pack_all(
    BoxTable table, const Given *array, const real_t[::1] b, real_t[::1] weights, real_t[::1] bias,
    uint32_t[:, ::1] magnitudes, Py_ssize_t parts, real_t[:, ::1] wide,
) noexcept nogil:
    """In `parts` parts of the input channels of a block. Returns whether all weights are finite, or `magnitudes` what
    tile registers want to know: of each part the least other than 0, less 1, and the greatest.
    """
    cdef Py_ssize_t task, infinite = 0
    cdef uint64_t found
    for task in prange(magnitudes.shape[0], schedule="dynamic", num_threads=wide.shape[0]):
        found = begin_floating()
        infinite += not pack_task(
            table, array, &b[0], parts, task, &weights[0], &bias[0], &magnitudes[task, 0], &wide[threadid(), 0]
        )
        end_floating(found)
    return infinite == 0


cdef bint pack_small_groups(
    BoxTable table, const Given *array, const real_t[::1] b, real_t[::1] weights, real_t[::1] bias,
    uint32_t[:, ::1] magnitudes, real_t[:, ::1] wide,
) noexcept nogil:
    """`pack_all`, lanes along positions: the order of the first group's weights and bias is that of all. One by one
    256 depthwise channels took 0.1 ms."""
    cdef Py_ssize_t n = table.in_channels * table.out_channels * table.kernel, group, block, i
    cdef const real_t *w = <const real_t *> array.first
    cdef Given given = array[0]
    cdef real_t numbers[SMALL_GROUP]  # of the weights in their own order, and then of the bias: n, and no more
    cdef Py_ssize_t order[SMALL_GROUP]
    cdef Py_ssize_t bias_order[SMALL_GROUP]
    for i in range(n):
        numbers[i] = i + 1
    given.first = <const char *> numbers
    given.array_end = <const char *> (numbers + n)
    for block in range(table.blocks):
        pack_task(table, &given, numbers, 1, block, &weights[0], &bias[0], &magnitudes[block, 0], &wide[0, 0])
    for i in range(table.group_weights):
        order[i] = <Py_ssize_t> weights[i] - 1
    for i in range(table.group_biases):
        bias_order[i] = <Py_ssize_t> bias[i] - 1  # -1: none, as the products of columns first have
    for group in range(table.group):
        for i in range(table.group_weights):
            weights[group * table.group_weights + i] = w[group * n + order[i]]
        for i in range(table.group_biases):
            if bias_order[i] >= 0:
                bias[group * table.group_biases + i] = b[group * table.out_channels + bias_order[i]]
    return all_finite(table, w, table.group * n)


cdef bint pack_task(
    BoxTable table, const Given *array, const real_t *b, Py_ssize_t parts, Py_ssize_t task, real_t *weights,
    real_t *bias, uint32_t *magnitudes, real_t *wide,
) noexcept nogil:
    """One part of one block of one group; parts are the fastest index. Returns whether its weights are finite."""
    cdef Given given = array[0]
    cdef Py_ssize_t part = task % parts, chunks = input_chunks(table)
    cdef Py_ssize_t block = task // parts % table.blocks, group = task // parts // table.blocks, first, end
    given.begin, given.end = part * chunks // parts * TILE_CHANNELS, (part + 1) * chunks // parts * TILE_CHANNELS
    if not table.pieces:
        given.end = min(given.end, table.in_channels)
    begin_columns(table, &given, group, block, 0, table.block_width(block) * table.kernel)
    end = given.end
    for first from given.begin // table.slice * table.slice <= first < end by table.slice:
        given.begin, given.end = max(given.begin, first), min(end, first + table.slice)
        pack_block(table, &given, wide, block, weights + group * table.group_weights)
    if part == 0 and not table.along_channels:
        spread_bias(table, b + group * table.out_channels, block, bias + group * table.group_biases)
    sum_up_magnitudes(&given, magnitudes)
    return given.finite


def multipliable(uint32_t least, uint32_t most):
    """The magnitudes of x that weights of magnitudes from `least` to `most` can be multiplied by in pieces, or None.

    Nothing may be subnormal or overflow: the least piece of an element is 2**-23 of it, a sum may have 2**24 terms.
    All are bits of floats.
    """
    cdef float low = LEAST, high = ldexp(1, 100)
    if most == 0:
        return bits_of(low), bits_of(high)
    if least < bits_of(low) or most > bits_of(high):
        return None
    low, high = low / min(value_of(least), 1), high / max(value_of(most), 1)
    return (bits_of(low), bits_of(high)) if low < high else None


def pack(BoxTable table not None, cnp.ndarray w not None, str dtype not None, b, bint once, int n_threads):
    """Weights and bias in the layout of `table`.

    Parameters
    ----------
    table : BoxTable
    w : ndarray
        ``(C, M/group, *K)``, contiguous.
    dtype : {"float16", "bfloat16", "float32", "float64"}
        What the bytes of `w` are.
    b : ndarray
        ``(M,)``, in the type that sums are made in.
    once : bool
        Whether what is packed will be dropped after one call.
    n_threads : int

    Returns
    -------
    (ndarray, ndarray, (int, int)) or None
        Packed weights, or `w` where they are read while boxes are computed, and bias, and the least and greatest
        magnitude of x other than 0 that they can be multiplied by in pieces, as the bits of floats. None if a weight is
        Inf or NaN, which must not meet the zeros around the input, or has no such x, or if a bias is too small to be
        rounded beside tile registers.
    """
    cdef Given array
    cdef uint32_t[:, ::1] magnitudes
    cdef Py_ssize_t task, tasks = table.group * table.blocks, parts = 1
    array.dtype = <DType> <int> DTYPES.index(dtype)
    array.halves = array.dtype == FLOAT16 or array.dtype == BFLOAT16
    array.first = cnp.PyArray_BYTES(w)
    array.array_end = array.first + cnp.PyArray_NBYTES(w)
    n_weights, n_bias = table.packed_elements
    bias = np.zeros(n_bias, b.dtype)
    if table.along_channels:
        bias[: len(b)] = b
    if table.guarded and array.dtype == BFLOAT16 and (np.abs(b[b != 0]) < LEAST).any():
        return None  # the sum of it and nothing else could be subnormal, which the processor rounds to 0
    if table.in_panels:
        return w, bias, (EVER_LEAST, EVER_MOST)
    weights = empty_aligned((max(1, n_weights),), b.dtype, WORKSPACES if once else RESULTS)
    if tasks % n_threads:
        parts = min(input_chunks(table), (4 * n_threads + tasks - 1) // tasks)
    magnitudes = np.empty((tasks * parts, 2), np.uint32)
    widened = table.in_channels * table.block * table.kernel if array.halves else 0
    widened = max(widened + MAX_LANES, table.wide_size + table.turned_size)
    wide = empty_aligned((n_threads, widened), b.dtype, WORKSPACES)
    small = not (table.along_channels or table.pieces or array.halves) and table.group > 1
    small &= table.group_biases + table.in_channels * table.out_channels * table.kernel <= SMALL_GROUP
    small &= table.group_weights <= SMALL_GROUP  # with what is packed for taps that places lack
    if small and table.double:
        finite = pack_small_groups[double](table, &array, b, weights, bias, magnitudes, wide)
    elif small:
        finite = pack_small_groups[float](table, &array, b, weights, bias, magnitudes, wide)
    elif table.double:
        finite = pack_all[double](table, &array, b, weights, bias, magnitudes, parts, wide)
    else:
        finite = pack_all[float](table, &array, b, weights, bias, magnitudes, parts, wide)
    limits = (0, 0)
    if table.guarded:
        for task in range(1, tasks * parts):
            magnitudes[0, 0] = min(magnitudes[0, 0], magnitudes[task, 0])
            magnitudes[0, 1] = max(magnitudes[0, 1], magnitudes[task, 1])
        limits = multipliable(magnitudes[0, 0] + 1, magnitudes[0, 1])
    return (weights, bias, limits) if finite and limits else None

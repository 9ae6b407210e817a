"""Weights in the layouts that the kernels of boxes read.

A block of output channels is packed per class and tile as ``[tap][channel][column]``, columns being the block's
channels at each place of the class, slice by slice where input channels are very many; for tile registers as ``[32
channels][tap][piece][channel][column]``, and in words as ``[tap][word][column]``. A task packs a block, or a part of
its input channels where blocks are too few for the threads. (Those that are used once: see `_weight_panels`.)
"""

cimport numpy as cnp
from cython.parallel cimport prange, threadid
from libc.math cimport ldexp
from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from convt._box_table cimport BoxTable, MAX_LANES, MAX_VECTORS, TURNED_CHANNELS
from convt._elements cimport BFLOAT16, FLOAT16, bits_of, dtype_of, real_t, value_of
from convt._given_weights cimport (
    EVER_LEAST, EVER_MOST, Given, begin_columns, join_channels, joins_channels, read_channel, sum_up_magnitudes,
)
from convt._levels cimport MOST_TURNED, TILE_CHANNELS, TILE_FLOATS, kernels_for
from convt._machine cimport begin_floating, end_floating
from convt._micro_kernels cimport transpose

import numpy as np

from convt._memory import LASTING, WORKSPACES
from convt.arrays import empty_aligned

cnp.import_array()

ctypedef fused word_t:
    uint16_t
    uint32_t

LEAST = 2.0**-102  # magnitude that pieces, and sums of products of pieces, keep all digits of

cdef enum:
    GATHERED_BYTES = 1 << 19  # of weights: bfloat16, 1026 channels, kernel 1024, to one took 0.88 to 0.93 of a call
    SPANS_BYTES = 1 << 14  # of channels that stay in the first-level cache while every tile copies its columns
    LEAST_SPAN_CHANNELS = 4  # of those
    SMALL_GROUP = 1 << 9  # weights and biases, of which the order is found but once


cdef inline Py_ssize_t tap_offset(
    BoxTable table, Py_ssize_t n_taps, Py_ssize_t tile, Py_ssize_t t, Py_ssize_t channel
) noexcept nogil:
    """From a tile's weights to those of tap t in the slice that a channel lies in, less those of the channels before
    the slice: the channel's own lie `channel * tile` elements further."""
    cdef Py_ssize_t first = channel // table.slice * table.slice
    if table.pieces:
        return t * tile * table.pieces * MAX_LANES
    return (first * (n_taps - 1) + t * min(table.slice, table.depth - first)) * tile


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


# Of a block's packed weights, for each vector of columns and kernel position: where its channel 0 is, -1 for a kernel
# position that reaches no input, its tile's width, and elements to its next channel, or to the next 32 in pieces.
cdef struct VectorPlaces:
    Py_ssize_t *first
    Py_ssize_t *tile
    Py_ssize_t *step


cdef bint list_vector_places(
    BoxTable table, const Given *given, Py_ssize_t block, Py_ssize_t vectors, VectorPlaces *places
) noexcept nogil:
    """Returns whether there was memory for them, to be freed by `places.first`."""
    cdef Py_ssize_t width = table.block_width(block), n = table.kernel * vectors, i, t, v, place, at, n_taps, tile
    places.first = <Py_ssize_t *> calloc(n, 3 * sizeof(Py_ssize_t))
    if places.first == NULL:
        return False
    places.tile = places.first + n
    places.step = places.tile + n
    for i in range(n):
        places.first[i] = -1
    for i in range(table.products.n):
        n_taps = table.products.taps(i)
        for place in range(table.products.places(i)):
            for v in range(vectors):
                for t in range(n_taps):
                    at = v * table.kernel
                    at += table.products.kernel_index[table.products.first_kernel[i] + place * n_taps + t]
                    places.first[at] = column_offset(
                        table, given, block, i, t, place * width + v * table.lanes, &tile
                    )
                    places.tile[at] = tile
                    places.step[at] = chunk_step(table, n_taps, tile) if table.pieces else tile
    return True


cdef void transpose_channel(
    BoxTable table, const real_t *channel, const real_t *end, Py_ssize_t vectors, real_t **targets
) noexcept nogil:
    """``[column][kernel position]``, which may be read up to `end`, to a vector of columns for each kernel position."""
    cdef Py_ssize_t lanes = table.lanes, v, k, i, count, step
    cdef real_t copies[MAX_LANES * MAX_LANES]
    cdef const real_t *rows
    for v in range(vectors):
        for k from 0 <= k < table.kernel by lanes:
            count = min(lanes, table.kernel - k)
            rows, step = channel + v * lanes * table.kernel + k, table.kernel
            if rows + (lanes - 1) * step + lanes > end:  # reading whole vectors would leave the array
                for i in range(lanes):
                    memcpy(copies + i * lanes, rows + i * step, count * sizeof(real_t))
                rows, step = copies, lanes
            kernels_for(table.level, rows).transpose_to(rows, step, count, targets + v * table.kernel + k)


cdef bint pack_whole_vectors(
    BoxTable table, Given *given, real_t *wide, Py_ssize_t block, real_t *weights
) noexcept nogil:
    """`pack_block`'s weights where every vector of columns is one place of consecutive channels: by transposition.

    Returns whether that could be done; False leaves the weights to be packed one by one.
    """
    cdef Py_ssize_t lanes = table.lanes, width = table.block_width(block), vectors = width // lanes
    cdef Py_ssize_t n = table.kernel * vectors, c, t, channel, turned_step = TURNED_CHANNELS * lanes
    cdef bint joined = joins_channels(table, given), turns = table.pieces and not joined
    cdef VectorPlaces places
    # Of each vector and kernel position, the channels that tiles hold.
    cdef real_t *turned = wide + table.wide_size
    cdef real_t **targets
    cdef const real_t *source
    cdef const real_t *end = wide + given.width + MAX_LANES
    cdef real_t *target
    if not table.along_channels or width % lanes:
        return False
    if table.kernel == 1 or table.pieces and table.kernel > MOST_TURNED:
        return False
    targets = <real_t **> calloc(n, sizeof(real_t *))
    if targets == NULL or not list_vector_places(table, given, block, vectors, &places):
        free(targets)
        return False
    if not given.halves:
        end = <const real_t *> given.array_end
    for c from given.begin <= c < given.end by joined + 1:
        channel = c % TILE_CHANNELS
        for t in range(n):
            if turns:
                targets[t] = turned + t * turned_step + channel * lanes
            elif places.first[t] < 0:
                targets[t] = NULL
            elif joined:
                targets[t] = (
                    weights + places.first[t] + c // TILE_CHANNELS * places.step[t] + channel // 2 * lanes
                )
            else:
                targets[t] = weights + places.first[t] + c * places.step[t]
        if c >= table.tap_channels:
            for t in range(n):
                if targets[t] != NULL:
                    memset(targets[t], 0, lanes * sizeof(real_t))
        elif real_t is float and joined:
            join_channels(table, given, c, 0, given.width, wide, 1, MAX_LANES)
            transpose_channel(table, <const real_t *> wide, end, vectors, targets)
        else:
            source = read_channel(table, given, c, wide)
            transpose_channel(table, source, end, vectors, targets)
        if real_t is float and turns and channel == TILE_CHANNELS - 1:
            for t in range(n):
                if places.first[t] < 0:
                    continue
                target = weights + places.first[t] + c // TILE_CHANNELS * places.step[t]
                table.level.tiles.split_right(
                    table.pieces, turned + t * turned_step, lanes, target, lanes * places.tile[t], given.least,
                    given.most,
                )
    free(places.first)
    free(targets)
    return True


# Columns of packed weights that follow each other in a channel of those given.
cdef struct Span:
    Py_ssize_t source  # element of a channel
    Py_ssize_t target  # of the packed weights, of channel 0
    Py_ssize_t length
    Py_ssize_t tile  # its width: elements from one packed channel to the next


cdef bint pack_spans(BoxTable table, Given *given, real_t *wide, Py_ssize_t block, real_t *weights) noexcept nogil:
    """`pack_block`'s weights where every vector of columns is as many neighbours of a channel's weights, as outputs of
    a kernel of one position and places of a row of a cell are. Every tile takes its own from some channels that are in
    the first-level cache: one call of istft_1026to1 took 0.95 of the time, of 2048 to 512 channels with kernel 1 0.96.
    (From one channel at a time, 0.95 to 1.2 from process to process: each tile's cache lines then come one by one.)

    Returns whether that could be done.
    """
    cdef Py_ssize_t lanes = table.lanes, width = table.block_width(block), i, t, j, c, n, n_taps, column, tile
    cdef Py_ssize_t place, offset, first = 0, target, n_spans = 0, most = 0, begin, some, count
    cdef Py_ssize_t channel_step = given.channel_step // <Py_ssize_t> sizeof(real_t)
    cdef Span *spans
    cdef Span *span = NULL  # the last one
    cdef const int64_t *kernel_index
    cdef const real_t *source = wide
    if not table.along_channels or table.pieces:
        return False
    for i in range(table.products.n):
        n = table.columns(table.products, block, i)
        if n % lanes:
            return False
        most += table.products.taps(i) * n // lanes
    spans = <Span *> calloc(most + 1, sizeof(Span))
    if spans == NULL:
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
                        free(spans)
                        return False
                    continue
                first = offset
                target = column_offset(table, given, block, i, t, column, &tile)
                if column % table.whole_tile and first == span.source + span.length:
                    span.length += lanes
                    continue
                span = spans + n_spans
                span.source, span.target, span.length, span.tile = first, target, lanes, tile
                n_spans += 1
    if given.halves:
        channel_step = given.width
    some = max(LEAST_SPAN_CHANNELS, SPANS_BYTES // (given.width * <Py_ssize_t> sizeof(real_t)))
    for begin from given.begin <= begin < given.end by some:
        count = min(some, given.end - begin)
        for c in range(count):
            read_channel(table, given, begin + c, wide + c * given.width)
        if not given.halves:
            source = <const real_t *> (given.first + begin * given.channel_step)
        for j in range(n_spans):
            for c in range(count):
                memcpy(
                    weights + spans[j].target + (begin + c) * spans[j].tile,
                    source + c * channel_step + spans[j].source, spans[j].length * sizeof(real_t),
                )
    free(spans)
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
    if pack_whole_vectors(table, given, wide, block, weights) or pack_spans(table, given, wide, block, weights):
        return
    if not given.halves:
        w = <const real_t *> given.first
        channel_step = given.channel_step // <Py_ssize_t> sizeof(real_t)
    # As many channels as stay in the second-level cache while every tile gathers its columns from them.
    some = max(1, GATHERED_BYTES // given.channel_bytes // TILE_CHANNELS) * TILE_CHANNELS
    for begin from given.begin <= begin < end by some:
        given.begin, given.end = begin, min(begin + some, end)
        if real_t is float and table.words:  # which are counted from here on
            given.begin, given.end = begin // 2, (given.end + 1) // 2
            for c in range(given.begin, given.end):
                join_channels(table, given, 2 * c, 0, given.width, wide + c * given.width, 1, MAX_LANES)
        else:
            for c in range(begin, min(given.end, table.tap_channels)):
                read_channel(table, given, c, wide + c * given.width)
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
    cdef Py_ssize_t channels = table.depth if table.words else table.tap_channels
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
        if column_step == 1 and c >= channels:
            memset(row, 0, tile * sizeof(real_t))
        elif n == tile and column_step == 1:
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
) noexcept:
    """In `parts` parts of the input channels of a block. Returns whether all weights are finite, or `magnitudes` what
    tile registers want to know: of each part the least other than 0, less 1, and the greatest.
    """
    cdef Py_ssize_t task, infinite = 0
    cdef uint64_t found
    for task in prange(magnitudes.shape[0], nogil=True, schedule="dynamic", num_threads=wide.shape[0]):
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
    cdef Py_ssize_t n = table.tap_channels * table.group_outputs * table.kernel, group, block, i
    cdef const real_t *w = <const real_t *> array.first
    cdef Given given = array[0]
    cdef real_t numbers[SMALL_GROUP]  # for the first group's weights in their own order, and for its bias: 1 to n
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
                bias[group * table.group_biases + i] = b[group * table.group_outputs + bias_order[i]]
    return kernels_for(table.level, w).all_finite(w, table.group * n)


cdef bint pack_task(
    BoxTable table, const Given *array, const real_t *b, Py_ssize_t parts, Py_ssize_t task, real_t *weights,
    real_t *bias, uint32_t *magnitudes, real_t *wide,
) noexcept nogil:
    """One part of one block of one group; parts are the fastest index. Returns whether its weights are finite."""
    cdef Given given = array[0]
    cdef Py_ssize_t part = task % parts, chunks = table.input_chunks
    cdef Py_ssize_t block = task // parts % table.blocks, group = task // parts // table.blocks, first, end
    given.begin, given.end = part * chunks // parts * TILE_CHANNELS, (part + 1) * chunks // parts * TILE_CHANNELS
    if not table.pieces:
        given.end = min(given.end, table.tap_channels)
    begin_columns(table, &given, group, block, 0, table.block_width(block) * table.kernel)
    end = given.end
    for first from given.begin // table.slice * table.slice <= first < end by table.slice:
        given.begin, given.end = max(given.begin, first), min(end, first + table.slice)
        pack_block(table, &given, wide, block, weights + group * table.group_weights)
    if part == 0 and not table.along_channels:
        spread_bias(table, b + group * table.group_outputs, block, bias + group * table.group_biases)
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


cdef void merge_channels(
    const word_t[:, :, :, ::1] w, const int64_t[:, ::1] kernel, word_t[:, :, :, :, ::1] merged
) noexcept nogil:
    cdef Py_ssize_t group, tap, c, m, k
    for group in range(w.shape[0]):
        for tap in range(kernel.shape[0]):
            for c in range(w.shape[1]):
                for m in range(w.shape[2]):
                    for k in range(kernel.shape[1]):
                        if kernel[tap, k] >= 0:
                            merged[group, tap, c, m, k] = w[group, c, m, kernel[tap, k]]


cdef cnp.ndarray merge(BoxTable table, cnp.ndarray w):
    """Weights ``(C, M/group, *K)``, contiguous, of two or four bytes an element, as those of the table's merged taps:
    ``(group * taps * channels of a place, M/group, merged kernel)``."""
    given = w.reshape(table.group, len(w) // table.group, table.group_outputs, -1)
    taps, positions = table.merged_kernel.shape
    merged = np.zeros((table.group, taps, table.tap_channels // taps, table.group_outputs, positions), w.dtype)
    if w.itemsize == 2:
        merge_channels[uint16_t](given.view(np.uint16), table.merged_kernel, merged.view(np.uint16))
    else:
        merge_channels[uint32_t](given.view(np.uint32), table.merged_kernel, merged.view(np.uint32))
    return merged.reshape(-1, table.group_outputs, positions)


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
    if table.merged_kernel is not None:
        w = merge(table, w)
    array.dtype = dtype_of(dtype)
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
    # Small ones too: tile registers took up to 1.3 times as long to load weights whose rows straddle cache lines.
    weights = empty_aligned((max(1, n_weights),), b.dtype, WORKSPACES if once else LASTING, 0)
    if tasks % n_threads:
        parts = min(table.input_chunks, (4 * n_threads + tasks - 1) // tasks)
    magnitudes = np.empty((tasks * parts, 2), np.uint32)
    widened = table.tap_channels * table.block * table.kernel if array.halves else 0
    widened = max(widened + MAX_LANES, table.wide_size + table.turned_size)
    wide = empty_aligned((n_threads, widened), b.dtype, WORKSPACES)
    small = not (table.along_channels or table.pieces or array.halves) and table.group > 1
    small &= table.group_biases + table.tap_channels * table.group_outputs * table.kernel <= SMALL_GROUP
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

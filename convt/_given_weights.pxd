"""Weights as they were given: read, looked at, and fetched before their use."""

from libc.stdint cimport uint16_t, uint32_t
from libc.string cimport memset

from convt._box_table cimport BoxTable, MAX_LANES
from convt._elements cimport BFLOAT16, DType, real_t
from convt._levels cimport CACHE_LINE, kernels_for


cdef extern from * nogil:
    void prefetch "__builtin_prefetch" (const void *, int, int)

cdef enum:
    FETCHED = 8192  # bytes of weights that are fetched before their use, at least
    # Any weights between these magnitudes, as the bits of floats, can be multiplied in pieces by any x between them:
    # 2**-51 and 2**50, see `multipliable` of _box_weights.
    EVER_LEAST = 76 << 23
    EVER_MOST = 177 << 23


# Weights as they were given, all of them or those of a task or panel, and what has been seen of these.
cdef struct Given:
    DType dtype
    bint halves
    const char *first  # of the block's input channels
    const char *array_end
    Py_ssize_t begin, end  # of a task: input channels to be packed, zeros that fill up tile registers included
    Py_ssize_t channel_step  # bytes
    Py_ssize_t width  # elements of a channel
    Py_ssize_t channel_bytes
    Py_ssize_t ahead  # bytes from a channel's weights to those that are fetched meanwhile
    bint finite
    # Magnitudes for tile registers, as the bits of floats, lane by lane: the least other than 0, less 1; the greatest.
    uint32_t least[MAX_LANES]
    uint32_t most[MAX_LANES]


cdef inline void begin_columns(
    BoxTable table, Given *given, Py_ssize_t group, Py_ssize_t block, Py_ssize_t first, Py_ssize_t width
) noexcept nogil:
    """Narrow `given`, of all weights, to `width` columns of a block, from its column `first` on; none has been seen."""
    cdef Py_ssize_t item = sizeof(uint16_t) if given.halves else sizeof(double) if table.double else sizeof(float)
    given.channel_step = table.group_outputs * table.kernel * item
    given.first += group * table.tap_channels * given.channel_step + (block * table.block * table.kernel + first) * item
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
        table.halves.widen(given.dtype == BFLOAT16, <const uint16_t *> first, given.width, 0, wide)
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
        given.finite &= kernels_for(table.level, source).all_finite(source, given.width)
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
    if c < table.tap_channels:
        even = given.first + c * given.channel_step + first * <Py_ssize_t> sizeof(uint16_t)
    if c + 1 < table.tap_channels:
        odd = even + given.channel_step
    table.level.tiles.join_rows(
        even, odd, n, table.whole_tile, words, column_step, vector_step, given.ahead, given.least, given.most
    )

"""Weights that are used once: read where they lie or packed by whoever multiplies them, a panel of columns or a block
at a time."""

from libc.string cimport memcpy, memset

from convt._box_operands cimport Operands
from convt._box_table cimport BoxTable, MAX_LANES
from convt._box_weights cimport chunk_step, pack_whole_vectors
from convt._given_weights cimport (
    Given, begin_columns, fetch_after, join_channels, joins_channels, outside_magnitudes, widen_channel,
)
from convt._elements cimport real_t
from convt._levels cimport TILE_CHANNELS, TILE_FLOATS


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
    cdef Py_ssize_t padded = table.padded(given.width), channels = min(n, table.tap_channels - c), i, kept
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
    cdef Py_ssize_t of_chunk = chunk_step(table, 1, table.whole_tile)
    cdef Py_ssize_t of_last = chunk_step(table, 1, table.padded(width - whole))
    cdef float *wide = panel + table.padded(width) * table.depth
    cdef const float *source = NULL
    cdef float *target
    begin_panel(table, operands, group, block, first, width, &given)
    cdef bint joined = joins_channels(table, &given)
    for c from 0 <= c < table.tap_channels by TILE_CHANNELS:
        if joined:
            for i in range(TILE_CHANNELS // 2):
                target = panel + c // TILE_CHANNELS * of_chunk + i * MAX_LANES
                join_channels(table, &given, c + 2 * i, 0, whole, target, table.depth, TILE_FLOATS)
                target = panel + whole * table.depth + c // TILE_CHANNELS * of_last + i * MAX_LANES
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
    cdef Py_ssize_t first, end = table.input_chunks * TILE_CHANNELS if table.pieces else table.tap_channels
    cdef real_t *wide = panel + table.block_weights
    begin_panel(table, operands, group, block, 0, table.block_width(block) * table.kernel, &given)
    for first from 0 <= first < end by table.slice:
        given.begin, given.end = first, min(end, first + table.slice)
        if not pack_whole_vectors(table, &given, wide, block, panel):
            return True
    return outside_magnitudes(&given) if table.guarded else not given.finite

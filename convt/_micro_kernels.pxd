"""A level's micro-kernels for the type that a table's sums are made in, float or double: what micro.h defines."""

from convt._box_table cimport BoxTable
from convt._levels cimport lines_t, positions_out_t, real_t, tap_class_t


cdef inline void transpose(
    BoxTable table, const real_t **rows, Py_ssize_t offset, real_t *out, Py_ssize_t out_step,
    const real_t *bias=NULL, int blocks=1, int kept=16, bint stream=False,
) noexcept nogil:
    """`kept`: 16 are all, at any level."""
    if real_t is float:
        table.level.f32.transpose(rows, blocks, offset, bias, out, out_step, kept, stream)
    else:
        table.level.f64.transpose(rows, blocks, offset, bias, out, out_step, kept, stream)


cdef inline void transpose_to(
    BoxTable table, const real_t *rows, Py_ssize_t step, Py_ssize_t n, real_t **targets
) noexcept nogil:
    if real_t is float:
        table.level.f32.transpose_to(rows, step, n, targets)
    else:
        table.level.f64.transpose_to(rows, step, n, targets)


cdef inline void copy_lines(
    BoxTable table, Py_ssize_t count, Py_ssize_t before, Py_ssize_t n, Py_ssize_t after, const char *source,
    Py_ssize_t source_step, real_t *target, Py_ssize_t target_step,
) noexcept nogil:
    if real_t is float:
        table.level.f32.lines(count, before, n, after, source, source_step, target, target_step)
    else:
        table.level.f64.lines(count, before, n, after, source, source_step, target, target_step)


cdef inline void interleave(
    BoxTable table, Py_ssize_t n, Py_ssize_t places, const real_t **rows, real_t *out, bint stream
) noexcept nogil:
    if real_t is float:
        table.level.f32.interleave(n, places, rows, out, stream)
    else:
        table.level.f64.interleave(n, places, rows, out, stream)


cdef inline void stream_rows(
    BoxTable table, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t places, const real_t *sums, Py_ssize_t step,
    Py_ssize_t place_step, real_t *out,
) noexcept nogil:
    if real_t is float:
        table.level.f32.stream_rows(rows, n, places, sums, step, place_step, out)
    else:
        table.level.f64.stream_rows(rows, n, places, sums, step, place_step, out)


cdef inline void biased_rows(
    BoxTable table, Py_ssize_t rows, Py_ssize_t n, const real_t *sums, Py_ssize_t sums_step, real_t bias, real_t *out,
    Py_ssize_t out_step,
) noexcept nogil:
    if real_t is float:
        table.level.f32.biased_rows(rows, n, sums, sums_step, bias, out, out_step)
    else:
        table.level.f64.biased_rows(rows, n, sums, sums_step, bias, out, out_step)


cdef inline void add_rows(
    BoxTable table, Py_ssize_t rows, Py_ssize_t n, Py_ssize_t width, const real_t *source, Py_ssize_t source_row,
    Py_ssize_t source_step, real_t *target, Py_ssize_t target_row, Py_ssize_t target_step,
) noexcept nogil:
    if real_t is float:
        table.level.f32.add_rows(rows, n, width, source, source_row, source_step, target, target_row, target_step)
    else:
        table.level.f64.add_rows(rows, n, width, source, source_row, source_step, target, target_row, target_step)


cdef inline void accumulate(
    BoxTable table, Py_ssize_t n, Py_ssize_t taps, const real_t **terms, real_t bias, real_t *out
) noexcept nogil:
    if real_t is float:
        table.level.f32.accumulate(n, taps, terms, bias, out)
    else:
        table.level.f64.accumulate(n, taps, terms, bias, out)


cdef inline bint all_finite(BoxTable table, const real_t *elements, Py_ssize_t n) noexcept nogil:
    if real_t is float:
        return table.level.f32.finite(elements, n)
    else:
        return table.level.f64.finite(elements, n)


cdef inline void native_tiles(
    BoxTable table, Py_ssize_t positions, Py_ssize_t channels, Py_ssize_t columns, const real_t *x, const real_t *w,
    Py_ssize_t w_step, Py_ssize_t later, real_t *out, Py_ssize_t out_step,
) noexcept nogil:
    if real_t is float:
        table.level.f32.native_tiles(positions, channels, columns, x, table.x_step, w, w_step, later, out, out_step)
    else:
        table.level.f64.native_tiles(positions, channels, columns, x, table.x_step, w, w_step, later, out, out_step)


cdef inline void filled_lines(
    BoxTable table, const lines_t *strip, Py_ssize_t x_channel, Py_ssize_t x_line, Py_ssize_t n, const char *x,
    Py_ssize_t ahead, real_t *target,
) noexcept nogil:
    """`n` elements of each line of all input channels, whose steps in x are in bytes, to where they lie in `strip`."""
    if real_t is float:
        table.level.f32.filled_lines(
            table.in_channels, x_channel, strip.count, x_line, n, x, ahead, target, strip.x_channel, strip.x_line
        )
    else:
        table.level.f64.filled_lines(
            table.in_channels, x_channel, strip.count, x_line, n, x, ahead, target, strip.x_channel, strip.x_line
        )


cdef inline void positions_out(
    BoxTable table, Py_ssize_t rows, int kind, const tap_class_t *classes, const lines_t *lines, const real_t *x,
    void **targets, bint stream,
) noexcept nogil:
    cdef positions_out_t of_floats = table.level.f32.positions_out
    if real_t is float:
        if table.words:
            of_floats = table.level.tiles.word_positions_out
        of_floats(rows, kind, table.inner_places, classes, lines, x, targets, stream)
    else:
        table.level.f64.positions_out(rows, kind, table.inner_places, classes, lines, x, targets, stream)

"""A level's micro-kernels that lanes along positions have for words, too, and one with defaults."""

from convt._box_table cimport BoxTable
from convt._elements cimport real_t
from convt._levels cimport kernels_for, lines_t, tap_class_t


cdef inline void transpose(
    BoxTable table, const real_t **rows, Py_ssize_t offset, real_t *out, Py_ssize_t out_step,
    const real_t *bias=NULL, int blocks=1, int kept=16, bint stream=False,
) noexcept nogil:
    """`kept`: 16 are all, at any level."""
    kernels_for(table.level, out).transpose(rows, blocks, offset, bias, out, out_step, kept, stream)


cdef inline void multiply_positions(
    BoxTable table, Py_ssize_t rows, Py_ssize_t positions, const tap_class_t *of, Py_ssize_t channels,
    const real_t *x, Py_ssize_t x_step, Py_ssize_t ahead, Py_ssize_t later, real_t *out, Py_ssize_t out_step,
) noexcept nogil:
    if real_t is float and table.words:
        table.level.tiles.word_positions(rows, positions, of, channels, x, x_step, ahead, later, out, out_step)
    else:
        kernels_for(table.level, x).positions(rows, positions, of, channels, x, x_step, ahead, later, out, out_step)


cdef inline void positions_out(
    BoxTable table, Py_ssize_t rows, const tap_class_t *classes, const lines_t *lines, const real_t *x,
    void **targets, bint stream,
) noexcept nogil:
    if real_t is float and table.words:
        table.level.tiles.word_positions_out(rows, table.kind, table.inner_places, classes, lines, x, targets, stream)
    else:
        kernels_for(table.level, x).positions_out(
            rows, table.kind, table.inner_places, classes, lines, x, targets, stream
        )

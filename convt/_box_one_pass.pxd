from convt._box_operands cimport Box, Operands
from convt._box_table cimport BoxTable, real_t, tile_rows_t


cdef void multiply_and_store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const real_t *input, const real_t *weights, const real_t *bias, real_t *spare,
) noexcept nogil

cdef void list_rows(
    BoxTable table, const Operands *operands, const Box *box, char **first, tile_rows_t *rows
) noexcept nogil

cdef void multiply_tiles_and_store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const float *input, const float *weights, const float *bias, tile_rows_t *rows,
) noexcept nogil

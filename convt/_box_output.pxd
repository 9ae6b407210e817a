from convt._box_operands cimport Box, Operands
from convt._box_table cimport BoxTable, real_t


cdef void store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const real_t *sums, const real_t *bias, real_t *square, const real_t **sums_of_place, Py_ssize_t *step_of_place,
) noexcept nogil

from convt._box_operands cimport Box, Operands
from convt._box_table cimport BoxTable, Scratch
from convt._elements cimport real_t


cdef void sum_along_positions(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t block, const real_t *weights,
    const real_t *bias, const Scratch *scratch,
) noexcept nogil

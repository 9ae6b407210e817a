from convt._box_operands cimport Box, Operands
from convt._box_table cimport BoxTable, real_t


cdef bint pack_input(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t group, real_t *target, real_t *square
) noexcept nogil

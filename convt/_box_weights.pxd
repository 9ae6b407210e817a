from convt._box_operands cimport Operands
from convt._box_table cimport BoxTable, real_t


cdef bint pack_panel(
    BoxTable table, const Operands *operands, Py_ssize_t group, Py_ssize_t block, Py_ssize_t first, Py_ssize_t width,
    real_t *panel,
) noexcept nogil

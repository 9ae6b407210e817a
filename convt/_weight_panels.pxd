from convt._box_operands cimport Operands
from convt._box_table cimport BoxTable
from convt._given_weights cimport Given
from convt._elements cimport real_t


cdef void begin_panel(
    BoxTable table, const Operands *operands, Py_ssize_t group, Py_ssize_t block, Py_ssize_t first, Py_ssize_t width,
    Given *given,
) noexcept nogil

cdef const real_t *panel_rows(
    BoxTable table, Given *given, Py_ssize_t c, Py_ssize_t n, bint fetch, bint copied, real_t *wide, Py_ssize_t *step
) noexcept nogil

cdef bint pack_panel(
    BoxTable table, const Operands *operands, Py_ssize_t group, Py_ssize_t block, Py_ssize_t first, Py_ssize_t width,
    float *panel,
) noexcept nogil

cdef bint pack_block_panel(
    BoxTable table, const Operands *operands, Py_ssize_t group, Py_ssize_t block, real_t *panel
) noexcept nogil

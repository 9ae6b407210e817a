from convt._box_operands cimport Box, Operands
from convt._box_table cimport BoxTable, Scratch
from convt._elements cimport real_t
from convt._levels cimport lines_t


cdef void store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const real_t *bias, const Scratch *scratch,
) noexcept nogil

cdef void write_lines(
    BoxTable table, const Operands *operands, const lines_t *lines, const real_t *sums, Py_ssize_t channels,
    Py_ssize_t outers, char **row_of_outer, Py_ssize_t begin,
) noexcept nogil

cdef void write_joined(
    BoxTable table, const Operands *operands, Py_ssize_t rows, Py_ssize_t length, const real_t *sums,
    Py_ssize_t channels, Py_ssize_t outers, char **row_of_outer,
) noexcept nogil

from libc.stdint cimport uint32_t

from convt._box_operands cimport Operands
from convt._box_table cimport BoxTable, MAX_LANES
from convt._elements cimport DType
from convt._levels cimport real_t


# Weights as they were given, all of them or those of a task or panel, and what has been seen of these.
cdef struct Given:
    DType dtype
    bint halves
    const char *first  # of the block's input channels
    const char *array_end
    Py_ssize_t begin, end  # of a task: input channels to be packed, zeros that fill up tile registers included
    Py_ssize_t channel_step  # bytes
    Py_ssize_t width  # elements of a channel
    Py_ssize_t channel_bytes
    Py_ssize_t ahead  # bytes from a channel's weights to those that are fetched meanwhile
    bint finite
    # Magnitudes for tile registers, as the bits of floats, lane by lane: the least other than 0, less 1; the greatest.
    uint32_t least[MAX_LANES]
    uint32_t most[MAX_LANES]


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

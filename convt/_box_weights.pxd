from convt._box_table cimport BoxTable, MAX_LANES
from convt._given_weights cimport Given
from convt._elements cimport real_t


cdef inline Py_ssize_t chunk_step(BoxTable table, Py_ssize_t n_taps, Py_ssize_t tile) noexcept nogil:
    """Elements from the weights of 32 channels in pieces to those of the next."""
    return n_taps * tile * table.pieces * MAX_LANES


cdef bint pack_whole_vectors(
    BoxTable table, Given *given, real_t *wide, Py_ssize_t block, real_t *weights
) noexcept nogil

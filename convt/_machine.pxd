"""How threads round: machine.h."""

from libc.stdint cimport uint64_t

cdef extern from "machine.h" nogil:
    uint64_t begin_floating "convt_begin_floating" ()
    void end_floating "convt_end_floating" (uint64_t found)

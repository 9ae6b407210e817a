from libc.stdint cimport uint64_t


cdef extern from "machine.h" nogil:
    void raise_flag "convt_raise_flag" (int *flag)
    bint is_raised "convt_is_raised" (const int *flag)


cpdef uint64_t begin_floating() noexcept nogil
cpdef void end_floating(uint64_t found) noexcept nogil

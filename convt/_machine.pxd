from libc.stdint cimport uint64_t


cpdef uint64_t begin_floating() noexcept nogil
cpdef void end_floating(uint64_t found) noexcept nogil

"""What the build and the machine give to threads, and how these round."""

cdef extern from "machine.h" nogil:
    int omp_get_max_threads()
    int convt_processors()
    int CONVT_OPENMP
    const char *CONVT_COMPILER
    uint64_t convt_begin_floating()
    void convt_end_floating(uint64_t found)


def openmp_limit():
    """OpenMP's thread limit of the moment, for the calling thread."""
    return omp_get_max_threads()


def processors():
    """Processors that the calling thread may run on now: its affinity or, where OpenMP binds its threads, what OpenMP
    may use; 0 if unknown."""
    return convt_processors()


def build_info():
    """Compiler and OpenMP version (the date of its specification, 0 without OpenMP) of this build."""
    return {"compiler": CONVT_COMPILER.decode(), "openmp": CONVT_OPENMP}


cpdef uint64_t begin_floating() noexcept nogil:
    """Let the calling thread keep subnormals, round to nearest and not trap; returns what it did, for `end_floating`.

    A caller may flush subnormals or round otherwise, and threads of a pool inherit that from the one that made them.
    """
    return convt_begin_floating()


cpdef void end_floating(uint64_t found) noexcept nogil:
    """As `begin_floating` found it."""
    convt_end_floating(found)

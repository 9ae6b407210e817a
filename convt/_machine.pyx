# cython: language_level=3
"""What the build and the machine give to threads, and how these round."""

cdef extern from "machine.h" nogil:
    int omp_get_max_threads()
    int convt_processors()
    int CONVT_OPENMP
    const char *CONVT_COMPILER


def openmp_limit():
    """OpenMP's thread limit of the moment, for the calling thread."""
    return omp_get_max_threads()


def processors():
    """Processors that the calling thread may run on now (its affinity); 0 if unknown."""
    return convt_processors()


def build_info():
    """Compiler and OpenMP version (the date of its specification, 0 without OpenMP) of this build."""
    return {"compiler": CONVT_COMPILER.decode(), "openmp": CONVT_OPENMP}


def keep_subnormals():
    """Let the calling thread round to nearest and keep subnormals; returns what it did, for `round_as`."""
    return begin_floating()


def round_as(uint64_t found):
    """What `keep_subnormals` found, again."""
    end_floating(found)

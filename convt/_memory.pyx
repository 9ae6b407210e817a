# cython: wraparound=True
"""Memory of large arrays, kept and used again once nothing refers to it.

The zeroing of new pages can take longer than all the arithmetic: 45 MB of results 18 ms instead of 10. malloc takes
more than 32 MB anew from the system in every call, and less too in a process that has not freed larger blocks: one call
from 64 to 64 channels, kernel 2, stride 2, 20x20, took 250 us instead of 110. Compiled, because only here the count of
references is exact.
"""

cimport cython
cimport numpy as cnp
from cpython.ref cimport Py_REFCNT

import numpy as np

cnp.import_array()

LEAST_KEPT, MOST_KEPT = 1 << 16, (1 << 27) + 4096  # bytes of a block, with room to align 128 MB


@cython.final
cdef class Reserve:
    """The last blocks of memory that were taken from it.

    Parameters
    ----------
    least : int
        Bytes from which a block is worth keeping.
    spare : float
        How much larger than a request a block may be, as a part of the request.
    """

    cdef readonly list blocks
    cdef Py_ssize_t least
    cdef double spare

    def __init__(self, least, spare):
        self.blocks, self.least, self.spare = [], least, spare

    def take(self, Py_ssize_t size):
        """Uninitialised bytes, `size` of them or more: a kept block, if no array refers to it any more.

        Returns
        -------
        ndarray of uint8
        """
        cdef bint used, fits
        cdef list blocks = self.blocks
        if not self.least <= size <= MOST_KEPT:
            return np.empty(size, np.uint8)
        for _ in range(len(blocks)):
            if not blocks:  # other threads took the rest
                break
            block = blocks.pop(0)
            used = Py_REFCNT(block) > 1
            fits = size <= len(block) <= size * (1 + self.spare)
            if used or fits:
                blocks.append(block)
            if fits and not used:
                return block
        block = np.empty(size, np.uint8)
        blocks.append(block)
        del blocks[:-2]  # while one is filled, its predecessor often still has a name
        return block


# What a layer packs stays as long as the layer: kept for others, it would push results out.
LASTING = Reserve(MOST_KEPT + 1, 0)
# A caller may keep a result: little more than it needs. Below 32 MB malloc's own is used again, mostly.
RESULTS = Reserve(1 << 25, 0.25)
# What is dropped before a call returns: scratch, weights that are packed once.
WORKSPACES = Reserve(LEAST_KEPT, MOST_KEPT / LEAST_KEPT)


def bytes_to_line(cnp.ndarray block not None, size_t line):
    """Bytes from the beginning of `block` to the first multiple of `line`. (ndarray.ctypes takes two microseconds.)"""
    return (line - <size_t> cnp.PyArray_BYTES(block) % line) % line

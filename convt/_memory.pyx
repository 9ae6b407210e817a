# cython: language_level=3
"""Memory of large arrays, kept and used again once nothing refers to it.

malloc takes more than 32 MB anew from the system in every call, and the zeroing of new pages can take longer than all
the arithmetic: 45 MB of results 18 ms instead of 10. Compiled, because only here the count of references is exact.
"""

cimport numpy as cnp
from cpython.ref cimport Py_REFCNT

import numpy as np

cnp.import_array()

LARGE = 1 << 25
MOST_KEPT = (1 << 26) + 4096  # bytes of a block, with room to align 64 MB
BLOCKS_KEPT = 2  # while one is filled, its predecessor often still has a name

cdef list kept = []


def allocate(Py_ssize_t size):
    """Uninitialised bytes, `size` of them or up to a quarter more: a kept block, if no array refers to it any more.

    Returns
    -------
    ndarray of uint8
    """
    cdef bint used, fits
    if size < LARGE:
        return np.empty(size, np.uint8)
    for _ in range(len(kept)):
        if not kept:  # other threads took the rest
            break
        block = kept.pop(0)
        used = Py_REFCNT(block) > 1
        fits = size <= len(block) <= size + size // 4
        if used or fits:
            kept.append(block)
        if fits and not used:
            return block
    block = np.empty(size, np.uint8)
    if size <= MOST_KEPT:
        kept.append(block)
        del kept[:-BLOCKS_KEPT]
    return block


def bytes_to_line(cnp.ndarray block not None, size_t line):
    """Bytes from the beginning of `block` to the first multiple of `line`. (ndarray.ctypes takes two microseconds.)"""
    return (line - <size_t> cnp.PyArray_BYTES(block) % line) % line

"""Levels and paths that this machine has, and what the tests of them share."""

import ctypes
import mmap
from contextlib import contextmanager

import numpy as np
import pytest
from cases import BFLOAT16, DTYPES
from hypothesis import strategies as st

import convt
from convt import isa, paths, planner
from convt._levels import most_pieces, multiplies_words, tile_limits

# Every path of every level that this machine has, but that of groups (`test_depthwise`); those of vectors are the
# same where there are pieces besides.
LEVELS = [level for level in isa.available() if level != "generic"]
VECTOR_LEVELS = [level for level in LEVELS if not most_pieces(level)]
WORD_LEVELS = [level for level in LEVELS if multiplies_words(level)]
TILE_REGISTER_LEVELS = [level for level in LEVELS if tile_limits(level, False, 1).unit > 1]
WAYS = [
    ("generic", None),
    *(
        (level, path)
        for level in LEVELS
        for path in (paths.VECTOR_PATHS if level in VECTOR_LEVELS else paths.PIECE_PATHS)
        if not path.words or multiplies_words(level)
        if not path.by_rows or level in TILE_REGISTER_LEVELS
    ),
]


def name_of(way):
    """A way in words."""
    level, path = way
    return f"{level}: {path.name}" if path else level


every_way = pytest.mark.parametrize("way", WAYS, ids=name_of)
seeds = st.integers(0, 2**32 - 1)


def built(level):
    """Whether this build has the level; planning asks nothing of the processor."""
    try:
        return bool(tile_limits(level, False, 0))
    except ValueError:
        return False


def in_pieces(level, dtype):
    """Whether the level multiplies elements in bfloat16 pieces."""
    return 0 < paths.pieces_of(np.dtype(dtype).name, "highest") <= most_pieces(level)


def positions_path(level, dtype):
    """The path along positions by which the level multiplies elements: in words, where it has them."""
    return paths.POSITION_WORDS if dtype == BFLOAT16 and level in WORD_LEVELS else paths.POSITIONS


def ways_and_dtypes(*some_paths):
    """Ways of these paths, in every dtype that tile registers or vectors have there."""
    return [
        pytest.param((level, path), dtype, id=f"{level}: {path.name}-{dtype}")
        for level, path in WAYS
        if path in some_paths
        for dtype in DTYPES
        if not path.in_pieces or in_pieces(level, dtype)
    ]


def ways_in_tile_registers(path):
    """The way of a path in every level that has tile registers, in every dtype that they multiply."""
    return [
        pytest.param((level, path), np.dtype(dtype), id=f"{level}-{np.dtype(dtype)}")
        for level in TILE_REGISTER_LEVELS
        for dtype in (np.float32, np.float16, BFLOAT16)
        if in_pieces(level, dtype)
    ]


def check_bits_stay(way, layer, x):
    """A layer's results stay as they are, whatever other calls leave in the scratch."""
    not_numbers = np.full((1, 64, 60, 60), np.nan, np.float32), np.ones((64, 64, 3, 3), np.float32)
    with forced(way):
        before = layer(x)
    for _ in range(4):
        with forced((way[0], paths.CHANNELS)):
            convt.conv_transpose(*not_numbers)
        with forced(way):
            assert_same_bits(layer(x), before)


def dtype_of(way, dtype):
    """`dtype`, or one that comes in pieces where the path multiplies nothing else: float32, if the level does."""
    level, path = way
    if not path or not path.in_pieces or in_pieces(level, dtype):
        return dtype
    return np.dtype(np.float32) if in_pieces(level, np.float32) else BFLOAT16


@contextmanager
def forced(way):
    """A level and, where it has several, a path; fixtures do not run once per example."""
    level, path = way
    with pytest.MonkeyPatch.context() as patch, planner.forced(path):
        patch.setenv("CONVT_ISA", level)
        yield


def bits(array):
    return array.view(f"u{array.itemsize}")


def assert_same_bits(array, wanted):
    if not np.array_equal(bits(array), bits(wanted)):  # a tenth of the time of the report
        np.testing.assert_array_equal(bits(array), bits(wanted), strict=True)


def before_unreadable(array):
    """A copy whose last byte is the last one that may be read."""
    size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, size + mmap.PAGESIZE), np.uint8)
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + size), mmap.PAGESIZE, 0):
        raise OSError("mprotect failed")
    copy = memory[size - array.nbytes : size].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy

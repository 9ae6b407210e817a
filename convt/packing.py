"""Weights and bias in the layouts that the kernels read."""

import math

import numpy as np

from convt.arrays import dtype_name

# Channels of a tile of phases of rows: a widened row costs about as much as one channel's products.
ROW_TILE = 8
# What phases of rows sum up in.
ROW_SUM_DTYPE = {"float16": np.float32, "bfloat16": np.float32, "float32": np.float64, "float64": np.float64}


@np.errstate(invalid="ignore")  # of signalling NaNs
def widen(array: np.ndarray, dtype: type) -> np.ndarray:
    """`array` in `dtype`, float32 or float64, exactly; not copied where it has that dtype."""
    if dtype_name(array.dtype) == "bfloat16":  # without ml_dtypes: the upper half of a float32
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return array.astype(dtype, copy=False)


def pack_tiles(w: np.ndarray, group: int, tile: int) -> np.ndarray:
    """Weights ``(C, M/group, *K)`` as ``(group, tiles, outer kernel, C/group, inner kernel, tile)``.

    The last tile is filled up with zeros; the kernels never store its surplus channels.
    """
    channels, outputs, *kernel = w.shape
    inner = kernel[-1]
    outer = math.prod(kernel[:-1])
    tiles = -(-outputs // tile)
    dtype = ROW_SUM_DTYPE[w.dtype.name]
    given = w.reshape(group, channels // group, outputs, outer, inner)
    packed = np.zeros((group, tiles, outer, channels // group, inner, tile), dtype)
    for t in range(tiles):
        part = widen(given[:, :, t * tile : (t + 1) * tile], dtype)
        packed[:, t, ..., : part.shape[2]] = part.transpose(0, 3, 1, 4, 2)
    return packed


def pack_bias(b: np.ndarray | None, dtype: str, outputs: int, group: int, tile: int) -> np.ndarray:
    """Bias ``(M,)``, or None for zeros, as ``(group, tiles, tile)``; `outputs` channels per group."""
    tiles = -(-outputs // tile)
    packed = np.zeros((group, tiles * tile), ROW_SUM_DTYPE[dtype])
    packed[:, :outputs] = bias_of_sums(b, ROW_SUM_DTYPE[dtype], group * outputs).reshape(group, outputs)
    return packed.reshape(group, tiles, tile)


@np.errstate(invalid="ignore")
def bias_of_sums(b: np.ndarray | None, dtype: type, channels: int) -> np.ndarray:
    """Bias ``(M,)``, or None for zeros, for sums of so many channels, of which each of M may be several in turn.

    -0 becomes 0: a sum of products that underflow is 0 or -0 by the zeros beyond the border that are multiplied,
    which depend on the boxes. Phases of rows, where a call with an Inf among its weights goes, want the same.
    """
    if b is None:
        return np.zeros(channels, dtype)
    return np.repeat(widen(b, dtype) + dtype(0), channels // b.size)

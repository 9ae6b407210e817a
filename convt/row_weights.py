"""Weights and bias as phases of rows read them."""

import math

import numpy as np

from convt.arrays import bias_of_sums, widen

# Channels of a tile of phases of rows: a widened row costs about as much as one channel's products.
ROW_TILE = 8
# What phases of rows sum up in.
ROW_SUM_DTYPE = {"float16": np.float32, "bfloat16": np.float32, "float32": np.float64, "float64": np.float64}


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

"""What convt accepts as arrays: dtypes, layouts, the rules for ``out``; and elements in the types of sums."""

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np

from convt._memory import RESULTS, Reserve, bytes_to_line
from convt.arguments import shortened, shown
from convt.dtypes import DTYPES

CACHE_LINE = 64  # as in _levels, which an import does not load (`test_arrays` compares them)
SMALL = 1 << 16  # bytes below which an array is not worth the microsecond that aligning it takes


@lru_cache(maxsize=64)
def dtype_name(dtype: np.dtype) -> str:
    """``dtype.name``, which NumPy makes anew, in a microsecond and a half, whenever it is asked."""
    return dtype.name


def as_array(value: object, name: str, dtypes: Sequence[str] = DTYPES) -> np.ndarray:
    """`value` as an ndarray whose dtype is one of `dtypes`.

    bfloat16 is recognised by the dtype's name, so that ml_dtypes is never imported.
    """
    try:
        array = np.asanyarray(value)
    except MemoryError:
        raise
    except ValueError as error:
        raise ValueError(f"{name}: expected an array, got {shown(value)} ({shortened(error)})") from None
    except Exception as error:  # whatever the object's own conversion raises
        raise TypeError(f"{name}: expected an array, got a {type(value).__name__} ({shortened(error)})") from error
    if isinstance(array, np.ma.MaskedArray):
        raise TypeError(f"{name}: expected an array without a mask, got a MaskedArray")
    if dtype_name(array.dtype) not in dtypes:
        raise TypeError(f"{name}: expected a dtype of {', '.join(dtypes)}, got {shortened(array.dtype)}")
    return np.asarray(array)


def as_native(array: np.ndarray) -> np.ndarray:
    """`array`, or a `native_copy` where the kernels could not read it in place."""
    return array if array.flags.aligned and array.dtype.isnative else native_copy(array)


def native_copy(array: np.ndarray) -> np.ndarray:
    """A contiguous copy, aligned, in native byte order."""
    return array.astype(array.dtype.newbyteorder("="), order="C")


def empty_aligned(
    shape: tuple[int, ...], dtype: np.dtype, reserve: Reserve = RESULTS, least: int = SMALL
) -> np.ndarray:
    """An uninitialised array. One of `least` bytes or more begins with a cache line, so that no whole vector of it
    straddles two."""
    size = math.prod(shape) * dtype.itemsize
    if size < least:
        return np.empty(shape, dtype)
    try:
        memory = reserve.take(size + CACHE_LINE)
    except MemoryError:  # which names the bytes alone
        raise MemoryError(f"expected memory for {size:,} bytes: shape {shape}, dtype {dtype}") from None
    return np.ndarray(shape, dtype, memory, bytes_to_line(memory, CACHE_LINE))


def check_same_dtype(array: np.ndarray, name: str, other: np.ndarray, other_name: str) -> None:
    """Both arrays have one dtype, byte order aside."""
    wanted = dtype_name(other.dtype)
    if dtype_name(array.dtype) != wanted:
        raise TypeError(f"{name}: expected the dtype of {other_name}, {wanted}, got {array.dtype}")


def check_out(
    out: object, shape: tuple[int, ...], dtype: np.dtype, inputs: Iterable[tuple[str, np.ndarray]]
) -> np.ndarray:
    """`out` if the result can be written to it: right shape and dtype, writable, and no overlap."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out: expected an ndarray, got {type(out).__name__}")
    if isinstance(out, np.ma.MaskedArray):
        raise TypeError("out: expected an array without a mask, got a MaskedArray")
    if out.dtype is not dtype and dtype_name(out.dtype) != dtype_name(dtype):
        raise TypeError(f"out: expected dtype {dtype.name}, got {shortened(out.dtype)}")
    if out.shape != shape:
        raise ValueError(f"out: expected shape {shape}, got {out.shape}")
    if not out.flags.writeable:
        raise ValueError("out: expected a writable array, got a read-only one")
    if not out.flags.c_contiguous and _overlaps_itself(out):
        raise ValueError(f"out: expected elements apart in memory, axis within axis, got strides {out.strides}")
    for name, array in inputs:
        if _overlap(out, array):
            raise ValueError(f"out: expected memory apart from {name}, got an overlap")
    return out


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=100_000)  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(array: np.ndarray) -> bool:
    """Whether steps along the axes can meet. True also for exotic lattices that no slicing makes."""
    if array.size == 0:
        return False
    reach = array.itemsize
    for stride, size in sorted((abs(s), n) for s, n in zip(array.strides, array.shape, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += stride * (size - 1)
    return False


@np.errstate(invalid="ignore")  # of signalling NaNs
def widen(array: np.ndarray, dtype: type) -> np.ndarray:
    """`array` in `dtype`, float32 or float64, exactly; not copied where it has that dtype."""
    if dtype_name(array.dtype) == "bfloat16":  # without ml_dtypes: the upper half of a float32
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return array.astype(dtype, copy=False)


@np.errstate(invalid="ignore")
def bias_of_sums(b: np.ndarray | None, dtype: type, channels: int) -> np.ndarray:
    """Bias ``(M,)``, or None for zeros, for sums of so many channels, of which each of M may be several in turn.

    -0 becomes 0: a sum of products that underflow is 0 or -0 by the zeros beyond the border that are multiplied,
    which depend on the boxes. Phases of rows, where a call with an Inf among its weights goes, want the same.
    """
    if b is None:
        return np.zeros(channels, dtype)
    return np.repeat(widen(b, dtype) + dtype(0), channels // b.size)

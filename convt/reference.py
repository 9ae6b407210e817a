"""The definition in readable NumPy, summed in float64 or longdouble: what every kernel is tested against.

Slow, and without a word about speed. It shares the rules of `convt.geometry` with the rest of convt, whose
results are tested against the vectors of the specifications, and not a line of its arithmetic.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from convt.arguments import shown
from convt.arrays import as_array
from convt.dtypes import DTYPES
from convt.geometry import OPENVINO_NAMES, Geometry, OnnxRules, OpenvinoRules, without_group_axis

INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATING = (*DTYPES, np.dtype(np.longdouble).name)
REAL = (*FLOATING, *INTEGERS)


def conv_transpose(
    x: object,
    w: object,
    b: object = None,
    *,
    dtype: Any = None,
    **attributes: Any,
) -> np.ndarray:
    """ONNX ConvTranspose by its definition.

    Parameters
    ----------
    x, w, b : array_like
        ``(N, C, *I)``, ``(C, M/group, *K)`` and ``(M,)``; floating, integer or boolean.
    dtype : dtype, optional
        Of the result, a floating one, rounded once from sums in float64, or in longdouble if it is that. Default:
        that of `x`, float64 for what is not floating.
    **attributes
        The ONNX attributes and `opset`, as in `convt.conv_transpose`.

    Returns
    -------
    ndarray
        ``(N, M, *O)``.

    Raises
    ------
    TypeError, ValueError
        If an attribute or `dtype` is not allowed, or an array does not fit.
    """
    x, w = as_array(x, "x", REAL), as_array(w, "w", REAL)
    rules = OnnxRules(w.shape, names=None, **attributes)  # `names` is no attribute
    if b is not None:
        b = as_array(b, "b", REAL)
        if b.shape != (rules.out_channels,):
            raise ValueError(f"b: expected shape ({rules.out_channels},), got {b.shape}")
    return evaluate(x, w, b, rules.geometry(x.shape), dtype)


def convolution_backprop_data(
    data: object,
    filter: object,
    output_shape: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    **attributes: Any,
) -> np.ndarray:
    """OpenVINO ConvolutionBackpropData-1 by its definition.

    Parameters
    ----------
    data, filter : array_like
        ``(N, C_in, *I)`` and ``(C_in, C_out, *K)``; floating, integer or boolean.
    output_shape : sequence of int, optional
        Spatial sizes of the result, as in `convt.convolution_backprop_data`.
    dtype : dtype, optional
        As in `conv_transpose`.
    **attributes
        The other attributes and `compat`, as in `convt.convolution_backprop_data`.

    Returns
    -------
    ndarray
        ``(N, C_out, *O)``.

    Raises
    ------
    TypeError, ValueError
        If an attribute or `dtype` is not allowed, or an array does not fit.
    """
    data, filter = as_array(data, "data", REAL), as_array(filter, "filter", REAL)
    # Neither group nor names are attributes.
    rules = OpenvinoRules(filter.shape, output_shape, group=1, names=OPENVINO_NAMES, **attributes)
    return evaluate(data, filter, None, rules.geometry(data.shape), dtype)


def group_convolution_backprop_data(
    data: object,
    filter: object,
    output_shape: Sequence[int] | None = None,
    *,
    dtype: Any = None,
    **attributes: Any,
) -> np.ndarray:
    """OpenVINO GroupConvolutionBackpropData-1 by its definition.

    Parameters
    ----------
    data, filter : array_like
        ``(N, C_in, *I)`` and ``(group, C_in/group, C_out/group, *K)``; floating, integer or boolean.
    output_shape, dtype, **attributes
        As in `convolution_backprop_data`.

    Returns
    -------
    ndarray
        ``(N, C_out, *O)``.

    Raises
    ------
    TypeError, ValueError
        As `convolution_backprop_data` does.
    """
    data, filter = as_array(data, "data", REAL), as_array(filter, "filter", REAL)
    merged = filter.reshape(without_group_axis(filter.shape))
    rules = OpenvinoRules(merged.shape, output_shape, group=filter.shape[0], names=OPENVINO_NAMES, **attributes)
    return evaluate(data, merged, None, rules.geometry(data.shape), dtype)


@np.errstate(all="ignore")  # what overflows or is no number is a result like any other
def evaluate(
    x: np.ndarray, w: np.ndarray, b: np.ndarray | None, geometry: Geometry, dtype: Any = None
) -> np.ndarray:
    """Scatter every product to its place: ``full[i*stride + k*dilation] += X[i] * W[k]``, then crop.

    Parameters
    ----------
    x, w : ndarray
        ``(N, C, *I)`` and ``(C, M/group, *K)``, as in `conv_transpose`.
    b : ndarray or None
        ``(M,)``, likewise.
    geometry : Geometry
        The resolved attributes.
    dtype : dtype, optional
        As in `conv_transpose`.

    Returns
    -------
    ndarray
        ``(N, M, *O)``.
    """
    dtype = result_dtype(x, dtype)
    summed = np.dtype(np.longdouble if dtype == np.longdouble else np.float64)
    n, g, axes = geometry.batch, geometry.group, geometry.axes
    channels, outputs = geometry.in_channels // g, geometry.out_channels // g
    sizes = [a.input for a in axes]
    inputs = x.astype(summed).reshape(n, g, channels, math.prod(sizes))
    weights = w.astype(summed).reshape(g, channels, outputs, *w.shape[2:])
    natural = [max(0, (a.input - 1) * a.stride + (a.kernel - 1) * a.dilation + 1) for a in axes]
    full = np.zeros((n, g, outputs, *natural), summed)
    for k in np.ndindex(*w.shape[2:]) if all(sizes) else ():
        # (g, M/g, C/g) @ (n, g, C/g, positions)
        products = weights[(..., *k)].swapaxes(1, 2) @ inputs
        places: list[Any] = [
            slice(t * a.dilation, t * a.dilation + (a.input - 1) * a.stride + 1, a.stride)
            for t, a in zip(k, axes, strict=True)
        ]
        full[(..., *places)] += products.reshape(n, g, outputs, *sizes)
    crop: list[Any] = [slice(a.pad, a.pad + a.output) for a in axes]
    part = full.reshape(n, g * outputs, *natural)[(..., *crop)]
    y = np.zeros(geometry.output_shape, summed)
    inside: list[Any] = [slice(size) for size in part.shape[2:]]
    y[(..., *inside)] = part
    if b is not None:
        y += b.astype(summed).reshape(-1, *(1 for _ in axes))
    return round_once(y, dtype)


def result_dtype(x: np.ndarray, dtype: Any) -> np.dtype:
    """`dtype` if it is a floating one; that of `x`, or float64, where none is given."""
    if dtype is None:
        return np.dtype(np.float64) if x.dtype.kind in "biu" else x.dtype
    try:
        if np.dtype(dtype).name in FLOATING:
            return np.dtype(dtype)
    except (TypeError, ValueError):
        pass
    raise TypeError(f"dtype: expected one of {', '.join(FLOATING)}, got {shown(dtype)}")


def round_once(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """`values`, float64 or longdouble, in `dtype`, rounded once to nearest even."""
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.name != "bfloat16":
            return values.astype(dtype)
        # ml_dtypes goes by way of float32, which rounds twice. Rounding to odd first makes that harmless.
        single = values.astype(np.float32)
        bits = single.view(np.uint32)
        inexact = np.isfinite(single) & (single.astype(np.float64) != values)
        too_far = inexact & (np.abs(single.astype(np.float64)) > np.abs(values))
        bits[too_far] -= 1
        bits[inexact] |= 1
        return single.astype(dtype)

"""The operators as functions: ONNX ConvTranspose, OpenVINO ConvolutionBackpropData and its grouped form."""

from collections.abc import Sequence

import numpy as np

from convt.arguments import integers
from convt.arrays import as_array
from convt.geometry import OPENVINO_NAMES, OnnxRules, OpenvinoRules, without_group_axis
from convt.layer import Layer


def conv_transpose(
    x: object,
    w: object,
    b: object = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    opset: int = 22,
    out: np.ndarray | None = None,
    n_threads: int | None = None,
    precision: str = "highest",
) -> np.ndarray:
    """ONNX ConvTranspose.

    Parameters
    ----------
    x : array_like
        Input ``(N, C, *I)`` of float16, float32, float64, or bfloat16 (ml_dtypes) from opset 22 on. Any strides.
    w : array_like
        Weights ``(C, M/group, *K)``, dtype of `x`.
    b : array_like, optional
        Bias ``(M,)``, dtype of `x`.
    auto_pad : {"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"}
        NOTSET uses `pads`. SAME makes the output ``I * strides`` long and puts an odd pad at the end (UPPER)
        or the begin (LOWER); VALID does not pad.
    dilations, strides : sequence of int, optional
        One positive integer per spatial axis; default 1.
    group : int
        Groups that the channels are divided into.
    kernel_shape : sequence of int, optional
        Must equal the kernel of `w`.
    output_padding : sequence of int, optional
        Elements more at the end of each axis, ``0 <= op < max(stride, dilation)``; default 0. They are computed,
        not zeros appended.
    output_shape : sequence of int, optional
        Spatial sizes of the result, or N and M followed by them. `pads` are then ignored and derived.
    pads : sequence of int, optional
        Elements cropped: one begin per spatial axis, then one end each; default 0.
    opset : int
        Opset whose rules apply: 1 to 10 mean ConvTranspose-1, 11 to 21 ConvTranspose-11, 22 to 28
        ConvTranspose-22. They differ in how an odd total pad is split for `output_shape`, and in bfloat16.
    out : ndarray, optional
        Where to put the result: its exact shape and dtype, writable, apart from the inputs in memory.
    n_threads : int, optional
        Threads at most. Default: ``CONVT_NUM_THREADS``, or OpenMP's limit of the moment, and never more than
        affinity and the container's quota allow. No more than four per processor, or 64 if that is more; a child
        of ``fork`` runs one. The bits of the result do not depend on it.
    precision : {"highest", "high", "medium"}
        For float32: "highest" is at least as accurate as a chain of fused multiply-adds; "high" errs by about
        5e-6 of the largest result, "medium" multiplies in bfloat16 (3e-3) and sums in float32. The level `amx` is
        faster the lower it is, `avx512_bf16` with "medium"; where nothing is gained, "highest" is computed.

    Returns
    -------
    ndarray
        ``(N, M, *O)``, dtype of `x`; `out` if that was given.

    Raises
    ------
    TypeError
        If an argument has the wrong type or dtype.
    ValueError
        If a value, shape or combination is not allowed, or sizes overflow int64.
    MemoryError
        If the result or the workspace cannot be allocated.

    Notes
    -----
    ONNX ConvTranspose-1, -11 and -22 [1]_. With ``full[i*stride + k*dilation] += X[i] * W[k]`` per axis,
    ``Y[o] = b + full[o + pad]``, where the attributes determine the begin pad and the size of Y.

    References
    ----------
    .. [1] https://onnx.ai/onnx/operators/onnx__ConvTranspose.html

    Examples
    --------
    >>> import numpy as np, convt
    >>> x = np.array([[[1, 2, 3]]], np.float32)
    >>> w = np.array([[[1, 10, 100]]], np.float32)
    >>> convt.conv_transpose(x, w, strides=[2])
    array([[[  1.,  10., 102.,  20., 203.,  30., 300.]]], dtype=float32)
    """
    w = as_array(w, "w")
    rules = OnnxRules.of(
        w.shape,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        output_shape=output_shape,
        pads=pads,
        strides=strides,
        opset=opset,
    )
    return Layer(rules, w, b, n_threads, precision)._apply_once(x, out)


def output_shape(
    x_shape: Sequence[int],
    w_shape: Sequence[int],
    *,
    auto_pad: str = "NOTSET",
    dilations: Sequence[int] | None = None,
    group: int = 1,
    kernel_shape: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    output_shape: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
    opset: int = 22,
) -> tuple[int, ...]:
    """Shape of `conv_transpose`'s result, from shapes alone.

    Parameters
    ----------
    x_shape, w_shape : sequence of int
        ``(N, C, *I)`` and ``(C, M/group, *K)``.
    auto_pad, dilations, group, kernel_shape, output_padding, output_shape, pads, strides, opset
        As in `conv_transpose`.

    Returns
    -------
    tuple of int
        ``(N, M, *O)``.

    Raises
    ------
    TypeError, ValueError
        As `conv_transpose` does.

    Examples
    --------
    >>> import convt
    >>> convt.output_shape((1, 64, 56, 56), (64, 32, 4, 4), strides=[2, 2], pads=[1, 1, 1, 1])
    (1, 32, 112, 112)
    """
    rules = OnnxRules(
        integers(w_shape, "w_shape", 0),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        output_shape=output_shape,
        pads=pads,
        strides=strides,
        opset=opset,
        names={"x": "x_shape", "w": "w_shape"},
    )
    return rules.geometry(integers(x_shape, "x_shape", 0)).output_shape


def convolution_backprop_data(
    data: object,
    filter: object,
    output_shape: Sequence[int] | None = None,
    *,
    strides: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    dilations: Sequence[int],
    auto_pad: str = "explicit",
    output_padding: Sequence[int] | None = None,
    compat: str = "spec",
    out: np.ndarray | None = None,
    n_threads: int | None = None,
    precision: str = "highest",
) -> np.ndarray:
    """OpenVINO ConvolutionBackpropData-1.

    Parameters
    ----------
    data : array_like
        Input ``(N, C_in, *I)`` of float16, float32, float64 or bfloat16 (ml_dtypes). Any strides.
    filter : array_like
        ``(C_in, C_out, *K)``, dtype of `data`.
    output_shape : sequence of int, optional
        Spatial sizes of the result. The pads are then derived; the larger half of an odd total goes to the
        begin for same_upper and to the end otherwise.
    strides, dilations : sequence of int
        One positive integer per spatial axis.
    pads_begin, pads_end : sequence of int
        Elements cropped at either side; used with ``auto_pad="explicit"`` only.
    auto_pad : {"explicit", "same_upper", "same_lower", "valid"}
        Without `output_shape`, all but explicit crop nothing.
    output_padding : sequence of int, optional
        Elements more at the end of each axis, 0 or more; default 0. They are computed, not zeros appended.
    compat : {"spec", "runtime"}
        What `output_shape` with explicit or valid means. "spec": the text, pads are ignored and the total is
        halved. "runtime": what OpenVINO executes, `pads_begin` stay for explicit and are 0 for valid.
    out, n_threads, precision
        As in `conv_transpose`.

    Returns
    -------
    ndarray
        ``(N, C_out, *O)``, dtype of `data`; `out` if that was given.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As `conv_transpose` does.

    Notes
    -----
    The operator is specified in [1]_.

    References
    ----------
    .. [1] https://docs.openvino.ai, operation specification ConvolutionBackpropData-1
    """
    filter = as_array(filter, "filter")
    rules = OpenvinoRules.of(
        filter.shape,
        output_shape,
        strides=strides,
        pads_begin=pads_begin,
        pads_end=pads_end,
        dilations=dilations,
        auto_pad=auto_pad,
        output_padding=output_padding,
        compat=compat,
        names=OPENVINO_NAMES,
    )
    return Layer(rules, filter, None, n_threads, precision)._apply_once(data, out)


def group_convolution_backprop_data(
    data: object,
    filter: object,
    output_shape: Sequence[int] | None = None,
    *,
    strides: Sequence[int],
    pads_begin: Sequence[int],
    pads_end: Sequence[int],
    dilations: Sequence[int],
    auto_pad: str = "explicit",
    output_padding: Sequence[int] | None = None,
    compat: str = "spec",
    out: np.ndarray | None = None,
    n_threads: int | None = None,
    precision: str = "highest",
) -> np.ndarray:
    """OpenVINO GroupConvolutionBackpropData-1.

    Parameters
    ----------
    data : array_like
        Input ``(N, C_in, *I)``.
    filter : array_like
        ``(group, C_in/group, C_out/group, *K)``, dtype of `data`.
    output_shape, strides, pads_begin, pads_end, dilations, auto_pad, output_padding, compat
        As in `convolution_backprop_data`.
    out, n_threads, precision
        As in `conv_transpose`.

    Returns
    -------
    ndarray
        ``(N, C_out, *O)``, dtype of `data`; `out` if that was given.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As `conv_transpose` does.

    Notes
    -----
    OpenVINO GroupConvolutionBackpropData-1 [1]_: a filter's first axis is the group.

    References
    ----------
    .. [1] https://docs.openvino.ai, operation specification GroupConvolutionBackpropData-1
    """
    filter = as_array(filter, "filter")
    merged = filter.reshape(without_group_axis(filter.shape))
    rules = OpenvinoRules.of(
        merged.shape,
        output_shape,
        strides=strides,
        pads_begin=pads_begin,
        pads_end=pads_end,
        dilations=dilations,
        auto_pad=auto_pad,
        output_padding=output_padding,
        compat=compat,
        group=filter.shape[0],
        names=OPENVINO_NAMES,
    )
    return Layer(rules, merged, None, n_threads, precision)._apply_once(data, out, ("filter", filter))

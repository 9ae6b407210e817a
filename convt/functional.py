"""PyTorch's signatures, ``torch.nn.functional.conv_transpose1d``, ``2d`` and ``3d``, on NumPy arrays."""

from collections.abc import Sequence

import numpy as np

from convt.arguments import integer, integers
from convt.arrays import as_array
from convt.geometry import OnnxRules
from convt.layer import Layer

NAMES = {
    "x": "input",
    "w": "weight",
    "b": "bias",
    "strides": "stride",
    "pads": "padding",
    "dilations": "dilation",
    "group": "groups",
}


def _per_axis(value: int | Sequence[int], name: str, minimum: int, n: int) -> tuple[int, ...]:
    """One integer per axis from one integer, a sequence of one, or a sequence of `n`."""
    if type(value) is int:  # seen sooner than that it is no Sequence
        return (integer(value, f"{name}[0]", minimum),) * n
    if not isinstance(value, Sequence) and getattr(value, "ndim", 0) == 0:
        value = (value,)  # type: ignore[assignment]
    values = integers(value, name, minimum, (1, n))
    return values * n if len(values) == 1 else values


def _conv_transpose(
    n: int,
    input: object,
    weight: object,
    bias: object,
    stride: int | Sequence[int],
    padding: int | Sequence[int],
    output_padding: int | Sequence[int],
    groups: int,
    dilation: int | Sequence[int],
) -> np.ndarray:
    """The transposed convolution over `n` spatial axes."""
    x = as_array(input, "input")
    w = as_array(weight, "weight")
    if w.ndim != n + 2:
        raise ValueError(f"weight: expected {n + 2} dimensions, (C, M/groups, *kernel), got shape {w.shape}")
    if x.ndim not in (n + 1, n + 2):
        raise ValueError(f"input: expected {n + 2} dimensions, or {n + 1} without a batch, got shape {x.shape}")
    rules = OnnxRules.of(
        w.shape,
        strides=_per_axis(stride, "stride", 1, n),
        pads=_per_axis(padding, "padding", 0, n) * 2,
        output_padding=_per_axis(output_padding, "output_padding", 0, n),
        dilations=_per_axis(dilation, "dilation", 1, n),
        group=groups,
        names=NAMES,
    )
    if x.ndim == n + 1 and x.shape[0] != rules.in_channels:
        raise ValueError(f"input: expected {rules.in_channels} channels, as weight has, got shape {x.shape}")
    layer = Layer(rules, w, bias, None, "highest")
    return layer(x) if x.ndim == n + 2 else layer(x[np.newaxis])[0]


def conv_transpose1d(
    input: object,
    weight: object,
    bias: object = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> np.ndarray:
    """Transposed convolution over one spatial axis, with PyTorch's arguments.

    Parameters
    ----------
    input : array_like
        ``(N, C, L)`` or ``(C, L)``; float16, float32, float64 or bfloat16 (ml_dtypes).
    weight : array_like
        ``(C, M/groups, K)``, dtype of `input`.
    bias : array_like, optional
        ``(M,)``.
    stride, padding, output_padding, dilation : int or sequence of int
        One for all axes, or one per axis. `padding` is cropped from both sides;
        ``0 <= output_padding < max(stride, dilation)``.
    groups : int
        Groups that the channels are divided into.

    Returns
    -------
    ndarray
        ``(N, M, L_out)``, or ``(M, L_out)`` for an input without a batch;
        ``L_out = (L - 1)*stride - 2*padding + dilation*(K - 1) + output_padding + 1``.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As `convt.conv_transpose` does, with these names.

    Notes
    -----
    Signature and shapes follow ``torch.nn.functional.conv_transpose1d``.
    """
    return _conv_transpose(1, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose2d(
    input: object,
    weight: object,
    bias: object = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> np.ndarray:
    """Transposed convolution over two spatial axes, with PyTorch's arguments.

    Parameters
    ----------
    input : array_like
        ``(N, C, H, W)`` or ``(C, H, W)``.
    weight : array_like
        ``(C, M/groups, KH, KW)``, dtype of `input`.
    bias, stride, padding, output_padding, groups, dilation
        As in `conv_transpose1d`.

    Returns
    -------
    ndarray
        ``(N, M, H_out, W_out)``, or without the batch as `input` is.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As `convt.conv_transpose` does, with these names.

    Notes
    -----
    Signature and shapes follow ``torch.nn.functional.conv_transpose2d``.
    """
    return _conv_transpose(2, input, weight, bias, stride, padding, output_padding, groups, dilation)


def conv_transpose3d(
    input: object,
    weight: object,
    bias: object = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> np.ndarray:
    """Transposed convolution over three spatial axes, with PyTorch's arguments.

    Parameters
    ----------
    input : array_like
        ``(N, C, D, H, W)`` or ``(C, D, H, W)``.
    weight : array_like
        ``(C, M/groups, KD, KH, KW)``, dtype of `input`.
    bias, stride, padding, output_padding, groups, dilation
        As in `conv_transpose1d`.

    Returns
    -------
    ndarray
        ``(N, M, D_out, H_out, W_out)``, or without the batch as `input` is.

    Raises
    ------
    TypeError, ValueError, MemoryError
        As `convt.conv_transpose` does, with these names.

    Notes
    -----
    Signature and shapes follow ``torch.nn.functional.conv_transpose3d``.
    """
    return _conv_transpose(3, input, weight, bias, stride, padding, output_padding, groups, dilation)

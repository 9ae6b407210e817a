"""Random configurations and data for the property tests, and what they are compared with."""

import functools
import math
import pickle

import ml_dtypes
import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

import convt

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(t) for t in (np.float16, np.float32, np.float64)] + [BFLOAT16]


@st.composite
def configurations(draw, max_rank=3):
    """Shapes and ONNX attributes of a valid call, as ``(x_shape, w_shape, attributes)``."""
    rank = draw(st.integers(1, max_rank))

    def per_axis(low, high):
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    group = draw(st.sampled_from([1, 1, 1, 2, 3]))
    channels = group * draw(st.sampled_from([0, 1, 2, 3, 5] if draw(st.integers(0, 9)) == 0 else [1, 2, 3, 5, 33]))
    outputs = draw(st.sampled_from([1, 2, 3, 9, 16, 17, 40]))
    largest = {1: 40, 2: 9, 3: 5, 4: 3}[rank]
    sizes = per_axis(0 if draw(st.integers(0, 9)) == 0 else 1, largest)
    kernel, strides, dilations = per_axis(1, 5 if rank < 3 else 3), per_axis(1, 4), per_axis(1, 4)
    patches = draw(st.integers(0, 3)) == 0  # kernel equals stride: one tap an output, the same input for a cell
    if patches:
        kernel, dilations = strides, [1] * rank
    attributes = {"group": group, "strides": strides, "dilations": dilations}
    attributes["output_padding"] = [
        draw(st.integers(0, max(s, d) - 1)) for s, d in zip(strides, dilations, strict=True)
    ]
    attributes["opset"] = draw(st.sampled_from([1, 11, 22]))
    mode = draw(st.sampled_from(["pads", "output_shape", "auto_pad", "both"]))
    if mode == "pads":
        attributes["pads"] = per_axis(0, 6) + per_axis(0, 6)
        if patches:
            attributes["pads"] = [pad // s * s for pad, s in zip(attributes["pads"], 2 * strides, strict=True)]
    if mode in ("auto_pad", "both"):
        attributes["auto_pad"] = draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    if mode in ("output_shape", "both"):
        attributes["output_shape"] = per_axis(1, 3 * largest)
    x_shape = (draw(st.integers(0 if draw(st.integers(0, 9)) == 0 else 1, 3)), channels, *sizes)
    w_shape = (channels, outputs, *kernel)
    try:
        convt.output_shape(x_shape, w_shape, **attributes)
    except ValueError:
        assume(False)
    return x_shape, w_shape, attributes


@st.composite
def wide_configurations(draw):
    """The same of rows that fill vectors and of many channels, for which paths have rules of their own."""
    rank = draw(st.integers(2, 3))

    def per_axis(values):
        return draw(st.lists(st.sampled_from(values), min_size=rank, max_size=rank))

    group = draw(st.sampled_from([1, 1, 2]))
    channels = group * draw(st.sampled_from([2, 8, 17, 33, 40, 65, 150]))
    outputs = draw(st.sampled_from([1, 3, 6, 12]))
    sizes = [*per_axis(range(1, 8))[1:], draw(st.sampled_from([8, 15, 16, 31, 32, 44, 48, 64, 80, 96]))]
    strides, dilations = per_axis([1, 2, 2, 3, 4, 6, 8]), [1] * rank
    if draw(st.booleans()):  # kernel equals stride
        kernel, pads = strides, [0] * (2 * rank - 1) + [draw(st.sampled_from([0, 0, 1]))]
    else:
        kernel, dilations = per_axis([1, 2, 3, 4, 5, 7]), per_axis([1, 1, 2])
        pads = per_axis(range(4)) + per_axis(range(4))
    x_shape, w_shape = (draw(st.integers(1, 3)), channels, *sizes), (channels, outputs, *kernel)
    attributes = {"group": group, "strides": strides, "dilations": dilations, "pads": pads}
    assume(math.prod(x_shape) * math.prod(w_shape[1:]) < 5e6)
    try:
        convt.output_shape(x_shape, w_shape, **attributes)
    except ValueError:
        assume(False)
    return x_shape, w_shape, attributes


def integer_data(rng, shape):
    return rng.integers(-3, 4, shape)


def as_layout(array, layout):
    """The values of `array` in another memory layout."""
    if layout == "fortran":
        return np.asfortranarray(array)
    if layout == "channels last" and array.ndim > 2:
        return np.moveaxis(np.ascontiguousarray(np.moveaxis(array, 1, -1)), -1, 1)
    if layout == "sliced":
        wide = np.zeros([2 * n for n in array.shape], array.dtype)
        part = wide[tuple(slice(n, None) for n in array.shape)]
        part[...] = array
        return part
    if layout == "every second":
        wide = np.zeros([2 * n for n in array.shape], array.dtype)
        part = wide[(slice(None, None, 2),) * array.ndim]
        part[...] = array
        return part
    if layout == "negative steps":
        wide = np.zeros([array.shape[0] + 2, *array.shape[1:]], array.dtype)
        part = wide[(slice(-2, 0, -1), *(slice(None, None, -1),) * (array.ndim - 1))]
        part[...] = array
        return part
    if layout == "read-only":
        copy = array.copy()
        copy.flags.writeable = False
        return copy
    if layout == "unaligned":
        raw = np.zeros(array.nbytes + 1, np.uint8)[1:]
        part = raw.view(array.dtype).reshape(array.shape)
        part[...] = array
        return part
    if layout == "big-endian" and array.dtype != BFLOAT16:  # which has no byte order to swap
        return array.astype(array.dtype.newbyteorder(">"))
    return np.ascontiguousarray(array)


def assert_nothing_beside(out):
    """Nothing was written beside `out`, if `as_layout` made it a part of an array."""
    if out.base is not None:
        out[...] = 0
        assert not out.base.any()


def integers(dtype, *shapes):
    rng = np.random.default_rng(0)
    return [integer_data(rng, shape).astype(dtype) for shape in shapes]


LAYOUTS = [
    "contiguous",
    "fortran",
    "channels last",
    "sliced",
    "every second",
    "negative steps",
    "read-only",
    "unaligned",
    "big-endian",
]


def oracle(x, w, b, attributes, dtype=np.float64):
    """The definition's result, to read only."""
    return definition(pickle.dumps((x, w, b, attributes, dtype)))


@functools.lru_cache(maxsize=8)  # it takes most of the time, and the ways of a test ask for the same in turn
def definition(call):
    x, w, b, attributes, dtype = pickle.loads(call)
    y = convt.reference.conv_transpose(x, w, b, dtype=dtype, **attributes)
    y.flags.writeable = False
    return y


def terms(x_shape, w_shape, attributes):
    """How many products each output sums."""
    return oracle(np.ones(x_shape), np.ones(w_shape), None, attributes)


def error_bound(x, w, b, attributes, products=1):
    """How far a result of dtype x.dtype may be from the exact sum, element by element.

    A chain of n fused multiply-adds, a bias first or last among the n, errs by at most n*u/(1 - n*u) times
    (|b| + sum |x||w|), with u the unit roundoff of the sums (Higham, Accuracy and Stability of Numerical
    Algorithms, section 3.1); what several chains sum up to errs no more.
    float16 and bfloat16 sum in float32 and then round once. The oracle, in float64, may err likewise. Where each
    term is a sum of `products`, the chain is as much longer.
    """
    n = products * terms(x.shape, w.shape, attributes) + 1
    absolute = [None if a is None else np.abs(a.astype(np.float64)) for a in (x, w, b)]
    magnitude = oracle(*absolute, attributes)
    unit = {"float64": 2.0**-53}.get(x.dtype.name, 2.0**-24)
    bound = (n * unit / (1 - n * unit) + 2 * n * 2.0**-53) * magnitude
    if x.dtype.name in ("float16", "bfloat16"):
        unit, smallest = {"float16": (2.0**-11, 2.0**-25), "bfloat16": (2.0**-8, 2.0**-134)}[x.dtype.name]
        bound += unit * (np.abs(oracle(x, w, b, attributes)) + bound) + smallest
    return bound


def integer_call(config, seed, dtype, has_bias):
    """x, w and b, or None, of integers, the attributes of a call with them, and its result."""
    x_shape, w_shape, attributes = config
    if dtype == BFLOAT16:
        attributes["opset"] = 22
    rng = np.random.default_rng(seed)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    b = integer_data(rng, w_shape[1] * attributes["group"]) if has_bias else None
    wanted = oracle(x, w, b, attributes, dtype)
    return x.astype(dtype), w.astype(dtype), b if b is None else b.astype(dtype), attributes, wanted


def call_with_inf_and_nan(config, seed, in_weights):
    """x and w of integers and a few Inf and NaN, in w or not, the attributes of a call, and its result."""
    x_shape, w_shape, attributes = config
    rng = np.random.default_rng(seed)
    x, w = integer_data(rng, x_shape).astype(np.float32), integer_data(rng, w_shape).astype(np.float32)
    for array in (x, w) if in_weights else (x,):
        if array.size:
            places = rng.integers(0, array.size, 3)
            array.reshape(-1)[places] = rng.choice([np.inf, -np.inf, np.nan], 3)
    with np.errstate(invalid="ignore"):
        return x, w, attributes, oracle(x, w, None, attributes, np.float32)

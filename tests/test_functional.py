"""PyTorch's signature. The values were computed with torch 2.13.0; PyTorch is not needed to run this."""

import numpy as np
import pytest
from cases import BFLOAT16

import convt
from convt import functional

pytestmark = pytest.mark.usefixtures("each_isa")


def ramp(*shape):
    return (np.arange(np.prod(shape)) % 7 - 3).reshape(shape).astype(np.float32)


# function, shape of input, shape of weight, arguments, shape and values of the result
TORCH = [
    (
        "conv_transpose1d",
        (2, 4, 5),
        (4, 3, 3),
        {"stride": 2, "padding": 1, "output_padding": 1},
        (2, 3, 10),
        """
        12 10 9 18 6 12 3 6 -14 -15 3 -10 5 -27 -14 -9 -12 9 4 10 1 -2 1 12 8 12 8 12 1
        -14 1 2 12 10 9 18 6 12 3 5 8 7 3 -10 5 -27 -14 -9 -12 4 -20 -16 1 -2 1 12 8 12 8
        3
        """,
    ),
    (
        "conv_transpose1d",
        (4, 5),
        (4, 3, 3),
        {"bias": True, "dilation": 2, "groups": 2},
        (6, 9),
        """
        4 0 9 3 2 2 -7 -5 -5 2 4 -5 1 -26 -21 3 4 3 -14 -13 9 6 16 5 -1 -1 -3 -6 -2 8 11
        11 8 -6 7 -13 3 -1 -5 -11 2 -7 5 -1 6 -2 0 -4 2 14 13 9 5 -10
        """,
    ),
    (
        "conv_transpose2d",
        (1, 4, 3, 4),
        (4, 1, 2, 3),
        {"stride": (2, 3), "padding": (0, 1), "output_padding": (1, 0), "groups": 2, "bias": True},
        (1, 2, 7, 10),
        """
        -3 -4 12 -8 -7 -9 8 4 -9 3 -6 -7 -6 -5 -4 0 -4 -8 -1 -3 -2 -2 -9 -7 -5 -9 -12 -8
        12 -3 -2 -2 -3 -1 1 -4 0 4 -5 -6 -8 -7 -9 8 4 -9 3 1 -9 -2 -5 -4 0 -4 -8 -1 -3 -5
        -2 -2 -3 -3 -3 -3 -3 -3 -3 -3 -3 -3 -6 -8 -1 -1 -8 2 4 -8 5 9 2 0 -1 -1 -1 -6 -4
        -2 -11 -7 -7 13 -3 -2 13 -7 -11 -8 -4 -6 -3 -4 -7 -6 -5 9 5 1 4 2 -1 -8 2 4 -8 5 9
        -8 -6 -7 -1 -1 -6 -4 -2 -11 -7 -3 -2 -3 -2 -2 -2 -2 -2 -2 -2 -2 -2 -2
        """,
    ),
    (
        "conv_transpose2d",
        (2, 3, 2),
        (2, 1, 3, 2),
        {"stride": (2,), "dilation": (1, 2)},
        (1, 7, 5),
        """
        18 0 -6 0 13 -3 0 5 0 3 -6 0 0 0 -4 5 0 4 0 1 -4 0 -9 0 -8 -1 0 -4 0 -1 1 0 4 0 5
        """,
    ),
    (
        "conv_transpose3d",
        (1, 2, 2, 2, 2),
        (2, 1, 2, 2, 2),
        {"stride": 2, "padding": (0, 1, 0), "bias": True},
        (1, 1, 4, 2, 4),
        """
        0 -5 -1 -4 0 -1 -5 -4 -6 10 -6 5 -4 -5 -1 0 -4 -1 -5 0 -6 -6 10 5 -6 -10 -6 -15 -6
        -6 -10 -15
        """,
    ),
]


@pytest.mark.parametrize(("function", "x_shape", "w_shape", "arguments", "shape", "values"), TORCH)
def test_values_of_pytorch(function, x_shape, w_shape, arguments, shape, values):
    arguments = dict(arguments)
    bias = ramp(w_shape[1] * arguments.get("groups", 1)) if arguments.pop("bias", False) else None
    y = getattr(functional, function)(ramp(*x_shape), ramp(*w_shape), bias, **arguments)
    wanted = np.array(values.split(), np.float32).reshape(shape)
    np.testing.assert_array_equal(y, wanted, strict=True)


@pytest.mark.parametrize("stride", [2, (2,), [2], np.int64(2), np.array(2), np.array([2])])
def test_one_integer_in_any_form(stride):
    x, w = ramp(1, 4, 5), ramp(4, 2, 3)
    wanted = convt.conv_transpose(x, w, strides=[2])
    np.testing.assert_array_equal(functional.conv_transpose1d(x, w, stride=stride), wanted)


def test_arguments_in_pytorchs_order():
    x, w = ramp(1, 4, 5), ramp(4, 2, 3)
    y = functional.conv_transpose1d(x, w, ramp(4), 2, 1, 1, 2, 2)
    wanted = convt.conv_transpose(
        x, w, ramp(4), strides=[2], pads=[1, 1], output_padding=[1], group=2, dilations=[2]
    )
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize(
    ("n", "function"), [(1, "conv_transpose1d"), (2, "conv_transpose2d"), (3, "conv_transpose3d")]
)
def test_one_image_without_a_batch(n, function):
    x, w = ramp(2, *(3,) * n), ramp(2, 3, *(2,) * n)
    one = getattr(functional, function)(x, w)
    np.testing.assert_array_equal(one, getattr(functional, function)(x[None], w)[0], strict=True)


def test_bfloat16_needs_no_opset():
    x = ramp(1, 2, 3).astype(BFLOAT16)
    assert functional.conv_transpose1d(x, ramp(2, 1, 1).astype(BFLOAT16)).dtype == x.dtype

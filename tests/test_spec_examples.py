"""Every example printed in the specification texts, as it is printed there."""

import numpy as np
import pytest

import convt

pytestmark = pytest.mark.usefixtures("each_isa")

OPSETS = pytest.mark.parametrize("opset", [11, 22])

X = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)
W = np.ones((1, 2, 3, 3), np.float32)


def twice(rows):
    """Both output channels of the examples are equal: their weights are all ones."""
    return np.array([[rows, rows]], np.float32)


def check(y, wanted):
    np.testing.assert_array_equal(y, wanted, strict=True)


@OPSETS
def test_default(opset):
    wanted = twice(
        [[0, 1, 3, 3, 2], [3, 8, 15, 12, 7], [9, 21, 36, 27, 15], [9, 20, 33, 24, 13], [6, 13, 21, 15, 8]]
    )
    check(convt.conv_transpose(X, W, opset=opset), wanted)


@OPSETS
def test_1d(opset):
    x = np.array([[[0, 1, 2]]], np.float32)
    check(convt.conv_transpose(x, np.ones((1, 2, 3), np.float32), opset=opset), twice([0, 1, 3, 3, 2]))


@OPSETS
def test_3d(opset):
    x = np.arange(60, dtype=np.float32).reshape(1, 1, 3, 4, 5)
    wanted = [
        [
            [0, 1, 3, 6, 9, 7, 4],
            [5, 12, 21, 27, 33, 24, 13],
            [15, 33, 54, 63, 72, 51, 27],
            [30, 63, 99, 108, 117, 81, 42],
            [25, 52, 81, 87, 93, 64, 33],
            [15, 31, 48, 51, 54, 37, 19],
        ],
        [
            [20, 42, 66, 72, 78, 54, 28],
            [50, 104, 162, 174, 186, 128, 66],
            [90, 186, 288, 306, 324, 222, 114],
            [120, 246, 378, 396, 414, 282, 144],
            [90, 184, 282, 294, 306, 208, 106],
            [50, 102, 156, 162, 168, 114, 58],
        ],
        [
            [60, 123, 189, 198, 207, 141, 72],
            [135, 276, 423, 441, 459, 312, 159],
            [225, 459, 702, 729, 756, 513, 261],
            [270, 549, 837, 864, 891, 603, 306],
            [195, 396, 603, 621, 639, 432, 219],
            [105, 213, 324, 333, 342, 231, 117],
        ],
        [
            [60, 122, 186, 192, 198, 134, 68],
            [130, 264, 402, 414, 426, 288, 146],
            [210, 426, 648, 666, 684, 462, 234],
            [240, 486, 738, 756, 774, 522, 264],
            [170, 344, 522, 534, 546, 368, 186],
            [90, 182, 276, 282, 288, 194, 98],
        ],
        [
            [40, 81, 123, 126, 129, 87, 44],
            [85, 172, 261, 267, 273, 184, 93],
            [135, 273, 414, 423, 432, 291, 147],
            [150, 303, 459, 468, 477, 321, 162],
            [105, 212, 321, 327, 333, 224, 113],
            [55, 111, 168, 171, 174, 117, 59],
        ],
    ]
    check(convt.conv_transpose(x, np.ones((1, 2, 3, 3, 3), np.float32), opset=opset), twice(wanted))


# output_shape=[10, 8], output_padding=[1, 1] and both together have one and the same result.
ATTRIBUTES = twice(
    [[0, 0, 1, 1, 3, 2, 2, 0]] * 3 + [[3, 3, 7, 4, 9, 5, 5, 0]] * 3 + [[6, 6, 13, 7, 15, 8, 8, 0]] * 3 + [[0] * 8]
)


@OPSETS
@pytest.mark.parametrize(
    "attributes",
    [
        {"output_shape": [10, 8]},
        {"output_padding": [1, 1]},
        {"output_shape": [10, 8], "kernel_shape": [3, 3], "output_padding": [1, 1]},
    ],
    ids=["output_shape", "pad", "kernel_shape"],
)
def test_attributes(attributes, opset):
    check(convt.conv_transpose(X, W, strides=[3, 2], opset=opset, **attributes), ATTRIBUTES)


@OPSETS
def test_pads(opset):
    wanted = twice([[1, 1, 3]] * 2 + [[7, 4, 9]] * 3 + [[13, 7, 15]] * 2)
    check(convt.conv_transpose(X, W, strides=[3, 2], pads=[1, 2, 1, 2], opset=opset), wanted)


@OPSETS
def test_dilations(opset):
    x = np.array([[[[3, 8, 1], [9, 5, 7], [3, 2, 6]]]], np.float32)
    w = np.array([[[[7, 2], [1, 9]]]], np.float32)
    wanted = [
        [21, 56, 13, 16, 2],
        [63, 35, 67, 10, 14],
        [24, 22, 76, 76, 21],
        [9, 5, 88, 45, 63],
        [3, 2, 33, 18, 54],
    ]
    check(convt.conv_transpose(x, w, dilations=[2, 2], opset=opset), np.array([[wanted]], np.float32))


@OPSETS
def test_autopad_same(opset):
    wanted = twice(
        [
            [0, 0, 1, 1, 3, 2],
            [0, 0, 1, 1, 3, 2],
            [3, 3, 8, 5, 12, 7],
            [3, 3, 7, 4, 9, 5],
            [9, 9, 20, 11, 24, 13],
            [6, 6, 13, 7, 15, 8],
        ]
    )
    check(convt.conv_transpose(X, W, auto_pad="SAME_UPPER", strides=[2, 2], opset=opset), wanted)


def test_openvino_example():
    y = convt.convolution_backprop_data(
        np.ones((1, 20, 224, 224), np.float32),
        np.ones((20, 10, 3, 3), np.float32),
        strides=(2, 2),
        pads_begin=(1, 1),
        pads_end=(1, 1),
        dilations=(1, 1),
    )
    assert y.shape == (1, 10, 447, 447)
    # Odd rows and columns have two taps, even ones one; every product is 1, and there are 20 channels.
    per_axis = np.where(np.arange(447) % 2, 2, 1)
    np.testing.assert_array_equal(y[0, 0], 20 * np.outer(per_axis, per_axis))

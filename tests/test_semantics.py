"""The vectors on which both specifications' rules were settled, and the corners of the operator."""

import numpy as np
import pytest

import convt

pytestmark = pytest.mark.usefixtures("each_isa")

X, W = (1, 2, 3), (1, 10, 100)
FULL = [1, 10, 102, 20, 203, 30, 300]


def line(values):
    return np.array(values, np.float32).reshape(1, 1, -1)


def onnx(x=X, w=W, **attributes):
    y = convt.conv_transpose(line(x), line(w), **attributes)
    assert convt.output_shape((1, 1, len(x)), (1, 1, len(w)), **attributes) == y.shape
    return y.ravel().tolist()


def openvino(output_shape=None, x=X, w=W, strides=(2,), pads=((0,), (0,)), **attributes):
    attributes = {"dilations": (1,), **attributes}
    return (
        convt.convolution_backprop_data(
            line(x),
            line(w),
            output_shape,
            strides=strides,
            pads_begin=pads[0],
            pads_end=pads[1],
            **attributes,
        )
        .ravel()
        .tolist()
    )


LARGE_AT_BEGIN = {
    4: [102, 20, 203, 30],
    5: [10, 102, 20, 203, 30],
    6: [10, 102, 20, 203, 30, 300],
    7: FULL,
    8: [*FULL, 0],
}
LARGE_AT_END = {**LARGE_AT_BEGIN, 4: [10, 102, 20, 203], 6: [1, 10, 102, 20, 203, 30]}
NO_CROP_AT_BEGIN = {size: [*FULL, 0][:size] for size in (4, 5, 6, 7, 8)}
SIZES = (4, 5, 6, 7, 8)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("opset", [11, 13, 22])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID", "SAME_LOWER", "SAME_UPPER"])
def test_onnx_output_shape_from_opset_11(size, opset, auto_pad):
    wanted = LARGE_AT_END if auto_pad == "SAME_UPPER" else LARGE_AT_BEGIN
    assert onnx(strides=[2], output_shape=[size], auto_pad=auto_pad, opset=opset) == wanted[size]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("opset", [1, 10])
@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID", "SAME_LOWER", "SAME_UPPER"])
def test_onnx_output_shape_opset_1_has_the_opposite_split(size, opset, auto_pad):
    wanted = LARGE_AT_BEGIN if auto_pad == "SAME_UPPER" else LARGE_AT_END
    assert onnx(strides=[2], output_shape=[size], auto_pad=auto_pad, opset=opset) == wanted[size]


@pytest.mark.parametrize("opset", [1, 11, 22])
def test_onnx_same_without_output_shape_follows_the_prose_in_every_opset(opset):
    # L = 7, O = 6: one element too many, dropped at the end by UPPER and at the begin by LOWER.
    assert onnx(strides=[2], auto_pad="SAME_UPPER", opset=opset) == FULL[:6]
    assert onnx(strides=[2], auto_pad="SAME_LOWER", opset=opset) == FULL[1:]


def test_onnx_same_absorbs_output_padding():
    assert onnx(strides=[2], auto_pad="SAME_UPPER", output_padding=[1]) == FULL[1:]
    assert onnx(strides=[2], auto_pad="SAME_LOWER", output_padding=[1]) == FULL[1:]


@pytest.mark.parametrize("auto_pad", ["NOTSET", "VALID", "SAME_LOWER", "SAME_UPPER"])
def test_onnx_output_shape_6_with_output_padding(auto_pad):
    assert onnx(strides=[2], output_shape=[6], output_padding=[1], auto_pad=auto_pad) == FULL[1:]


def test_onnx_output_shape_7_with_output_padding():
    attributes = {"strides": [2], "output_shape": [7], "output_padding": [1]}
    assert onnx(**attributes) == [*FULL[1:], 0]
    assert onnx(**attributes, auto_pad="SAME_UPPER") == FULL


def test_onnx_output_shape_ignores_pads():
    assert onnx(strides=[2], output_shape=[5], pads=[2, 0]) == LARGE_AT_BEGIN[5]


def test_onnx_output_shape_may_begin_with_batch_and_channels():
    assert onnx(strides=[2], output_shape=[1, 1, 5]) == LARGE_AT_BEGIN[5]


def test_onnx_output_shape_far_larger_than_natural():
    assert onnx(strides=[2], output_shape=[20]) == FULL + [0] * 13


@pytest.mark.parametrize(
    ("pads", "output_padding", "wanted"),
    [
        ([1, 1], 0, [10, 102, 20, 203, 30]),
        ([1, 1], 1, [10, 102, 20, 203, 30, 300]),
        ([0, 1], 1, FULL),
        ([2, 2], 1, [102, 20, 203, 30]),
    ],
)
def test_onnx_pads_and_output_padding(pads, output_padding, wanted):
    assert onnx(strides=[2], pads=pads, output_padding=[output_padding]) == wanted


def test_onnx_valid_adds_output_padding():
    assert onnx(strides=[2], auto_pad="VALID", output_padding=[1]) == [*FULL, 0]


@pytest.mark.parametrize(
    ("pads", "output_padding", "wanted"),
    [([0, 0], 0, [1, 2, 0, 10, 20]), ([1, 1], 2, [2, 0, 10, 20, 0]), ([2, 2], 2, [0, 10, 20])],
)
def test_dilation_above_stride(pads, output_padding, wanted):
    attributes = {"dilations": [3], "pads": pads, "output_padding": [output_padding]}
    assert onnx((1, 2), (1, 10), **attributes) == wanted


def test_kernel_below_stride():
    full = [1, 10, 0, 2, 20, 0, 3, 30]
    assert onnx(X, (1, 10), strides=[3]) == full
    assert onnx(X, (1, 10), strides=[3], auto_pad="SAME_UPPER") == [*full, 0]
    assert onnx(X, (1, 10), strides=[3], auto_pad="SAME_LOWER") == [*full, 0]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 60, reason="longdouble has hardly more digits than float64")
def test_definition_is_summed_in_longdouble_where_that_is_asked_for():
    x, w = np.array([1, 2.0**-60]).reshape(1, 2, 1), np.ones((2, 1, 1))
    assert convt.reference.conv_transpose(x, w) == 1
    assert convt.reference.conv_transpose(x, w, dtype=np.longdouble) - 1 == 2.0**-60


def test_dilation_and_stride_without_common_factor():
    assert onnx((1, 2), (1, 1, 1, 1), strides=[2], dilations=[3]) == [1, 0, 2, 1, 0, 2, 1, 0, 2, 1, 0, 2]


def test_dilation_sharing_a_factor_with_stride_leaves_bias_between():
    x, w = line((1, 2)), line((1, 10))
    y = convt.conv_transpose(x, w, np.array([7], np.float32), strides=[4], dilations=[2])
    assert y.ravel().tolist() == [8, 7, 17, 7, 9, 7, 27]


@pytest.mark.parametrize("auto_pad", ["same_upper", "same_lower"])
@pytest.mark.parametrize("compat", ["spec", "runtime"])
@pytest.mark.parametrize("size", SIZES)
def test_openvino_same_with_output_shape(size, compat, auto_pad):
    wanted = LARGE_AT_BEGIN if auto_pad == "same_upper" else LARGE_AT_END
    assert openvino([size], auto_pad=auto_pad, compat=compat) == wanted[size]


@pytest.mark.parametrize("auto_pad", ["explicit", "valid"])
@pytest.mark.parametrize("size", SIZES)
def test_openvino_output_shape_as_openvino_runs_it(size, auto_pad):
    assert openvino([size], auto_pad=auto_pad, compat="runtime") == NO_CROP_AT_BEGIN[size]


@pytest.mark.parametrize("auto_pad", ["explicit", "valid"])
@pytest.mark.parametrize("size", SIZES)
def test_openvino_output_shape_as_its_text_says(size, auto_pad):
    assert openvino([size], auto_pad=auto_pad) == LARGE_AT_END[size]


def test_openvino_runtime_keeps_explicit_begin_pads_and_drops_them_for_valid():
    assert openvino([4], pads=((2,), (0,)), compat="runtime") == FULL[2:6]
    assert openvino([4], pads=((2,), (0,)), compat="runtime", auto_pad="valid") == FULL[:4]
    assert openvino([4], pads=((2,), (0,))) == FULL[1:5]


@pytest.mark.parametrize("auto_pad", ["valid", "same_upper", "same_lower"])
def test_openvino_without_output_shape_auto_pad_crops_nothing(auto_pad):
    assert openvino(auto_pad=auto_pad, pads=((1,), (1,))) == FULL


def test_openvino_explicit_pads_and_any_output_padding():
    assert openvino(pads=((1,), (1,))) == FULL[1:6]
    assert openvino(pads=((1,), (1,)), output_padding=[5]) == [*FULL[1:], 0, 0, 0, 0]


def test_openvino_output_padding_takes_part_in_the_total():
    assert openvino([6], auto_pad="same_upper", output_padding=[3]) == [*FULL[2:], 0]


def test_openvino_groups_equal_onnx_groups():
    rng = np.random.default_rng(0)
    x = rng.integers(-9, 9, (2, 6, 4, 5)).astype(np.float32)
    w = rng.integers(-9, 9, (3, 2, 4, 3, 2)).astype(np.float32)
    y = convt.group_convolution_backprop_data(
        x, w, strides=(2, 1), pads_begin=(1, 0), pads_end=(0, 1), dilations=(1, 2)
    )
    merged = w.reshape(6, 4, 3, 2)
    wanted = convt.conv_transpose(x, merged, group=3, strides=(2, 1), pads=(1, 0, 0, 1), dilations=(1, 2))
    np.testing.assert_array_equal(y, wanted)


BIAS = np.array([5, -6], np.float32)


def with_bias(x_shape, w_shape, **attributes):
    y = convt.conv_transpose(np.ones(x_shape, np.float32), np.ones(w_shape, np.float32), BIAS, **attributes)
    assert y.shape == convt.output_shape(x_shape, w_shape, **attributes)
    return y


def test_empty_batch():
    assert with_bias((0, 3, 4, 4), (3, 2, 3, 3)).shape == (0, 2, 6, 6)


def test_no_input_channels_is_bias():
    y = with_bias((1, 0, 4), (0, 2, 3))
    np.testing.assert_array_equal(y, np.broadcast_to(BIAS[:, None], (1, 2, 6)))


def test_no_output_channels():
    y = convt.conv_transpose(np.ones((1, 3, 4), np.float32), np.ones((3, 0, 3), np.float32))
    assert y.shape == (1, 0, 6)


def test_no_channels_at_all_and_many_groups():
    y = convt.conv_transpose(np.ones((1, 0, 2)), np.ones((0, 0, 2)), group=2**62)
    assert y.shape == convt.output_shape((1, 0, 2), (0, 0, 2), group=2**62) == (1, 0, 3)


def test_no_input_positions_is_bias():
    y = with_bias((1, 3, 0, 2), (3, 2, 3, 3), output_shape=[4, 4])
    np.testing.assert_array_equal(y, np.broadcast_to(BIAS[:, None, None], (1, 2, 4, 4)))


def test_no_input_positions_natural_size():
    # L = (0 - 1)*1 + (5 - 1)*1 + 1 = 4
    np.testing.assert_array_equal(with_bias((1, 3, 0), (3, 2, 5)), np.broadcast_to(BIAS[:, None], (1, 2, 4)))


def test_pads_beyond_the_kernel():
    assert onnx(strides=[2], pads=[4, 2]) == [203]


def test_begin_pad_past_the_natural_size_is_all_bias():
    assert openvino([3], strides=(1,), pads=((50,), (0,)), compat="runtime") == [0, 0, 0]


def test_one_element_kernel_is_a_matrix_product():
    x = np.arange(12, dtype=np.float64).reshape(1, 3, 2, 2)
    w = np.arange(6, dtype=np.float64).reshape(3, 2, 1, 1)
    wanted = np.einsum("nchw,cm->nmhw", x, w[..., 0, 0])
    np.testing.assert_array_equal(convt.conv_transpose(x, w), wanted)


def test_stride_far_above_the_kernel():
    y = onnx((1, 2), (3,), strides=[100_000])
    assert (len(y), y[0], y[-1], sum(y)) == (100_001, 3, 6, 9)


def test_inf_and_nan_touch_only_outputs_with_a_true_tap_on_them():
    x = line((1, np.inf, 2, np.nan, 3))
    y = convt.conv_transpose(x, line((1, 1, 0)), strides=[3], dilations=[2]).ravel()
    # x[1] = Inf meets W at 3, 5, 7, the last of them 0; x[3] = NaN at 9, 11, 13. All other outputs are finite.
    np.testing.assert_array_equal(np.flatnonzero(np.isinf(y)), [3, 5])
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(y)), [7, 9, 11, 13])


def test_inf_in_the_weights_does_not_meet_a_padding_zero():
    assert onnx((1, 2), (1, np.inf, 1)) == [1, np.inf, np.inf, 2]


@pytest.mark.parametrize(("dtype", "tiny"), [(np.float16, 2.0**-24), (np.float32, 1e-45), (np.float64, 5e-324)])
def test_subnormals_are_kept(dtype, tiny):
    x = np.array([[[tiny, 0]]], dtype)
    y = convt.conv_transpose(x, np.ones((1, 1, 2), dtype))
    np.testing.assert_array_equal(y, np.array([[[tiny, tiny, 0]]], dtype))


def test_no_tap_gives_positive_zero():
    y = convt.conv_transpose(line((-1, -1)), line((1,)), strides=[3])
    assert not np.signbit(y.ravel()[1])


@pytest.mark.parametrize("weight", [1, np.inf])
def test_a_bias_of_negative_zero_gives_positive_zero(weight):
    """Whatever the path: an Inf among the weights of another channel wants another."""
    y = convt.conv_transpose(
        line((0, 0)), np.array([[[1], [weight]]], np.float32), line((-0.0, 0)).ravel(), strides=[3]
    )
    assert not np.signbit(y[0, 0, 1])


def test_float16_sums_in_float32_and_rounds_once():
    # 2048 + 1 + 1 is 2048 in float16 arithmetic, whatever the order of rounding after each step.
    x = np.array([[[2048], [1], [1]]], np.float16)
    y = convt.conv_transpose(x, np.ones((3, 1, 1), np.float16))
    assert y.item() == 2050


def test_float16_bias_is_added_before_rounding():
    x = np.array([[[2048], [1]]], np.float16)
    w = np.ones((2, 1, 1), np.float16)
    # 2048 + 1 + 1 is a float16; 2048 + 1 is not, and rounded first, to even, the bias would tie to 2048 again.
    y = convt.conv_transpose(x, w, np.ones(1, np.float16))
    assert y.item() == 2050


@pytest.mark.parametrize("stride", [2**55, 2**62])
def test_strides_far_beyond_the_output(stride):
    assert onnx(x=[2], strides=[stride], pads=[1, 0]) == [20, 200]


def test_the_reference_is_silent_where_the_operators_are():
    with np.errstate(all="raise"):
        y = convt.reference.conv_transpose(np.array([[[np.inf, 1]]]), np.array([[[0.0, 1]]]))
    np.testing.assert_array_equal(y, [[[np.nan, np.inf, 1]]])


@pytest.mark.parametrize("operand", ["x", "w", "b"])
def test_a_signalling_nan_is_no_floating_point_error_of_numpy(operand):
    operands = {
        "x": np.ones((1, 2, 3), np.float32),
        "w": np.ones((2, 2, 2), np.float32),
        "b": np.ones(2, np.float32),
    }
    operands[operand].view(np.uint32).flat[0] = 0x7F800001
    with np.errstate(all="raise"):
        y = convt.conv_transpose(*operands.values())
    assert np.isnan(y).any()

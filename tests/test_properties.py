"""Random configurations against the definition."""

import numpy as np
import pytest
from cases import (
    BFLOAT16,
    DTYPES,
    LAYOUTS,
    as_layout,
    call_with_inf_and_nan,
    configurations,
    error_bound,
    integer_call,
    integer_data,
    oracle,
    wide_configurations,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from ways import WAYS, assert_same_bits, bits, dtype_of, every_way, forced, name_of, seeds

import convt
from convt import paths
from convt._levels import most_pieces
from convt.cost import PRODUCTS

pytestmark = pytest.mark.usefixtures("threads_for_any_work")

# Those that do not round integers to bfloat16.
exact_ways = pytest.mark.parametrize(
    "way", [way for way in WAYS if dtype_of(way, np.dtype(np.float64)) != BFLOAT16], ids=name_of
)


@every_way
@settings(max_examples=150, deadline=None)
@given(
    config=configurations(),
    seed=seeds,
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    has_bias=st.booleans(),
    threads=st.sampled_from([1, 2, 5]),
)
def test_integer_data_is_exact_bit_for_bit(way, config, seed, dtype, layout, has_bias, threads):
    x, w, b, attributes, wanted = integer_call(config, seed, dtype_of(way, dtype), has_bias)
    with forced(way):
        y = convt.conv_transpose(as_layout(x, layout), as_layout(w, layout), b, n_threads=threads, **attributes)
    assert_same_bits(y, wanted)


@pytest.mark.heavy
@every_way
@settings(max_examples=150, deadline=None)
@given(config=wide_configurations(), seed=seeds, dtype=st.sampled_from(DTYPES), threads=st.sampled_from([1, 2]))
def test_integer_data_of_long_rows_and_many_channels_is_exact(way, config, seed, dtype, threads):
    x, w, b, attributes, wanted = integer_call(config, seed, dtype_of(way, dtype), True)
    y = np.full_like(wanted, 99)
    with forced(way):
        convt.conv_transpose(x, w, b, out=y, n_threads=threads, **attributes)
    np.testing.assert_array_equal(y, wanted)


@every_way
@settings(max_examples=100, deadline=None)
@given(config=configurations(), seed=seeds, dtype=st.sampled_from(DTYPES), scale=st.sampled_from([-20, -3, 0, 4]))
def test_real_data_is_within_the_bound_of_a_fused_chain(way, config, seed, dtype, scale):
    x_shape, w_shape, attributes = config
    dtype = dtype_of(way, dtype)
    if dtype == BFLOAT16:
        attributes["opset"] = 22
    if dtype == np.float16:
        scale = max(scale, -3)
    rng = np.random.default_rng(seed)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    x = (x.astype(np.float64) * 2.0**scale).astype(dtype)
    b = rng.standard_normal(w_shape[1] * attributes["group"]).astype(dtype)
    with forced(way):
        y = convt.conv_transpose(x, w, b, **attributes)
    error = np.abs(y.astype(np.float64) - oracle(x, w, b, attributes))
    in_pieces = way[1] in paths.PIECE_PATHS and most_pieces(way[0])
    products = PRODUCTS[paths.pieces_of(dtype.name, "highest")] if in_pieces else 1
    assert (error <= error_bound(x, w, b, attributes, products)).all()


@every_way
@settings(max_examples=100, deadline=None)
@given(config=configurations(), seed=seeds, in_weights=st.booleans())
def test_inf_and_nan_reach_exactly_the_outputs_that_sum_them(way, config, seed, in_weights):
    x, w, attributes, wanted = call_with_inf_and_nan(config, seed, in_weights)
    with forced(way):
        np.testing.assert_array_equal(convt.conv_transpose(x, w, **attributes), wanted)


@every_way
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
@pytest.mark.parametrize("x_shape", [(1, 1, 3073), (2, 1, 3, 5)], ids=str)
def test_the_payload_of_a_nan_does_not_depend_on_its_place(way, dtype, x_shape):
    x = np.full(x_shape, {"float16": 0x7E15, "bfloat16": 0x7FD5}[dtype.name], np.uint16).view(dtype)
    with forced(way):
        y = convt.conv_transpose(x, np.ones((1, 1, *[1] * len(x_shape[2:])), dtype), n_threads=1)
    assert np.unique(bits(y)).size == 1


@every_way
@settings(max_examples=60, deadline=None)
@given(config=configurations(), seed=seeds, dtype=st.sampled_from(DTYPES))
def test_same_bits_for_any_number_of_threads(way, config, seed, dtype):
    x_shape, w_shape, attributes = config
    dtype = dtype_of(way, dtype)
    if dtype == BFLOAT16:
        attributes["opset"] = 22
    rng = np.random.default_rng(seed)
    longer = {1: 30, 2: 6, 3: 3}[len(x_shape) - 2]  # so that there is work for several threads
    x_shape = (*x_shape[:2], *(longer * n for n in x_shape[2:]))
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    with forced(way):
        one, two, five = (convt.conv_transpose(x, w, n_threads=n, **attributes) for n in (1, 2, 5))
    assert_same_bits(one, two)
    assert_same_bits(one, five)


@exact_ways
@settings(max_examples=100, deadline=None)
@given(config=configurations(), seed=seeds)
def test_adjoint_identity(way, config, seed):
    """<conv(y), x> = <y, conv_transpose(x)>, where conv gathers what conv_transpose scatters."""
    x_shape, w_shape, attributes = config
    rng = np.random.default_rng(seed)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    dtype = dtype_of(way, np.dtype(np.float64))
    with forced(way):
        transposed = convt.conv_transpose(x.astype(dtype), w.astype(dtype), **attributes).astype(np.float64)
    y = integer_data(rng, transposed.shape)
    gathered = convolve(y, w, x_shape, attributes)
    assert (gathered * x).sum() == (y * transposed).sum()


def convolve(y, w, x_shape, attributes):
    """The convolution whose adjoint is tested: conv(y)[n, c, i] = sum y[n, m, i*s + k*d - pad] * w[c, m, k]."""
    group = attributes["group"]
    axes = convt.geometry.OnnxRules(w.shape, **attributes).geometry(x_shape).axes
    grouped = y.reshape(y.shape[0], group, w.shape[1], *y.shape[2:])
    weights = w.reshape(group, w.shape[0] // group, *w.shape[1:])
    result = np.zeros((y.shape[0], group, weights.shape[1], *x_shape[2:]), np.int64)
    for k in np.ndindex(*w.shape[2:]):
        part, inside = grouped, np.ones(x_shape[2:], bool)
        for a, axis in enumerate(axes):
            o = np.arange(axis.input) * axis.stride + k[a] * axis.dilation - axis.pad
            valid = (o >= 0) & (o < axis.output)
            part = part.take(np.where(valid, o, 0), axis=3 + a)
            inside = inside & valid.reshape([-1 if i == a else 1 for i in range(len(axes))])
        result += np.einsum("ngm...,gcm->ngc...", part * inside, weights[(..., *k)])
    return result.reshape(x_shape)


@every_way
@settings(max_examples=60, deadline=None)
@given(config=configurations(max_rank=4), seed=seeds, dtype=st.sampled_from(DTYPES))
def test_layer_equals_function_and_predicts_its_shape(way, config, seed, dtype):
    x_shape, w_shape, attributes = config
    if dtype == BFLOAT16:
        attributes["opset"] = 22
    rng = np.random.default_rng(seed)
    x, w = integer_data(rng, x_shape).astype(dtype), integer_data(rng, w_shape).astype(dtype)
    with forced(way):
        layer = convt.ConvTranspose(w, **attributes)
        y = layer(x)
        assert_same_bits(y, convt.conv_transpose(x, w, **attributes))
    assert y.shape == layer.output_shape(x_shape) == convt.output_shape(x_shape, w_shape, **attributes)
    assert layer.explain(x_shape)["output_shape"] == y.shape


@every_way
@settings(max_examples=100, deadline=None)
@given(data=st.data(), config=configurations(), seed=seeds)
def test_openvino_against_the_definition(way, data, config, seed):
    x_shape, w_shape, onnx = config
    rank = len(x_shape) - 2
    group = onnx["group"]

    def per_axis(low, high):
        return data.draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    attributes = {
        "strides": onnx["strides"],
        "dilations": onnx["dilations"],
        "pads_begin": per_axis(0, 3),
        "pads_end": per_axis(0, 3),
        "output_padding": per_axis(0, 5),
        "auto_pad": data.draw(st.sampled_from(["explicit", "same_upper", "same_lower", "valid"])),
        "compat": data.draw(st.sampled_from(["spec", "runtime"])),
        "output_shape": data.draw(st.sampled_from([None, per_axis(1, 20)])),
    }
    rng = np.random.default_rng(seed)
    x = integer_data(rng, x_shape).astype(np.float32)
    w = integer_data(rng, (group, w_shape[0] // group, *w_shape[1:])).astype(np.float32)
    try:
        wanted = convt.reference.group_convolution_backprop_data(x, w, **attributes)
    except ValueError:
        with pytest.raises(ValueError):
            convt.group_convolution_backprop_data(x, w, **attributes)
        return
    with forced(way):
        np.testing.assert_array_equal(convt.group_convolution_backprop_data(x, w, **attributes), wanted)
        if group == 1:
            np.testing.assert_array_equal(convt.convolution_backprop_data(x, w[0], **attributes), wanted)

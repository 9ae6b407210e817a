"""Depthwise layers, lanes along groups: a block of as many channels as a vector has lanes reads its own."""

import numpy as np
import pytest
from cases import (
    BFLOAT16,
    DTYPES,
    LAYOUTS,
    as_layout,
    call_with_inf_and_nan,
    error_bound,
    integer_call,
    integer_data,
    oracle,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from ways import LEVELS, assert_same_bits, before_unreadable, forced, seeds

import convt
from convt import paths

pytestmark = pytest.mark.usefixtures("threads_for_any_work")

every_level = pytest.mark.parametrize("level", LEVELS)
CHANNELS = (2, 3, 7, 8, 9, 16, 17, 21, 40)  # blocks that are filled or not


@st.composite
def depthwise_configurations(draw):
    """Shapes and attributes, as ``(x_shape, w_shape, attributes)``."""
    rank = draw(st.integers(1, 3))

    def per_axis(low, high):
        return draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))

    channels = draw(st.sampled_from(CHANNELS))
    largest = {1: 60, 2: 11, 3: 5}[rank]
    kernel, strides, dilations = per_axis(1, 5 if rank < 3 else 3), per_axis(1, 4), per_axis(1, 3)
    attributes = {
        "group": channels,
        "strides": strides,
        "dilations": dilations,
        "pads": per_axis(0, 3) + per_axis(0, 3),
    }
    attributes["output_padding"] = [min(draw(st.integers(0, 2)), s - 1) for s in strides]
    # An image of one input is a product of matrices, which this path is not for.
    sizes = [draw(st.integers(2, largest)), *per_axis(1, largest)[1:]]
    x_shape, w_shape = (draw(st.integers(1, 3)), channels, *sizes), (channels, 1, *kernel)
    try:
        convt.output_shape(x_shape, w_shape, **attributes)
    except ValueError:
        attributes["pads"] = [0] * 2 * rank
    return x_shape, w_shape, attributes


def assert_along_groups(layer, x_shape):
    assert layer.explain(x_shape)["kernel"] == paths.GROUPS.name


@every_level
@settings(max_examples=200, deadline=None)
@given(
    config=depthwise_configurations(),
    seed=seeds,
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    has_bias=st.booleans(),
    threads=st.sampled_from([1, 2, 5]),
)
def test_integer_data_is_exact_bit_for_bit(level, config, seed, dtype, layout, has_bias, threads):
    x, w, b, attributes, wanted = integer_call(config, seed, dtype, has_bias)
    out = as_layout(np.empty_like(wanted), "contiguous" if layout in ("read-only", "big-endian") else layout)
    with forced((level, paths.GROUPS)):
        layer = convt.ConvTranspose(as_layout(w, layout), b, n_threads=threads, **attributes)
        assert_along_groups(layer, x.shape)
        layer(as_layout(x, layout), out=out)
    assert_same_bits(np.ascontiguousarray(out), wanted)


@every_level
@settings(max_examples=100, deadline=None)
@given(config=depthwise_configurations(), seed=seeds, dtype=st.sampled_from(DTYPES))
def test_real_data_is_within_the_bound_and_the_same_for_any_threads(level, config, seed, dtype):
    x_shape, w_shape, attributes = config
    if dtype == BFLOAT16:
        attributes["opset"] = 22
    rng = np.random.default_rng(seed)
    x, w, b = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape, w_shape[:1]))
    with forced((level, paths.GROUPS)):
        y, again, packed_anew = (
            convt.ConvTranspose(w, b, n_threads=1, **attributes)(x),
            convt.ConvTranspose(w, b, n_threads=3, **attributes)(x),
            convt.conv_transpose(x, w, b, **attributes),
        )
    assert_same_bits(again, y)
    assert_same_bits(packed_anew, y)
    error = np.abs(y.astype(np.float64) - oracle(x, w, b, attributes))
    assert (error <= error_bound(x, w, b, attributes)).all()


@every_level
@settings(max_examples=60, deadline=None)
@given(config=depthwise_configurations(), seed=seeds, in_weights=st.booleans())
def test_inf_and_nan_reach_exactly_the_outputs_that_sum_them(level, config, seed, in_weights):
    x, w, attributes, wanted = call_with_inf_and_nan(config, seed, in_weights)
    with forced((level, paths.GROUPS)):
        np.testing.assert_array_equal(convt.conv_transpose(x, w, **attributes), wanted)


@every_level
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("size", [(5,), (33,), (3, 7), (2, 3, 4)], ids=str)
def test_nothing_behind_x_is_read(level, dtype, channels, size):
    rng = np.random.default_rng(0)
    x = before_unreadable(integer_data(rng, (2, channels, *size)).astype(dtype))
    w = before_unreadable(integer_data(rng, (channels, 1, *[3] * len(size))).astype(dtype))
    attributes = {"group": channels, "pads": [1] * 2 * len(size), "opset": 22}
    with forced((level, paths.GROUPS)):
        layer = convt.ConvTranspose(w, **attributes)
        assert_along_groups(layer, x.shape)
        y = layer(x)
    assert_same_bits(y, oracle(x, w, None, attributes, dtype))


@every_level
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("size", "along_groups"), [((7, 7), True), ((5, 5, 5), True), ((64, 64), False), ((9, 480), False)], ids=str
)
def test_it_is_chosen_for_rows_that_do_not_fill_vectors(level, dtype, size, along_groups):
    layer_of = {"group": 64, "strides": [1] * len(size), "pads": [1] * 2 * len(size), "opset": 22}
    with forced((level, None)):
        layer = convt.ConvTranspose(np.ones((64, 1, *[3] * len(size)), dtype), **layer_of)
        assert (layer.explain((1, 64, *size))["kernel"] == paths.GROUPS.name) == along_groups


@every_level
def test_other_groups_are_not_asked(level):
    with forced((level, paths.GROUPS)):
        layer = convt.ConvTranspose(np.ones((32, 2, 3, 3), np.float32), group=32)
        assert layer.explain((1, 32, 7, 7))["kernel"] == "phase rows"


@every_level
@pytest.mark.parametrize("threads", [2, 4, 7])
def test_threads_share_blocks_before_boxes(level, threads):
    w = np.ones((512, 1, 5, 5), np.float32)
    with forced((level, paths.GROUPS)):
        alone, together = (
            convt.ConvTranspose(w, group=512, pads=[2] * 4, n_threads=n).explain((1, 512, 7, 7))
            for n in (1, threads)
        )
    assert together["tiles"]["box"] == alone["tiles"]["box"]
    assert together["threads"] == threads


@every_level
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((1, 8, 0), (8, 1, 31), {}),
        ((2, 7, 0), (7, 2, 3), {"dilations": [2], "pads": [0, 1]}),
        ((2, 7, 3, 0), (7, 1, 3, 5), {"group": 7, "dilations": [1, 2]}),
        ((0, 7, 3, 3), (7, 1, 3, 3), {"group": 7}),
    ],
)
def test_inputs_without_elements(level, x_shape, w_shape, attributes):
    b = np.arange(w_shape[1] * attributes.get("group", 1), dtype=np.float32)
    x, w = np.empty(x_shape, np.float32), np.ones(w_shape, np.float32)
    with forced((level, None)):
        y = convt.conv_transpose(x, w, b, **attributes)
    np.testing.assert_array_equal(y, oracle(x, w, b, attributes))

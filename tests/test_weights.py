"""Weights packed in parts, panels and blocks, or used as they are; infinite ones are noticed."""

from contextlib import contextmanager

import numpy as np
import pytest
from cases import BFLOAT16, DTYPES, LAYOUTS, as_layout, configurations, integer_data, oracle
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from ways import (
    LEVELS,
    WAYS,
    assert_same_bits,
    before_unreadable,
    every_way,
    forced,
    seeds,
    ways_and_dtypes,
)

import convt
from convt import paths, plan

pytestmark = pytest.mark.usefixtures("threads_for_any_work")


@every_way
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("outputs", [1, 13, 14, 40])
def test_weights_of_small_groups(way, dtype, outputs):
    """Also where a group has channels of several blocks, and kernel positions that meet no output."""
    rng = np.random.default_rng(outputs)
    x, w = integer_data(rng, (2, 10, 3, 20)), integer_data(rng, (10, outputs, 9, 2))
    b = integer_data(rng, 5 * outputs)
    attributes = {"pads": [6, 0, 2, 0], "strides": [1, 2], "group": 5}
    with forced(way):
        y = convt.conv_transpose(*(a.astype(dtype) for a in (x, w, b)), **attributes)
    assert_same_bits(y, oracle(x, w, b, attributes, dtype))


@every_way
@pytest.mark.parametrize("group", [0, 39, 70])
def test_an_infinite_weight_in_any_small_group_is_noticed(way, group):
    x, w = np.ones((1, 71, 4, 9), np.float32), np.ones((71, 1, 3, 3), np.float32)
    w[group, 0, 0, 2] = np.inf
    with forced(way):
        y = convt.conv_transpose(x, w, group=71)
    assert not np.isnan(y).any()
    assert np.argwhere(np.isinf(y).any((0, 2, 3))).item() == group


# One block of output channels, packed in as many parts of the input channels as there are threads for.
packed_in_parts = pytest.mark.parametrize("outputs", [1, 3, 16, 32])


@every_way
@packed_in_parts
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_packed_in_parts(way, outputs, dtype):
    rng = np.random.default_rng(outputs)
    x, w = integer_data(rng, (2, 100, 21)), integer_data(rng, (100, outputs, 4))
    b = integer_data(rng, outputs)
    attributes = {"strides": [2]}
    with forced(way):
        y = convt.conv_transpose(*(a.astype(dtype) for a in (x, w, b)), n_threads=3, **attributes)
    assert_same_bits(y, oracle(x, w, b, attributes, dtype))


@every_way
@packed_in_parts
@pytest.mark.parametrize("channel", [0, 40, 99])
def test_an_infinite_weight_in_any_part_is_noticed(way, outputs, channel):
    rng = np.random.default_rng(channel)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 100, 21), (100, outputs, 4)))
    w[channel, 0, 1] = np.inf
    with forced(way):
        one, three = (convt.conv_transpose(x, w, n_threads=n, strides=[2]) for n in (1, 3))
    assert (~np.isfinite(three)).sum() == 21
    assert_same_bits(one, three)


# Every vector of columns is as many neighbours of a channel's weights: outputs of a kernel of one position, or
# places.
@every_way
@pytest.mark.parametrize(
    ("outputs", "kernel", "strides"),
    [(64, [1], [1]), (1, [256], [128]), (2, [32, 32], [16, 16])],
    ids=str,
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_neighbouring_columns(way, outputs, kernel, strides, dtype):
    rng = np.random.default_rng(outputs)
    size = [5] * len(kernel)
    x, w = integer_data(rng, (2, 100, *size)), integer_data(rng, (100, outputs, *kernel))
    attributes = {"strides": strides}
    with forced(way):
        y = convt.conv_transpose(x.astype(dtype), before_unreadable(w.astype(dtype)), n_threads=3, **attributes)
    assert_same_bits(y, oracle(x, w, None, attributes, dtype))


@every_way
@pytest.mark.parametrize("channel", [0, 40, 99])
def test_an_infinite_weight_among_neighbouring_columns_is_noticed(way, channel):
    rng = np.random.default_rng(channel)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 100, 5), (100, 1, 256)))
    w[channel, 0, 255] = np.inf
    with forced(way):
        y = convt.conv_transpose(x, w, strides=[128])
    assert (~np.isfinite(y)).sum() == 5  # not where it meets the zeros around


@pytest.mark.parametrize("kernel", [2, 3, 4, 5, 8, 9, 17, 33])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("way", [way for way in WAYS if way[1] in (paths.CHANNELS, paths.CHANNEL_TILES)], ids=str)
def test_packing_reads_nothing_behind_the_weights(way, dtype, kernel):
    rng = np.random.default_rng(kernel)
    x, w = integer_data(rng, (1, 35, 40)), integer_data(rng, (35, 32, kernel))
    with forced(way):
        y = convt.conv_transpose(x.astype(dtype), before_unreadable(w.astype(dtype)))
    assert_same_bits(y, oracle(x, w, None, {}, dtype))


@pytest.mark.parametrize("level", LEVELS)
def test_weights_are_packed_for_each_width_of_tiles(level):
    rng = np.random.default_rng(0)
    w = integer_data(rng, (6, 32, 3, 3))
    found = set()
    with forced((level, paths.CHANNEL_COLUMNS)):
        layer = convt.ConvTranspose(w.astype(np.float32), pads=[1, 1, 1, 1])
        for batch in (1, 9, 1):
            x = integer_data(rng, (batch, 6, 3, 5))
            found.add(layer.explain(x.shape)["tiles"]["vectors"])
            y = layer(x.astype(np.float32))
            np.testing.assert_array_equal(y, oracle(x, w, None, {"pads": [1, 1, 1, 1]}))
    assert found == {2, 3}


@contextmanager
def counted_panels():
    """Plans that read weights panel by panel while a box is computed, as they run, and whether they could."""
    panels = []
    run = plan.BoxPlan.run

    def counting(self, *operands):
        done = run(self, *operands)
        if self.kind == "panels":
            panels.append((self, done))
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan.BoxPlan, "run", counting)
        yield panels


def assert_panels_give_the_bits_of_a_layer(way, dtype, threads, x_shape, w_shape, attributes):
    rng = np.random.default_rng(len(w_shape))
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    b = rng.standard_normal(w_shape[1] * attributes.get("group", 1)).astype(dtype)
    with forced(way), counted_panels() as panels:
        layer = convt.ConvTranspose(w, b, n_threads=threads, **attributes)(x)
        assert not panels
        once = convt.conv_transpose(x, before_unreadable(w), b, n_threads=threads, **attributes)
    assert panels
    assert_same_bits(once, layer)


COLUMN_WAYS = ways_and_dtypes(paths.CHANNEL_COLUMNS, paths.CHANNEL_TILE_COLUMNS)
BLOCK_WAYS = ways_and_dtypes(paths.CHANNELS, paths.CHANNEL_IMAGES, paths.CHANNEL_TILES, paths.CHANNEL_TILE_IMAGES)


@pytest.mark.parametrize(("way", "dtype"), COLUMN_WAYS)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((2, 100, 4, 3), (100, 80, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((1, 41, 9), (41, 101, 7), {"strides": [3]}),  # columns that fill no vector
        ((1, 600, 3, 3), (600, 64, 3, 3), {"group": 2}),  # several panels in tile registers
        ((1, 40, 2, 3), (40, 70, 9, 15), {"strides": [2, 2]}),  # and in vectors
        ((1, 260, 8, 8), (260, 70, 4, 4), {"strides": [2, 2]}),  # as many positions as vectors may have
        ((1, 1000, 2, 1, 2), (1000, 65, 3, 2, 3), {"strides": [2, 1, 1], "dilations": [1, 2, 1]}),
        ((1, 70, 3, 3), (70, 128, 4, 4), {"strides": [2, 2]}),  # rows pages apart
    ],
)
def test_weights_in_panels_give_the_bits_of_a_layer(way, dtype, threads, x_shape, w_shape, attributes):
    assert_panels_give_the_bits_of_a_layer(way, dtype, threads, x_shape, w_shape, attributes)


@pytest.mark.parametrize(
    ("way", "dtype"),
    ways_and_dtypes(paths.CHANNEL_TILES),
)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((1, 200, 4, 5), (200, 40, 2, 2), {"strides": [2, 2]}),
        ((2, 130, 3, 5), (130, 33, 1, 3), {"strides": [2, 4], "pads": [1, 0, 0, 2]}),
        ((1, 70, 9), (70, 64, 3), {"strides": [3], "pads": [2, 2]}),
    ],
)
def test_single_taps_in_panels_give_the_bits_of_a_layer(way, dtype, x_shape, w_shape, attributes):
    rng = np.random.default_rng(len(w_shape))
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    b = np.where(rng.integers(0, 2, w_shape[1]), -0.0, 1).astype(dtype)
    with forced(way), counted_panels() as panels:
        layer = convt.ConvTranspose(w, b, n_threads=1, **attributes)(x)
        once = convt.conv_transpose(x, w, b, n_threads=1, **attributes)
    assert panels
    assert_same_bits(once, layer)


@pytest.mark.parametrize(("way", "dtype"), COLUMN_WAYS)
@pytest.mark.parametrize(
    ("which", "index", "x_shape", "w_shape"),
    [
        ("x", (-1, -1, 1, 0), (1, 90, 5, 4), (90, 80, 3, 3)),
        ("x", (0, 0, 0, 0), (1, 90, 5, 4), (90, 80, 3, 3)),  # the position whose products are looked at
        ("w", (-1, -1, 1, 0), (1, 90, 5, 4), (90, 80, 3, 3)),  # the last block
        ("w", (-1, 31, -1, -1), (1, 40, 2, 3), (40, 70, 9, 15)),  # of a block the last of several panels
    ],
)
@pytest.mark.parametrize("value", [np.inf, np.nan, 3e38, 1e-37, 1e-20])
@pytest.mark.parametrize("threads", [1, 3])
def test_operands_that_panels_refuse_give_the_bits_of_a_layer(
    way, dtype, which, index, x_shape, w_shape, value, threads
):
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    x[:, :, 0, 0] = 0
    with np.errstate(over="ignore"):
        (x if which == "x" else w)[index] = value
    with forced(way), counted_panels() as panels:
        layer = convt.ConvTranspose(w, n_threads=threads)(x)
        once = np.ones_like(layer)
        convt.conv_transpose(x, w, out=once, n_threads=threads)
    assert panels
    assert_same_bits(once, layer)


@pytest.mark.parametrize(("way", "dtype"), BLOCK_WAYS)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((2, 100, 4, 3), (100, 768, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((3, 72, 4), (72, 192, 5), {"strides": [3], "dilations": [2], "group": 3}),
        ((1, 1200, 2, 3), (1200, 192, 3, 3), {}),  # several slices of channels
        ((1, 50, 3, 5), (50, 752, 2, 3), {"strides": [1, 2]}),  # the last block is narrower
    ],
)
def test_blocks_packed_in_a_call_give_the_bits_of_a_layer(way, dtype, threads, x_shape, w_shape, attributes):
    assert_panels_give_the_bits_of_a_layer(way, dtype, threads, x_shape, w_shape, attributes)


@pytest.mark.parametrize(("way", "dtype"), BLOCK_WAYS)
@pytest.mark.parametrize("value", [np.inf, np.nan, 1e-20])
@pytest.mark.parametrize("index", [(0, 0, 0, 0), (-1, -1, 1, 0)])  # the first block and the last
@pytest.mark.parametrize("threads", [1, 3])
def test_weights_that_blocks_refuse_give_the_bits_of_a_layer(way, dtype, index, value, threads):
    rng = np.random.default_rng(3)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in ((2, 90, 5, 4), (90, 576, 3, 3)))
    w[index] = value
    with forced(way), counted_panels() as panels:
        layer = convt.ConvTranspose(w, n_threads=threads)(x)
        once = np.ones_like(layer)
        convt.conv_transpose(x, w, out=once, n_threads=threads)
    refused = not np.isfinite(value) or (way[1].tiles and w[index] != 0)
    assert [done for _, done in panels] == [not refused]
    assert_same_bits(once, layer)


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=200, deadline=None)
@given(
    config=configurations(),
    seed=seeds,
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    threads=st.sampled_from([1, 3]),
)
def test_images_of_one_position_use_the_weights_as_they_are(level, config, seed, dtype, layout, threads):
    x_shape, w_shape, attributes = config
    x_shape = (*x_shape[:2], *[1] * len(x_shape[2:]))
    if dtype == BFLOAT16:
        attributes["opset"] = 22
    rng = np.random.default_rng(seed)
    x, w = (integer_data(rng, shape).astype(dtype) for shape in (x_shape, w_shape))
    b = integer_data(rng, w_shape[1] * attributes["group"]).astype(dtype)
    try:
        wanted = oracle(x, w, b, attributes, dtype)
    except ValueError:
        reject()
    out = as_layout(np.full_like(wanted, np.nan), "sliced")
    with forced((level, None)):
        convt.conv_transpose(
            as_layout(x, layout), as_layout(w, layout), b, out=out, n_threads=threads, **attributes
        )
        layer = convt.ConvTranspose(w, b, **attributes)
        layer._once = True  # as in the call
        kernel = layer.explain(x_shape)["kernel"]
    np.testing.assert_array_equal(out, wanted)
    assert kernel == "native weights" or 0 in (*x_shape, *wanted.shape)


@pytest.mark.parametrize("level", LEVELS)
def test_images_of_one_position_with_many_columns(level):
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (5, 30, 1, 1)), integer_data(rng, (30, 700, 4, 2))
    with forced((level, None)):
        y = convt.conv_transpose(x.astype(np.float32), w.astype(np.float32), n_threads=2)
    np.testing.assert_array_equal(y, oracle(x, w, None, {}))

"""Sums along channels: widths of tiles, taps that share inputs, places of a cell, the same for any threads."""

import numpy as np
import pytest
from cases import as_layout, integer_data, oracle
from ways import LEVELS, assert_same_bits, forced, ways_and_dtypes

import convt
from convt import paths
from convt._levels import tile_limits

pytestmark = pytest.mark.usefixtures("threads_for_any_work")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", [path for path in paths.VECTOR_PATHS if path.along_channels])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("channels", [3, 8, 17, 24, 48, 64, 75, 112])  # whole tiles and rests
@pytest.mark.parametrize("taps", [1, 3])  # of a row
def test_wide_tiles(level, path, dtype, channels, taps):
    rng = np.random.default_rng(channels)
    x, w = integer_data(rng, (9, 6, 3, 5)), integer_data(rng, (6, channels, 3, taps))
    attributes = {"strides": [2, 1], "pads": [1, taps // 2, 1, taps // 2]}
    with forced((level, path)):
        y = convt.conv_transpose(x.astype(dtype), w.astype(dtype), **attributes)
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", [paths.CHANNELS, paths.CHANNEL_COLUMNS, paths.CHANNEL_IMAGES], ids=str)
@pytest.mark.parametrize(("dtype", "channels"), [("float32", 8), ("float32", 20), ("float64", 4), ("float64", 10)])
def test_half_vectors_of_channels_have_the_bits_of_whole_ones(level, path, dtype, channels):
    lanes = tile_limits(level, dtype == "float64", 0).lanes
    rng = np.random.default_rng(channels)
    x = rng.standard_normal((9, 6, 3, 5)).astype(dtype)
    w = rng.standard_normal((6, -(-channels // lanes) * lanes, 3, 3)).astype(dtype)
    with forced((level, path)):
        some, all_of_them = (convt.conv_transpose(x, w[:, :n], pads=[1, 1, 1, 1]) for n in (channels, w.shape[1]))
    assert_same_bits(some, all_of_them[:, :channels])


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tiles_of_every_width_are_reached(level, dtype):
    limits = tile_limits(level, dtype == "float64", 0)
    found = set()
    with forced((level, paths.CHANNELS)):
        for vectors in range(1, limits.columns + 1):
            # One tap a row: of several, tiles of two vectors load as little.
            layer = convt.ConvTranspose(np.ones((32, vectors * limits.lanes, 3, 1), dtype), pads=[1, 0, 1, 0])
            found.add(layer.explain((1, 32, 12, 12))["tiles"]["vectors"])
    assert found == set(range(1, limits.columns + 1))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "cells"),
    [
        *((kernel, 1, 1, 29) for kernel in (2, 3, 4, 5, 7)),  # runs of two and three taps
        *((3, 1, dilation, cells) for dilation in (2, 3, 4) for cells in (8 * dilation - 1, 8 * dilation, 61)),
        (5, 2, 6, 40),  # every phase has all taps, three places apart
        (4, 3, 2, 16),
        (2, 1, 5, 60),  # too far apart
    ],
)
def test_taps_of_a_row_that_share_inputs(level, dtype, threads, kernel, stride, dilation, cells):
    rng = np.random.default_rng(kernel)
    x, w = integer_data(rng, (2, 5, 3, cells)), integer_data(rng, (5, 21, 2, kernel))
    attributes = {"strides": [1, stride], "pads": [0, 1, 1, 0], "dilations": [1, dilation]}
    with forced((level, paths.CHANNELS)):
        y = convt.conv_transpose(x.astype(dtype), w.astype(dtype), n_threads=threads, **attributes)
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes))


@pytest.mark.parametrize(("way", "dtype"), ways_and_dtypes(paths.CHANNELS, paths.CHANNEL_TILES))
@pytest.mark.parametrize("layout", ["contiguous", "channels last"])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "strides", "pads", "group"),
    [
        ((2, 5, 4, 7), (5, 3, 32, 32), [16, 16], [0] * 4, 1),
        ((1, 6, 3, 19), (6, 2, 3, 48), [2, 32], [0, 16, 1, 9], 2),  # classes of half a row; rows end within a cell
        ((2, 3, 5), (3, 7, 64), [32], [0, 0], 1),
        ((1, 4, 3), (4, 2, 1200), [608], [32, 0], 1),  # more places than are put in order at once
        ((1, 2, 3, 4), (2, 2, 17, 32), [20, 48], [0] * 4, 1),  # places without a tap
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_along_the_places_of_a_cell(way, dtype, layout, x_shape, w_shape, strides, pads, group, threads):
    rng = np.random.default_rng(0)
    outputs = w_shape[1] * group
    x, w, b = (integer_data(rng, shape).astype(dtype) for shape in (x_shape, w_shape, outputs))
    attributes = {"strides": strides, "pads": pads, "group": group}
    expected = oracle(x, w, b, attributes, dtype)
    with forced(way):
        layer = convt.ConvTranspose(w, b, n_threads=threads, **attributes)
        report = layer.explain(x.shape)
        assert (report["kernel"], report["tiles"]["channels"]) == (way[1].name, 1)
        out = as_layout(np.full(expected.shape, 7, dtype), layout)
        layer(as_layout(x, layout), out=out)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "dilation"),
    [
        (
            (1, 1024, 4, 4),
            (1024, 520, 3, 2),
            1,
        ),  # boxes of one cell: rows of taps follow each other in their input
        ((1, 512, 3, 3), (512, 520, 3, 4), 1),
        ((2, 512, 4, 4), (512, 520, 2, 5), 1),
        ((1, 70, 9, 50), (70, 24, 3, 5), 1),
        ((1, 70, 9, 50), (70, 24, 3, 4), 2),
    ],
)
def test_sums_of_runs_do_not_depend_on_threads(level, x_shape, w_shape, dilation):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal(x_shape, np.float32), rng.standard_normal(w_shape, np.float32)
    attributes = {"pads": [1, 1, 1, 0], "dilations": [1, dilation]}
    results, boxes = [], set()
    with forced((level, paths.CHANNELS)):
        for threads in (1, 8, 16, 64):
            layer = convt.ConvTranspose(w, n_threads=threads, **attributes)
            results.append(layer(x))
            boxes.add(layer.explain(x.shape)["tiles"]["box"])
    assert len(boxes) > 1
    for y in results[1:]:
        np.testing.assert_array_equal(y, results[0])


@pytest.mark.parametrize("level", LEVELS)
def test_the_sign_of_a_zero_does_not_depend_on_threads(level):
    """Products that underflow add up to -0, or to 0 with zeros beyond the border, of which some are left out."""
    x, w = np.full((1, 3, 36), -1e-25, np.float32), np.full((3, 20, 5), 1e-25, np.float32)
    attributes = {"strides": [2], "pads": [2, 2], "dilations": [3]}
    with forced((level, paths.CHANNELS)):
        results = [
            convt.conv_transpose(x, w, np.full(20, -0.0, np.float32), n_threads=threads, **attributes)
            for threads in (1, 2, 3, 5, 8)
        ]
    assert not np.any(results)
    for y in results[1:]:
        np.testing.assert_array_equal(np.signbit(y), np.signbit(results[0]))

"""Outputs that pass the caches, that begin or end within vectors or cache lines, and strides that mean nothing."""

import sys

import numpy as np
import pytest
from cases import BFLOAT16, DTYPES, as_layout, assert_nothing_beside, integer_data, oracle
from ways import LEVELS, VECTOR_LEVELS, WORD_LEVELS, assert_same_bits, every_way, forced, positions_path

import convt
from convt import _box_table, paths
from convt._levels import stream_bytes
from convt.arrays import empty_aligned

pytestmark = pytest.mark.usefixtures("threads_for_any_work")


def within_a_pair_of_cache_lines(like, begin):
    """An array so many bytes behind a multiple of 128, and the memory on both sides of it, all of 99."""
    memory = empty_aligned((like.size + 64,), like.dtype)
    memory[...] = 99
    first = (begin - memory.ctypes.data) % 128 // memory.itemsize
    end = first + like.size
    return memory[first:end].reshape(like.shape), (memory[:first], memory[end:])


def large_case(dtype, x_shape, w_shape, strides, pads):
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    wanted = oracle(x, w, None, {"strides": strides, "pads": pads}, dtype)
    return x.astype(dtype), w.astype(dtype), wanted


@every_way
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "strides", "pads"),
    [
        ((1, 3, 288, 512), (3, 5, 2, 2), (2, 2), (0, 0, 0, 0)),  # rows of whole cache lines
        ((1, 2, 100, 1024), (2, 17, 3, 3), (1, 2), (1, 0, 0, 1)),  # long rows across them
        ((2, 1, 900, 300), (1, 3, 4, 4), (2, 2), (1, 1, 1, 1)),
        ((6, 2, 400, 64), (2, 2, 2, 2), (2, 2), (0, 0, 0, 0)),  # short rows of whole cache lines, of full vectors
        ((28, 1, 400, 24), (1, 2, 2, 2), (2, 2), (0, 0, 0, 0)),  # and not
        ((15, 1, 1000, 48), (1, 3, 3, 3), (1, 1), (1, 1, 1, 1)),
        ((1, 2, 700_001), (2, 2, 3), (1,), (1, 1)),
        ((1, 2, 700_000), (2, 2, 2), (2,), (0, 0)),  # one row in several boxes
        ((1, 2, 700_000), (2, 2, 4), (2,), (1, 1)),
        ((1, 4, 230, 1111), (4, 2, 1, 3), (1, 3), (0, 0, 0, 0)),  # three places
        ((1, 4, 300_001), (4, 2, 7), (6,), (1, 1)),  # six
        ((1, 3, 52, 130), (3, 40, 3, 3), (2, 2), (0, 0, 1, 1)),  # whole vectors of channels
        ((26, 2, 9, 104), (2, 24, 1, 2), (1, 2), (0, 0, 0, 0)),  # and channels of an odd number of cache lines
        ((130, 2, 4, 4), (2, 128, 2, 2), (2, 2), (0, 0, 0, 0)),  # of four lines of floats
        ((175, 2, 3, 4), (2, 128, 2, 2), (2, 2), (0, 0, 0, 0)),  # and of three
    ],
)
def test_large_outputs_whose_stores_pass_the_caches(way, dtype, x_shape, w_shape, strides, pads):
    x, w, wanted = large_case(dtype, x_shape, w_shape, strides, pads)
    if way[0] in VECTOR_LEVELS and dtype in (np.float32, np.float64):
        assert wanted.nbytes >= stream_bytes(way[0], False, x_shape[1]) or way[0] == "neon"
    with forced(way):
        y = convt.conv_transpose(x, w, n_threads=2, strides=strides, pads=pads)
    assert_same_bits(y, wanted)


@every_way
@pytest.mark.parametrize(
    ("dtype", "size", "kernel"),
    [(np.float32, 60, 2), (np.float64, 60, 2), (BFLOAT16, 96, 2), (BFLOAT16, 96, 3)],  # rows of whole cache lines
    ids=str,
)
@pytest.mark.parametrize("begin", [0, 8, 64])
def test_large_outputs_that_begin_within_a_pair_of_cache_lines(way, dtype, size, kernel, begin):
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (1, 3, size, size)), integer_data(rng, (3, 40, kernel, kernel))
    attributes = {"strides": (2, 2), "pads": [0, 0, kernel - 2, kernel - 2]}
    wanted = oracle(x, w, None, attributes, dtype)
    out, beside = within_a_pair_of_cache_lines(wanted, begin)
    with forced(way):
        convt.conv_transpose(x.astype(dtype), w.astype(dtype), out=out, **attributes)
    assert_same_bits(out, wanted)
    assert all((part == 99).all() for part in beside)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("begin", [0, 8, 64, 72])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((1, 3, 8, 16), (3, 20, 2, 2), {"strides": [2, 2]}),
        ((2, 3, 32, 32), (3, 40, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 3, 32, 100), (3, 150, 2, 2), {"strides": [2, 2]}),  # past the caches, rows of half cache lines
        ((1, 3, 128, 130), (3, 33, 3, 2), {"strides": [2, 1], "pads": [1, 1, 0, 2]}),
    ],
    ids=str,
)
@pytest.mark.parametrize("waits", [False, True])
def test_channels_whose_stores_meet_in_one_set(
    level, dtype, begin, x_shape, w_shape, attributes, waits, monkeypatch
):
    monkeypatch.setattr(_box_table, "sets_wait", lambda: waits)
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    wanted = oracle(x, w, None, attributes, dtype)
    out, beside = within_a_pair_of_cache_lines(wanted, begin)
    assert out.strides[1] % 1024 == 0
    with forced((level, paths.CHANNELS)):
        convt.conv_transpose(x.astype(dtype), w.astype(dtype), out=out, **attributes)
    assert_same_bits(out, wanted)
    assert all((part == 99).all() for part in beside)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "sliced"])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((2, 20, 59, 99), (20, 24, 2, 2), {"strides": [2, 2]}),
        ((2, 20, 7, 1101), (20, 24, 2, 2), {"strides": [2, 2]}),  # rows longer than what is written at once
        ((2, 20, 14_001), (20, 24, 2), {"strides": [2]}),
        ((2, 6, 61, 130), (6, 70, 3, 3), {"pads": [1, 1, 0, 2]}),
        ((1, 100, 51, 113), (100, 1, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1], "group": 100}),
        ((1, 100, 51, 113), (100, 1, 3, 3), {"strides": [2, 2], "pads": [1, 0, 1, 1], "group": 100}),  # odd rows
        ((2, 16, 5, 23, 51), (16, 24, 2, 2, 2), {"strides": [2, 2, 2], "pads": [0, 0, 0, 1, 1, 1]}),
    ],
    ids=str,
)
@pytest.mark.parametrize("least", [0, 1 << 40], ids=["past", "through"])
def test_large_rows_that_share_their_cache_lines(
    level, dtype, layout, x_shape, w_shape, attributes, least, monkeypatch
):
    monkeypatch.setattr(_box_table, "lines_stream_bytes", lambda row_bytes: least)
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    wanted = oracle(x, w, None, attributes, dtype)
    most = stream_bytes(level, False, x_shape[1])
    assert most == sys.maxsize or wanted.nbytes >= (1 << 23 if "group" in attributes else most)
    out = as_layout(np.full_like(wanted, 99), layout)
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), n_threads=2, **attributes)
        assert layer.explain(x.shape)["tiles"]["one pass"]
        layer(x.astype(dtype), out=out)
    np.testing.assert_array_equal(out, wanted)
    assert_nothing_beside(out)


@every_way
@pytest.mark.parametrize("dtype", [np.float32, np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("x_shape", [(64, 40, 8, 8), (64, 130, 4, 4), (64, 50, 7, 7), (1, 1, 300_001)], ids=str)
def test_rows_past_the_caches_that_end_within_a_vector(way, dtype, x_shape):
    _, channels, *size = x_shape
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, (channels, 1, *[3] * len(size)))
    attributes = {"strides": [2] * len(size), "pads": [1] * 2 * len(size), "group": channels}
    with forced(way):
        y = convt.conv_transpose(x.astype(dtype), w.astype(dtype), **attributes)
    assert_same_bits(y, oracle(x, w, None, attributes, dtype))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("places", ["channels", "places"])
def test_outputs_beside_each_other_in_a_tile_pass_the_caches(level, dtype, places):
    rng = np.random.default_rng(0)
    shapes = [(40, 8, 1, 1), (8, 2500, 8, 8)] if places == "channels" else [(1, 8, 40, 50), (8, 5, 32, 32)]
    attributes = {"strides": [16, 16]}
    x, w, b = (integer_data(rng, shape).astype(dtype) for shape in (*shapes, shapes[1][1]))
    with forced((level, paths.CHANNELS)):
        y = convt.ConvTranspose(w, b, **attributes)(x)
    np.testing.assert_array_equal(y, oracle(x, w, b, attributes, dtype))


@pytest.mark.parametrize("level", WORD_LEVELS)
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize("outputs", [7, 16])
def test_words_that_pass_the_caches(level, stride, outputs):
    """Rows of whole cache lines, of outputs that are many enough."""
    rng = np.random.default_rng(0)
    x_shape, w_shape = (3, 5, 260 // stride, 768 // stride), (5, outputs, stride, stride)
    x, w = (integer_data(rng, shape).astype(BFLOAT16) for shape in (x_shape, w_shape))
    wanted = oracle(x, w, None, {"strides": [stride] * 2}, BFLOAT16)
    out = empty_aligned(wanted.shape, BFLOAT16)
    with forced((level, paths.POSITION_WORDS)):
        layer = convt.ConvTranspose(w, strides=[stride] * 2)
        assert layer.explain(x_shape)["tiles"]["one pass"]
        layer(x, out=out)
    assert_same_bits(out, wanted)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("stride", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16], ids=str)
def test_shared_loads_that_pass_the_caches(level, stride, dtype):
    path = positions_path(level, dtype)
    rng = np.random.default_rng(0)
    kernel, pad = (2 * stride, stride // 2) if stride > 1 else (3, 1)
    x = integer_data(rng, (1, 24, 264 // stride, 768 // stride)).astype(dtype)
    w = integer_data(rng, (24, 1, kernel, kernel)).astype(dtype)
    attributes = {"strides": [stride] * 2, "pads": [pad] * 4, "group": 24}
    wanted = oracle(x, w, None, attributes, dtype)
    assert wanted.nbytes >= 1 << 23
    out = empty_aligned(wanted.shape, wanted.dtype)
    with forced((level, path)):
        layer = convt.ConvTranspose(w, **attributes)
        assert layer.explain(x.shape)["tiles"]["shared loads"]
        layer(x, out=out)
    assert_same_bits(out, wanted)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("places", [5, 7, 9, 10, 11, 12, 13, 14, 15, 17])
def test_any_number_of_places_is_interleaved(level, dtype, places):
    """Rows shorter than a vector, of whole ones, and of a cell more."""
    rng = np.random.default_rng(0)
    w = integer_data(rng, (2, 1, 1, places))
    for cells in (1, 7, 8, 9, 16, 17, 18, 33, 49):
        x = integer_data(rng, (1, 2, 3, cells))
        out = as_layout(np.zeros((1, 1, 3, cells * places), dtype), "sliced")
        with forced((level, paths.POSITIONS)):
            layer = convt.ConvTranspose(w.astype(dtype), strides=[1, places])
            assert layer.explain(x.shape)["kernel"] == paths.POSITIONS.name
            layer(x.astype(dtype), out=out)
        np.testing.assert_array_equal(out, oracle(x, w, None, {"strides": [1, places]}, dtype))
        assert_nothing_beside(out)


@every_way
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(("length", "step"), [(3073, 1), (3073, 3072), (600_001, 0), (600_001, 3072)])
def test_the_stride_of_an_axis_of_length_one_means_nothing(way, dtype, length, step):
    """It may be that of a part of a row."""
    x = np.arange(length).reshape(1, 1, length) % 7
    item = dtype.itemsize
    out = np.lib.stride_tricks.as_strided(np.full(length, 99, dtype), x.shape, (step * item, step * item, item))
    w = np.ones((1, 1, 3), dtype)
    with forced(way):
        convt.conv_transpose(x.astype(dtype), w, pads=[1, 1], n_threads=1, out=out)
    np.testing.assert_array_equal(out, oracle(x, w, None, {"pads": [1, 1]}, dtype))


@pytest.mark.parametrize("level", LEVELS)
def test_rows_of_one_output_whose_stride_means_nothing_share_loads(level):
    """Such an `out` is contiguous, and yet its last stride is no element's size."""
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (1, 4, 8, 1)).astype(np.float32), integer_data(rng, (4, 1, 3, 3)).astype(np.float32)
    attributes = {"pads": [1] * 4, "group": 4}
    out = np.full((1, 4, 8), 99, np.float32)[..., None]
    with forced((level, paths.POSITIONS)):
        convt.conv_transpose(x, w, out=out, **attributes)
    np.testing.assert_array_equal(out, oracle(x, w, None, attributes, np.float32))

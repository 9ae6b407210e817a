"""Rows along positions, most of them in one pass over their outputs: shared loads, strips, joined rows, words."""

import sys

import numpy as np
import pytest
from cases import BFLOAT16, DTYPES, as_layout, assert_nothing_beside, integer_data, oracle
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from ways import (
    LEVELS,
    VECTOR_LEVELS,
    WORD_LEVELS,
    assert_same_bits,
    before_unreadable,
    forced,
    in_pieces,
    positions_path,
    seeds,
)

import convt
from convt import one_pass, paths, tiling
from convt._levels import MANY_SUMS, stream_bytes, tile_limits
from convt.arrays import empty_aligned

pytestmark = pytest.mark.usefixtures("threads_for_any_work")

# Lanes along positions: floats and doubles, and words of two bfloat16 channels.
POSITION_WAYS = [
    *((level, paths.POSITIONS, dtype) for level in VECTOR_LEVELS for dtype in (np.float32, np.float64)),
    *((level, paths.POSITION_WORDS, BFLOAT16) for level in WORD_LEVELS),
]


@pytest.mark.parametrize("level", LEVELS)
@settings(max_examples=200, deadline=None)
@given(
    size=st.tuples(st.integers(1, 400))
    | st.tuples(st.integers(1, 40), st.integers(1, 70))
    | st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 36)),
    kernel=st.tuples(*[st.integers(1, 7)] * 3),
    group=st.integers(1, 4),
    outputs=st.integers(1, 5),
    strides=st.tuples(*[st.sampled_from([1, 2, 2, 3, 4, 8])] * 3),
    dilations=st.tuples(*[st.sampled_from([1, 1, 1, 2, 3])] * 3),
    pads=st.tuples(*[st.integers(0, 2)] * 6),
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(["contiguous", "sliced", "every second"]),
    has_nan=st.booleans(),
    seed=seeds,
    threads=st.sampled_from([1, 3]),
)
def test_rows_and_lines_share_the_loads_of_one_input_channel(
    level, size, kernel, group, outputs, strides, dilations, pads, dtype, layout, has_nan, seed, threads
):
    """A NaN reaches none but the outputs that have a tap on it, and nothing is written beside them."""
    n = len(size)
    rng = np.random.default_rng(seed)
    x, w = integer_data(rng, (2, group, *size)), integer_data(rng, (group, outputs, *kernel[:n]))
    x = x.astype(np.float64)
    if has_nan:
        x.reshape(-1)[rng.integers(0, x.size)] = np.nan
    attributes = {"strides": strides[:n], "dilations": dilations[:n], "pads": pads[: 2 * n], "group": group}
    try:
        wanted = oracle(x, w, None, attributes, dtype)
    except ValueError:
        reject()
    path = positions_path(level, dtype)
    out = as_layout(np.full_like(wanted, 99), layout)
    with forced((level, path)):
        convt.conv_transpose(x.astype(dtype), w.astype(dtype), out=out, n_threads=threads, **attributes)
    np.testing.assert_array_equal(out.astype(np.float64), wanted.astype(np.float64))
    assert_nothing_beside(out)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("layout", ["contiguous", "sliced", "every second"])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize(
    ("groups", "outputs", "size", "kernel", "stride"),
    [
        (512, 1, (16, 16), 4, 2),  # more to a task than are computed together
        (97, 1, (5, 16), 4, 2),
        (64, 2, (9, 7), 3, 1),
        (160, 1, (3,), 5, 2),
        (70, 1, (2, 3, 5), 3, 2),
        (66, 1, (3, 9), 1, 2),
    ],
)
def test_many_small_groups_are_computed_together(level, layout, dtype, groups, outputs, size, kernel, stride):
    """A task has several groups, the last one fewer; some rows of outputs are cropped at the end."""
    n = len(size)
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (2, groups, *size)), integer_data(rng, (groups, outputs, *[kernel] * n))
    b = integer_data(rng, (groups * outputs,))
    attributes = {"strides": [stride] * n, "pads": [kernel // 3] * n + [kernel // 2] * n, "group": groups}
    wanted = oracle(x, w, b, attributes, dtype)
    path = positions_path(level, dtype)
    with forced((level, path)):
        layer = convt.ConvTranspose(w.astype(dtype), b.astype(dtype), n_threads=1, **attributes)
        assert layer.explain(x.shape)["tiles"]["groups"] > 1
        out = as_layout(np.full_like(wanted, 99), layout)
        x = as_layout(x.astype(dtype), layout)
        for threads in (1, 2):
            out[...] = 99
            convt.conv_transpose(x, w.astype(dtype), b.astype(dtype), out=out, n_threads=threads, **attributes)
            np.testing.assert_array_equal(out.astype(np.float64), wanted.astype(np.float64))
        if layout == "contiguous":
            x = before_unreadable(x)
        np.testing.assert_array_equal(layer(x).astype(np.float64), wanted.astype(np.float64))
    assert_nothing_beside(out)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("kernel", "stride", "shared"), [(4, 2, True), (3, 1, True), (8, 4, True), (2, 2, False), (6, 2, False)]
)
def test_loads_are_shared_where_taps_or_lines_have_them_in_common(level, kernel, stride, shared):
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(
            np.ones((8, 1, kernel, kernel), np.float32),
            strides=[stride] * 2,
            pads=[(kernel - stride) // 2] * 4,
            group=8,
        )
        assert layer.explain((1, 8, 20, 20))["tiles"].get("shared loads", False) == shared


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@settings(max_examples=200, deadline=None)
@given(
    size=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 250))
    | st.tuples(st.integers(1, 2), st.integers(5, 40), st.integers(4, 70)),
    channels=st.integers(1, 12),
    outputs=st.integers(1, 40),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2)),
    pads=st.tuples(*[st.integers(0, 2)] * 6),
    more=st.tuples(*[st.sampled_from([0, 0, 1, 2])] * 3),
    dtype=st.sampled_from([np.float32, np.float64]),
    layout=st.sampled_from(["contiguous", "sliced", "every second"]),
    threads=st.sampled_from([1, 3]),
)
def test_rows_of_few_channels(level, size, channels, outputs, strides, pads, more, dtype, layout, threads):
    """Those of which all places, or neighbours, have the same taps are written in one pass; it must not show."""
    kernel = [stride + n for stride, n in zip(strides, more, strict=True)]
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (2, channels, *size)), integer_data(rng, (channels, outputs, *kernel))
    b = integer_data(rng, outputs)
    attributes = {"strides": strides, "pads": pads}
    try:
        wanted = oracle(x, w, b, attributes, dtype)
    except ValueError:
        reject()
    out = as_layout(np.full_like(wanted, np.nan), layout)
    with forced((level, paths.POSITIONS)):
        convt.conv_transpose(*(a.astype(dtype) for a in (x, w, b)), out=out, n_threads=threads, **attributes)
    np.testing.assert_array_equal(out, wanted)
    assert_nothing_beside(out)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("dtype", "channels", "one_pass"),
    [
        (np.float32, 4, True),
        (np.float32, 36, True),
        (np.float64, 4, True),
        (np.float16, 4, True),
        (BFLOAT16, 4, True),
        (np.float16, 36, False),  # 9 of a group
    ],
    ids=str,
)
@pytest.mark.parametrize(
    ("kernel", "outputs", "group"), [(2, 6, 1), (4, 4, 4)], ids=["kernel equals stride", "groups, two classes"]
)
def test_wide_rows_are_written_in_one_pass(level, kernel, outputs, group, dtype, channels, one_pass):
    w = np.ones((channels, outputs // group, kernel, kernel), dtype)
    pad = (kernel - 2) // 2
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w, strides=[2, 2], pads=[pad] * 4, group=group)
        report = layer.explain((1, channels, 9, 64))
    assert report["tiles"].get("one pass", False) == one_pass


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("layout", ["contiguous", "sliced"])
@pytest.mark.parametrize("size", [(7, 7), (9, 14), (2, 3, 5), (2, 2, 300)], ids=str)
@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "end"), [(4, 2, 1, 1), (3, 2, 1, 1), (3, 1, 1, 1), (4, 4, 0, 1), (8, 4, 4, 6)]
)
def test_short_and_odd_rows_are_written_in_one_pass(level, dtype, layout, size, kernel, stride, pad, end):
    rank = len(size)
    rng = np.random.default_rng(0)
    x, w, b = (integer_data(rng, shape) for shape in ((2, 6, *size), (6, 1, *[kernel] * rank), 6))
    attributes = {"strides": [stride] * rank, "pads": [pad] * rank + [end] * rank, "group": 6}
    wanted = oracle(x, w, b, attributes, dtype)
    out = as_layout(np.full_like(wanted, 99), layout)
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), b.astype(dtype), **attributes)
        assert layer.explain(x.shape)["tiles"]["one pass"]
        layer(x.astype(dtype), out=out)
    assert_same_bits(np.ascontiguousarray(out), wanted)
    assert_nothing_beside(out)


@pytest.mark.parametrize(("level", "path", "dtype"), POSITION_WAYS, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "sliced", "every second"])
@pytest.mark.parametrize("channels", [2, 40])
@pytest.mark.parametrize("size", [(3, 64), (2, 2, 112), (480,), (700, 16)], ids=str)
@pytest.mark.parametrize(("places", "end"), [(6, 0), (6, 4), (8, 0), (8, 3)])
def test_rows_of_many_places_are_written_in_one_pass(level, path, dtype, layout, channels, size, places, end):
    """Where registers are many and rows of cells fill their vectors."""
    rank = len(size)
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (2, channels, *size)), integer_data(rng, (channels, 3, *[1] * (rank - 1), places))
    attributes = {"strides": [1] * (rank - 1) + [places], "pads": [0] * (2 * rank - 1) + [end]}
    wanted = oracle(x, w, None, attributes, dtype)
    out = as_layout(np.full_like(wanted, 99), layout)
    with forced((level, path)):
        layer = convt.ConvTranspose(w.astype(dtype), n_threads=2, **attributes)
        written = layer.explain(x.shape)["tiles"].get("one pass", False)
        assert written == (tile_limits(level, dtype == np.float64, 0).rows >= 8)
        layer(as_layout(x.astype(dtype), layout), out=out)
    assert_same_bits(out, wanted)
    assert_nothing_beside(out)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "sliced", "negative steps"])
@pytest.mark.parametrize("channels", [24, 70, 150])
@pytest.mark.parametrize("size", [(7, 64), (3, 100), (2, 3, 80), (700,)], ids=str)
def test_cells_of_one_input_are_multiplied_in_strips(level, dtype, layout, channels, size):
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (2, channels, *size)), integer_data(rng, (channels, 11, *[2] * len(size)))
    attributes = {"strides": [2] * len(size)}
    wanted = oracle(x, w, None, attributes, dtype)
    out = as_layout(np.full_like(wanted, 99), layout)
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), **attributes)
        assert layer.explain(x.shape)["tiles"]["strip"]
        y = layer(as_layout(x.astype(dtype), layout), out=None if layout == "negative steps" else out)
    np.testing.assert_array_equal(y, wanted)
    assert_nothing_beside(out)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("size", [(8, 96), (3, 48), (2, 64), (5, 32)], ids=str)
def test_strips_of_whole_vectors_whose_last_cell_lacks_an_output(level, dtype, size):
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (1, 64, *size)), integer_data(rng, (64, 24, 2, 2))
    attributes = {"strides": [2, 2], "pads": [0, 0, 0, 1]}
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), **attributes)
        assert layer.explain(x.shape)["tiles"]["strip"]
        y = layer(x.astype(dtype))
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes, dtype))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("width", [14, 15, 28, 31, 47])
def test_short_rows_that_nearly_fill_their_vectors_are_multiplied_in_strips(level, dtype, width):
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (3, 40, 13, width)), integer_data(rng, (40, 24, 2, 2))
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), strides=[2, 2])
        y = layer(x.astype(dtype))
        assert "strip" in layer.explain(x.shape)["tiles"]
    np.testing.assert_array_equal(y, oracle(x, w, None, {"strides": [2, 2]}, dtype))


# By the elements of a vector, rows that end within one. (Of 2 only one saves enough.) The fourth are long, and the
# outputs of the last are whole vectors for kernels 2 and 4.
JOINED_WIDTHS = {2: [3, 3, 3, 105, 3], 4: [5, 9, 13, 105, 6], 8: [9, 19, 26, 105, 12], 16: [20, 26, 37, 105, 24]}


@pytest.mark.parametrize(("level", "path", "dtype"), POSITION_WAYS, ids=str)
@pytest.mark.parametrize("layouts", [("contiguous",) * 2, ("contiguous", "sliced"), ("sliced", "negative steps")])
@pytest.mark.parametrize(
    ("x_shape", "kernel", "crop"),
    [
        ((3, 20, 11), (2, 2), 1),
        # Outputs that pass the caches, with the longest rows; some of whole cache lines.
        ((1, 20, 115), (2, 2), 0),
        ((8, 20, 45), (2, 2), 0),
        ((2, 20, 3, 7), (2, 3, 2), 0),
        ((1, 40, 17), (5, 1), 0),  # two groups
        ((1, 40, 17), (1, 2), 1),
        ((1, 20, 40), (3, 4), 2),
        ((3, 20, 11), (3, 3), 0),
        ((1, 40, 17), (2, 3), 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("width", range(5))
def test_rows_that_are_joined(level, path, dtype, layouts, x_shape, kernel, crop, width, monkeypatch):
    """Long ones only if outputs pass the caches, of words only whole pairs of outputs, a vector or more."""
    monkeypatch.setattr(tiling, "SUMS_BYTES", 1 << 17)  # several boxes, but of the smallest cases
    widths = JOINED_WIDTHS[tile_limits(level, dtype == np.float64, 0).lanes]
    x, w, b, attributes, wanted = joined_case(dtype, (*x_shape, widths[width]), kernel, crop)
    joined = width != 3 or wanted.nbytes >= stream_bytes(level, wanted.itemsize == 2, x_shape[1])
    joined = joined and (kernel[-1] != 3 or three_in_one_pass(level, dtype))
    if path.words:
        pairs = wanted.shape[-1] % 2 == widths[width] * kernel[-1] % 2 == 0
        joined = joined and pairs and wanted.shape[-1] >= 32
    out = as_layout(np.full_like(wanted, 99), layouts[1])
    with forced((level, path)):
        layer = convt.ConvTranspose(w, b, n_threads=2, **attributes)
        assert ("joined rows" in layer.explain(x.shape)["tiles"]) == joined
        layer(as_layout(x, layouts[0]), out=out)
    np.testing.assert_array_equal(out, wanted)
    assert_nothing_beside(out)


@pytest.mark.parametrize(("level", "path", "dtype"), POSITION_WAYS, ids=str)
@pytest.mark.parametrize(("batch", "rows", "kernel"), [(4, 115, (2, 2)), (1, 9, (2, 2)), (1, 9, (3, 4))])
@pytest.mark.parametrize("offset", [1, 2, 8, 16])
def test_joined_rows_are_written_to_any_address(level, path, dtype, batch, rows, kernel, offset):
    """Of whole vectors, past the caches only where these are aligned."""
    width = 96 + tile_limits(level, dtype == np.float64, 0).lanes // 2  # a vector is left half filled
    x, w, b, attributes, wanted = joined_case(dtype, (batch, 20, rows, width), kernel, 0)
    least = stream_bytes(level, wanted.itemsize == 2, 20)
    assert least == sys.maxsize or (wanted.nbytes >= least) == (batch > 1)
    memory = empty_aligned((wanted.size + 64,), wanted.dtype)
    memory[:] = 99
    out = memory[offset : offset + wanted.size].reshape(wanted.shape)
    with forced((level, path)):
        layer = convt.ConvTranspose(w, b, n_threads=1, **attributes)
        assert layer.explain(x.shape)["tiles"]["joined rows"]
        layer(x, out=out)
    np.testing.assert_array_equal(out, wanted)
    assert (memory[:offset] == 99).all()
    assert (memory[offset + wanted.size :] == 99).all()


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "sliced", "every second"])
@pytest.mark.parametrize(
    ("channels", "outputs", "kernel"), [(2, 1, 2), (2, 24, 2), (8, 3, 2), (8, 2, 4), (16, 24, 2), (16, 3, 2)]
)
@pytest.mark.parametrize("rows", [6, 250])
def test_joined_rows_of_few_channels(level, dtype, layout, channels, outputs, kernel, rows):
    """They are read where they lie, or packed in boxes of rows."""
    width = 16 + tile_limits(level, dtype == np.float64, 0).lanes // 2
    rng = np.random.default_rng(0)
    x, w, b = (
        integer_data(rng, shape)
        for shape in ((3, channels, rows, width), (channels, outputs, kernel, kernel), outputs)
    )
    attributes = {"strides": [kernel] * 2}
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), b.astype(dtype), n_threads=2, **attributes)
        assert layer.explain(x.shape)["tiles"]["joined rows"]
        y = layer(as_layout(x.astype(dtype), layout))
    np.testing.assert_array_equal(y, oracle(x, w, b, attributes, dtype))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "sliced", "every second"])
@pytest.mark.parametrize(
    ("rows", "outputs", "kernel"),
    [(5, 6, 2), (40, 6, 2), (300, 20, 2), (9, 3, 4), (7, 5, 3), (9, 6, 1), (9, 2, 6)],
)
@pytest.mark.parametrize("vectors", [1, 5])
def test_rows_of_whole_vectors_are_joined_in_strips(level, dtype, layout, rows, outputs, kernel, vectors):
    """But where registers are few, or rows have one, three or more outputs a cell."""
    limits = tile_limits(level, dtype == np.float64, 0)
    rng = np.random.default_rng(0)
    x, w, b = (
        integer_data(rng, shape)
        for shape in ((2, 40, rows, vectors * limits.lanes), (40, outputs, 2, kernel), outputs)
    )
    attributes = {"strides": [2, kernel]}
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), b.astype(dtype), n_threads=2, **attributes)
        joined = limits.sums >= MANY_SUMS and kernel in (2, 4)
        assert ("joined rows" in layer.explain(x.shape)["tiles"]) == joined
        y = layer(as_layout(x.astype(dtype), layout))
    np.testing.assert_array_equal(y, oracle(x, w, b, attributes, dtype))


@pytest.mark.parametrize(("level", "path", "dtype"), POSITION_WAYS, ids=str)
@pytest.mark.parametrize(
    "layouts", [("contiguous",) * 2, ("every second", "sliced"), ("sliced", "contiguous")], ids=str
)
@pytest.mark.parametrize(
    ("rows", "kernel", "stride", "pads"),
    [
        ((23,), (3, 1), (2, 1), [0] * 4),  # the last cells lack an output
        ((4, 9), (3, 3, 1), (1, 2, 1), [1, 1, 0, 1, 0, 0]),
        ((5, 9), (3, 3, 1), (2, 1, 1), [0] * 6),  # the last planes lack one
        ((300,), (3, 2), (2, 2), [0] * 4),  # past the caches
        ((23,), (5, 1), (1, 1), [4, 0, 0, 0]),
    ],
    ids=str,
)
def test_rows_of_several_taps_none_of_which_lies_along_them_are_joined(
    level, path, dtype, layouts, rows, kernel, stride, pads, monkeypatch
):
    monkeypatch.setattr(tiling, "SUMS_BYTES", 1 << 17)  # several boxes
    width = {2: 3, 4: 9, 8: 26, 16: 38}[tile_limits(level, dtype == np.float64, 0).lanes]
    rng = np.random.default_rng(0)
    x, w, b = (integer_data(rng, shape) for shape in ((2, 40, *rows, width), (40, 24, *kernel), 24))
    attributes = {"strides": stride, "pads": pads}
    wanted = oracle(x, w, b, attributes, dtype)
    out = as_layout(np.full_like(wanted, 99), layouts[1])
    x, w, b = (a.astype(dtype) for a in (x, w, b))
    with forced((level, path)):
        layer = convt.ConvTranspose(w, b, n_threads=2, **attributes)
        assert layer.explain(x.shape)["tiles"]["joined rows"]
        layer(as_layout(x, layouts[0]), out=out)
    np.testing.assert_array_equal(out, wanted)
    assert_nothing_beside(out)


@pytest.mark.parametrize("level", [level for level in VECTOR_LEVELS if tile_limits(level, False, 0).lanes == 16])
@pytest.mark.parametrize(
    ("channels", "width", "joined"),
    [(24, 184, True), (24, 185, False), (256, 185, True), (24, 192, False), (256, 192, True)],
)
def test_long_rows_are_joined_for_enough_channels_or_if_their_outputs_are_whole_vectors(
    level, channels, width, joined
):
    """They end within a vector; of 192 cells they do not, but many channels are better read row by row."""
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(np.ones((channels, 64, 2, 2), np.float32), strides=[2, 2])
        assert ("joined rows" in layer.explain((1, channels, 8, width))["tiles"]) == joined


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize(
    ("dtype", "x_shape", "kernel", "attributes"),
    [
        # Halves that go through floats, rows of two classes, single rows.
        (np.float16, (1, 8, 64, 19), (3, 1), {"strides": [1, 1]}),
        (np.float32, (1, 24, 64, 19), (3, 1), {"strides": [1, 2], "output_padding": [0, 1]}),
        (np.float32, (64, 64, 1, 19), (2, 2), {"strides": [2, 2]}),
    ],
    ids=str,
)
def test_rows_that_cannot_be_joined(level, dtype, x_shape, kernel, attributes):
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, (x_shape[1], 24, *kernel))
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), **attributes)
        assert "joined rows" not in layer.explain(x.shape)["tiles"]
        y = layer(x.astype(dtype))
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes, dtype))


@pytest.mark.parametrize("level", WORD_LEVELS)
@pytest.mark.parametrize(("begin", "gap"), [(0, 0), (1, 0), (0, 1), (0, 2)])
def test_joined_rows_of_words_in_part_of_an_array(level, begin, gap):
    """They pass the caches, if all pairs of outputs lie where floats may, within cache lines or not."""
    x, w, b, attributes, wanted = joined_case(BFLOAT16, (1, 20, 115, 105), (2, 2), 0)
    channels, plane = wanted.shape[1], wanted[0, 0].size
    memory = np.full(begin + channels * (plane + gap) + 64, 99, BFLOAT16)
    beside = memory[begin : begin + channels * (plane + gap)].reshape(channels, plane + gap)
    out = beside[:, :plane].reshape(wanted.shape)
    assert np.shares_memory(out, memory) and out.nbytes >= stream_bytes(level, True, 20)
    with forced((level, paths.POSITION_WORDS)):
        layer = convt.ConvTranspose(w, b, **attributes)
        assert "joined rows" in layer.explain(x.shape)["tiles"]
        layer(x, out=out)
    assert_same_bits(out, wanted)
    assert (beside[:, plane:] == 99).all() and (memory[:begin] == 99).all() and (memory[-64:] == 99).all()


@pytest.mark.parametrize("level", WORD_LEVELS)
def test_long_rows_that_do_not_pass_the_caches_are_not_joined(level):
    """A channel's rows are too short for that, though all outputs are many."""
    with forced((level, paths.POSITION_WORDS)):
        layer = convt.ConvTranspose(np.ones((16, 24, 2, 2), BFLOAT16), strides=[2, 2])
        assert "joined rows" not in layer.explain((64, 16, 7, 66))["tiles"]
        assert "joined rows" in layer.explain((64, 16, 14, 66))["tiles"]


def three_in_one_pass(level, dtype):
    """Whether rows of three outputs a cell are written in one pass: if vectors, of sums, are cache lines."""
    return tile_limits(level, dtype == np.float64, 0).lanes * (8 if dtype == np.float64 else 4) == 64


def joined_case(dtype, x_shape, kernel, crop):
    """Kernel equals stride, in groups of 20 channels, without the last columns of outputs."""
    rng = np.random.default_rng(0)
    group, ends = x_shape[1] // 20, [0] * (2 * len(kernel) - 1)
    x, w, b = (integer_data(rng, shape) for shape in (x_shape, (x_shape[1], 24 // group, *kernel), 24))
    attributes = {"group": group, "strides": kernel, "pads": [*ends, crop]}
    return *(a.astype(dtype) for a in (x, w, b)), attributes, oracle(x, w, b, attributes, dtype)


@pytest.mark.parametrize(("level", "path", "dtype"), POSITION_WAYS, ids=str)
@pytest.mark.parametrize(
    ("x_shape", "kernel", "attributes"),
    [
        ((1, 21, 9, 96), (3, 3), {"pads": [1] * 4}),
        ((1, 42, 9, 96), (7, 3), {"pads": [3, 1, 3, 1], "group": 2}),
        ((2, 21, 16, 16), (5, 5), {"pads": [2] * 4}),
        ((1, 21, 11, 64), (7, 4), {"strides": [1, 2], "pads": [0, 1, 5, 1]}),
        ((1, 21, 7, 64), (4, 4), {"strides": [2, 2], "pads": [1] * 4}),
        ((1, 21, 9, 64), (8, 1), {"strides": [4, 1], "pads": [2, 0, 2, 0]}),
        ((2, 21, 9, 43), (5, 1), {"pads": [2, 0, 2, 0]}),  # joined
        ((1, 21, 9, 22), (3, 1), {"dilations": [4, 1], "pads": [4, 0, 4, 0]}),  # joined
        ((1, 21, 4, 3, 64), (3, 3, 3), {"pads": [1] * 6}),
        ((1, 21, 2, 3, 16), (5, 3, 3), {"pads": [2, 1, 1, 2, 1, 1], "strides": [2, 1, 1]}),
        ((1, 21, 2, 64), (2, 3), {"dilations": [7, 1], "pads": [0, 1, 0, 1]}),  # rows that read nothing
    ],
    ids=str,
)
def test_rows_at_the_border_leave_out_taps_beyond_it(level, path, dtype, x_shape, kernel, attributes):
    rng = np.random.default_rng(0)
    group = attributes.get("group", 1)
    x, w, b = (integer_data(rng, shape) for shape in (x_shape, (x_shape[1], 11, *kernel), 11 * group))
    with forced((level, path)):
        layer = convt.ConvTranspose(w.astype(dtype), b.astype(dtype), n_threads=2, **attributes)
        tiles = layer.explain(x.shape)["tiles"]
        limits = tile_limits(level, dtype == np.float64, 0)
        alone = x_shape[-1] >= limits.vectors_of(limits.rows) * limits.lanes and "joined rows" not in tiles
        assert tiles.get("taps left out", False) == (tiles.get("one pass", False) and (path.words or alone))
        y = layer(x.astype(dtype))
    np.testing.assert_array_equal(y, oracle(x, w, b, attributes, dtype))


@pytest.mark.parametrize(("level", "path", "dtype"), POSITION_WAYS, ids=str)
@pytest.mark.parametrize("size", [(16, 16), (17, 32), (9, 96), (5, 7, 64)], ids=str)
def test_zeros_at_the_border_have_one_sign_for_any_number_of_threads(level, path, dtype, size):
    """Products that underflow are -0 or, if a positive weight is multiplied by zeros beyond the border, 0."""
    tiny, rng = 1e-200 if dtype == np.float64 else 1e-30, np.random.default_rng(0)
    x = np.full((1, 24, *size), tiny).astype(dtype)
    w = tiny * rng.choice([-1, 1], (24, 8, *[5] * len(size)))
    w, pads = w.astype(dtype), [2] * (2 * len(size))
    with forced((level, path)):
        results = [convt.conv_transpose(x, w, pads=pads, n_threads=n) for n in (1, 2, 3, 5, 8)]
    for y in results[1:]:
        assert_same_bits(y, results[0])


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
def test_rows_of_four_outputs_a_cell_in_one_pass_or_not(level, dtype):
    """The last tiles of weights differ: 8 and 4 columns or, through sums, 6 and 6; with few registers 4 or 6."""
    rng = np.random.default_rng(0)
    w = integer_data(rng, (20, 11, 4))
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), strides=[4])
        for width, one_pass in ((64, True), (5, False)):
            x = integer_data(rng, (2, 20, width))
            y = layer(x.astype(dtype))
            assert layer.explain(x.shape)["tiles"].get("one pass", False) == one_pass
            np.testing.assert_array_equal(y, oracle(x, w, None, {"strides": [4]}))


@pytest.mark.parametrize(("level", "path", "dtype"), POSITION_WAYS, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "sliced", "negative steps"])
@pytest.mark.parametrize(
    ("x_shape", "outputs", "kernel"),
    [
        ((2, 8, 5, 31), 7, (3, 3)),
        ((2, 8, 9, 64), 5, (1, 3)),
        ((2, 20, 3, 4, 48), 3, (2, 2, 3)),
        ((3, 20, 112), 11, (3,)),
        ((1, 4, 200, 304), 24, (3, 3)),  # past the caches
    ],
    ids=str,
)
def test_rows_of_three_outputs_a_cell_in_one_pass(level, path, dtype, layout, x_shape, outputs, kernel):
    rng = np.random.default_rng(0)
    x, w, b = (integer_data(rng, shape) for shape in (x_shape, (x_shape[1], outputs, *kernel), outputs))
    attributes = {"strides": kernel, "pads": [0] * (2 * len(kernel) - 1) + [1]}
    wanted = oracle(x, w, b, attributes, dtype)
    out = empty_aligned(wanted.shape, wanted.dtype)
    out[...] = 99
    out = as_layout(out, layout)
    with forced((level, path)):
        layer = convt.ConvTranspose(*(a.astype(dtype) for a in (w, b)), n_threads=2, **attributes)
        assert layer.explain(x.shape)["tiles"].get("one pass", False) == three_in_one_pass(level, dtype)
        layer(x.astype(dtype), out=out)
    assert_same_bits(np.ascontiguousarray(out), wanted)
    if layout != "contiguous":
        assert_nothing_beside(out)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("level", "dtype"),
    [(level, dtype) for level in LEVELS for dtype in DTYPES if in_pieces(level, dtype)],
    ids=str,
)
@pytest.mark.parametrize("layout", ["contiguous", "sliced"])
@pytest.mark.parametrize(
    ("channels", "size", "outputs", "strides"),
    [
        (33, (5, 16), 9, (2, 2)),  # 16 positions a row, tiles partly empty
        (33, (3, 48), 40, (3, 2)),  # several blocks of channels
        (260, (3, 20), 70, (2, 2)),  # of twice the size
        (33, (1, 50), 5, (2, 2)),  # a row that ends within a tile
        (33, (9, 7), 5, (2, 2)),  # several rows in a vector
        (33, (200, 400), 4, (2, 2)),  # several boxes; floats past the caches
        (33, (13, 21), 70, (1, 1)),  # rows that follow each other
        (33, (9, 37), 5, (1, 4)),
        (33, (4, 32), 9, (4, 4)),
        (33, (5, 19), 3, (2, 8)),
        (33, (2, 3, 32), 17, (1, 2, 2)),
        (33, (24,), 20, (2,)),
        (33, (50,), 20, (2,)),
        (33, (24,), 1, (1,)),  # images that follow each other
        (33, (9000,), 2, (2,)),  # boxes of parts of a row
    ],
)
def test_position_tiles_write_outputs_in_one_pass(channels, size, outputs, strides, layout, level, dtype, threads):
    rng = np.random.default_rng(0)
    images = 1 if size[-1] > 40 else 2
    x, w = integer_data(rng, (images, channels, *size)), integer_data(rng, (channels, outputs, *strides))
    b = integer_data(rng, outputs)
    wanted = oracle(x, w, b, {"strides": strides}, dtype)
    out = empty_aligned(wanted.shape, wanted.dtype)  # as stores past the caches want it
    out[...] = np.nan
    out = as_layout(out, layout)
    with forced((level, paths.POSITION_TILES)):
        layer = convt.ConvTranspose(w.astype(dtype), b.astype(dtype), strides=strides, n_threads=threads)
        layer(x.astype(dtype), out=out)
        assert layer.explain(x.shape)["tiles"]["one pass"]
    assert_same_bits(out, wanted)
    if layout == "sliced":
        assert_nothing_beside(out)


@pytest.mark.parametrize("level", WORD_LEVELS)
# In one pass, if rows fill vectors, but not of every second output.
@pytest.mark.parametrize("layout", ["contiguous", "sliced", "every second"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("channels", [2, 7, 31, 40])
@pytest.mark.parametrize(
    ("size", "outputs", "kernel"),
    [
        ((9, 63), 10, 4),
        ((5, 31), 3, 4),
        ((4, 8), 8, 5),  # several rows in a vector
        ((3, 200), 1, 2),
        ((5, 45), 9, 3),
        ((2, 3, 33), 7, 2),
        ((600,), 12, 8),
    ],
    ids=str,
)
def test_words_of_two_channels(level, layout, stride, channels, size, outputs, kernel):
    rng = np.random.default_rng(0)
    w_shape = (channels, outputs, *[kernel] * len(size))
    x, w, b = integer_data(rng, (2, channels, *size)), integer_data(rng, w_shape), integer_data(rng, outputs)
    attributes = {"strides": [stride] * len(size)}
    x, w, b = (array.astype(BFLOAT16) for array in (x, w, b))
    wanted = oracle(x, w, b, attributes, BFLOAT16)
    out = as_layout(np.full_like(wanted, 99), layout)
    with forced((level, paths.POSITION_WORDS)):
        layer = convt.ConvTranspose(w, b, n_threads=2, **attributes)
        assert layer.explain(x.shape)["kernel"] == paths.POSITION_WORDS.name
        layer(as_layout(x, layout), out=out)
    assert_same_bits(out, wanted)
    assert_nothing_beside(out)


@pytest.mark.parametrize("level", WORD_LEVELS)
@pytest.mark.parametrize("layout", ["contiguous", "sliced"])
@pytest.mark.parametrize("channels", [3, 64])
@pytest.mark.parametrize("outputs", [1, 7, 8, 40])
@pytest.mark.parametrize(("size", "kernel"), [((5, 62), 3), ((3, 100), 1), ((700,), 5)], ids=str)
def test_words_of_one_place_that_fill_cache_lines(level, layout, channels, outputs, size, kernel, monkeypatch):
    """Those of large results."""
    found, find = [], one_pass.words_in_one_pass
    monkeypatch.setattr(one_pass, "words_in_one_pass", lambda rows: found.append(find(rows)) or found[-1])
    monkeypatch.setattr(one_pass, "LINES_BYTES", 0)
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (2, channels, *size)), integer_data(rng, (channels, outputs, *[kernel] * len(size)))
    x, w = x.astype(BFLOAT16), w.astype(BFLOAT16)
    wanted = oracle(x, w, None, {}, BFLOAT16)
    out = as_layout(np.full_like(wanted, 99), layout)
    with forced((level, paths.POSITION_WORDS)):
        convt.ConvTranspose(w, n_threads=2)(x, out=out)
    assert found[-1].whole_lines
    assert_same_bits(out, wanted)
    assert_nothing_beside(out)


@pytest.mark.parametrize("level", [level for level in LEVELS if tile_limits(level, False, 0).sums >= MANY_SUMS])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BFLOAT16], ids=str)
@pytest.mark.parametrize("outputs", [3, 5, 8, 13])
def test_eight_rows_of_each_of_two_classes(level, dtype, outputs):
    """Of many channels, the sums of the first class waiting in memory for those of the second."""
    path = positions_path(level, dtype)
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (2, 40, 9, 63)), integer_data(rng, (40, outputs, 4, 4))
    x, w, attributes = x.astype(dtype), w.astype(dtype), {"strides": [2, 2]}
    with forced((level, path)):
        layer = convt.ConvTranspose(w, n_threads=2, **attributes)
        if dtype != BFLOAT16 or path.words:
            assert layer.explain(x.shape)["tiles"]["one pass"]
        y = layer(x)
    assert_same_bits(y, oracle(x, w, None, attributes, dtype))

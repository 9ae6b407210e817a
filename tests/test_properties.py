"""Random configurations against the definition."""

import ctypes
import functools
import itertools
import math
import mmap
from contextlib import contextmanager

import numpy as np
import pytest
from cases import BFLOAT16, DTYPES, LAYOUTS, as_layout, configurations, error_bound, integer_data, oracle
from hypothesis import given, settings
from hypothesis import strategies as st

import convt
from convt import _box_compute, boxes, isa, paths, plan, tiling
from convt._levels import most_pieces, multiplies_words, stream_bytes, tile_limits
from convt.arrays import empty_aligned
from convt.geometry import Axis, Geometry
from convt.tiling import cut

# Every path of every level that this machine has; those of vectors are the same where there are pieces besides.
LEVELS = [level for level in isa.available() if level != "generic"]
VECTOR_LEVELS = [level for level in LEVELS if not most_pieces(level)]
WAYS = [
    ("generic", None),
    *(
        (level, path)
        for level in LEVELS
        for path in (paths.VECTOR_PATHS if level in VECTOR_LEVELS else paths.PIECE_PATHS)
        if not path.words or multiplies_words(level)
    ),
]
NAMES = [f"{level}: {path.name}" if path else level for level, path in WAYS]
every_way = pytest.mark.parametrize("way", WAYS, ids=NAMES)
seeds = st.integers(0, 2**32 - 1)


def in_pieces(level, dtype):
    """Whether the level multiplies elements in bfloat16 pieces."""
    return 0 < paths.pieces_of(np.dtype(dtype).name, "highest") <= most_pieces(level)


def dtype_of(way, dtype):
    """`dtype`, or bfloat16 where pieces of nothing else are multiplied."""
    level, path = way
    return BFLOAT16 if path and path.in_pieces and most_pieces(level) == 1 else dtype


def built(level):
    """Whether this build has the level; planning asks nothing of the processor."""
    try:
        return bool(tile_limits(level, False, 0))
    except ValueError:
        return False


@pytest.fixture(autouse=True, scope="module")
def threads_for_any_work():
    """Small cases must really run on as many threads as they ask for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "MACS_PER_THREAD", 1)
        yield


@contextmanager
def forced(way):
    """A level and, where it has several, a path; fixtures do not run once per example."""
    level, path = way
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CONVT_ISA", level)
        if path:
            patch.setattr(plan, "VECTOR_PATHS", () if path.in_pieces else (path,))
            patch.setattr(plan, "PIECE_PATHS", (path,) if path.in_pieces else ())
            patch.setattr(plan, "phase_rows_cycles", lambda geometry: math.inf)
        plan.make_plan.cache_clear()
        yield
    plan.make_plan.cache_clear()


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


def bits(array):
    return array.view(f"u{array.itemsize}")


@every_way
@settings(max_examples=300, deadline=None)
@given(
    config=configurations(),
    seed=seeds,
    dtype=st.sampled_from(DTYPES),
    layout=st.sampled_from(LAYOUTS),
    has_bias=st.booleans(),
    threads=st.sampled_from([1, 2, 5]),
)
def test_integer_data_is_exact_bit_for_bit(way, config, seed, dtype, layout, has_bias, threads):
    x_shape, w_shape, attributes = config
    dtype = dtype_of(way, dtype)
    if dtype == BFLOAT16:
        attributes["opset"] = 22
    rng = np.random.default_rng(seed)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    b = integer_data(rng, w_shape[1] * attributes["group"]) if has_bias else None
    wanted = oracle(x, w, b, attributes, dtype)
    with forced(way):
        y = convt.conv_transpose(
            as_layout(x.astype(dtype), layout),
            as_layout(w.astype(dtype), layout),
            b if b is None else b.astype(dtype),
            n_threads=threads,
            **attributes,
        )
    np.testing.assert_array_equal(bits(y), bits(wanted))


@every_way
@settings(max_examples=150, deadline=None)
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
    products = 6 if way[1] in paths.PIECE_PATHS and most_pieces(way[0]) > 1 else 1  # of the pieces of a float32
    assert (error <= error_bound(x, w, b, attributes, products)).all()


@every_way
@settings(max_examples=100, deadline=None)
@given(config=configurations(), seed=seeds, in_weights=st.booleans())
def test_inf_and_nan_reach_exactly_the_outputs_that_sum_them(way, config, seed, in_weights):
    x_shape, w_shape, attributes = config
    rng = np.random.default_rng(seed)
    x, w = integer_data(rng, x_shape).astype(np.float32), integer_data(rng, w_shape).astype(np.float32)
    for array in (x, w) if in_weights else (x,):
        if array.size:
            places = rng.integers(0, array.size, 3)
            array.reshape(-1)[places] = rng.choice([np.inf, -np.inf, np.nan], 3)
    with np.errstate(invalid="ignore"):
        wanted = oracle(x, w, None, attributes, np.float32)
    with forced(way):
        np.testing.assert_array_equal(convt.conv_transpose(x, w, **attributes), wanted)


@functools.lru_cache(maxsize=1)  # the definition takes most of the time, and every way comes in turn
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
        ((16, 1, 400, 24), (1, 2, 2, 2), (2, 2), (0, 0, 0, 0)),  # and not
        ((8, 1, 1000, 48), (1, 3, 3, 3), (1, 1), (1, 1, 1, 1)),
        ((1, 2, 700_001), (2, 2, 3), (1,), (1, 1)),
        ((1, 2, 700_000), (2, 2, 2), (2,), (0, 0)),  # one row in several boxes
        ((1, 2, 700_000), (2, 2, 4), (2,), (1, 1)),
        ((1, 4, 230, 1111), (4, 2, 1, 3), (1, 3), (0, 0, 0, 0)),  # three places
        ((1, 4, 300_001), (4, 2, 7), (6,), (1, 1)),  # six
        ((1, 3, 30, 130), (3, 40, 3, 3), (2, 2), (0, 0, 1, 1)),  # whole vectors of channels
        ((16, 2, 9, 104), (2, 24, 1, 2), (1, 2), (0, 0, 0, 0)),  # and channels of an odd number of cache lines
        ((64, 2, 4, 4), (2, 128, 2, 2), (2, 2), (0, 0, 0, 0)),  # of four lines of floats
        ((90, 2, 3, 4), (2, 128, 2, 2), (2, 2), (0, 0, 0, 0)),  # and of three
    ],
)
def test_large_outputs_whose_stores_pass_the_caches(way, dtype, x_shape, w_shape, strides, pads):
    x, w, wanted = large_case(dtype, x_shape, w_shape, strides, pads)
    with forced(way):
        y = convt.conv_transpose(x, w, n_threads=2, strides=strides, pads=pads)
    np.testing.assert_array_equal(bits(y), bits(wanted))


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
    memory = empty_aligned((wanted.size + 64,), wanted.dtype)
    memory[...] = 99
    first = (begin - memory.ctypes.data) % 128 // memory.itemsize
    out = memory[first : first + wanted.size].reshape(wanted.shape)
    with forced(way):
        convt.conv_transpose(x.astype(dtype), w.astype(dtype), out=out, **attributes)
    np.testing.assert_array_equal(bits(out), bits(wanted))
    assert (memory[:first] == 99).all() and (memory[first + wanted.size :] == 99).all()


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
        return
    path = paths.POSITION_WORDS if dtype == BFLOAT16 and multiplies_words(level) else paths.POSITIONS
    out = as_layout(np.full_like(wanted, 99), layout)
    with forced((level, path)):
        convt.conv_transpose(x.astype(dtype), w.astype(dtype), out=out, n_threads=threads, **attributes)
    np.testing.assert_array_equal(out.astype(np.float64), wanted.astype(np.float64))
    if out.base is not None:
        out[...] = 0
        assert not out.base.any()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("kernel", "stride", "shared"), [(4, 2, True), (3, 1, True), (8, 4, True), (2, 2, False), (6, 2, False)]
)
def test_loads_are_shared_where_taps_or_lines_have_them_in_common(level, kernel, stride, shared):
    with forced((level, None)):
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
        return
    out = as_layout(np.full_like(wanted, np.nan), layout)
    with forced((level, paths.POSITIONS)):
        convt.conv_transpose(*(a.astype(dtype) for a in (x, w, b)), out=out, n_threads=threads, **attributes)
    np.testing.assert_array_equal(out, wanted)
    if layout != "contiguous":
        out[...] = 0
        assert not out.base.any()  # nothing was written beside it


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
    np.testing.assert_array_equal(bits(np.ascontiguousarray(out)), bits(wanted))
    if layout == "sliced":
        out[...] = 0
        assert not out.base.any()  # nothing was written beside it


@every_way
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("outputs", [1, 20], ids=["one block of channels", "several"])
@pytest.mark.parametrize("sums", [tiling.SUMS_BYTES, 1 << 14], ids=["one box", "several boxes"])
def test_groups_that_share_tasks(monkeypatch, way, threads, outputs, sums):
    """There are fewer tasks than groups; a box of each has its own input, weights and outputs."""
    monkeypatch.setattr(tiling, "SUMS_BYTES", sums)
    groups = 210
    rng = np.random.default_rng(outputs)
    x, w = integer_data(rng, (1, 2 * groups, 9, 26)), integer_data(rng, (2 * groups, outputs, 3, 3))
    b = integer_data(rng, groups * outputs)
    attributes = {"strides": [2, 2], "pads": [1] * 4, "group": groups}
    with forced(way):
        y = convt.conv_transpose(*(a.astype(np.float32) for a in (x, w, b)), n_threads=threads, **attributes)
    np.testing.assert_array_equal(y, oracle(x, w, b, attributes))


@every_way
def test_groups_that_share_tasks_and_have_no_taps(way):
    x, w = np.ones((1, 70, 2, 9), np.float32), np.ones((70, 1, 1, 1), np.float32)
    b = np.arange(70, dtype=np.float32)
    with forced(way):
        y = convt.conv_transpose(x, w, b, group=70, strides=[3, 1], pads=[1, 0, 1, 0], n_threads=1)
    np.testing.assert_array_equal(y, np.broadcast_to(b[:, None, None], (1, 70, 2, 9)))


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
    if layout == "sliced":
        out[...] = 0
        assert not out.base.any()  # nothing was written beside it


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


# By the elements of a vector, rows that end within one, the last of them long. (Of 2 no third one saves enough.)
JOINED_WIDTHS = {2: [3, 5, 5, 105], 4: [5, 9, 13, 105], 8: [9, 20, 26, 105], 16: [20, 26, 40, 105]}


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
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
    ],
    ids=str,
)
@pytest.mark.parametrize("width", range(4))
def test_rows_that_are_joined(level, dtype, layouts, x_shape, kernel, crop, width, monkeypatch):
    """Long ones only if outputs pass the caches."""
    monkeypatch.setattr(tiling, "SUMS_BYTES", 1 << 17)  # several boxes, but of the smallest cases
    widths = JOINED_WIDTHS[tile_limits(level, dtype == np.float64, 0)[0]]
    x, w, b, attributes, wanted = joined_case(dtype, (*x_shape, widths[width]), kernel, crop)
    joined = width < 3 or wanted.nbytes >= stream_bytes(level)
    out = as_layout(np.full_like(wanted, 99), layouts[1])
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w, b, n_threads=2, **attributes)
        assert ("joined rows" in layer.explain(x.shape)["tiles"]) == joined
        layer(as_layout(x, layouts[0]), out=out)
    np.testing.assert_array_equal(out, wanted)
    if layouts[1] == "sliced":
        out[...] = 0
        assert not out.base.any()  # nothing was written beside it


@pytest.mark.parametrize("level", VECTOR_LEVELS)
def test_boxes_that_differ_are_dealt_out_in_parts(level):
    """Two boxes of 4 and 3 rows on two threads, with the bits of one."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 320, 7, 7, 5), dtype=np.float32)
    w = rng.standard_normal((320, 320, 2, 2, 2), dtype=np.float32)
    with forced((level, paths.CHANNELS)):
        one, two = (convt.ConvTranspose(w, strides=[2, 2, 2], n_threads=n) for n in (1, 2))
        assert two.explain(x.shape)["tiles"]["splits"] > 1
        np.testing.assert_array_equal(one(x), two(x))


@functools.lru_cache(maxsize=8)
def joined_case(dtype, x_shape, kernel, crop):
    """Kernel equals stride, in groups of 20 channels, without the last columns of outputs."""
    rng = np.random.default_rng(0)
    group, ends = x_shape[1] // 20, [0] * (2 * len(kernel) - 1)
    x, w, b = (integer_data(rng, shape) for shape in (x_shape, (x_shape[1], 24 // group, *kernel), 24))
    attributes = {"group": group, "strides": kernel, "pads": [*ends, crop]}
    return *(a.astype(dtype) for a in (x, w, b)), attributes, oracle(x, w, b, attributes, dtype)


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
def test_rows_past_the_caches_that_share_their_lines(level, dtype, layout, x_shape, w_shape, attributes):
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    wanted = oracle(x, w, None, attributes, dtype)
    assert wanted.nbytes >= (1 << 23 if "group" in attributes else stream_bytes(level))
    out = as_layout(np.full_like(wanted, 99), layout)
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), n_threads=2, **attributes)
        assert layer.explain(x.shape)["tiles"]["one pass"]
        layer(x.astype(dtype), out=out)
    np.testing.assert_array_equal(out, wanted)
    if layout == "sliced":
        out[...] = 0
        assert not out.base.any()  # nothing was written beside it


@every_way
@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)
@pytest.mark.parametrize("x_shape", [(1, 1, 3073), (2, 1, 3, 5)], ids=str)
def test_the_payload_of_a_nan_does_not_depend_on_its_place(way, dtype, x_shape):
    x = np.full(x_shape, {"float16": 0x7E15, "bfloat16": 0x7FD5}[dtype.name], np.uint16).view(dtype)
    with forced(way):
        y = convt.conv_transpose(x, np.ones((1, 1, *[1] * len(x_shape[2:])), dtype), n_threads=1)
    assert np.unique(bits(y)).size == 1


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
    np.testing.assert_array_equal(bits(y), bits(oracle(x, w, None, attributes, dtype)))


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
    np.testing.assert_array_equal(bits(y), bits(oracle(x, w, b, attributes, dtype)))


@every_way
@pytest.mark.parametrize("group", [0, 39, 70])
def test_an_infinite_weight_in_any_small_group_is_noticed(way, group):
    x, w = np.ones((1, 71, 4, 9), np.float32), np.ones((71, 1, 3, 3), np.float32)
    w[group, 0, 0, 2] = np.inf
    with forced(way):
        y = convt.conv_transpose(x, w, group=71)
    assert not np.isnan(y).any()
    assert np.argwhere(np.isinf(y).any((0, 2, 3))).item() == group


@pytest.mark.parametrize("size", [17, 25])
@pytest.mark.skipif(not built("amx"), reason="a build without tile registers")
def test_runs_fill_tiles(size):
    """Rows of a little more than half a tile are one run with the zeros between them."""
    geometry = Geometry(1, 1, 64, 64, (Axis(size, 3, 1, 1, 1, size),) * 2)
    found = boxes.Boxes.of(geometry, cut(geometry), "float32", "amx", paths.CHANNEL_TILES, 3)
    assert found.work.layout.runs == 1


@pytest.mark.skipif(not built("amx"), reason="a build without tile registers")
@pytest.mark.parametrize(("threads", "number", "whole"), [(1, 2, True), (7, 7, True), (12, 12, False)])
def test_boxes_of_one_axis_are_whole_tiles_where_that_leaves_enough(threads, number, whole):
    geometry = Geometry(1, 1, 512, 256, (Axis(400, 20, 10, 1, 5, 4000),))
    cells = cut(geometry)
    found = boxes.Boxes.of(geometry, cells, "float32", "amx", paths.CHANNEL_TILES, 3).for_threads(cells, threads)
    assert found.work.layout.boxes == number
    assert (found.work.layout.box[1] % 16 == 0) == whole


@pytest.mark.skipif(not built("avx512"), reason="a build without AVX-512")
def test_columns_first_holds_an_image_of_more_than_a_megabyte():
    geometry = Geometry(1, 1, 512, 512, (Axis(16, 3, 2, 1, 0, 33),) * 2)
    found = boxes.Boxes.of(geometry, cut(geometry), "float64", "avx512", paths.CHANNEL_COLUMNS, 0)
    assert found.work.layout.boxes == 1


def test_products_of_a_small_image_are_bounded():
    layer = convt.ConvTranspose(np.ones((64, 64, 27, 27), BFLOAT16), strides=[2, 2], n_threads=1)
    assert layer.explain((1, 64, 4, 4))["workspace_bytes"] <= 4 * 2**20


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16], ids=str)
@pytest.mark.parametrize(("outputs", "group"), [(9, 1), (2, 2)], ids=["several blocks of channels", "groups"])
def test_boxes_of_several_blocks_or_groups(level, dtype, outputs, group):
    path = paths.POSITION_TILE_COLUMNS if in_pieces(level, dtype) else paths.POSITION_COLUMNS
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (1, 17 * group, 190, 171)), integer_data(rng, (17 * group, outputs // group, 5, 5))
    attributes = {"strides": [2, 2], "pads": [1] * 4, "group": group}
    with forced((level, path)):
        layer = convt.ConvTranspose(w.astype(dtype), n_threads=1, **attributes)
        tiles = layer.explain(x.shape)["tiles"]
        assert tiles["boxes"] > 1
        assert ("chain" in tiles) == (group > 1)  # kept products must be of all channels of a group
        y = layer(x.astype(dtype))
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes, dtype))


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
    np.testing.assert_array_equal(bits(out), bits(wanted))
    if layout == "sliced":
        out[...] = 0
        assert not out.base.any()  # nothing was written beside it


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("x_shape", "w_shape"),
    [
        ((2, 17, 60_000), (17, 1, 9)),
        ((1, 17, 190, 71), (17, 1, 9, 9)),
        ((2, 17, 12, 40, 41), (17, 2, 3, 3, 3)),
        ((2, 17, 61, 12, 13), (17, 2, 3, 3, 3)),  # several rows of cells a box on the first spatial axis
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16], ids=str)
@pytest.mark.parametrize(("threads", "dilation"), [(1, 1), (2, 1), (1, 3)])
def test_boxes_that_keep_products_of_the_one_before(level, x_shape, w_shape, dtype, threads, dilation):
    path = paths.POSITION_TILE_COLUMNS if in_pieces(level, dtype) else paths.POSITION_COLUMNS
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    axes = len(x_shape) - 2
    attributes = {"strides": [2] * axes, "pads": [1] * 2 * axes, "dilations": [dilation] * axes}
    with forced((level, path)):
        layer = convt.ConvTranspose(w.astype(dtype), n_threads=threads, **attributes)
        assert layer.explain(x_shape)["tiles"]["chain"] > 1
        y = layer(x.astype(dtype))
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes, dtype))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BFLOAT16], ids=str)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "strides", "group"),
    [
        ((2, 9, 600), (9, 40, 120), (2,), 1),
        ((1, 35, 30, 23), (35, 40, 5, 3), (2, 2), 1),
        ((2, 33, 60, 9), (33, 17, 9, 1), (4, 1), 1),
        ((1, 17, 22, 5, 6), (17, 20, 3, 3, 3), (2, 1, 2), 1),
        ((1, 34, 64, 21), (34, 20, 4, 4), (2, 2), 2),
    ],
)
@pytest.mark.parametrize(("threads", "dilation", "pad"), [(1, 1, 1), (2, 1, 0), (1, 3, 2)])
def test_boxes_that_keep_input_of_the_one_before(
    monkeypatch, level, dtype, x_shape, w_shape, strides, group, threads, dilation, pad
):
    monkeypatch.setattr(tiling, "SUMS_BYTES", 1 << 14)
    path = paths.CHANNEL_TILES if in_pieces(level, dtype) else paths.CHANNELS
    rng = np.random.default_rng(0)
    x, w, b = (integer_data(rng, shape) for shape in (x_shape, w_shape, w_shape[1] * group))
    axes = len(strides)
    attributes = {"strides": strides, "group": group, "pads": [pad] * 2 * axes}
    attributes["dilations"] = [dilation] + [1] * (axes - 1)
    with forced((level, path)):
        layer = convt.ConvTranspose(w.astype(dtype), b.astype(dtype), n_threads=threads, **attributes)
        assert layer.explain(x_shape)["tiles"]["chain"] > 1
        y = layer(x.astype(dtype))
    np.testing.assert_array_equal(y, oracle(x, w, b, attributes, dtype))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", [paths.CHANNELS, paths.CHANNEL_IMAGES], ids=lambda path: path.name)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16], ids=str)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "stride", "group"),
    [
        ((1, 700, 3, 4), (700, 20, 7, 9), 1, 1),
        ((9, 1401, 6), (1401, 33, 13), 1, 1),  # the last slice is shorter
        ((2, 2 * 1024, 2, 2), (2 * 1024, 16, 5, 7), 2, 2),  # whole vectors
        ((1, 1100, 9), (1100, 1, 512), 64, 1),  # places that follow each other
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_slices_of_many_input_channels(level, path, dtype, x_shape, w_shape, stride, group, threads):
    rng = np.random.default_rng(0)
    x, w, b = (integer_data(rng, shape) for shape in (x_shape, w_shape, w_shape[1] * group))
    axes = len(x_shape) - 2
    attributes = {"strides": [stride] * axes, "pads": [2] * 2 * axes, "group": group}
    with forced((level, path)):
        layer = convt.ConvTranspose(w.astype(dtype), b.astype(dtype), n_threads=threads, **attributes)
        assert layer.explain(x_shape)["tiles"]["slice"] < x_shape[1] // group
        y = layer(x.astype(dtype))
    np.testing.assert_array_equal(y, oracle(x, w, b, attributes, dtype))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", [paths.CHANNELS, paths.CHANNEL_TILES], ids=lambda path: path.name)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
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
def test_sums_along_the_places_of_a_cell(
    level, path, dtype, layout, x_shape, w_shape, strides, pads, group, threads
):
    rng = np.random.default_rng(0)
    outputs = w_shape[1] * group
    x, w, b = (integer_data(rng, shape).astype(dtype) for shape in (x_shape, w_shape, outputs))
    attributes = {"strides": strides, "pads": pads, "group": group}
    expected = oracle(x, w, b, attributes, dtype)
    with forced((level, path)):
        layer = convt.ConvTranspose(w, b, n_threads=threads, **attributes)
        report = layer.explain(x.shape)
        if report["kernel"] == path.name:
            assert report["tiles"]["channels"] == 1
        out = as_layout(np.full(expected.shape, 7, dtype), layout)
        layer(as_layout(x, layout), out=out)
    np.testing.assert_array_equal(out, expected)


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


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=str)
def test_slices_do_not_depend_on_threads(level, dtype):
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in ((1, 1030, 12, 9), (1030, 40, 7, 7)))
    with forced((level, paths.CHANNELS)):
        one, three = (convt.ConvTranspose(w, strides=[2, 2], n_threads=n) for n in (1, 3))
        assert one.explain(x.shape)["tiles"]["slice"]
        y = one(x)
        np.testing.assert_array_equal(bits(three(x)), bits(y))
        np.testing.assert_array_equal(bits(convt.conv_transpose(x, w, strides=[2, 2], n_threads=3)), bits(y))


def before_unreadable(array):
    """A copy whose last byte is the last one that may be read."""
    size = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    memory = np.frombuffer(mmap.mmap(-1, size + mmap.PAGESIZE), np.uint8)
    assert not ctypes.CDLL(None).mprotect(ctypes.c_void_p(memory.ctypes.data + size), mmap.PAGESIZE, 0)
    copy = memory[size - array.nbytes : size].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((1, 40, 3999), (40, 1, 16), {"strides": [8]}),
        ((3, 12, 530), (12, 2, 9), {"strides": [2], "pads": [3, 1], "group": 2}),
        ((5, 24, 129), (24, 1, 3), {"strides": [2]}),
        ((5, 24, 50), (24, 1, 3), {"strides": [2]}),  # too short: tiles would reach beyond
        ((2, 300, 5001), (300, 1, 20), {"strides": [10], "pads": [40, 3], "dilations": [3]}),
    ],
)
def test_long_rows_are_multiplied_where_they_lie(level, dtype, threads, x_shape, w_shape, attributes):
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    with forced((level, paths.POSITION_COLUMNS)):
        layer = convt.ConvTranspose(w.astype(dtype), n_threads=threads, **attributes)
        assert layer.explain(x_shape)["kernel"] == paths.POSITION_COLUMNS.name
        y = layer(before_unreadable(x.astype(dtype)))
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes, dtype))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((2, 40, 12, 20), (40, 1, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((1, 40, 30, 31), (40, 2, 4, 4), {"strides": [2, 2], "pads": [1, 0, 1, 2]}),
        ((1, 64, 40, 150), (64, 1, 3, 3), {"pads": [4, 4, 4, 4], "dilations": [4, 4]}),  # boxes share products
        ((1, 48, 11, 40), (48, 1, 5, 3), {"pads": [6, 0, 6, 1], "strides": [2, 3], "output_padding": [1, 0]}),
        ((1, 80, 9, 50), (80, 2, 3, 3), {"group": 2}),
        ((3, 40, 15, 13), (40, 3, 2, 2), {"strides": [2, 2]}),  # images are rows
        ((2, 40, 6, 12, 16), (40, 1, 2, 2, 2), {"strides": [2, 2, 2]}),
        ((1, 40, 6, 12, 16), (40, 1, 3, 3, 3), {"pads": [1] * 6}),
        ((2, 40, 3, 9, 8), (40, 1, 3, 1, 1), {}),  # planes too small, images not
        ((1, 40, 4, 7), (40, 1, 3, 3), {}),  # too small
    ],
    ids=str,
)
def test_planes_and_images_are_multiplied_where_they_lie(level, dtype, threads, x_shape, w_shape, attributes):
    """With the bits that packed ones give, as those of an array whose rows do not follow each other are."""
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    with forced((level, paths.POSITION_COLUMNS)):
        layer = convt.ConvTranspose(w.astype(dtype), n_threads=threads, **attributes)
        y = layer(before_unreadable(x.astype(dtype)))
        np.testing.assert_array_equal(y, oracle(x, w, None, attributes, dtype))
        layer = convt.ConvTranspose(rng.standard_normal(w_shape).astype(dtype), n_threads=threads, **attributes)
        x = rng.standard_normal(x_shape).astype(dtype)
        for layout in ("every second", "sliced"):
            np.testing.assert_array_equal(bits(layer(x)), bits(layer(as_layout(x, layout))))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "layout", "in_place"),
    [
        ((1, 64, 40, 30), (64, 1, 3, 3), "contiguous", True),
        ((1, 64, 40, 30), (64, 1, 3, 3), "every second", False),
        ((1, 64, 5, 16, 17), (64, 1, 2, 2, 2), "contiguous", True),
        ((1, 16, 40, 30), (16, 3, 3, 3), "contiguous", False),  # more columns than channels
        ((1, 16, 900), (16, 1, 25), "contiguous", True),
        ((1, 64, 5, 3), (64, 1, 3, 3), "contiguous", False),  # too small
    ],
    ids=str,
)
def test_x_is_copied_or_not(level, x_shape, w_shape, layout, in_place, monkeypatch):
    taken = []

    class Workspaces:
        def take(self, size):
            taken.append(np.zeros(size, np.uint8))
            return taken[-1]

    monkeypatch.setattr(_box_compute, "WORKSPACES", Workspaces())
    x = as_layout(np.full(x_shape, 5, np.float32), layout)
    with forced((level, paths.POSITION_COLUMNS)):
        convt.conv_transpose(x, np.full(w_shape, 2, np.float32), n_threads=1)
    (scratch,) = taken
    copied = (scratch[: scratch.size // 4 * 4].view(np.float32) == 5).any()
    assert copied != in_place


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("kernel", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 25])
def test_chunks_of_rows_are_multiplied_where_they_lie(level, kernel):
    """From the shortest row that is, over every number of whole vectors, and a place fewer or more."""
    rng = np.random.default_rng(0)
    w = integer_data(rng, (20, 1, kernel)).astype(np.float32)
    for vectors in (8, 9, 12, 14, 16, 18, 24):
        for more in (-1, 0, 1):
            x = integer_data(rng, (1, 20, 16 * vectors + more)).astype(np.float32)
            with forced((level, paths.POSITION_COLUMNS)):
                y = convt.conv_transpose(before_unreadable(x), w, strides=[2])
            np.testing.assert_array_equal(y, oracle(x, w, None, {"strides": [2]}))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("length", [200, 400, 600, 850, 1250])
def test_one_row_for_every_channel_is_not_read_beyond(level, length):
    x = integer_data(np.random.default_rng(0), (1, 1, length)).astype(np.float32)
    w = np.ones((32, 1, 16), np.float32)
    with forced((level, paths.POSITION_COLUMNS)):
        y = convt.conv_transpose(np.broadcast_to(before_unreadable(x), (1, 32, length)), w, strides=[8])
    np.testing.assert_array_equal(y, oracle(np.broadcast_to(x, (1, 32, length)), w, None, {"strides": [8]}))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", ["unreadable behind", "turned", "contiguous", "every second", "sliced"])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "strides", "group"),
    [
        ((1, 24, 150, 61), (24, 1, 2, 2), [2, 2], 1),
        ((1, 20, 9, 40), (20, 3, 1, 1), [1, 1], 1),  # one box
        ((3, 40, 1, 7), (40, 2, 1, 3), [1, 3], 1),  # rows shorter than a vector
        ((2, 6, 100, 50), (6, 2, 2, 2), [2, 2], 2),
        ((5, 30, 700), (30, 2, 4), [4], 1),
        ((1, 30, 5), (30, 1, 2), [2], 1),
        ((2, 17, 5, 12, 33), (17, 1, 2, 2, 2), [2, 2, 2], 1),
    ],
)
def test_cells_are_multiplied_where_they_lie(level, dtype, layout, x_shape, w_shape, strides, group):
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    attributes = {"strides": strides, "group": group}
    given = x.astype(dtype)
    if layout == "unreadable behind":
        given = before_unreadable(given)
    elif layout == "turned":
        given = before_unreadable(given[::-1, ::-1])[::-1, ::-1]
    else:
        given = as_layout(given, layout)
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), n_threads=1, **attributes)
        y = layer(given)
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes, dtype))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "box_bytes"),
    [
        ((70, 33, 5, 3), (33, 40, 3, 4), 1 << 20),  # boxes of whole images, the last of fewer
        ((40, 33, 9, 7), (33, 20, 5, 3), 1 << 16),  # of rows of images
        ((20, 17, 40), (17, 3, 7), 1 << 14),
        ((70, 17, 4, 5, 3), (17, 9, 3, 2, 4), 1 << 18),
    ],
)
def test_runs_of_images_in_several_boxes(monkeypatch, level, x_shape, w_shape, box_bytes, dtype, threads):
    path = paths.CHANNEL_TILE_IMAGES if in_pieces(level, dtype) else paths.CHANNEL_IMAGES
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    axes = len(x_shape) - 2
    attributes = {"strides": [2] * axes, "pads": [1] * 2 * axes}
    monkeypatch.setattr(boxes, "IMAGES_BYTES", box_bytes)
    with forced((level, path)):
        layer = convt.ConvTranspose(w.astype(dtype), n_threads=threads, **attributes)
        report = layer.explain(x_shape)
        assert report["kernel"] == path.name and report["tiles"]["boxes"] > 2
        y = layer(x.astype(dtype))
    np.testing.assert_array_equal(bits(y), bits(oracle(x, w, None, attributes, dtype)))


@every_way
@settings(max_examples=60, deadline=None)
@given(config=configurations(), seed=seeds, dtype=st.sampled_from(DTYPES))
def test_same_bits_for_any_number_of_threads(way, config, seed, dtype):
    x_shape, w_shape, attributes = config
    dtype = dtype_of(way, dtype)
    if dtype == BFLOAT16:
        attributes["opset"] = 22
    rng = np.random.default_rng(seed)
    x_shape = (x_shape[0], x_shape[1], *(7 * n for n in x_shape[2:]))  # enough work for several threads
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    with forced(way):
        one, two, five = (convt.conv_transpose(x, w, n_threads=n, **attributes) for n in (1, 2, 5))
    np.testing.assert_array_equal(bits(one), bits(two))
    np.testing.assert_array_equal(bits(one), bits(five))


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
    np.testing.assert_array_equal(bits(y), bits(oracle(x, w, b, attributes, dtype)))


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
    np.testing.assert_array_equal(bits(y), bits(oracle(x, w, None, attributes, dtype)))


@every_way
@pytest.mark.parametrize("channel", [0, 40, 99])
def test_an_infinite_weight_among_neighbouring_columns_is_noticed(way, channel):
    rng = np.random.default_rng(channel)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 100, 5), (100, 1, 256)))
    w[channel, 0, 255] = np.inf
    with forced(way):
        y = convt.conv_transpose(x, w, strides=[128])
    assert (~np.isfinite(y)).sum() == 5  # not where it meets the zeros around


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
    np.testing.assert_array_equal(bits(one), bits(three))


# Columns first along channels, in every dtype that tile registers or vectors have there.
COLUMN_WAYS = [
    pytest.param((level, path), dtype, id=f"{level}: {path.name}-{dtype}")
    for level, path in WAYS
    if path in (paths.CHANNEL_COLUMNS, paths.CHANNEL_TILE_COLUMNS)
    for dtype in DTYPES
    if not path.in_pieces or in_pieces(level, dtype)
]


@pytest.mark.parametrize("kernel", [2, 3, 4, 5, 8, 9, 17, 33])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("way", [way for way in WAYS if way[1] in (paths.CHANNELS, paths.CHANNEL_TILES)], ids=str)
def test_packing_reads_nothing_behind_the_weights(way, dtype, kernel):
    rng = np.random.default_rng(kernel)
    x, w = integer_data(rng, (1, 35, 40)), integer_data(rng, (35, 32, kernel))
    with forced(way):
        y = convt.conv_transpose(x.astype(dtype), before_unreadable(w.astype(dtype)))
    np.testing.assert_array_equal(bits(y), bits(oracle(x, w, None, {}, dtype)))


def assert_panels_give_the_bits_of_a_layer(way, dtype, threads, x_shape, w_shape, attributes):
    rng = np.random.default_rng(len(w_shape))
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    b = rng.standard_normal(w_shape[1] * attributes.get("group", 1)).astype(dtype)
    with forced(way), counted_panels() as panels:
        layer = convt.ConvTranspose(w, b, n_threads=threads, **attributes)(x)
        assert not panels
        once = convt.conv_transpose(x, before_unreadable(w), b, n_threads=threads, **attributes)
    assert panels
    np.testing.assert_array_equal(bits(once), bits(layer))


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
    [
        (way, dtype)
        for way in WAYS
        for dtype in DTYPES
        if way[1] == paths.CHANNEL_TILES and in_pieces(way[0], dtype)
    ],
    ids=lambda value: value[1].name if isinstance(value, tuple) else str(value),
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
    np.testing.assert_array_equal(bits(once), bits(layer))


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
    np.testing.assert_array_equal(bits(once), bits(layer))


BLOCK_WAYS = [
    pytest.param((level, path), dtype, id=f"{level}: {path.name}-{dtype}")
    for level, path in WAYS
    if path in (paths.CHANNELS, paths.CHANNEL_IMAGES, paths.CHANNEL_TILES, paths.CHANNEL_TILE_IMAGES)
    for dtype in DTYPES
    if not path.in_pieces or in_pieces(level, dtype)
]


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
    np.testing.assert_array_equal(bits(once), bits(layer))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("channels", [4, 64, 1024, 2048, 4096, 20_000])
@pytest.mark.parametrize("sizes", [(1, 1), (4, 4), (8, 8), (16, 16)])
def test_scratch_of_one_call_is_bounded(level, dtype, channels, sizes):
    axes = tuple(Axis(n, 4, 2, 1, 1, 2 * n) for n in sizes)
    chosen = plan.make_plan(Geometry(1, 1, channels, 64, axes), dtype.name, level, 1, once=True)
    assert chosen.workspace <= 4 << 20


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize(
    ("channels", "outputs", "kernel", "stride", "size"),
    [(64, 32, 64, 64, 1), (64, 64, 32, 32, 1), (768, 32, 64, 32, 7), (1, 100, 16, 1, 5)],
)
def test_scratch_is_bounded_for_cells_of_many_places(level, dtype, channels, outputs, kernel, stride, size):
    """Tile registers write sums of whole tiles: up to 15 positions more, of thousands of columns."""
    axes = (Axis(size, kernel, stride, 1, 0, (size - 1) * stride + kernel),) * 2
    for threads, once in itertools.product((1, 3), (False, True)):
        chosen = plan.make_plan(Geometry(1, 1, channels, outputs, axes), dtype.name, level, threads, once=once)
        assert chosen.workspace <= 4 << 20


def test_scratch_of_panels_is_bounded():
    """Packed weights fit the scratch here, panels of them do not."""
    axes = (Axis(2, 8, 8, 1, 0, 16), Axis(2, 20, 100, 1, 0, 120))
    for once in (False, True):
        assert (
            plan.make_plan(Geometry(1, 1, 4096, 32, axes), "bfloat16", LEVELS[-1], 1, once=once).workspace
            <= 4 << 20
        )


@pytest.mark.skipif("avx2" not in LEVELS, reason="needs vectors")
def test_a_long_kernel_takes_a_vectorised_path():
    geometry = Geometry(1, 1, 4, 1, (Axis(20_000, 300_000, 16, 1, 0, 619_984),))
    assert plan.make_plan(geometry, "float32", "avx2", 1).path != "phase rows"


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_scratch_of_one_call_is_bounded_for_a_large_kernel(level, dtype):
    axes = (Axis(2, 120_000, 4096, 1, 0, 124_096),)
    chosen = plan.make_plan(Geometry(1, 1, 1000, 1, axes), dtype.name, level, 1, once=True)
    assert chosen.workspace <= 4 << 20


@every_way
@settings(max_examples=100, deadline=None)
@given(config=configurations(), seed=seeds)
def test_adjoint_identity(way, config, seed):
    """<conv(y), x> = <y, conv_transpose(x)>, where conv gathers what conv_transpose scatters."""
    x_shape, w_shape, attributes = config
    rng = np.random.default_rng(seed)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    with forced(way):
        transposed = convt.conv_transpose(x.astype(np.float64), w.astype(np.float64), **attributes)
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
        np.testing.assert_array_equal(bits(y), bits(convt.conv_transpose(x, w, **attributes)))
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
        return
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


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("path", [path for path in paths.VECTOR_PATHS if path.along_channels])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("channels", [17, 24, 48, 64, 75, 112])  # whole tiles and rests
@pytest.mark.parametrize("taps", [1, 3])  # of a row
def test_wide_tiles(level, path, dtype, channels, taps):
    rng = np.random.default_rng(channels)
    x, w = integer_data(rng, (9, 6, 3, 5)), integer_data(rng, (6, channels, 3, taps))
    attributes = {"strides": [2, 1], "pads": [1, taps // 2, 1, taps // 2]}
    with forced((level, path)):
        y = convt.conv_transpose(x.astype(dtype), w.astype(dtype), **attributes)
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes))


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


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tiles_of_every_width_are_reached(level, dtype):
    limits = tile_limits(level, dtype == "float64", 0)
    found = set()
    with forced((level, paths.CHANNELS)):
        for vectors in range(2, limits.columns + 1):
            # One tap a row: of several, tiles of two vectors load as little.
            layer = convt.ConvTranspose(np.ones((32, vectors * limits.lanes, 3, 1), dtype), pads=[1, 0, 1, 0])
            found.add(layer.explain((1, 32, 12, 12))["tiles"]["vectors"])
    assert found == set(range(2, limits.columns + 1))


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
def test_the_sign_of_a_zero_does_not_depend_on_threads(level, monkeypatch):
    """Products that underflow add up to -0, or to 0 with zeros beyond the border, of which some are left out."""
    monkeypatch.setattr(plan, "MACS_PER_THREAD", 1)
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


@every_way
def test_every_path_is_reached(way):
    level, path = way
    kernel = 3 if path and path.image_runs else 2  # runs of images want taps to leave out, position tiles one tap
    with forced(way):
        weights = np.ones((4, 6, kernel, kernel), dtype_of(way, np.float32))
        report = convt.ConvTranspose(weights, strides=[2, 2]).explain((1, 4, 9, 9))
    assert (report["isa"], report["kernel"]) == (level, path.name if path else "phase rows")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("path", "x_shape", "w_shape", "group", "pad"),
    [
        (paths.CHANNELS, (1, 64, 33, 33), (64, 64, 4, 4), 1, 0),
        (paths.CHANNEL_COLUMNS, (4, 512, 4, 4), (512, 64, 4, 4), 1, 0),
        (paths.CHANNEL_IMAGES, (64, 256, 2, 2), (256, 64, 4, 4), 1, 1),
        (paths.POSITIONS, (1, 32, 64, 64), (32, 1, 4, 4), 32, 0),
        (paths.POSITION_COLUMNS, (1, 256, 64, 64), (256, 2, 5, 5), 1, 0),
    ],
)
def test_every_path_is_chosen_for_what_it_is_good_at(level, path, x_shape, w_shape, group, pad):
    dtype = np.float32 if in_pieces(level, np.float32) or not most_pieces(level) else BFLOAT16
    if path == paths.POSITIONS:
        path = paths.POSITION_WORDS if multiplies_words(level) else path
    elif most_pieces(level):
        path = next(p for p in paths.PIECE_PATHS if p[1:3] == path[1:3] and p.image_runs == path.image_runs)
    with forced((level, None)):
        layer = convt.ConvTranspose(np.ones(w_shape, dtype), strides=[2, 2], pads=[pad] * 4, group=group)
        assert layer.explain(x_shape)["kernel"] == path.name


WORD_LEVELS = [level for level in LEVELS if multiplies_words(level)]


@pytest.mark.parametrize("level", WORD_LEVELS)
def test_words_are_chosen_for_rows_that_fill_vectors(level):
    with forced((level, None)):
        layer = convt.ConvTranspose(np.ones((16, 16, 3, 3), BFLOAT16), strides=[2, 2])
        assert layer.explain((1, 16, 64, 64))["kernel"] == paths.POSITION_WORDS.name


@pytest.mark.parametrize("level", WORD_LEVELS)
# In one pass, if rows fill vectors, but not of every second output.
@pytest.mark.parametrize("layout", ["contiguous", "sliced", "every second"])
@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("channels", [2, 7, 31, 40])
@pytest.mark.parametrize(
    ("size", "outputs", "kernel"),
    [
        ((9, 63), 10, 4),
        ((5, 31), 3, 4),
        ((4, 8), 8, 5),  # several rows in a vector
        ((3, 200), 1, 2),
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
    np.testing.assert_array_equal(bits(out), bits(wanted))
    if out.base is not None:
        out[...] = 0
        assert not out.base.any()  # nothing was written beside it


@pytest.mark.parametrize("level", WORD_LEVELS)
@pytest.mark.parametrize("stride", [1, 2, 4])
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
    np.testing.assert_array_equal(bits(out), bits(wanted))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("stride", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16], ids=str)
def test_shared_loads_that_pass_the_caches(level, stride, dtype):
    path = paths.POSITION_WORDS if dtype == BFLOAT16 and multiplies_words(level) else paths.POSITIONS
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
    np.testing.assert_array_equal(bits(out), bits(wanted))


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


@pytest.mark.parametrize("level", [level for level in LEVELS if tile_limits(level, False, 0).sums >= 24])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BFLOAT16], ids=str)
@pytest.mark.parametrize("outputs", [3, 5, 8, 13])
def test_eight_rows_of_each_of_two_classes(level, dtype, outputs):
    """Of many channels, the sums of the first class waiting in memory for those of the second."""
    path = paths.POSITION_WORDS if dtype == BFLOAT16 and multiplies_words(level) else paths.POSITIONS
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, (2, 40, 9, 63)), integer_data(rng, (40, outputs, 4, 4))
    x, w, attributes = x.astype(dtype), w.astype(dtype), {"strides": [2, 2]}
    with forced((level, path)):
        layer = convt.ConvTranspose(w, n_threads=2, **attributes)
        if dtype != BFLOAT16 or path.words:
            assert layer.explain(x.shape)["tiles"]["one pass"]
        y = layer(x)
    np.testing.assert_array_equal(bits(y), bits(oracle(x, w, None, attributes, dtype)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [1, 3])
def test_columns_are_not_first_where_they_would_round_more_often(level, channels):
    with forced((level, None)):
        layer = convt.ConvTranspose(np.ones((channels, 1, 9, 9), np.float32), strides=[2, 2])
        assert "columns first" not in layer.explain((1, channels, 64, 64))["kernel"]

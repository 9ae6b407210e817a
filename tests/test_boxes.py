"""Boxes: their sizes, what they keep of the one before, slices, runs of images, groups, and bounds of scratch."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from cases import BFLOAT16, DTYPES, integer_data, oracle
from hypothesis import given
from hypothesis import strategies as st
from ways import LEVELS, TILE_REGISTER_LEVELS, VECTOR_LEVELS, assert_same_bits, built, every_way, forced, in_pieces

import convt
from convt import boxes, isa, paths, planner, tiling
from convt._box_table import BoxTable
from convt._levels import tile_limits
from convt.cost import vectors_time
from convt.geometry import Axis, Geometry
from convt.tiling import cut

pytestmark = pytest.mark.usefixtures("threads_for_any_work")


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


@pytest.mark.parametrize(
    ("path", "vectors", "positions"), [("CHANNELS", 2, 3), ("CHANNELS", 1, 6), ("GROUPS", 1, 8)]
)
@pytest.mark.parametrize("level", LEVELS)
def test_short_runs_take_as_long_as_the_positions_under_way_at_once(level, path, vectors, positions):
    limits = tile_limits(level, False, 0)._replace(waiting=3)
    tile = boxes.positions_of_tile(getattr(paths, path), vectors, limits)
    assert tile.cost(1) == tile.cost(positions) < tile.cost(positions + 1)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("two_cycles", [True, False])
def test_a_vector_alone_takes_as_long_as_one_of_two_where_products_take_two_cycles(level, two_cycles):
    limits = tile_limits(level, False, 0)._replace(two_cycles=two_cycles)
    assert (2 * vectors_time(limits.lanes, 1, limits) == vectors_time(2 * limits.lanes, 2, limits)) == two_cycles


def test_tables_have_room_for_so_many_tiles_of_a_block():
    geometry = Geometry(1, 1, 16, 2048, (Axis(40, 2, 2, 1, 0, 80),))
    work = boxes.Boxes.of(geometry, cut(geometry), "float32", isa.available()[-1], paths.POSITIONS, 0).work
    with pytest.raises(ValueError, match=r"^work: expected at most 64 tiles .* got 512"):
        BoxTable(replace(work, block=2048))


@given(
    axis=st.builds(
        Axis,
        input=st.integers(1, 12),
        kernel=st.integers(1, 7),
        stride=st.integers(1, 5),
        dilation=st.integers(1, 3),
        pad=st.integers(0, 9),
        output=st.integers(1, 30),
    )
)
def test_classes_do_not_depend_on_more_than_a_kernels_reach(axis):
    assert tiling.axis_classes(tiling.without_size(axis)) == tiling.axis_classes(axis)


@pytest.mark.skipif(not built("avx512"), reason="a build without AVX-512")
def test_columns_first_holds_an_image_of_more_than_a_megabyte():
    geometry = Geometry(1, 1, 512, 512, (Axis(16, 3, 2, 1, 0, 33),) * 2)
    found = boxes.Boxes.of(geometry, cut(geometry), "float64", "avx512", paths.CHANNEL_COLUMNS, 0)
    assert found.work.layout.boxes == 1


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


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16], ids=str)
@pytest.mark.parametrize(("outputs", "group"), [(12, 1), (2, 2)], ids=["several blocks of channels", "groups"])
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


@pytest.mark.parametrize("level", TILE_REGISTER_LEVELS)
@pytest.mark.parametrize("path", [paths.CHANNEL_TILES, paths.CHANNEL_TILE_IMAGES], ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "dtype"),
    [
        ((1, 700, 4, 12), (700, 40, 4, 4), np.float32),
        ((3, 2 * 1100, 5), (2 * 1100, 20, 3), np.float32),  # of two groups
        ((2, 1030, 4, 4), (1030, 16, 4, 4), np.float16),
    ],
)
@pytest.mark.parametrize("threads", [1, 3])
def test_slices_in_tile_registers(level, path, x_shape, w_shape, dtype, threads):
    rng = np.random.default_rng(0)
    group, axes = x_shape[1] // 1100 or 1, len(x_shape) - 2
    x, w, b = (integer_data(rng, shape) for shape in (x_shape, w_shape, w_shape[1] * group))
    attributes = {"strides": [1] * axes, "pads": [1] * 2 * axes, "group": group}
    with forced((level, path)):
        layer = convt.ConvTranspose(w.astype(dtype), b.astype(dtype), n_threads=threads, **attributes)
        assert layer.explain(x_shape)["tiles"]["slice"] < x_shape[1] // group
        y = layer(x.astype(dtype))
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
        assert_same_bits(three(x), y)
        assert_same_bits(convt.conv_transpose(x, w, strides=[2, 2], n_threads=3), y)


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
    assert_same_bits(y, oracle(x, w, None, attributes, dtype))


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


def test_products_of_a_small_image_are_bounded():
    layer = convt.ConvTranspose(np.ones((64, 64, 27, 27), BFLOAT16), strides=[2, 2], n_threads=1)
    assert layer.explain((1, 64, 4, 4))["workspace_bytes"] <= 4 * 2**20


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
@pytest.mark.parametrize("channels", [4, 64, 1024, 2048, 4096, 20_000])
@pytest.mark.parametrize("sizes", [(1, 1), (4, 4), (8, 8), (16, 16)])
def test_scratch_of_one_call_is_bounded(level, dtype, channels, sizes):
    axes = tuple(Axis(n, 4, 2, 1, 1, 2 * n) for n in sizes)
    chosen = planner.make_plan(planner.Call(Geometry(1, 1, channels, 64, axes), dtype.name, level, 1, once=True))
    assert chosen.workspace <= 4 << 20


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: dtype.name)
def test_scratch_of_one_call_is_bounded_for_a_large_kernel(level, dtype):
    axes = (Axis(2, 120_000, 4096, 1, 0, 124_096),)
    chosen = planner.make_plan(planner.Call(Geometry(1, 1, 1000, 1, axes), dtype.name, level, 1, once=True))
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
        call = planner.Call(Geometry(1, 1, channels, outputs, axes), dtype.name, level, threads, once=once)
        chosen = planner.make_plan(call)
        assert chosen.workspace <= 4 << 20


def test_scratch_of_panels_is_bounded():
    """Packed weights fit the scratch here, panels of them do not."""
    axes = (Axis(2, 8, 8, 1, 0, 16), Axis(2, 20, 100, 1, 0, 120))
    for once in (False, True):
        call = planner.Call(Geometry(1, 1, 4096, 32, axes), "bfloat16", LEVELS[-1], 1, once=once)
        assert planner.make_plan(call).workspace <= 4 << 20

"""Rows of outputs in tile registers, one after the other, whose cells read several inputs each."""

import numpy as np
import pytest
from cases import LAYOUTS, as_layout, integers, oracle
from ways import (
    TILE_REGISTER_LEVELS,
    assert_same_bits,
    built,
    check_bits_stay,
    forced,
    ways_in_tile_registers,
)

import convt
from convt._levels import ROW_PLACES
from convt.boxes import Boxes
from convt.geometry import Axis, Geometry
from convt.paths import CHANNEL_TILE_ROWS, CHANNEL_TILES, POSITION_TILES
from convt.shared_loads import taps_of_pair
from convt.tiling import cut

pytestmark = pytest.mark.usefixtures("threads_for_any_work")

each_way = pytest.mark.parametrize(("way", "dtype"), ways_in_tile_registers(CHANNEL_TILE_ROWS))
SMALL = (2, 20, 9, 35), (20, 24, 3, 3), {"strides": [2, 2], "pads": [1, 1, 0, 0]}

SHAPES = {
    "stride 1": ((1, 5, 12, 50), (5, 21, 3, 3), {"pads": [1] * 4}),
    "more than 32 channels": ((1, 40, 7, 33), (40, 70, 3, 3), {"pads": [1] * 4}),
    "stride 2": SMALL,
    "taps of one class only": ((1, 33, 6, 20), (33, 20, 3, 1), {"strides": [2, 2]}),
    "classes without taps": ((1, 33, 6, 20), (33, 20, 3, 3), {"strides": [2, 4]}),
    "stride 3": ((1, 33, 6, 40), (33, 40, 5, 5), {"strides": [2, 3], "pads": [2] * 4}),
    "stride 5": ((2, 12, 90), (12, 20, 11), {"strides": [5], "pads": [3, 3]}),
    "stride 7": ((1, 40, 3, 21), (40, 5, 3, 9), {"strides": [1, 7], "pads": [1] * 4}),
    "rows of less than a tile": ((1, 40, 7, 11), (40, 24, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
    "rows of two tiles in part": ((1, 40, 7, 25), (40, 24, 4, 4), {"strides": [2, 2], "pads": [1] * 4}),
    "many rows of a cell": ((1, 20, 2, 18), (20, 4, 65, 2), {"strides": [64, 1]}),
    "stride 4": ((2, 8, 17, 19), (8, 17, 8, 8), {"strides": [4, 4], "pads": [2] * 4}),
    "stride 8": ((1, 16, 5, 70), (16, 20, 2, 16), {"strides": [1, 8], "pads": [0, 4, 1, 5]}),
    "rows that end within cells": ((1, 9, 8, 30), (9, 16, 7, 7), {"strides": [4, 4], "pads": [2, 3, 3, 2]}),
    "1-D": ((3, 30, 500), (30, 12, 16), {"strides": [8], "pads": [4, 4]}),
    "3-D": ((1, 8, 5, 6, 33), (8, 18, 3, 3, 3), {"strides": [2, 2, 2], "pads": [1] * 6}),
    "groups": ((2, 36, 9, 40), (36, 18, 4, 4), {"strides": [2, 2], "pads": [1] * 4, "group": 3}),
    "dilated": ((1, 12, 20, 40), (12, 32, 3, 5), {"strides": [1, 2], "dilations": [2, 3], "pads": [2] * 4}),
    "several boxes": ((1, 64, 40, 300), (64, 16, 3, 3), {"strides": [2, 2], "pads": [1] * 4}),
    "rows in several boxes": ((1, 40, 9000), (40, 16, 3), {"pads": [1, 1]}),
    "long rows and columns": ((1, 64, 17, 1000), (64, 16, 7, 1), {"pads": [3, 0, 3, 0]}),
}


@each_way
def test_rows_are_cut_where_boxes_would_share_most_of_them(way, dtype):
    with forced(way):
        layer = convt.ConvTranspose(np.ones((64, 16, 7, 1), dtype), pads=[3, 0, 3, 0])
        _, rows, cells = layer.explain((1, 64, 17, 1000))["tiles"]["box"]
    assert rows >= 6
    assert cells % 32 == 0


@each_way
@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_integers_are_exact(way, dtype, x_shape, w_shape, attributes, threads):
    b_shape = (w_shape[1] * attributes.get("group", 1),)
    x, w, b = integers(dtype, x_shape, w_shape, b_shape)
    with forced(way):
        layer = convt.ConvTranspose(w, b, n_threads=threads, **attributes)
        assert layer.explain(x.shape)["kernel"] == CHANNEL_TILE_ROWS.name
        y = layer(x)
    np.testing.assert_array_equal(y, oracle(x, w, b, attributes).astype(dtype))


@pytest.mark.parametrize("level", TILE_REGISTER_LEVELS)
@pytest.mark.parametrize(
    ("precision", "channels", "slice"),
    [
        ("highest", 70, 0),
        ("high", 70, 0),
        ("medium", 70, 0),
        ("highest", 700, 128),
        ("high", 1030, 192),
        ("medium", 2060, 352),
    ],
)
def test_sums_are_those_of_channel_tiles(level, precision, channels, slice):
    """Which multiply many channels in slices."""
    rng = np.random.default_rng(2)
    shapes = (1, channels, 5, 90), (channels, 20, 3, 3)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in shapes)
    results = []
    for path in (CHANNEL_TILE_ROWS, CHANNEL_TILES):
        with forced((level, path)):
            layer = convt.ConvTranspose(w, strides=[2, 2], precision=precision)
            plan = layer.explain(x.shape)
            assert plan["kernel"] == path.name
            assert plan["tiles"].get("slice", 0) == (slice if path == CHANNEL_TILES else 0)
            results.append(layer(x))
    assert_same_bits(*results)


@each_way
def test_threads_do_not_change_bits(way, dtype):
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in ((1, 70, 30, 90), (70, 20, 3, 3)))
    with forced(way):
        one, three = (convt.ConvTranspose(w, n_threads=n, strides=[2, 2])(x) for n in (1, 3))
    assert_same_bits(one, three)


@each_way
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(way, dtype, layout):
    x_shape, w_shape, attributes = SMALL
    x, w = (as_layout(array, layout) for array in integers(dtype, x_shape, w_shape))
    wanted = oracle(x, w, None, attributes).astype(dtype)
    out = as_layout(np.zeros_like(wanted), "contiguous" if layout == "read-only" else layout)
    with forced(way):
        y = convt.ConvTranspose(w, **attributes)(x, out=out)
    assert y is out
    np.testing.assert_array_equal(y, wanted)


@each_way
def test_what_a_call_leaves_behind_meets_nothing_of_the_next(way, dtype):
    """Tiles of the last cells read beyond the packed input."""
    x_shape, w_shape, attributes = SMALL
    x, w = integers(dtype, x_shape, w_shape)
    layer = convt.ConvTranspose(w, **attributes)
    check_bits_stay(way, layer, x)


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    {
        "the same": ([(0,), (-1,)], [(0,), (-1,)], [((0,), 3), ((-1,), 3)]),
        "one more": ([(0,)], [(1,), (0,)], [((1,), 2), ((0,), 3)]),
        "nothing in common": ([(1,)], [(0,)], [((1,), 1), ((0,), 2)]),
        "one without taps": ([], [(0,)], [((0,), 2)]),
        "in turn": ([(2,), (0,)], [(1,), (0,), (-1,)], [((2,), 1), ((1,), 2), ((0,), 3), ((-1,), 2)]),
    }.values(),
)
def test_taps_of_a_pair(first, second, wanted):
    assert taps_of_pair(first, second) == wanted


@pytest.mark.skipif(not built("amx"), reason="a build without tile registers")
@pytest.mark.parametrize(("path", "possible"), [(CHANNEL_TILE_ROWS, True), (POSITION_TILES, False)])
@pytest.mark.parametrize("stride", [1, 3, ROW_PLACES, ROW_PLACES + 1])
def test_rows_of_cells_have_few_places_and_several_taps(path, possible, stride):
    geometry = Geometry(1, 1, 32, 32, (Axis(9, stride + 1, stride, 1, 0, 9 * stride + 1),))
    possible = possible and stride <= ROW_PLACES
    assert bool(Boxes.of(geometry, cut(geometry), "bfloat16", "amx", path, 1)) == possible


@pytest.mark.skipif(not built("amx"), reason="a build without tile registers")
@pytest.mark.parametrize(("cells", "height"), [(5, 5), (16, 16), (17, 9), (24, 12), (32, 16), (33, 16), (300, 16)])
def test_rows_that_two_tiles_hold_are_cut_into_even_ones(cells, height):
    geometry = Geometry(1, 1, 32, 32, (Axis(cells, 4, 2, 1, 1, 2 * cells),))
    boxes = Boxes.of(geometry, cut(geometry), "bfloat16", "amx", CHANNEL_TILE_ROWS, 1)
    assert boxes.work.tile_height == height

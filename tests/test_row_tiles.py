"""Rows of outputs in tile registers, lanes along positions, whose cells read several inputs each."""

import numpy as np
import pytest
from cases import LAYOUTS, as_layout, integers, oracle
from ways import assert_same_bits, built, check_bits_stay, forced, ways_in_tile_registers

import convt
from convt._levels import MAX_OUTER
from convt.boxes import Boxes
from convt.geometry import Axis, Geometry
from convt.paths import POSITION_TILES
from convt.shared_loads import taps_of_pair
from convt.tiling import cut

pytestmark = pytest.mark.usefixtures("threads_for_any_work")

each_way = pytest.mark.parametrize(("way", "dtype"), ways_in_tile_registers(POSITION_TILES))
SMALL = (2, 20, 9, 35), (20, 24, 3, 3), {"strides": [2, 2], "pads": [1, 1, 0, 0]}

SHAPES = {
    "stride 1": ((1, 5, 12, 50), (5, 21, 3, 3), {"pads": [1] * 4}),
    "more than 32 channels": ((1, 40, 7, 33), (40, 70, 3, 3), {"pads": [1] * 4}),
    "stride 2": SMALL,
    "taps of one class only": ((1, 33, 6, 20), (33, 20, 3, 1), {"strides": [2, 2]}),
    "classes without taps": ((1, 33, 6, 20), (33, 20, 3, 3), {"strides": [2, 4]}),
    "stride 4": ((2, 8, 17, 19), (8, 17, 8, 8), {"strides": [4, 4], "pads": [2] * 4}),
    "stride 8": ((1, 16, 5, 70), (16, 20, 2, 16), {"strides": [1, 8], "pads": [0, 4, 1, 5]}),
    "rows that end within cells": ((1, 9, 8, 30), (9, 16, 7, 7), {"strides": [4, 4], "pads": [2, 3, 3, 2]}),
    "1-D": ((3, 30, 500), (30, 12, 16), {"strides": [8], "pads": [4, 4]}),
    "3-D": ((1, 8, 5, 6, 33), (8, 18, 3, 3, 3), {"strides": [2, 2, 2], "pads": [1] * 6}),
    "groups": ((2, 36, 9, 40), (36, 18, 4, 4), {"strides": [2, 2], "pads": [1] * 4, "group": 3}),
    "dilated": ((1, 12, 20, 40), (12, 32, 3, 5), {"strides": [1, 2], "dilations": [2, 3], "pads": [2] * 4}),
    "several boxes": ((1, 64, 40, 300), (64, 16, 3, 3), {"strides": [2, 2], "pads": [1] * 4}),
    "rows in several boxes": ((1, 40, 9000), (40, 16, 3), {"pads": [1, 1]}),
}


@each_way
@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_integers_are_exact(way, dtype, x_shape, w_shape, attributes, threads):
    b_shape = (w_shape[1] * attributes.get("group", 1),)
    x, w, b = integers(dtype, x_shape, w_shape, b_shape)
    with forced(way):
        layer = convt.ConvTranspose(w, b, n_threads=threads, **attributes)
        assert layer.explain(x.shape)["tiles"]["row by row"]
        y = layer(x)
    np.testing.assert_array_equal(y, oracle(x, w, b, attributes).astype(dtype))


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
    """Tiles that begin with the last cells read beyond the packed input."""
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
@pytest.mark.parametrize(("strides", "possible"), [((2, 2), True), ((2, 3), False), ((2 * MAX_OUTER, 2), False)])
def test_cells_have_few_rows_of_as_many_places_as_can_be_interleaved(strides, possible):
    axes = tuple(Axis(9, s + 1, s, 1, 0, 9 * s + 1) for s in strides)
    geometry = Geometry(1, 1, 32, 32, axes)
    assert bool(Boxes.of(geometry, cut(geometry), "bfloat16", "amx", POSITION_TILES, 1)) == possible

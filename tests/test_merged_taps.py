"""Neighbouring taps that are multiplied as one tap of more channels, in tile registers."""

import numpy as np
import pytest
from cases import LAYOUTS, as_layout, integers, oracle
from ways import built, check_bits_stay, forced, ways_in_tile_registers

import convt
from convt._levels import TILE_CHANNELS
from convt.boxes import Boxes
from convt.geometry import Axis, Geometry
from convt.merged_taps import MERGED_PART, merge_taps
from convt.paths import CHANNEL_TILES
from convt.tiling import cut

pytestmark = pytest.mark.usefixtures("threads_for_any_work")

each_way = pytest.mark.parametrize(("way", "dtype"), ways_in_tile_registers(CHANNEL_TILES))
FEW = (2, 3, 20, 20), (3, 40, 3, 3)  # channels, of which three taps fill a register


def axis(size, kernel, stride=1, dilation=1, pad=0):
    return Axis(size, kernel, stride, dilation, pad, (size - 1) * stride + (kernel - 1) * dilation + 1 - 2 * pad)


def merged_of(channels, *axes, pieces=3):
    classes = cut(Geometry(1, 1, channels, 32, axes)).classes
    return classes, merge_taps(classes, channels, pieces)


AXES = {
    "1-D": [axis(40, 9, pad=4)],
    "stride 2": [axis(40, 5, 2, pad=2)] * 2,
    "kernel 8, stride 4": [axis(17, 8, 4, pad=2)] * 2,
    "3-D": [axis(9, 3, pad=1)] * 3,
    "dilated rows": [axis(20, 3, 1, 2, 2), axis(20, 4, pad=1)],
}


def reads(taps, kernel=None):
    """(place, kernel position, the input that it meets) of every tap; `kernel` takes merged ones apart."""
    found = []
    for place, of_place in zip(taps.places, taps.kernel, strict=True):
        for position, (*outer, last) in zip(of_place, taps.shifts, strict=True):
            parts = enumerate(kernel[position]) if kernel else [(0, position)]
            found += [(place, k, (*outer, last + i)) for i, k in parts if k >= 0]
    return found


@pytest.mark.parametrize("axes", AXES.values(), ids=AXES)
@pytest.mark.parametrize("channels", [1, 3, 8, 16])
def test_merged_taps_read_what_those_that_they_are_made_of_read(axes, channels):
    classes, merged = merged_of(channels, *axes)
    every = sorted(read for c in classes for read in reads(c))
    assert sorted(read for c in merged.classes for read in reads(c, merged.kernel)) == every


@pytest.mark.parametrize(("channels", "taps"), [(1, 5), (8, 5), (16, 5), (24, 5), (40, 5), (48, 5)])
def test_a_row_of_a_kernel_fills_registers(channels, taps):
    _, merged = merged_of(channels, axis(40, taps, pad=2), axis(40, taps, pad=2))
    of_row = -(-taps // merged.taps) * -(-merged.taps * merged.channels // TILE_CHANNELS)
    assert of_row == -(-taps * -(-channels // 8) * 8 // TILE_CHANNELS)


@pytest.mark.parametrize(
    ("channels", "axes"),
    {
        "full registers": (32, [axis(40, 5)]),
        "few zeros": (90, [axis(40, 5)]),
        "one tap": (3, [axis(40, 2, 2)] * 2),
        "no neighbours": (3, [axis(40, 3, 1, 2)]),
    }.values(),
)
def test_taps_are_not_merged_where_it_saves_little(channels, axes):
    assert merged_of(channels, *axes)[1] is None


def test_more_must_be_saved_of_one_piece():
    axes = [axis(40, 3, pad=1)] * 2  # two registers of three
    assert MERGED_PART[1] < 2 / 3 < MERGED_PART[2]
    assert [bool(merged_of(16, *axes, pieces=pieces)[1]) for pieces in (1, 2, 3)] == [False, True, True]


SHAPES = {
    "1-D": ((2, 3, 300), (3, 40, 9), {"pads": [4, 4]}),
    "odd channels": ((1, 5, 30, 21), (5, 33, 5, 5), {"strides": [2, 2], "pads": [2, 1, 2, 3]}),
    "groups": ((2, 24, 19, 23), (24, 20, 4, 4), {"strides": [2, 2], "pads": [1] * 4, "group": 3}),
    "3-D": ((1, 8, 9, 10, 11), (8, 40, 3, 3, 3), {"pads": [1] * 6}),
    "fewer taps at the border": ((1, 3, 7, 5), (3, 16, 5, 5), {"pads": [2] * 4}),
    "dilated rows": ((1, 12, 40, 40), (12, 32, 3, 5), {"dilations": [2, 1], "pads": [2] * 4}),
    "boxes that share rows": ((1, 8, 160, 120), (8, 48, 5, 5), {"pads": [2] * 4}),
}


@each_way
@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("threads", [1, 3])
def test_integers_are_exact(way, dtype, x_shape, w_shape, attributes, threads):
    x, w = integers(dtype, x_shape, w_shape)
    with forced(way):
        layer = convt.ConvTranspose(w, n_threads=threads, **attributes)
        assert layer.explain(x.shape)["tiles"]["merged taps"] > 1
        y = layer(x)
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes).astype(dtype))


@each_way
@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(way, dtype, layout):
    x, w = (as_layout(array, layout) for array in integers(dtype, *FEW))
    with forced(way):
        y = convt.ConvTranspose(w)(x)
    np.testing.assert_array_equal(y, oracle(x, w, None, {}).astype(dtype))


@each_way
def test_what_a_call_leaves_behind_meets_nothing_of_the_next(way, dtype):
    """The last row of registers reaches beyond the packed input: zeros that no weight may meet as NaN."""
    x, w = integers(dtype, *FEW)
    layer = convt.ConvTranspose(w)
    check_bits_stay(way, layer, x)


@each_way
def test_pads_that_follow_from_the_size_pack_weights_anew(way, dtype):
    """Merged kernel positions have the same numbers then, but are made of others."""
    large, w = integers(dtype, (1, 8, 20, 20), (8, 40, 4, 4))
    with forced(way):
        layer = convt.ConvTranspose(w, strides=[2, 2], output_shape=[40, 40])
        for x in (large[..., :19], large[..., :19, :]):  # pads of 1 and 0, and of 0 and 1
            wanted = oracle(x, w, None, {"strides": [2, 2], "output_shape": [40, 40]})
            np.testing.assert_array_equal(layer(x), wanted.astype(dtype))


@pytest.mark.skipif(not built("amx"), reason="a build without tile registers")
@pytest.mark.parametrize(("outputs", "merged"), [(40, True), (400, False)])
def test_one_call_leaves_large_weights_as_they_are(outputs, merged):
    geometry = Geometry(1, 1, 16, outputs, (axis(20, 4, 2, pad=1),) * 2)
    found = Boxes.of(geometry, cut(geometry), "float32", "amx", CHANNEL_TILES, 3, once=True)
    assert bool(found.work.merged) == merged

"""Which path is chosen, and that every one is reached; that of groups by `test_depthwise`."""

import numpy as np
import pytest
from cases import BFLOAT16, oracle
from ways import (
    LEVELS,
    TILE_REGISTER_LEVELS,
    WORD_LEVELS,
    assert_same_bits,
    dtype_of,
    every_way,
    forced,
    in_pieces,
)

import convt
from convt import paths, planner
from convt._levels import most_pieces, multiplies_words
from convt.geometry import Axis, Geometry, OnnxRules

pytestmark = pytest.mark.usefixtures("threads_for_any_work")


@every_way
def test_every_path_is_reached(way):
    level, path = way
    kernel = 3 if path and (path.image_runs or path.by_rows) else 2  # which want several taps, position tiles one
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
        (paths.POSITION_COLUMNS, (1, 192, 128, 128), (192, 3, 5, 5), 1, 0),
    ],
)
def test_every_path_is_chosen_for_what_it_is_good_at(level, path, x_shape, w_shape, group, pad):
    dtype = np.float32 if in_pieces(level, np.float32) or not most_pieces(level) else BFLOAT16
    if path == paths.POSITIONS:
        path = paths.POSITION_WORDS if multiplies_words(level) else path
    elif most_pieces(level):
        path = next(p for p in paths.PIECE_PATHS if p._replace(name=path.name, tiles=False) == path)
    with forced((level, None)):
        layer = convt.ConvTranspose(np.ones(w_shape, dtype), strides=[2, 2], pads=[pad] * 4, group=group)
        assert layer.explain(x_shape)["kernel"] == path.name


@pytest.mark.parametrize("level", WORD_LEVELS)
def test_words_are_chosen_for_rows_that_fill_vectors(level):
    with forced((level, None)):
        layer = convt.ConvTranspose(np.ones((16, 16, 3, 3), BFLOAT16), strides=[2, 2])
        assert layer.explain((1, 16, 64, 64))["kernel"] == paths.POSITION_WORDS.name


@pytest.mark.parametrize("level", TILE_REGISTER_LEVELS)
def test_rows_are_chosen_where_outputs_take_longer_than_products(level):
    with forced((level, None)):
        layer = convt.ConvTranspose(np.ones((64, 64, 4, 4), BFLOAT16), strides=[2, 2], pads=[1] * 4)
        assert layer.explain((1, 64, 128, 128))["kernel"] == paths.CHANNEL_TILE_ROWS.name


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [1, 3])
def test_columns_are_not_first_where_they_would_round_more_often(level, channels):
    with forced((level, None)):
        layer = convt.ConvTranspose(np.ones((channels, 1, 9, 9), np.float32), strides=[2, 2])
        assert "columns first" not in layer.explain((1, channels, 64, 64))["kernel"]


@pytest.mark.skipif("avx2" not in LEVELS, reason="needs vectors")
def test_a_long_kernel_takes_a_vectorised_path():
    geometry = Geometry(1, 1, 4, 1, (Axis(20_000, 300_000, 16, 1, 0, 619_984),))
    assert planner.make_plan(planner.Call(geometry, "float32", "avx2", 1)).path != "phase rows"


@pytest.mark.parametrize("level", WORD_LEVELS)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "stride"),
    [((1, 1024, 8), (1024, 32, 16), 2), ((1, 512, 2, 5), (512, 96, 4, 4), 3)],  # widened: 1.3 to 2.7 times as long
)
def test_few_positions_are_multiplied_as_dot_products(level, x_shape, w_shape, stride):
    with forced((level, None)):
        layer = convt.ConvTranspose(np.ones(w_shape, BFLOAT16), strides=[stride] * (len(x_shape) - 2))
        assert layer.explain(x_shape)["kernel"].startswith("channel tiles")


FEW_POSITIONS = pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((1, 384, 5, 6), (384, 192, 4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((2, 300, 3, 5), (300, 100, 2, 2), {"strides": [2, 2]}),  # kernel = stride
        ((20, 200, 1), (200, 70, 9), {}),  # products
    ],
    ids=["overlapping", "apart", "products"],
)


def path_of(level, dtype, x_shape, w_shape, attributes, *, once, threads=1, precision="highest"):
    geometry = OnnxRules(w_shape, **attributes).geometry(x_shape)
    call = planner.Call(geometry, np.dtype(dtype).name, level, threads, precision, once=once)
    return planner.make_plan(call).path


@FEW_POSITIONS
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, BFLOAT16], ids=str)
def test_one_call_multiplies_the_weights_of_few_positions_in_their_order(
    level, dtype, x_shape, w_shape, attributes
):
    """Unlike a layer, which puts them in order once. Not beside tile registers, and not if they are widened."""
    once, layer = (path_of(level, dtype, x_shape, w_shape, attributes, once=once) for once in (True, False))
    if multiplies_words(level) or not (in_pieces(level, dtype) or dtype == BFLOAT16):
        assert "columns first" in once and "columns first" not in layer
    else:  # which multiply alike; of single taps columns first give the same bits
        assert once.split(",")[0] == layer.split(",")[0]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("dtype", "most"), [(np.float32, (1, 3)), (np.float64, (1, 3)), (BFLOAT16, (2, 6))], ids=str
)
def test_weights_are_read_as_they_are_for_few_images_of_one_position(level, dtype, most):
    for once, images in zip((False, True), most, strict=True):
        paths_of_images = [
            path_of(level, dtype, (n, 64, 1, 1), (64, 32, 4, 4), {}, once=once) for n in (images, images + 1)
        ]
        assert [path == "native weights" for path in paths_of_images] == [True, False]


@pytest.mark.parametrize("level", LEVELS)
def test_one_call_packs_small_weights_as_a_layer_does(level):
    shapes = (1, 64, 4, 4), (64, 32, 4, 4), {"strides": [2, 2]}
    assert path_of(level, np.float32, *shapes, once=True) == path_of(level, np.float32, *shapes, once=False)


@FEW_POSITIONS
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16], ids=str)
@pytest.mark.parametrize("value", [0.5, np.inf, 1e-30])
def test_one_call_gives_the_same_bits_on_any_number_of_threads(level, dtype, value, x_shape, w_shape, attributes):
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in (x_shape, w_shape))
    w[100, 20, *[1] * (w.ndim - 2)] = value
    with forced((level, None)):
        assert (
            len({path_of(level, dtype, x_shape, w_shape, attributes, once=True, threads=n) for n in (1, 3, 33)})
            == 1
        )
        one, *others = (convt.conv_transpose(x, w, n_threads=n, **attributes) for n in (1, 2, 3, 20))
    for other in others:
        assert_same_bits(other, one)
    with np.errstate(invalid="ignore", over="ignore"):
        exact = oracle(x, w, None, attributes, dtype).astype(np.float64)
    rtol, atol = (2**-7, 1e-3) if dtype == BFLOAT16 else (1e-4, 1e-4)
    np.testing.assert_allclose(one.astype(np.float64), exact, rtol=rtol, atol=atol)


@pytest.mark.parametrize("level", [level for level in LEVELS if most_pieces(level)])
def test_refused_operands_take_the_same_path_on_any_number_of_threads(level):
    """Blocks that are not shared equally are no panels: then tiles, not panels of them, refuse an operand."""
    rng = np.random.default_rng(1)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((1, 512, 7, 7), (512, 160, 4, 4)))
    x[0, 3, 2, 2] = 1e-35
    attributes = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
    with forced((level, None)):
        for n in (1, 2, 3):
            of_call = x.shape, w.shape, attributes
            assert "tiles" in path_of(level, np.float32, *of_call, once=True, threads=n, precision="medium")
        one, *others = (
            convt.conv_transpose(x, w, n_threads=n, precision="medium", **attributes) for n in (1, 2, 3)
        )
    for other in others:
        assert_same_bits(other, one)


@pytest.mark.parametrize("level", LEVELS)
def test_products_of_many_places_are_packed_as_a_layer_packs_them(level):
    """By kernel positions these take several boxes, which are not multiplied in panels."""
    shapes = (20, 512, 1, 1), (512, 64, 20, 20), {}
    assert path_of(level, np.float64, *shapes, once=True) == path_of(level, np.float64, *shapes, once=False)

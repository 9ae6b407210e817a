"""Which path is chosen, and that every one is reached."""

import numpy as np
import pytest
from cases import BFLOAT16
from ways import LEVELS, WORD_LEVELS, dtype_of, every_way, forced, in_pieces

import convt
from convt import paths, plan
from convt._levels import most_pieces, multiplies_words
from convt.geometry import Axis, Geometry

pytestmark = pytest.mark.usefixtures("threads_for_any_work")


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
        (paths.POSITION_COLUMNS, (1, 192, 128, 128), (192, 3, 5, 5), 1, 0),
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


@pytest.mark.parametrize("level", WORD_LEVELS)
def test_words_are_chosen_for_rows_that_fill_vectors(level):
    with forced((level, None)):
        layer = convt.ConvTranspose(np.ones((16, 16, 3, 3), BFLOAT16), strides=[2, 2])
        assert layer.explain((1, 16, 64, 64))["kernel"] == paths.POSITION_WORDS.name


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("channels", [1, 3])
def test_columns_are_not_first_where_they_would_round_more_often(level, channels):
    with forced((level, None)):
        layer = convt.ConvTranspose(np.ones((channels, 1, 9, 9), np.float32), strides=[2, 2])
        assert "columns first" not in layer.explain((1, channels, 64, 64))["kernel"]


@pytest.mark.skipif("avx2" not in LEVELS, reason="needs vectors")
def test_a_long_kernel_takes_a_vectorised_path():
    geometry = Geometry(1, 1, 4, 1, (Axis(20_000, 300_000, 16, 1, 0, 619_984),))
    assert plan.make_plan(geometry, "float32", "avx2", 1).path != "phase rows"

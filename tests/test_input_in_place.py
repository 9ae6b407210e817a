"""Input that is multiplied where it lies, or copied, and not read beyond its end."""

import numpy as np
import pytest
from cases import as_layout, integer_data, oracle
from ways import VECTOR_LEVELS, assert_same_bits, before_unreadable, dtype_of, forced, ways_and_dtypes

import convt
from convt import _box_compute, paths
from convt._levels import MANY_SUMS, tile_limits

pytestmark = pytest.mark.usefixtures("threads_for_any_work")


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((1, 40, 3999), (40, 1, 16), {"strides": [8]}),
        ((3, 12, 530), (12, 2, 9), {"strides": [2], "pads": [3, 1], "group": 2}),
        ((5, 24, 129), (24, 1, 3), {"strides": [2]}),
        ((5, 24, 50), (24, 1, 3), {"strides": [2]}),  # too short for tiles: all but the last
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
        ((2, 600, 30, 31), (600, 5, 3, 3), {"pads": [1, 1, 1, 1]}),  # some channels after the others
        ((1, 513, 16, 64), (513, 3, 2, 2), {"strides": [2, 2]}),  # whose rows need not be set apart
        ((3, 40, 15, 13), (40, 3, 2, 2), {"strides": [2, 2]}),  # images are rows
        ((2, 40, 6, 12, 16), (40, 1, 2, 2, 2), {"strides": [2, 2, 2]}),
        ((1, 40, 6, 12, 16), (40, 1, 3, 3, 3), {"pads": [1] * 6}),
        ((2, 40, 3, 9, 8), (40, 1, 3, 1, 1), {}),  # planes too small, images not
        ((1, 40, 4, 7), (40, 1, 3, 3), {}),  # too small
        ((7, 40, 4, 7), (40, 1, 3, 3), {"pads": [1, 0, 1, 0]}),  # all but the last image
        ((50, 30, 5, 6), (30, 1, 4, 4), {"strides": [2, 2], "group": 2}),  # of several boxes, too
        ((9, 12, 2, 5, 6), (12, 1, 2, 2, 2), {"strides": [2, 2, 2]}),
        ((3, 12, 4, 6, 6), (12, 1, 3, 3, 3), {"pads": [1] * 6}),  # planes of several images
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
            assert_same_bits(layer(x), layer(as_layout(x, layout)))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "layout", "in_place"),
    [
        ((1, 64, 40, 30), (64, 1, 3, 3), "contiguous", True),
        ((1, 64, 40, 30), (64, 1, 3, 3), "every second", False),
        ((1, 64, 5, 16, 17), (64, 1, 2, 2, 2), "contiguous", True),
        ((1, 64, 30, 40, 40), (64, 1, 3, 3, 3), "contiguous", True),  # planes of the last box lie beyond x
        ((1, 16, 40, 30), (16, 3, 3, 3), "contiguous", True),
        ((1, 16, 900), (16, 1, 25), "contiguous", True),
        ((1, 64, 5, 3), (64, 1, 3, 3), "contiguous", False),  # too small
        ((3, 8, 5, 3), (8, 9, 5, 5), "contiguous", False),  # tiles would compute too much beyond
        ((1, 64, 50, 60), (64, 3, 4, 4), "contiguous", True),
        ((1, 64, 32, 32), (64, 1, 4, 2), "contiguous", None),  # channels are pages
        ((1, 64, 32, 32), (64, 1, 2, 2), "contiguous", True),  # but have one tile of columns
        ((1, 16, 128, 128), (16, 1, 8, 8), "contiguous", None),  # channels are far pages
        ((1, 16, 128, 128), (16, 1, 5, 13), "contiguous", False),  # and have many columns
        ((1, 16, 128, 127), (16, 1, 5, 13), "contiguous", True),
    ],
    ids=str,
)
def test_x_is_copied_or_not(level, x_shape, w_shape, layout, in_place, monkeypatch):
    """None: where registers are not few."""
    many_registers = tile_limits(level, False, 0).sums >= MANY_SUMS
    x = as_layout(np.full(x_shape, 5, np.float32), layout)
    copied = 5 in copied_numbers(x, np.full(w_shape, 2, np.float32), level, monkeypatch)
    assert copied != (many_registers if in_place is None else in_place)


@pytest.mark.parametrize("level", VECTOR_LEVELS)
def test_of_small_images_only_the_last_is_copied(level, monkeypatch):
    x = np.full((3, 64, 4, 5), 5, np.float32)
    x[2] = 7
    copied = copied_numbers(x, np.full((64, 1, 3, 3), 2, np.float32), level, monkeypatch)
    assert 7 in copied
    assert 5 not in copied


def copied_numbers(x, w, level, monkeypatch):
    """What is in the scratch after a call on one thread, columns first along positions."""
    taken = []

    class Workspaces:
        def take(self, size):
            taken.append(np.zeros(size, np.uint8))
            return taken[-1]

    monkeypatch.setattr(_box_compute, "WORKSPACES", Workspaces())
    with forced((level, paths.POSITION_COLUMNS)):
        convt.conv_transpose(x, w, n_threads=1)
    (scratch,) = taken
    return set(scratch[: scratch.size // 4 * 4].view(np.float32))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((2, 520, 21, 33), (520, 1, 4, 4), {"pads": [1, 1, 1, 1], "strides": [2, 2]}),  # some rows at a time
        ((1, 1030, 7, 300), (1030, 1, 3, 3), {"pads": [2, 1, 1, 0]}),  # a part of a row
        ((3, 700, 400), (700, 2, 5), {"strides": [2], "pads": [3, 1]}),
        ((1, 500, 5, 9, 14), (500, 1, 3, 3, 3), {"pads": [1] * 6}),  # of several planes
        ((30, 300, 4, 4), (300, 1, 3, 3), {"pads": [0, 1, 1, 0]}),  # and images
        ((1, 200, 40, 30), (200, 9, 6, 6), {"strides": [3, 3]}),  # for each of some blocks of channels
        ((1, 1024, 20, 128), (1024, 1, 4, 4), {"pads": [1] * 4, "strides": [2, 2]}),  # a row, no whole tiles
        ((2, 1090, 9, 120), (1090, 1, 3, 3), {}),
    ],
    ids=str,
)
@pytest.mark.parametrize("layout", ["every second", "sliced"])
def test_input_of_columns_first_is_packed_in_portions(level, dtype, threads, x_shape, w_shape, attributes, layout):
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    with forced((level, paths.POSITION_COLUMNS)):
        layer = convt.ConvTranspose(w.astype(dtype), n_threads=threads, **attributes)
        assert layer.explain(x_shape)["kernel"] == paths.POSITION_COLUMNS.name
        y = layer(as_layout(x.astype(dtype), layout))
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes, dtype))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("channels", "kernel"),
    [
        *((20, kernel) for kernel in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 25)),
        (256, 16),
        (256, 12),
        (256, 10),
        (300, 10),
    ],
)
def test_chunks_of_rows_are_multiplied_where_they_lie(level, dtype, channels, kernel):
    """Of some numbers of whole vectors, and a place fewer or more."""
    rng = np.random.default_rng(0)
    lanes = 64 // np.dtype(dtype).itemsize
    w = integer_data(rng, (channels, 1, kernel)).astype(dtype)
    for vectors in (8, 9, 12, 14, 16, 18, 24, 31, 32, 40):
        for more in (-1, 0, 1):
            x = integer_data(rng, (1, channels, lanes * vectors + more)).astype(dtype)
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
        ((2, 48, 9, 15), (48, 3, 2, 2), [2, 2], 1),  # in strips
        ((1, 48, 3, 97), (48, 3, 2, 2), [2, 2], 1),  # the last of them of one cell
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
    given = laid_out(x.astype(dtype), layout)
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), n_threads=1, **attributes)
        y = layer(given)
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes, dtype))


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_joined_rows_of_images_that_overlap_are_not_read_beyond_the_end(level, dtype):
    """A last row ends within less than a vector of the end, but all rows together within more."""
    width = 3 * tile_limits(level, dtype == np.float64, 0).lanes // 4
    rng = np.random.default_rng(0)
    memory = before_unreadable(integer_data(rng, 2 * 3 * width + 4).astype(dtype))
    steps = [n * memory.itemsize for n in (4, 3 * width, width, 1)]
    x = np.lib.stride_tricks.as_strided(memory, (2, 2, 3, width), steps, writeable=False)
    w = integer_data(rng, (2, 1, 2, 4))
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w.astype(dtype), strides=[2, 4], n_threads=1)
        assert layer.explain(x.shape)["tiles"]["joined rows"]
        y = layer(x)
    np.testing.assert_array_equal(y, oracle(x, w, None, {"strides": [2, 4]}, dtype))


@pytest.mark.parametrize(
    ("way", "dtype"),
    ways_and_dtypes(*(path for path in paths.VECTOR_PATHS + paths.PIECE_PATHS if path.along_channels)),
)
@pytest.mark.parametrize("layout", ["unreadable behind", "turned", "every second"])
@pytest.mark.parametrize(
    ("x_shape", "w_shape", "attributes"),
    [
        ((2, 32, 5), (32, 3, 4), {"strides": [2]}),
        ((3, 48, 3, 4), (48, 2, 3, 3), {"pads": [1, 1, 0, 0]}),  # rows with zeros between them
        ((2, 16, 3, 3, 3), (16, 1, 2, 2, 2), {"strides": [2, 2, 2]}),
        ((5, 40, 2, 7), (40, 9, 2, 3), {"group": 2}),  # channels beyond whole vectors
    ],
    ids=str,
)
def test_rows_of_few_places_are_not_read_beyond_x(way, dtype, layout, x_shape, w_shape, attributes):
    rng = np.random.default_rng(0)
    x, w = integer_data(rng, x_shape), integer_data(rng, w_shape)
    dtype = dtype_of(way, dtype)
    given = laid_out(x.astype(dtype), layout)
    with forced(way):
        y = convt.conv_transpose(given, w.astype(dtype), **attributes)
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes, dtype))


def laid_out(array, layout):
    """`as_layout` or, also of batch and channels turned, before memory that may not be read."""
    if layout == "unreadable behind":
        return before_unreadable(array)
    if layout == "turned":
        return before_unreadable(array[::-1, ::-1])[::-1, ::-1]
    return as_layout(array, layout)

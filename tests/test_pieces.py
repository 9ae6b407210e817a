"""Levels that multiply bfloat16, or float32 and float16 in bfloat16 pieces: what that must not change."""

from contextlib import nullcontext

import numpy as np
import pytest
from cases import BFLOAT16, LAYOUTS, as_layout, integer_data, oracle
from ways import assert_same_bits, forced

import convt
from convt import isa, paths, planner
from convt._levels import most_pieces, multiplies_words
from convt.geometry import OnnxRules

PIECES = {"float16": 2, "float32": 3, "bfloat16": 1}
TILED = [level for level in isa.available() if level != "generic" and most_pieces(level)]


def each_tiled(*dtypes):
    """Runs a test at each level that multiplies one of `dtypes` in pieces, for each of these."""
    return pytest.mark.parametrize(("level", "dtype"), every_tiled(dtypes), ids=str)


def every_tiled(dtypes):
    return [
        (level, np.dtype(t)) for level in TILED for t in dtypes if PIECES[np.dtype(t).name] <= most_pieces(level)
    ]


def each_tiled_path(each, *dtypes):
    """Likewise, and for those of the paths `each` that a level has."""
    every = [
        (path, level, dtype)
        for path in each
        for level, dtype in every_tiled(dtypes)
        if not path.words or (dtype == BFLOAT16 and multiplies_words(level))
    ]
    ids = [f"{level}-{dtype}-{path.name}" for path, level, dtype in every]
    return pytest.mark.parametrize(("path", "level", "dtype"), every, ids=ids)


ATTRIBUTES = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
SHAPES = (1, 96, 18, 18), (96, 64, 4, 4)  # rows that do not fill vectors: tiles, not words


def data(dtype, shapes=SHAPES, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, dtype=np.float32).astype(dtype) for shape in shapes]


def at_level(monkeypatch, level, x, w, **arguments):
    monkeypatch.setenv("CONVT_ISA", level)
    return convt.conv_transpose(x, w, **ATTRIBUTES, **arguments)


def one(value):
    def change(array):
        array.reshape(-1)[array.size // 2] = value

    return change


def scaled(by):
    def change(array):
        array[...] = (array.astype(np.float32) * np.float32(by)).astype(array.dtype)

    return change


CHANGES = {
    "Inf": one(np.inf),
    "NaN": one(np.nan),
    "3.4e38": one(3.4e38),
    "one subnormal": one(1e-40),
    "1e-35": scaled(1e-35),
    "1e30": scaled(1e30),
    "subnormal": scaled(1e-40),
}


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("operand", [0, 1], ids=["x", "w"])
@each_tiled(np.float32, BFLOAT16)
def test_what_pieces_would_lose_takes_the_vector_path(monkeypatch, level, dtype, change, operand):
    operands = data(dtype)
    change(operands[operand])
    wanted = at_level(monkeypatch, "avx512", *operands)
    assert_same_bits(at_level(monkeypatch, level, *operands), wanted)


@each_tiled_path(paths.PIECE_PATHS, np.float32, BFLOAT16)
@pytest.mark.parametrize("bias", [2.0**-102, 2.0**-103, 2.0**-130, -(2.0**-130)])
def test_a_small_bias_is_kept_where_nothing_is_added(path, level, dtype, bias):
    """Products of pairs flush subnormals, and so does the processor's rounding to bfloat16."""
    kernel = 3 if path.image_runs else 2
    x, w = np.zeros((2, 64, 9, 9), dtype), np.ones((64, 48, kernel, kernel), dtype)
    with forced((level, path)):
        y = convt.conv_transpose(x, w, np.full(48, bias, dtype), strides=[2, 2])
    assert (y.astype(np.float32) == np.float32(bias)).all()


@each_tiled_path([paths.CHANNEL_TILES, paths.POSITION_TILES, paths.POSITION_WORDS], np.float32, BFLOAT16)
@pytest.mark.parametrize(
    ("value", "refused"),
    [
        (2.0**-102, False),
        (2.0**-102 * (1 - 2.0**-8), True),
        (2.0**100, False),
        (2.0**100 * (1 + 2.0**-7), True),
        (2.0**-130, True),
        (0.0, False),
    ],
)
def test_limits_of_magnitudes(monkeypatch, path, level, dtype, value, refused):
    """With weights of 1, x may be from 2**-102 to 2**100; what is refused is prepared for again."""

    def prepare(*arguments):
        raise AssertionError("took the vector path")

    x = np.ones((1, 32, 5, 7), dtype)
    with forced((level, path)):
        layer = convt.ConvTranspose(np.ones((32, 32, 2, 2), dtype), strides=[2, 2])
        layer(x)
        assert layer.explain(x.shape)["kernel"] == path.name
    monkeypatch.setattr(layer, "_prepare", prepare)
    x[0, 17, 3, 5] = value
    with pytest.raises(AssertionError) if refused else nullcontext():
        layer(x)


@each_tiled(np.float32, BFLOAT16)
def test_large_and_small_that_meet_in_a_product_take_the_vector_path(monkeypatch, level, dtype):
    x, w = data(dtype)
    scaled(1e25)(x)
    scaled(1e25)(w)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = at_level(monkeypatch, "avx512", x, w)
        assert_same_bits(at_level(monkeypatch, level, x, w), wanted)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
@each_tiled(np.float16, np.float32, BFLOAT16)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ordinary_numbers_are_not_refused(monkeypatch, level, dtype, layout, precision):
    def refuse(*arguments):
        raise AssertionError("took the vector path")

    x, w = data(dtype)
    monkeypatch.setenv("CONVT_ISA", level)
    layer = convt.ConvTranspose(w, precision=precision, **ATTRIBUTES)
    layer(x)
    assert "tiles" in layer.explain(x.shape)["kernel"]
    monkeypatch.setattr(layer, "_prepare", refuse)
    layer(as_layout(x, layout))


@each_tiled(np.float32, BFLOAT16)
def test_a_refused_input_does_not_change_the_next_call(monkeypatch, level, dtype):
    x, w = data(dtype)
    monkeypatch.setenv("CONVT_ISA", level)
    layer = convt.ConvTranspose(w, **ATTRIBUTES)
    before = layer(x)
    bad = x.copy()
    bad[0, 5, 7, 7] = np.nan
    assert np.isnan(layer(bad)).any()
    np.testing.assert_array_equal(layer(x), before)
    assert "tiles" in layer.explain(x.shape)["kernel"]


@each_tiled(np.float32, BFLOAT16)
def test_nothing_more_is_multiplied_once_operands_are_refused(level, dtype):
    x, w = data(dtype, ((9, 32, 12, 12), (32, 48, 4, 4)))
    x[0, 5, 7, 7] = np.nan
    geometry = OnnxRules(w.shape, **ATTRIBUTES).geometry(x.shape)
    with forced((level, paths.CHANNEL_TILES)):
        plan = planner.make_plan(planner.Call(geometry, dtype.name, level, 1))
        y = np.full(plan.output_shape, 7, dtype)
        assert not plan.run(x, y, plan.pack(w, None))
    assert (y[-1] == 7).all()


@pytest.mark.parametrize("value", [1e-35, np.inf])
@pytest.mark.parametrize("level", TILED)
def test_what_one_size_refuses_does_not_change_the_results_of_another(level, value):
    """Images of two places leave out the first tap, whose weights are no numbers for pieces."""
    x, w = data(np.float32, ((1, 32, 2, 2), (32, 48, 5, 5)))
    w[3, 5, 0, 0] = value
    large = np.zeros((1, 32, 6, 6), np.float32)
    with forced((level, paths.CHANNEL_TILES)):
        one, other = (convt.ConvTranspose(w, pads=[2] * 4, precision="medium") for _ in range(2))
        assert np.isnan(other(large)).any() == (value == np.inf)
        assert_same_bits(other(x), one(x))
        kernels = [other.explain(image.shape)["kernel"] for image in (large, x)]
    assert ["tiles" in kernel for kernel in kernels] == [False, True]


@each_tiled(np.float16, BFLOAT16)
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_inf_and_nan_in_half_types(monkeypatch, level, dtype, value):
    x, w = data(dtype)
    x[0, 3, 4, 5] = value
    wanted = at_level(monkeypatch, "avx512", x, w).astype(np.float32)
    y = at_level(monkeypatch, level, x, w).astype(np.float32)
    np.testing.assert_array_equal(np.isfinite(y), np.isfinite(wanted))


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("channels", [16, 96, 500])
@each_tiled(np.float32)
def test_float32_errors_are_not_above_those_of_fused_chains(monkeypatch, level, dtype, channels, positive):
    x, w = data(dtype, ((1, channels, 12, 12), (channels, 32, 4, 4)), channels)
    if positive:
        x, w = np.abs(x), np.abs(w)
    exact = oracle(x, w, None, ATTRIBUTES)
    pieces, chain = (at_level(monkeypatch, each, x, w) - exact for each in (level, "avx512"))
    assert np.abs(pieces).max() <= np.abs(chain).max()
    assert np.square(pieces).mean() <= np.square(chain).mean()


@each_tiled(np.float16, BFLOAT16)
@pytest.mark.parametrize("channels", [32, 1024])
def test_half_types_are_rounded_correctly_but_for_one_unit(monkeypatch, level, dtype, channels):
    x, w = data(dtype, ((1, channels, 12, 12), (channels, 32, 4, 4)), channels)
    w = (w.astype(np.float32) / 64).astype(dtype)
    y = at_level(monkeypatch, level, x, w)
    exact = oracle(x, w, None, ATTRIBUTES)
    away = np.abs(ordered(y) - ordered(exact.astype(np.float32).astype(dtype)))
    # Where a sum cancels, a unit of it may be less than float32 sums resolve.
    terms = oracle(*(np.abs(a.astype(np.float64)) for a in (x, w)), None, ATTRIBUTES)
    cancelled = np.abs(y.astype(np.float64) - exact) <= 2.0**-24 * terms
    assert (away <= np.where(cancelled, 16, 1)).all()
    assert (away == 0).mean() >= 0.99


def ordered(array):
    """Integers in the order of the floats, one apart where these are neighbours."""
    bits = array.view(np.int16).astype(np.int32)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


@pytest.mark.parametrize(("precision", "most"), [("highest", 1e-6), ("high", 2e-5), ("medium", 1e-2)])
@pytest.mark.parametrize("level", TILED)
def test_precision_of_float32(monkeypatch, level, precision, most):
    x, w = data(np.float32)
    y = at_level(monkeypatch, level, x, w, precision=precision)
    exact = oracle(x, w, None, ATTRIBUTES)
    if paths.pieces_of("float32", precision) > most_pieces(level):
        most = 1e-5  # a chain of multiply-adds
    assert np.abs(y - exact).max() <= most * np.abs(exact).max()


@pytest.mark.parametrize("dtype", [np.float16, np.float64, BFLOAT16], ids=str)
@pytest.mark.parametrize("level", TILED)
def test_precision_is_for_float32_alone(monkeypatch, level, dtype):
    x, w = data(dtype)
    wanted = at_level(monkeypatch, level, x, w)
    np.testing.assert_array_equal(at_level(monkeypatch, level, x, w, precision="medium"), wanted)


@pytest.mark.parametrize(("precision", "pieces"), [("highest", 3), ("high", 2), ("medium", 1)])
@pytest.mark.parametrize("level", TILED)
def test_float32_is_multiplied_in_as_many_pieces_as_its_precision_wants(monkeypatch, level, precision, pieces):
    """Or in none, where the level is no faster by so many."""
    x, w = data(np.float32)
    monkeypatch.setenv("CONVT_ISA", level)
    tiles = convt.ConvTranspose(w, precision=precision, **ATTRIBUTES).explain(x.shape)["tiles"]
    assert tiles.get("pieces", 0) == (pieces if pieces <= most_pieces(level) else 0)


@each_tiled(np.float32, BFLOAT16)
def test_explain_names_pieces_and_refusals(monkeypatch, level, dtype):
    x, w = data(dtype)
    monkeypatch.setenv("CONVT_ISA", level)
    assert convt.ConvTranspose(w, **ATTRIBUTES).explain(x.shape)["tiles"]["pieces"] == PIECES[dtype.name]
    w[0, 0, 0, 0] = 1e-39
    layer = convt.ConvTranspose(w, **ATTRIBUTES)
    layer(x)
    assert "pieces would lose" in layer.explain(x.shape)["reason"]


@pytest.mark.parametrize("layout", LAYOUTS)
@each_tiled_path([paths.POSITION_TILES, paths.POSITION_TILE_COLUMNS], np.float32, np.float16, BFLOAT16)
def test_long_lines_are_packed_strip_by_strip(path, level, dtype, layout):
    """Rows of 150 and 1200 places, 35 channels, zeros at both ends where a kernel position has them."""
    rng = np.random.default_rng(9)
    kernel, pads = ([4, 2], [0] * 4) if path == paths.POSITION_TILES else ([4, 5], [1, 2, 0, 2])
    x, w = integer_data(rng, (2, 35, 8, 150)), integer_data(rng, (35, 5, *kernel))
    attributes = {"strides": [4, 2], "pads": pads}
    with forced((level, path)):
        layer = convt.ConvTranspose(w.astype(dtype), **attributes)
        assert layer.explain(x.shape)["kernel"] == path.name
        y = layer(as_layout(x.astype(dtype), layout))
    np.testing.assert_array_equal(y, oracle(x, w, None, attributes, dtype))

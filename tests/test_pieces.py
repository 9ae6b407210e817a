"""Tile registers multiply float32 and float16 in bfloat16 pieces: what that must not change."""

from contextlib import nullcontext

import numpy as np
import pytest
from cases import BFLOAT16, LAYOUTS, as_layout, oracle

import convt
from convt import isa, paths, plan

pytestmark = pytest.mark.skipif("amx" not in isa.available(), reason="this machine has no AMX")

ATTRIBUTES = {"strides": [2, 2], "pads": [1, 1, 1, 1]}
SHAPES = (1, 96, 20, 20), (96, 48, 4, 4)


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
        array *= np.float32(by)

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
def test_what_pieces_would_lose_takes_the_vector_path(monkeypatch, change, operand):
    operands = data(np.float32)
    change(operands[operand])
    wanted = at_level(monkeypatch, "avx512", *operands)
    np.testing.assert_array_equal(at_level(monkeypatch, "amx", *operands), wanted)


@pytest.mark.parametrize("path", paths.TILE_PATHS, ids=lambda path: path.name)
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16], ids=str)
@pytest.mark.parametrize("bias", [2.0**-102, 2.0**-103, 2.0**-130, -(2.0**-130)])
def test_a_small_bias_is_kept_where_nothing_is_added(monkeypatch, path, dtype, bias):
    """Tile registers flush subnormals, and so does the processor's rounding to bfloat16."""
    monkeypatch.setenv("CONVT_ISA", "amx")
    monkeypatch.setattr(plan, "VECTOR_PATHS", ())
    monkeypatch.setattr(plan, "TILE_PATHS", (path,))
    plan.make_plan.cache_clear()
    kernel = 3 if path.image_runs else 2
    x, w = np.zeros((2, 64, 9, 9), dtype), np.ones((64, 48, kernel, kernel), dtype)
    y = convt.conv_transpose(x, w, np.full(48, bias, dtype), strides=[2, 2])
    plan.make_plan.cache_clear()
    assert (y.astype(np.float32) == np.float32(bias)).all()


@pytest.mark.parametrize("path", [paths.CHANNEL_TILES, paths.POSITION_TILES], ids=lambda path: path.name)
@pytest.mark.parametrize("dtype", [np.float32, BFLOAT16], ids=str)
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
def test_limits_of_magnitudes(monkeypatch, path, dtype, value, refused):
    """With weights of 1, x may be from 2**-102 to 2**100; what is refused is prepared for again."""

    def prepare(*arguments):
        raise AssertionError("took the vector path")

    monkeypatch.setenv("CONVT_ISA", "amx")
    monkeypatch.setattr(plan, "VECTOR_PATHS", ())
    monkeypatch.setattr(plan, "TILE_PATHS", (path,))
    plan.make_plan.cache_clear()
    layer = convt.ConvTranspose(np.ones((32, 32, 2, 2), dtype), strides=[2, 2])
    x = np.ones((1, 32, 5, 7), dtype)
    layer(x)
    plan.make_plan.cache_clear()
    assert layer.explain(x.shape)["kernel"] == path.name
    monkeypatch.setattr(layer, "_prepare", prepare)
    x[0, 17, 3, 5] = value
    with pytest.raises(AssertionError) if refused else nullcontext():
        layer(x)


def test_large_and_small_that_meet_in_a_product_take_the_vector_path(monkeypatch):
    x, w = data(np.float32)
    x *= np.float32(1e25)
    w *= np.float32(1e25)
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = at_level(monkeypatch, "avx512", x, w)
        np.testing.assert_array_equal(at_level(monkeypatch, "amx", x, w), wanted)


@pytest.mark.parametrize("precision", ["highest", "high", "medium"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, BFLOAT16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_ordinary_numbers_are_not_refused(monkeypatch, dtype, layout, precision):
    def refuse(*arguments):
        raise AssertionError("took the vector path")

    x, w = data(dtype)
    monkeypatch.setenv("CONVT_ISA", "amx")
    layer = convt.ConvTranspose(w, precision=precision, **ATTRIBUTES)
    layer(x)
    assert "tiles" in layer.explain(x.shape)["kernel"]
    monkeypatch.setattr(layer, "_prepare", refuse)
    layer(as_layout(x, layout))


def test_a_refused_input_does_not_change_the_next_call(monkeypatch):
    x, w = data(np.float32)
    monkeypatch.setenv("CONVT_ISA", "amx")
    layer = convt.ConvTranspose(w, **ATTRIBUTES)
    before = layer(x)
    bad = x.copy()
    bad[0, 5, 7, 7] = np.nan
    assert np.isnan(layer(bad)).any()
    np.testing.assert_array_equal(layer(x), before)
    assert "tiles" in layer.explain(x.shape)["kernel"]


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_inf_and_nan_in_half_types(monkeypatch, dtype, value):
    x, w = data(dtype)
    x[0, 3, 4, 5] = value
    wanted = at_level(monkeypatch, "avx512", x, w).astype(np.float32)
    y = at_level(monkeypatch, "amx", x, w).astype(np.float32)
    np.testing.assert_array_equal(np.isfinite(y), np.isfinite(wanted))


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("channels", [16, 96, 500])
def test_float32_errors_are_not_above_those_of_fused_chains(monkeypatch, channels, positive):
    x, w = data(np.float32, ((1, channels, 12, 12), (channels, 32, 4, 4)), channels)
    if positive:
        x, w = np.abs(x), np.abs(w)
    exact = oracle(x, w, None, ATTRIBUTES)
    errors = {level: at_level(monkeypatch, level, x, w) - exact for level in ("avx512", "amx")}
    assert np.abs(errors["amx"]).max() <= np.abs(errors["avx512"]).max()
    assert np.square(errors["amx"]).mean() <= np.square(errors["avx512"]).mean()


@pytest.mark.parametrize("dtype", [np.float16, BFLOAT16], ids=str)
@pytest.mark.parametrize("channels", [32, 1024])
def test_half_types_are_rounded_correctly_but_for_one_unit(monkeypatch, dtype, channels):
    x, w = data(dtype, ((1, channels, 12, 12), (channels, 32, 4, 4)), channels)
    w = (w.astype(np.float32) / 64).astype(dtype)
    y = at_level(monkeypatch, "amx", x, w)
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
def test_precision_of_float32(monkeypatch, precision, most):
    x, w = data(np.float32)
    y = at_level(monkeypatch, "amx", x, w, precision=precision)
    exact = oracle(x, w, None, ATTRIBUTES)
    assert np.abs(y - exact).max() <= most * np.abs(exact).max()


@pytest.mark.parametrize("dtype", [np.float16, np.float64, BFLOAT16], ids=str)
def test_precision_is_for_float32_alone(monkeypatch, dtype):
    x, w = data(dtype)
    wanted = at_level(monkeypatch, "amx", x, w)
    np.testing.assert_array_equal(at_level(monkeypatch, "amx", x, w, precision="medium"), wanted)


def test_explain_names_pieces_and_refusals(monkeypatch):
    x, w = data(np.float32)
    monkeypatch.setenv("CONVT_ISA", "amx")
    assert convt.ConvTranspose(w, **ATTRIBUTES).explain(x.shape)["tiles"]["pieces"] == 3
    w[0, 0, 0, 0] = 1e-39
    layer = convt.ConvTranspose(w, **ATTRIBUTES)
    layer(x)
    assert "tile registers would lose" in layer.explain(x.shape)["reason"]

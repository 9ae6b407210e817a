"""float16 and bfloat16 as storage: every value in, every rounding out."""

import numpy as np
import pytest
from cases import BFLOAT16

import convt
from convt.reference import round_once

pytestmark = pytest.mark.usefixtures("each_isa")

HALVES = pytest.mark.parametrize("dtype", [np.dtype(np.float16), BFLOAT16], ids=str)


def every_value(dtype):
    return np.arange(2**16, dtype=np.uint16).view(dtype)


def wide(array):
    with np.errstate(invalid="ignore"):  # signalling NaNs
        return array.astype(np.float64)


def survives(a, b):
    """Whether b is a; sums that begin with 0 make 0 of -0."""
    a, b = wide(a), wide(b)
    return ((a == b) & (np.signbit(a) | ~np.signbit(b))) | (np.isnan(a) & np.isnan(b))


@HALVES
def test_every_value_survives_a_multiplication_by_one(dtype):
    x = every_value(dtype)
    y = convt.conv_transpose(x.reshape(1, 1, -1), np.ones((1, 1, 1), dtype)).ravel()
    assert survives(x, y).all()


@HALVES
def test_sums_round_once_to_nearest_even(dtype):
    """Pairs of neighbours and near-ties: the sum of two halves is exact in float64, so its rounding is known."""
    rng = np.random.default_rng(0)
    values = every_value(dtype)
    values = values[np.isfinite(wide(values))]
    a, b = (rng.choice(values, 200_000) for _ in range(2))
    # Exponents up to 12 apart, so that float32 holds the sum exactly and only the last rounding is left.
    near = np.abs(np.frexp(a.astype(np.float64))[1] - np.frexp(b.astype(np.float64))[1]) <= 12
    a, b = a[near], b[near]
    y = convt.conv_transpose(np.stack([a, b])[None], np.ones((2, 1, 1), dtype)).ravel()
    wanted = round_once(a.astype(np.float64) + b.astype(np.float64), dtype)
    np.testing.assert_array_equal(y.astype(np.float64), wanted.astype(np.float64))


@HALVES
def test_overflow_is_infinite(dtype):
    largest = np.array([[[np.inf]]]).astype(dtype).view(np.uint16) - 1
    x = largest.view(dtype)
    y = convt.conv_transpose(x, np.full((1, 1, 1), 2).astype(dtype))
    assert np.isinf(y.astype(np.float64)).all()

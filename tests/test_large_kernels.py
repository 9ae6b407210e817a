"""Kernels that reach far beyond small images: most of their taps lie outside of most cells' input."""

import numpy as np
import pytest

import convt

pytestmark = pytest.mark.usefixtures("each_isa")

LAYERS = [
    ((1, 1, 4, 4), (1, 1, 96, 96), {}),
    ((2, 3, 5, 4), (3, 2, 40, 33), {"strides": [2, 1], "dilations": [1, 2]}),
    ((1, 2, 3), (2, 2, 700), {"strides": [3]}),
    ((1, 4, 3, 3, 2), (4, 1, 11, 9, 12), {"group": 4}),
    ((1, 2, *[2] * 9), (2, 1, *[2] * 9), {"strides": [2] * 9}),  # 30 times as long if all positions were looked at
    ((1, 1, *[2] * 8), (1, 2, *[2, 3] * 4), {"pads": [1, 0] * 8, "dilations": [2, 1] * 4}),
    ((2, 2, 5), (2, 2, 1500), {"strides": [2], "dilations": [3]}),  # few taps of each strip of a row
    ((1, 1, 600), (1, 1, 700), {"pads": [300, 2]}),
]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize(("x_shape", "w_shape", "attributes"), LAYERS)
def test_integers_are_exact(x_shape, w_shape, attributes, dtype):
    rng = np.random.default_rng(0)
    x, w = rng.integers(-3, 4, x_shape).astype(dtype), rng.integers(-3, 4, w_shape).astype(dtype)
    expected = convt.reference.conv_transpose(x, w, **attributes)
    np.testing.assert_array_equal(convt.conv_transpose(x, w, **attributes), expected)
    np.testing.assert_array_equal(convt.ConvTranspose(w, **attributes)(x), expected)


def test_they_are_computed_without_boxes():
    """Boxes would look at 9216 taps for each of 9801 cells, of which at most 16 have an input."""
    layer = convt.ConvTranspose(np.ones((1, 1, 96, 96), np.float32))
    assert layer.explain((1, 1, 4, 4))["kernel"] == "phase rows"


def test_very_many_kernel_positions_are_not_listed(each_isa):
    layer = convt.ConvTranspose(np.ones((1, 1, 1024, 1025), np.float32), strides=[2, 2])
    report = layer.explain((1, 1, 64, 64))
    assert report["kernel"] == "phase rows"
    assert each_isa == "generic" or "kernel positions" in report["reason"]


@pytest.mark.parametrize("outputs", [256, 512])
def test_many_output_channels_are_computed_in_boxes(each_isa, outputs):
    layer = convt.ConvTranspose(np.ones((1, outputs, 300, 2), np.float32))
    assert (layer.explain((1, 1, 3, 2))["kernel"] == "phase rows") == (each_isa == "generic")


def test_kernels_of_the_size_of_an_image_are_computed_in_boxes(each_isa):
    layer = convt.ConvTranspose(np.ones((16, 16, 9, 9), np.float32))
    assert (layer.explain((4, 16, 8, 8))["kernel"] == "phase rows") == (each_isa == "generic")

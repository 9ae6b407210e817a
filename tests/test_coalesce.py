"""Spatial axes that are computed as one."""

import tracemalloc

import numpy as np
import pytest
from cases import BFLOAT16, DTYPES, LAYOUTS, as_layout, integer_data, oracle
from ways import WORD_LEVELS

import convt
from convt.coalesce import as_product, coalesce_axes
from convt.geometry import OnnxRules

# Shapes of x and w, strides and pads, and the axes that are left, as sizes of input and kernel.
LAYERS = [
    ((1, 2, 5, 7), (2, 3, 1, 1), [1, 1], [0] * 4, [(35, 1)]),
    ((1, 2, 4, 5, 6), (2, 3, 1, 1, 1), [1] * 3, [0] * 6, [(120, 1)]),
    ((1, 2, 5, 7), (2, 3, 1, 4), [1, 4], [0] * 4, [(35, 4)]),
    ((1, 2, 4, 5, 6), (2, 3, 1, 2, 2), [1, 2, 2], [0] * 6, [(20, 2), (6, 2)]),
    ((1, 2, 1, 9), (2, 3, 1, 4), [1, 2], [0, 1, 0, 1], [(9, 4)]),
    ((1, 2, 9, 1), (2, 3, 4, 1), [2, 3], [1, 0, 1, 0], [(9, 4)]),
    ((1, 2, 1, 9, 1, 8), (2, 3, 1, 3, 1, 3), [1] * 4, [0] * 8, [(9, 3), (8, 3)]),
    ((1, 2, 1, 1), (2, 3, 1, 1), [1, 1], [0] * 4, [(1, 1)]),
    ((1, 2, 5, 7), (2, 3, 1, 4), [1, 3], [0] * 4, None),  # an output of two inputs
    ((1, 2, 5, 7), (2, 3, 1, 1), [2, 1], [0] * 4, None),  # rows of bias between rows
    ((1, 2, 5, 7), (2, 3, 1, 1), [1, 2], [0] * 4, None),  # none behind the last input
    ((1, 2, 5, 7), (2, 3, 1, 1), [1, 1], [1, 0, 0, 0], None),
    ((1, 2, 5, 7), (2, 3, 1, 2), [1, 2], [0, 0, 0, 1], None),
    ((1, 2, 5, 7), (2, 3, 2, 1), [2, 1], [0] * 4, None),
    ((1, 2, 9, 1), (2, 3, 4, 3), [2, 1], [1, 1, 1, 1], None),  # a kernel of three on one place
]


@pytest.mark.parametrize(("x_shape", "w_shape", "strides", "pads", "left"), LAYERS, ids=str)
def test_axes_that_are_left(x_shape, w_shape, strides, pads, left):
    geometry = OnnxRules(w_shape, strides=strides, pads=pads).geometry(x_shape)
    axes = coalesce_axes(geometry).axes
    if left is None:
        assert axes == geometry.axes
    else:
        assert [(axis.input, axis.kernel) for axis in axes] == left


@pytest.mark.usefixtures("each_isa")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layer", LAYERS[:8], ids=str)
def test_results_do_not_depend_on_layouts(dtype, layer):
    x_shape, w_shape, strides, pads, _ = layer
    attributes = {"strides": strides, "pads": pads}
    rng = np.random.default_rng(0)
    x, w, b = (integer_data(rng, shape).astype(dtype) for shape in ((2, *x_shape[1:]), w_shape, w_shape[1:2]))
    expected = oracle(x, w, b, attributes)
    convolve = convt.ConvTranspose(w, b, **attributes)
    for layout in LAYOUTS:
        out = as_layout(np.zeros(expected.shape, dtype), "contiguous" if layout == "read-only" else layout)
        assert convolve(as_layout(x, layout), out=out) is out
        np.testing.assert_array_equal(out.astype(np.float64), expected, layout)


@pytest.mark.usefixtures("each_isa")
def test_nothing_beside_a_cropped_out_is_written():
    whole = np.full((1, 3, 8, 9), 7, np.float32)
    convt.conv_transpose(
        np.ones((1, 2, 5, 6), np.float32), np.ones((2, 3, 1, 1), np.float32), out=whole[:, :, 1:6, 2:8]
    )
    assert (whole[:, :, 1:6, 2:8] == 2).all()
    assert (whole == 7).sum() == whole.size - 3 * 5 * 6


@pytest.mark.parametrize("layout", ["contiguous", "channels last", "negative steps"])
def test_axes_that_follow_each_other_are_not_copied(layout):
    x = as_layout(np.ones((1, 64, 200, 200), np.float32), layout)
    convolve = convt.ConvTranspose(np.ones((64, 1, 1, 1), np.float32), n_threads=1)
    out = convolve(x)
    tracemalloc.start()
    convolve(x, out=out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < x.nbytes / 2


def test_explain_names_the_axes_that_are_left():
    convolve = convt.ConvTranspose(np.ones((4, 4, 1, 1), np.float32))
    report = convolve.explain((1, 4, 30, 40))
    assert report["output_shape"] == (1, 4, 30, 40)
    if report["isa"] != "generic":
        assert report["tiles"]["coalesced"] == (1200,)


# Shapes of x and w, attributes, and the channels of the product, None where it is none.
PRODUCTS = [
    ((9, 6, 1, 1), (6, 5, 4, 3), {}, 60),
    ((9, 6, 1), (6, 5, 4), {"group": 2, "strides": [3]}, 40),
    ((9, 6, 1, 1), (6, 5, 1, 3), {"dilations": [2, 1]}, 15),
    ((9, 6, 1, 1), (6, 40, 1, 1), {}, 40),
    ((9, 6, 1, 2), (6, 5, 4, 3), {}, None),
    ((9, 6, 1, 1), (6, 5, 4, 3), {"dilations": [2, 1]}, None),  # rows of bias
    ((9, 6, 1, 1), (6, 5, 4, 3), {"pads": [1, 0, 0, 0]}, None),
    ((9, 6, 1, 1), (6, 5, 4, 3), {"strides": [2, 2], "output_padding": [1, 0]}, None),
]


@pytest.mark.parametrize(("x_shape", "w_shape", "attributes", "channels"), PRODUCTS, ids=str)
def test_images_of_one_input_are_products(x_shape, w_shape, attributes, channels):
    geometry = OnnxRules(w_shape, **attributes).geometry(x_shape)
    product = as_product(geometry)
    assert product.is_product == (channels is not None)
    if channels is None:
        assert product == geometry
    else:
        assert product.output_shape == (9, channels, 1)


@pytest.mark.usefixtures("each_isa")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["contiguous", "channels last", "negative steps"])
@pytest.mark.parametrize(("x_shape", "w_shape", "attributes", "channels"), PRODUCTS, ids=str)
def test_products(dtype, layout, x_shape, w_shape, attributes, channels):
    rng = np.random.default_rng(0)
    outputs = w_shape[1] * attributes.get("group", 1)
    x, w, b = (integer_data(rng, shape).astype(dtype) for shape in (x_shape, w_shape, outputs))
    expected = oracle(x, w, b, attributes)
    out = as_layout(np.zeros(expected.shape, dtype), layout)
    convt.ConvTranspose(w, b, **attributes)(as_layout(x, layout), out=out)
    np.testing.assert_array_equal(out.astype(np.float64), expected)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("x_shape", [(9, 70, 1, 1), (96, 64, 1, 1), (9, 300, 1, 1)], ids=str)
@pytest.mark.parametrize("kernel", [(4, 4), (1, 256), (7, 7)], ids=str)
@pytest.mark.parametrize("outputs", [3, 40])
def test_products_that_are_not_packed_have_the_same_bits(each_isa, dtype, x_shape, kernel, outputs):
    rng = np.random.default_rng(0)
    shapes = x_shape, (x_shape[1], outputs, *kernel), outputs
    x, w, b = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    packed = convt.ConvTranspose(w, b)
    once, layer = convt.conv_transpose(x, w, b), packed(x)
    if dtype == BFLOAT16 and each_isa in WORD_LEVELS and "lanes" in packed.explain(x.shape)["kernel"]:
        # The layer multiplies floats where one call may multiply pieces: sums in another order, rounded.
        np.testing.assert_allclose(once.astype(np.float64), layer.astype(np.float64), rtol=2**-7, atol=1e-4)
    else:
        assert once.tobytes() == layer.tobytes()


@pytest.mark.usefixtures("each_isa")
@pytest.mark.parametrize("kernel", [1, 4])
def test_no_input_is_not_one_input(kernel):
    w, b = np.ones((2, 3, kernel), np.float32), np.arange(3, dtype=np.float32)
    y = convt.ConvTranspose(w, b, output_shape=[kernel])(np.ones((1, 2, 0), np.float32))
    np.testing.assert_array_equal(y, np.broadcast_to(b[:, None], (1, 3, kernel)))

"""Sums of many products are made of chains, which are added up: errors grow with the length of a chain."""

import numpy as np
import pytest
from ways import LEVELS, VECTOR_LEVELS, assert_same_bits, forced

import convt
from convt import paths, plan
from convt._levels import LONGEST_CHAIN

SHAPES = [
    (1700, (2, 2), {"strides": [2, 2]}),  # chains of parts of a tap
    (1100, (3, 3), {"pads": [1, 1, 1, 1]}),  # of parts of several taps
    (300, (3, 3), {"pads": [1, 1, 1, 1]}),  # of a tap or parts of several
    (60, (9, 9), {"strides": [2, 2], "pads": [4, 4, 4, 4]}),  # of several taps
]
CASES = [
    pytest.param((level, path), *shape, id=f"{level}: {path.name}-{shape[0]}")
    for level in VECTOR_LEVELS
    for path in paths.VECTOR_PATHS
    for shape in SHAPES
    if not (path.image_runs and shape is SHAPES[0])  # which want several taps
]


def one_large_weight(dtype, images, channels, size, outputs, kernel):
    """Ones, but for a weight of a kernel position, which absorbs the ones behind it in a chain."""
    x = np.ones((images, channels, *size), dtype)
    w = np.ones((channels, outputs, *kernel), dtype)
    w[(0, slice(None), *(k // 2 for k in kernel))] = 2.0 ** {"float32": 24, "float64": 53}[np.dtype(dtype).name]
    return x, w


def operands(dtype, x_shape, outputs, kernel):
    """Those of a layer, with a bias."""
    rng = np.random.default_rng(0)
    shapes = x_shape, (x_shape[1], outputs, *kernel), outputs
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def absorbed(y, x, w, attributes):
    """How many ones each output lacks."""
    exact = convt.reference.conv_transpose(x, w, dtype=np.longdouble, **attributes)
    return exact - y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("way", "channels", "kernel", "attributes"), CASES)
def test_chains_of_every_path(way, dtype, channels, kernel, attributes):
    x, w = one_large_weight(dtype, 4, channels, (5, 6), 5, kernel)
    with forced(way):
        layer = convt.ConvTranspose(w, **attributes)
        assert layer.explain(x.shape)["kernel"] == way[1].name
        y = layer(x)
    lost = absorbed(y, x, w, attributes)
    assert lost.min() >= 0
    assert lost.max() <= LONGEST_CHAIN


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("path", [None, *paths.VECTOR_PATHS], ids=lambda path: path.name if path else "native")
@pytest.mark.parametrize("level", VECTOR_LEVELS)
def test_a_multiply_add_rounds_once(level, path, dtype):
    """A square whose last bits a product alone loses, and minus what remains of it, in either order."""
    unit = np.finfo(dtype).eps
    size, kernel, attributes = ((6, 7), (3, 3), {"pads": [1] * 4}) if path else ((1, 1), (1, 1), {})
    x, w = np.zeros((2, 24, *size), dtype), np.zeros((24, 20, *kernel), dtype)
    for image, (square, rest) in enumerate([(10, 11), (11, 10)]):
        x[image, square], x[image, rest] = 1 + unit, -(1 + 2 * unit)
    left = []
    for square, rest in [(10, 11), (11, 10)]:
        centre = tuple(k // 2 for k in kernel)
        w[(square, slice(None), *centre)], w[(rest, slice(None), *centre)] = 1 + unit, 1
        with forced((level, path)):
            layer = convt.ConvTranspose(w, **attributes)
            assert path is None or layer.explain(x.shape)["kernel"] == path.name
            left.append(layer(x)[len(left)])
    assert sorted(found.max() for found in left) == sorted(found.min() for found in left) == [0, unit**2]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("size", "path", "kind"), [((1, 1), None, "native"), ((3, 3), paths.CHANNEL_COLUMNS, "panels")]
)
def test_chains_of_one_call(level, dtype, size, path, kind, monkeypatch):
    ran = []
    for of_kind in (plan.NativePlan, plan.BoxPlan):
        run = of_kind.run
        monkeypatch.setattr(
            of_kind, "run", lambda self, *operands, run=run: ran.append(self) or run(self, *operands)
        )
    x, w = one_large_weight(dtype, 1, 1700, size, 40, (4, 4))
    with forced((level, path)):
        y = convt.conv_transpose(x, w, strides=[4, 4])
    assert [found.kind for found in ran] == [kind]
    lost = absorbed(y, x, w, {"strides": [4, 4]})
    assert lost.min() >= 0
    assert lost.max() <= LONGEST_CHAIN


@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("channels", [60, 200, 600])
@pytest.mark.parametrize(
    ("outputs", "kernel", "attributes"),
    [
        (6, (5, 5), {"pads": [2] * 4}),
        (6, (4, 4), {"strides": [2, 2], "pads": [1] * 4}),
        (40, (2, 2), {"strides": [2, 2]}),
    ],
    ids=str,
)
def test_chains_do_not_depend_on_how_outputs_lie(level, dtype, channels, outputs, kernel, attributes):
    """Rows of consecutive outputs are written in one pass, without taps beyond the border; others are not."""
    x, w, b = operands(dtype, (1, channels, 5, 64), outputs, kernel)
    with forced((level, paths.POSITIONS)):
        layer = convt.ConvTranspose(w, b, n_threads=1, **attributes)
        y = layer(x)
        if level == "avx512" and kernel != (4, 4):
            tiles = layer.explain(x.shape)["tiles"]
            assert tiles["one pass"]
            assert tiles.get("taps left out", False) == (kernel == (5, 5))
        apart = np.empty((*y.shape, 2), dtype)[..., 0]
        layer(x, out=apart)
    assert_same_bits(np.ascontiguousarray(apart), y)


@pytest.mark.usefixtures("threads_for_any_work")
@pytest.mark.parametrize("level", VECTOR_LEVELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("path", paths.VECTOR_PATHS, ids=lambda path: path.name)
@pytest.mark.parametrize(
    ("size", "kernel", "attributes"),
    [
        ((7, 9), (3, 3), {"pads": [1] * 4}),
        ((3, 64), (5, 5), {"pads": [2] * 4}),
        ((200,), (4,), {"strides": [2], "pads": [1, 1]}),
        ((100,), (6,), {"strides": [2], "pads": [2, 2]}),
    ],
    ids=str,
)
def test_chains_do_not_depend_on_threads(level, path, dtype, size, kernel, attributes):
    x, w, b = operands(dtype, (2, 300, *size), 12, kernel)
    with forced((level, path)):
        layers = [convt.ConvTranspose(w, b, n_threads=n, **attributes) for n in (1, 2, 5)]
        one, *others = (layer(x) for layer in layers)
    for other in others:
        assert_same_bits(other, one)

"""ConvTranspose as an object: its own weights, pickling, threads at once, explain."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest
from cases import DTYPES

import convt
from convt import planner, tiling
from convt.geometry import LONG_KERNEL
from convt.layer import PACKED_KEPT, SHAPES_KEPT

pytestmark = pytest.mark.usefixtures("each_isa")

RNG = np.random.default_rng(2)
W = RNG.standard_normal((6, 5, 3, 3)).astype(np.float32)
B = RNG.standard_normal(10).astype(np.float32)
ATTRIBUTES = {"group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}


def layer(**more):
    return convt.ConvTranspose(W, B, **ATTRIBUTES, **more)


def inputs(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def test_any_batch_and_spatial_size():
    one = layer()
    for shape in [(1, 6, 4, 4), (3, 6, 1, 9), (0, 6, 4, 4), (1, 6, 4, 4)]:
        x = inputs(*shape)
        np.testing.assert_array_equal(one(x), convt.conv_transpose(x, W, B, **ATTRIBUTES))


@pytest.mark.parametrize("channels", [70, 18000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_packed_weights_give_the_bits_of_native_ones(dtype, channels):
    """An image of one position that only part of the kernel meets outputs with: one call reads the weights as they
    are, a layer packs them."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((3, channels, 1, 1)).astype(dtype)
    w = rng.standard_normal((channels, 21, 4, 4)).astype(dtype)
    b = (-0.0 * rng.integers(0, 2, 42)).astype(dtype)
    if dtype.itemsize == 2:
        b.view(np.uint16)[5] = {"float16": 0x7E15, "bfloat16": 0x7FD5}[dtype.name]  # a NaN with a payload
    attributes = {"group": 2, "strides": [2, 2], "dilations": [2, 2], "pads": [1, 1, 3, 3]}
    layer = convt.ConvTranspose(w, b, **attributes)
    one, other, report = layer(x), convt.conv_transpose(x, w, b, **attributes), layer.explain(x.shape)
    assert report["isa"] == "generic" or ("slice" in report["tiles"]) == (channels > 70)  # of several chains
    assert (one == 0).any() and np.nan_to_num(one.astype(np.float64)).any()  # some outputs are bias alone
    np.testing.assert_array_equal(one.view(np.uint8), other.view(np.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
def test_strips_of_native_weights_do_not_change_bits(dtype):
    """More threads get shorter strips of columns; the last strips here are no whole vectors."""
    rng = np.random.default_rng(5)
    x, w = (rng.standard_normal(shape).astype(dtype) for shape in [(1, 400, 1, 1), (400, 1201, 3, 3)])
    one, three = (convt.ConvTranspose(w, n_threads=threads) for threads in (1, 3))
    reports = [layer.explain(x.shape) for layer in (one, three)]
    if reports[0]["isa"] != "generic":
        assert [report["kernel"] for report in reports] == ["native weights"] * 2
        assert reports[0]["tiles"]["tasks"] < reports[1]["tiles"]["tasks"]
    np.testing.assert_array_equal(one(x), three(x))


def test_few_kernel_positions_of_a_huge_output_take_no_memory():
    one = convt.ConvTranspose(np.ones((1, 1, 2), np.float32), output_shape=[10**12])
    assert one.explain((1, 1, 1))["output_shape"] == (1, 1, 10**12)


def test_keeps_its_own_weights():
    w, b = W.copy(), B.copy()
    one = convt.ConvTranspose(w, b, **ATTRIBUTES)
    w[...] = b[...] = 0
    x = inputs(1, 6, 4, 4)
    np.testing.assert_array_equal(one(x), layer()(x))


each_duplicate = pytest.mark.parametrize(
    "duplicate", [lambda a: pickle.loads(pickle.dumps(a)), copy.copy, copy.deepcopy]
)


@each_duplicate
def test_pickle_and_copy(duplicate):
    one = layer(n_threads=1, precision="high")
    x = inputs(2, 6, 4, 4)
    wanted = one(x)
    np.testing.assert_array_equal(duplicate(one)(x), wanted)
    assert repr(duplicate(one)) == repr(one)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_weights_and_bias_are_pickled_in_native_byte_order(dtype):
    """Unpickled in the other one, ml_dtypes' bfloat16 breaks that dtype for the process."""
    native = W.astype(dtype), B.astype(dtype)
    swapped = [a.byteswap().view(a.dtype.newbyteorder(">")) for a in native]
    state = vars(convt.ConvTranspose(*swapped, group=2))
    for name, wanted in zip(("_w", "_b"), native, strict=True):
        assert state[name].dtype.isnative
        np.testing.assert_array_equal(state[name], wanted)


@each_duplicate
def test_a_copy_asks_for_the_level_anew(duplicate, monkeypatch):
    one = layer()
    before = one.explain((1, 6, 8, 8))["isa"]
    monkeypatch.setenv("CONVT_ISA", "generic")
    assert duplicate(one).explain((1, 6, 8, 8))["isa"] == "generic"
    assert one.explain((1, 6, 8, 8))["isa"] == before


@each_duplicate
def test_attributes_of_callers_are_kept(duplicate):
    one = layer()
    one.tag = "first"
    assert duplicate(one).tag == "first"


def test_repr_names_shape_and_dtype():
    one = convt.ConvTranspose(W, group=2, strides=[2, 1])
    assert repr(one) == "ConvTranspose(6 -> 10 channels, kernel (3, 3), strides (2, 1), group 2, float32)"


@pytest.mark.parametrize(
    ("attributes", "wanted"),
    [
        (
            ATTRIBUTES | {"dilations": [1, 3]},
            "dilations (1, 3), pads (1, 1, 1, 1), output_padding (1, 1), group 2",
        ),
        ({"auto_pad": "SAME_LOWER"}, "auto_pad SAME_LOWER, group 1"),
        ({"output_shape": [9, 9], "opset": 1}, "output_shape (9, 9), opset 1, group 1"),
        ({"output_shape": [1, 5, 9, 9]}, "output_shape (1, 5, 9, 9), group 1"),
        ({"n_threads": 2, "precision": "high"}, "group 1, float32, precision high, n_threads 2)"),
    ],
)
def test_repr_names_what_is_not_by_default(attributes, wanted):
    assert wanted in repr(convt.ConvTranspose(W, **attributes))


def test_many_threads_at_once():
    one = layer()
    shapes = [(1, 6, 4 + i % 5, 6) for i in range(40)]
    wanted = [layer()(inputs(*shape)) for shape in shapes]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda shape: one(inputs(*shape)), shapes))
    for result, expected in zip(results, wanted, strict=True):
        np.testing.assert_array_equal(result, expected)


@pytest.mark.usefixtures("threads_for_any_work")
def test_calls_from_many_threads_that_begin_threads_of_their_own():
    """Layers and functions, which share the memory of their scratch and of packed weights."""
    one = layer(n_threads=2)
    xs = [inputs(1, 6, 4 + i % 5, 40) for i in range(60)]
    wanted = [layer(n_threads=1)(x) for x in xs]
    with ThreadPoolExecutor(4) as pool:
        of_layer = list(pool.map(one, xs))
        of_function = list(pool.map(lambda x: convt.conv_transpose(x, W, B, n_threads=2, **ATTRIBUTES), xs))
    for results in zip(of_layer, of_function, wanted, strict=True):
        np.testing.assert_array_equal(results[0], results[2])
        np.testing.assert_array_equal(results[1], results[2])


def test_explain_of_sizes_that_no_array_has():
    one = convt.ConvTranspose(np.ones((8, 8, 3), np.float32), pads=[2**62 - 1, 2**62 - 98])
    assert one.explain((1, 8, 2**63 - 100))["output_shape"] == (1, 8, 1)


def test_remembered_shapes_are_bounded():
    one = layer()
    for i in range(2 * SHAPES_KEPT):
        one(inputs(1, 6, 1 + i, 1))
    assert 0 < len(one._ready) <= SHAPES_KEPT


def test_one_plan_of_a_long_kernel_is_remembered():
    one = convt.ConvTranspose(np.ones((1, 1, LONG_KERNEL + 1), np.float32))
    before = planner.remembered_plan.cache_info(), tiling.classes_of.cache_info()
    for size in (4, 5, 6):
        one(np.ones((1, 1, size), np.float32))
        assert len(one._ready) == 1
    assert (planner.remembered_plan.cache_info(), tiling.classes_of.cache_info()) == before
    assert 0 < planner.remembered_long_plan.cache_info().currsize <= 4


def test_packed_copies_of_the_weights_are_bounded():
    """A kernel larger than the images: each size leaves out other taps, and wants other weights."""
    one = convt.ConvTranspose(np.ones((4, 4, 31, 31), np.float32), pads=[15] * 4)
    for size in range(2, 15):
        one(np.ones((1, 4, size, size), np.float32))
        assert 0 < len(one._packed) <= PACKED_KEPT


def test_threads_that_come_together_keep_one_copy_of_the_weights(monkeypatch):
    """Each of them packs, after all have seen that nothing is packed."""
    barrier = Barrier(4, timeout=60)

    def as_native(array):
        barrier.wait()
        return array

    monkeypatch.setattr(convt.layer, "as_native", as_native)
    one = layer()
    shapes = [(1, 6, 4 + i, 6) for i in range(barrier.parties)]
    with ThreadPoolExecutor(barrier.parties) as pool:
        list(pool.map(lambda shape: one(inputs(*shape)), shapes))
    assert len(one._ready) == barrier.parties
    assert len(one._packed) == 1
    assert {id(packed) for _, packed in one._ready.values()} == {id(packed) for packed in one._packed.values()}


def test_out_is_checked_before_weights_are_packed():
    one = layer()
    with pytest.raises(ValueError, match="out: expected shape"):
        one(inputs(1, 6, 4, 4), out=np.empty((1, 10, 4, 4), np.float32))
    assert not one._packed


def test_explain_counts():
    report = layer(n_threads=1).explain((2, 6, 8, 8))
    assert report["flops"] == 2 * 2 * 6 * 5 * 9 * 64
    assert report["bytes"] == 4 * (2 * 6 * 64 + 6 * 5 * 9 + 2 * 10 * 16 * 16)
    assert report["taps"] == ((2, 1), (2, 1))
    assert report["threads"] == 1
    assert report["isa"] in str(report)


@pytest.mark.parametrize("shape", [(1, 6, 16, 16), (1, 6, 256, 256), (16, 6, 1024, 4096)])
def test_workspace_is_bounded_whatever_the_image_and_batch(shape):
    assert layer(n_threads=1).explain(shape)["workspace_bytes"] <= 4 * 2**20

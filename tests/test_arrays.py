"""Memory layouts in, `out`, and what must not be copied or touched."""

import numpy as np
import pytest
from cases import DTYPES, LAYOUTS, as_layout

import convt
from convt import _levels, arrays
from convt._memory import MOST_KEPT, RESULTS, WORKSPACES, Reserve

pytestmark = pytest.mark.usefixtures("each_isa")

ATTRIBUTES = {"strides": [2, 3], "pads": [1, 0, 0, 2], "dilations": [1, 2]}


def data(dtype=np.float32):
    rng = np.random.default_rng(1)
    x = rng.integers(-4, 5, (2, 6, 7, 5)).astype(dtype)
    w = rng.integers(-4, 5, (6, 3, 3, 2)).astype(dtype)
    b = rng.integers(-4, 5, 3).astype(dtype)
    return x, w, b


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "read-only"])
def test_layout_of_out(layout, dtype):
    x, w, b = data(dtype)
    wanted = convt.conv_transpose(x, w, b, **ATTRIBUTES)
    out = as_layout(np.full_like(wanted, 77), layout)
    assert convt.conv_transpose(x, w, b, out=out, **ATTRIBUTES) is out
    np.testing.assert_array_equal(out.astype(np.float64), wanted.astype(np.float64))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layout_of_every_input(layout):
    x, w, b = data()
    wanted = convt.conv_transpose(x, w, b, **ATTRIBUTES)
    y = convt.conv_transpose(as_layout(x, layout), as_layout(w, layout), as_layout(b, layout), **ATTRIBUTES)
    np.testing.assert_array_equal(y, wanted, strict=True)


@pytest.mark.parametrize("length", [1 << 14, (1 << 14) + 1])
def test_a_result_of_64_kb_begins_with_a_cache_line(length):
    y = convt.conv_transpose(np.ones((1, 1, length), np.float32), np.ones((1, 1, 1), np.float32))
    assert y.ctypes.data % 64 == 0


def test_out_leaves_its_surroundings_alone():
    x, w, b = data()
    shape = convt.output_shape(x.shape, w.shape, **ATTRIBUTES)
    frame = np.full([n + 2 for n in shape], 77, np.float32)
    convt.conv_transpose(x, w, b, out=frame[1:-1, 1:-1, 1:-1, 1:-1], **ATTRIBUTES)
    frame[1:-1, 1:-1, 1:-1, 1:-1] = 77
    assert (frame == 77).all()


def test_out_may_interleave_with_an_input_without_overlap():
    buffer = np.zeros((1, 1, 20), np.float32)
    x, out = buffer[..., :14:2], buffer[..., 1:15:2]
    x[...] = np.arange(7)
    np.testing.assert_array_equal(convt.conv_transpose(x, np.full((1, 1, 1), 2, np.float32), out=out), 2 * x)


def test_layer_writes_to_out():
    x, w, b = data()
    layer = convt.ConvTranspose(w, b, **ATTRIBUTES)
    out = np.empty(layer.output_shape(x.shape), np.float32)
    assert layer(x, out=out) is out
    np.testing.assert_array_equal(out, layer(x))


def test_inputs_are_not_written():
    x, w, b = data()
    before = x.copy(), w.copy(), b.copy()
    convt.conv_transpose(x, w, b, **ATTRIBUTES)
    for array, copy in zip((x, w, b), before, strict=True):
        np.testing.assert_array_equal(array, copy)


def test_failed_call_leaves_out_alone():
    x, w, _ = data()
    out = np.full(convt.output_shape(x.shape, w.shape), 77, np.float32)
    with pytest.raises(ValueError, match="b:"):
        convt.conv_transpose(x, w, np.ones(2, np.float32), out=out)
    assert (out == 77).all()


def test_broadcast_input_with_zero_strides():
    _, w, b = data()
    x = np.broadcast_to(np.float32(2), (2, 6, 7, 5))
    np.testing.assert_array_equal(
        convt.conv_transpose(x, w, b, **ATTRIBUTES), convt.conv_transpose(x.copy(), w, b, **ATTRIBUTES)
    )


def test_subclasses_give_plain_arrays(tmp_path):
    x, w, _ = data()
    mapped = np.memmap(tmp_path / "x", np.float32, "w+", shape=x.shape)
    mapped[...] = x
    y = convt.conv_transpose(mapped, w)
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, convt.conv_transpose(x, w))


def test_nested_lists_of_floats_are_float64():
    y = convt.conv_transpose([[[1.0, 2.0]]], [[[1.0, 10.0]]])
    np.testing.assert_array_equal(y, np.array([[[1.0, 12.0, 20.0]]]), strict=True)


def test_result_is_native_for_big_endian_input():
    x, w, _ = data()
    y = convt.conv_transpose(x.astype(">f4"), w.astype(">f4"))
    assert y.dtype == np.float32
    assert y.dtype.isnative


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_result_has_the_dtype_of_x(dtype):
    x, w, _ = data(dtype)
    assert convt.conv_transpose(x, w).dtype == dtype


def addresses_of(shapes):
    """Where results of large calls lie, each dropped before the next call."""
    layer = convt.ConvTranspose(np.ones((1, 4, 2), np.float32), strides=[2])
    return [layer(np.ones((1, 1, n), np.float32)).ctypes.data for n in shapes]


def test_memory_of_a_large_result_is_used_again():
    # The first, too large for the others, drops what earlier tests left.
    assert len(set(addresses_of([1_800_000] + [1_200_000] * 4)[1:])) == 1


def test_the_largest_block_that_is_kept():
    reserve = Reserve(1 << 25, 0.25)
    reserve.take(MOST_KEPT)
    reserve.take(MOST_KEPT + 1)
    assert [len(block) for block in reserve.blocks] == [MOST_KEPT]
    kept = reserve.blocks[0].ctypes.data
    assert reserve.take(MOST_KEPT).ctypes.data == kept


def test_packed_weights_do_not_push_results_out_of_what_is_kept():
    before = [id(block) for block in RESULTS.blocks]
    layer = convt.ConvTranspose(np.ones((2100, 2100, 2, 2), np.float32), strides=[2, 2])
    layer(np.ones((1, 2100, 2, 2), np.float32))
    assert [id(block) for block in RESULTS.blocks] == before


def test_bytes_of_a_cache_line():
    assert arrays.CACHE_LINE == _levels.CACHE_LINE


def test_memory_of_a_result_in_use_is_not_touched():
    layer = convt.ConvTranspose(np.ones((1, 4, 2), np.float32), strides=[2])
    views = [layer(np.full((1, 1, 1_200_000), i, np.float32))[0, 3, 5::7] for i in range(4)]
    assert [set(np.unique(view)) for view in views] == [{0.0}, {1.0}, {2.0}, {3.0}]


def test_scratch_and_weights_of_one_call_are_used_again():
    x, w = np.ones((1, 64, 30, 30), np.float32), np.ones((64, 64, 4, 4), np.float32)
    WORKSPACES.blocks.clear()  # of what earlier tests left, the first call may drop some and the second some
    seen = []
    for _ in range(4):
        convt.conv_transpose(x, w, strides=[2, 2])
        seen.append({id(block) for block in WORKSPACES.blocks})
    assert seen[1:] == [seen[0]] * 3


def test_packed_weights_of_a_layer_are_its_own():
    layer = convt.ConvTranspose(np.ones((64, 64, 4, 4), np.float32), strides=[2, 2])
    x = np.ones((1, 64, 30, 30), np.float32)
    wanted = layer(x)
    convt.conv_transpose(x, np.full((64, 64, 4, 4), 2, np.float32), strides=[2, 2])
    np.testing.assert_array_equal(layer(x), wanted)


def test_memory_in_use_by_another_object_is_not_touched():
    layer = convt.ConvTranspose(np.ones((1, 4, 2), np.float32), strides=[2])
    holders = [memoryview(layer(np.full((1, 1, 1_200_000), i, np.float32))) for i in range(3)]
    assert [holder[0, 0, 0] for holder in holders] == [0.0, 1.0, 2.0]

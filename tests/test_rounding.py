"""The caller's rounding mode, and whether its thread flushes subnormals, change nothing and are left alone."""

import ctypes
import platform
import struct
import threading
from contextlib import contextmanager

import numpy as np
import pytest

import convt
from convt import planner
from convt.geometry import OnnxRules

pytestmark = [
    pytest.mark.skipif(
        platform.machine() != "x86_64" or platform.libc_ver()[0] != "glibc",
        reason="the control register is reached through glibc's fenv_t of x86-64",
    ),
    pytest.mark.usefixtures("each_isa"),
]

MXCSR = 28  # its place in fenv_t
FLUSHED, UPWARD = 0x8040, 0x4000
CONTROL = 0xFFC0  # all bits but what exceptions have been seen


def environment():
    """The calling thread's floating-point environment."""
    found = ctypes.create_string_buffer(32)
    ctypes.CDLL(None).fegetenv(found)
    return found


@contextmanager
def control(bits):
    """Control bits set in the calling thread."""
    before = environment()
    changed = ctypes.create_string_buffer(before.raw, 32)
    struct.pack_into("I", changed, MXCSR, struct.unpack_from("I", before, MXCSR)[0] | bits)
    ctypes.CDLL(None).fesetenv(changed)
    try:
        yield
    finally:
        ctypes.CDLL(None).fesetenv(before)


def operands(dtype, images):
    """Weights and an input whose products are subnormal, and inexact."""
    rng = np.random.default_rng(0)
    scale = {"float16": 2.0**-12, "float32": 2.0**-70, "float64": 2.0**-530}[dtype]
    size, channels = (1, 500) if images else (9, 40)
    x, w = rng.uniform(1, 2, (2, 40, size, size)), rng.uniform(1, 2, (40, channels, 4, 4))
    return (x * scale).astype(dtype), (w * scale).astype(dtype)


@pytest.mark.parametrize("bits", [FLUSHED, UPWARD], ids=["flushed", "upward"])
@pytest.mark.parametrize("images", [False, True], ids=["", "one position"])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_bits_of_the_result(dtype, images, bits):
    x, w = operands(dtype, images)
    expected = convt.conv_transpose(x, w, strides=[2, 2])
    with control(bits):
        result = convt.conv_transpose(x, w, strides=[2, 2])
    assert np.count_nonzero(expected)
    np.testing.assert_array_equal(result.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("bits", [FLUSHED, UPWARD], ids=["flushed", "upward"])
@pytest.mark.parametrize("images", [False, True], ids=["", "one position"])
def test_bits_of_what_a_pool_computes(images, bits, each_isa, monkeypatch):
    """Its threads are made by a thread that flushes or rounds otherwise, as `Layer` would not let it."""
    monkeypatch.setattr(planner, "CYCLES_PER_THREAD", 1)
    x, w = operands("float32", images)
    geometry = OnnxRules(w.shape, strides=[2, 2]).geometry(x.shape)
    without = frozenset({"pieces"})  # which such magnitudes are not for
    chosen = planner.new_plan(planner.Call(geometry, "float32", each_isa, 4, without=without))
    assert chosen.threads > 1
    expected, result = np.empty((2, *chosen.output_shape), np.float32)
    assert chosen.run(x, expected, chosen.pack(w, None))

    def compute():
        with control(bits):
            chosen.run(x, result, chosen.pack(w, None))

    thread = threading.Thread(target=compute)  # OpenMP has a pool for each
    thread.start()
    thread.join()
    np.testing.assert_array_equal(result.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("bits", [0, FLUSHED, UPWARD], ids=["as it was", "flushed", "upward"])
def test_the_control_register_is_as_it_was(bits):
    x, w = operands("float32", False)
    with control(bits):
        before = struct.unpack_from("I", environment(), MXCSR)[0]
        convt.conv_transpose(x, w)
        after = struct.unpack_from("I", environment(), MXCSR)[0]
    assert before & CONTROL == after & CONTROL


def test_the_control_register_is_as_it_was_after_an_error():
    x, w = operands("float32", False)
    with control(FLUSHED):
        with pytest.raises(ValueError, match="out: "):
            convt.conv_transpose(x, w, out=np.empty((1, 1), np.float32))
        after = struct.unpack_from("I", environment(), MXCSR)[0]
    assert after & FLUSHED == FLUSHED

"""The functions remember rules by the arguments that they were made of."""

import re
from collections.abc import Sequence

import numpy as np
import pytest

import convt
from convt import functional, geometry
from convt.geometry import RULES_REMEMBERED, OnnxRules, OpenvinoRules

X, W = np.ones((1, 1, 4), np.float32), np.ones((1, 1, 2), np.float32)


class Number:
    """An integer whose value is not its own."""

    value = 2

    def __index__(self):
        return self.value


def test_equal_arguments_have_the_same_rules():
    assert OnnxRules.of(W.shape, strides=[2], group=1) is OnnxRules.of(W.shape, strides=(2,), group=1)


@pytest.mark.parametrize(
    "other", [{"strides": [3]}, {"strides": None}, {"strides": [2], "opset": 21}, {"dilations": [2]}], ids=str
)
def test_other_arguments_have_rules_of_their_own(other):
    assert OnnxRules.of(W.shape, strides=[2]) is not OnnxRules.of(W.shape, **other)


def test_rules_are_those_of_the_arguments_that_they_are_remembered_by(monkeypatch):
    """Whatever another thread makes of a list meanwhile."""
    strides, key = [2], geometry.plain_key
    monkeypatch.setattr(geometry, "plain_key", lambda arguments: (key(arguments), strides.__setitem__(0, 3))[0])
    assert OnnxRules.of((1, 1, 9), strides=strides).strides == (2,)


def test_attributes_are_read_once():
    class Changing(Sequence):
        """Other integers, whenever it is asked."""

        def __init__(self):
            self.values = iter(range(2, 100))

        def __len__(self):
            return 1

        def __getitem__(self, i):
            if i:
                raise IndexError
            return next(self.values)

    assert OnnxRules.of(W.shape, strides=Changing()).strides == (2,)


def test_openvinos_rules_are_remembered_apart():
    attributes = {"strides": [2], "pads_begin": [0], "pads_end": [0], "dilations": [1]}
    rules = OpenvinoRules.of(W.shape, None, **attributes)
    assert rules is OpenvinoRules.of(W.shape, None, **attributes)
    assert rules is not OpenvinoRules.of(W.shape, [8], **attributes)
    assert rules is not OpenvinoRules.of(W.shape, None, **attributes, names={"x": "data"})


def test_names_of_arguments_are_those_of_the_function():
    x = np.ones((1, 2, 4), np.float32)
    for _ in range(2):
        with pytest.raises(ValueError, match=r"^x: expected 1 channels"):
            convt.conv_transpose(x, W, strides=[2], pads=[0, 0], output_padding=[0], dilations=[1], group=1)
        with pytest.raises(ValueError, match=r"^input: expected 1 channels"):
            functional.conv_transpose1d(x, W, stride=2)


@pytest.mark.parametrize(
    ("name", "mistake"),
    [("strides[0]", {"strides": [True]}), ("strides[0]", {"strides": [1.0]}), ("group", {"group": 1.0})],
    ids=str,
)
def test_what_equals_the_attributes_of_an_earlier_call_is_refused_as_ever(name, mistake):
    """In Python True == 1 == 1.0."""
    convt.conv_transpose(X, W, strides=[1], group=1)
    with pytest.raises(TypeError, match=re.escape(name)):
        convt.conv_transpose(X, W, **{"strides": [1], "group": 1, **mistake})


def test_a_list_that_was_changed_counts_as_it_is():
    strides = [2]
    assert convt.conv_transpose(X, W, strides=strides).shape == (1, 1, 8)
    strides[0] = 3
    assert convt.conv_transpose(X, W, strides=strides).shape == (1, 1, 11)


def test_objects_are_asked_anew(monkeypatch):
    strides = [Number()]
    assert convt.conv_transpose(X, W, strides=strides).shape == (1, 1, 8)
    monkeypatch.setattr(Number, "value", 3)
    assert convt.conv_transpose(X, W, strides=strides).shape == (1, 1, 11)


def test_every_shape_has_its_own_geometry():
    for size in (4, 5, 4):
        assert convt.conv_transpose(np.ones((1, 1, size), np.float32), W, strides=[2]).shape == (1, 1, 2 * size)


def test_they_are_bounded():
    for stride in range(1, 2 * RULES_REMEMBERED):
        convt.conv_transpose(X, W, strides=[stride])
    assert 0 < len(OnnxRules.remembered) <= RULES_REMEMBERED

"""The functions remember rules by the arguments that they were made of."""

import re

import numpy as np
import pytest

import convt
from convt.geometry import RULES_KEPT, OnnxRules

X, W = np.ones((1, 1, 4), np.float32), np.ones((1, 1, 2), np.float32)


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


def test_attributes_that_cannot_be_pickled_are_read_as_well():
    class Two:
        def __index__(self):
            return 2

    assert convt.conv_transpose(X, W, strides=[Two()]).shape == (1, 1, 8)


def test_they_are_bounded():
    for stride in range(1, 2 * RULES_KEPT):
        convt.conv_transpose(X, W, strides=[stride])
    assert len(OnnxRules.kept) <= RULES_KEPT

"""Which kernel positions meet which outputs of an axis."""

from typing import NamedTuple

import numpy as np


class Phases(NamedTuple):
    """The phases of an axis that have taps, by rising residue, in flat arrays of int64.

    Phase i is of the outputs ``o`` with ``(o + pad) % stride == residue[i]``. Its taps are those from
    ``first_tap[i]`` up to ``first_tap[i + 1]``, in kernel order, so that `back` rises: output
    ``q = (o + pad) // stride`` reads input ``q - back[t]`` times ``W[tap[t]]``.
    """

    residue: np.ndarray
    first_tap: np.ndarray
    tap: np.ndarray
    back: np.ndarray


def phases(kernel: int, stride: int, dilation: int) -> Phases:
    """The phases of an axis, which depend on neither its input size nor its pads."""
    back, residue = np.divmod(np.arange(kernel) * dilation, stride)
    tap = np.argsort(residue, kind="stable")
    residues, first = np.unique(residue[tap], return_index=True)
    return Phases(residues, np.append(first, kernel), tap, back[tap])

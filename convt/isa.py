"""The instruction-set levels of this build, and the choice between them."""

import os

from convt._tiles import levels

# From the least to the most capable level that this build and this processor have.
AVAILABLE = ("generic", *levels())


def choose() -> str:
    """The level that layers use: ``CONVT_ISA`` if set, else the most capable.

    Raises
    ------
    ValueError
        If ``CONVT_ISA`` names no available level.
    """
    forced = os.environ.get("CONVT_ISA")
    if forced is None:
        return AVAILABLE[-1]
    if forced not in AVAILABLE:
        raise ValueError(f"CONVT_ISA: expected one of {', '.join(AVAILABLE)}, got {forced!r}")
    return forced

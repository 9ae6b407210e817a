"""The instruction-set levels of this build, and the choice between them."""

import os
from functools import cache

from convt.arguments import shown


@cache
def available() -> tuple[str, ...]:
    """From the least to the most capable level that this build, this processor and its system have.

    The first call asks Linux to let the process use AMX, which an import alone should not do.
    """
    from convt._levels import levels  # here, because `import convt` alone should not load it

    return ("generic", *levels())


def choose() -> str:
    """The level that layers use: ``CONVT_ISA`` if set and not empty, else the most capable.

    Raises
    ------
    ValueError
        If ``CONVT_ISA`` names no available level.
    """
    forced = os.environ.get("CONVT_ISA")
    if not forced:
        return available()[-1]
    if forced not in available():
        raise ValueError(f"CONVT_ISA: expected one of {', '.join(available())}, got {shown(forced)}")
    return forced

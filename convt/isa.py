"""The instruction-set levels of this build, and the choice between them."""

import os
from functools import cache

from convt.arguments import shown


@cache
def available() -> tuple[str, ...]:
    """From the least to the most capable level that this build, this processor and its system have."""
    from convt._levels import level_names  # here, because `import convt` alone should not load it

    return tuple(filter(runs, ("generic", *level_names())))


@cache
def runs(level: str) -> bool:
    """Whether this build, this processor and its system have the level.

    To ask for `amx` asks Linux to let the process use it, for good: neither an import nor another level should.
    """
    from convt._levels import runs_here

    return level == "generic" or runs_here(level)


@cache
def fastest() -> str:
    """The most capable level that gains on this processor."""
    from convt._levels import gains_here

    return [level for level in available() if level == "generic" or gains_here(level)][-1]


def choose() -> str:
    """The level that layers use: ``CONVT_ISA`` if set and not empty, else the fastest.

    Raises
    ------
    ValueError
        If ``CONVT_ISA`` names no available level.
    """
    forced = os.environ.get("CONVT_ISA")
    if not forced:
        return fastest()
    if not runs(forced):
        raise ValueError(f"CONVT_ISA: expected one of {', '.join(available())}, got {shown(forced)}")
    return forced

"""Neighbouring taps of a row of the input as one tap of more channels, for tile registers.

A register multiplies 32 channels of a tap, filled or not. Where the input is packed as ``[place][channel]``, the
channels of neighbouring places are one row: 3 taps of 16 channels fill two registers, not three. Less is gained
than that, as zeros that fill registers up are multiplied faster than other numbers: random layers took 0.86
(bfloat16, 16), 0.89 (float16, 30) and 0.90 of the time (float32, 20; Xeon with AMX).
"""

import itertools
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from convt._levels import PLACE_UNIT, TILE_CHANNELS
from convt.tiling import TapClass

# Of the registers, at most, that are multiplied then, by the pieces of an element. Tiles of one piece load about
# as long as they multiply, and longer where rows share cache lines.
MERGED_PART = {1: 0.6, 2: 0.84, 3: 0.84}
MOST_MERGED = 64  # taps


class MergedTaps(NamedTuple):
    """What taps become.

    Attributes
    ----------
    taps : int
        Neighbours that make one.
    channels : int
        Of a place, some of them zeros.
    classes : tuple of TapClass
        A tap's shift is the least of those that it is made of. Its kernel positions are numbers of `kernel`.
    kernel : tuple of tuple of int
        Of each merged kernel position, those that it is made of, in the order of the inputs that they read; -1 for
        none.
    """

    taps: int
    channels: int
    classes: tuple[TapClass, ...]
    kernel: tuple[tuple[int, ...], ...]


@lru_cache(maxsize=32)
def merge_taps(classes: tuple[TapClass, ...], channels: int, pieces: int) -> MergedTaps | None:
    """As many taps merged as multiply the fewest registers; None where few are saved."""
    most = MERGED_PART[pieces]
    channels = -(-channels // PLACE_UNIT) * PLACE_UNIT
    registers = -(-channels // TILE_CHANNELS)
    if channels > most * registers * TILE_CHANNELS:
        return None  # even without zeros
    rows = [taps_by_rows(c.shifts) for c in classes]
    lengths = [(len(row), len(c.places)) for c, of_class in zip(classes, rows, strict=True) for row in of_class]

    def multiplied(taps: int) -> int:
        of_tap = -(-taps * channels // TILE_CHANNELS)
        return sum(places * -(-length // taps) * of_tap for length, places in lengths)

    longest = max((length for length, _ in lengths), default=1)
    taps = min(range(1, min(longest, MOST_MERGED) + 1), key=multiplied)
    if taps == 1 or multiplied(taps) > most * multiplied(1):
        return None
    kernel: list[tuple[int, ...]] = []
    merged = []
    for c, of_class in zip(classes, rows, strict=True):
        groups = [row[i : i + taps] for row in of_class for i in range(0, len(row), taps)]
        positions = []
        for of_place in c.kernel:
            positions.append(tuple(range(len(kernel), len(kernel) + len(groups))))
            kernel += [(*(of_place[t] for t in group), *[-1] * (taps - len(group))) for group in groups]
        merged.append(TapClass(c.places, tuple(c.shifts[group[0]] for group in groups), tuple(positions)))
    return MergedTaps(taps, channels, tuple(merged), tuple(kernel))


def taps_by_rows(shifts: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """The taps of some shifts, those that read neighbouring inputs of a row together, the first input first."""
    in_order = sorted(range(len(shifts)), key=shifts.__getitem__)
    rows = [in_order[:1]] if in_order else []
    for before, tap in itertools.pairwise(in_order):
        *outer, last = shifts[before]
        if shifts[tap] == (*outer, last + 1):
            rows[-1].append(tap)
        else:
            rows.append([tap])
    return rows

"""Tiles that share what they read: rows of one input channel, and pairs of tile registers."""

from collections.abc import Sequence

from convt._levels import MOST_RUN
from convt.tiling import BoxLayout, TapClass

MAX_SHARED_ROWS = 4  # that leave registers for what they load; more if a row has more places


def shares_loads(layout: BoxLayout) -> bool:
    """Whether tiles of one input channel are worth sharing what their rows and lines read.

    Where all rows have all taps, those of four or more share it as those of any class, in tiles of more vectors:
    0.88 (float64) to 1.08 of the time; one of dilated taps, which make no runs, took 0.95.
    """
    if len(layout.classes) > 1:
        return True
    shifts = {(0, *shift) for shift in layout.classes[0].shifts}
    few = len(layout.classes[0].places) < MAX_SHARED_ROWS
    return few and any((*outer, row + 1, column) in shifts for *outer, row, column in shifts)


def classes_sharing_loads(classes: Sequence[TapClass], inner: int, most: int) -> list[TapClass]:
    """Classes of as many whole rows of `inner` places as fit into `most`, the same number each, of every shift
    that one of these has; the kernel index is -1 where a place lacks it.

    Shifts along rows come in turn, as a run of taps reads the same lines (`runs_of_lines`).
    """
    kernel_of = {
        place: dict(zip(c.shifts, kernel, strict=True))
        for c in classes
        for place, kernel in zip(c.places, c.kernel, strict=True)
    }
    rows = len(kernel_of) // inner
    together = max(n for n in range(1, rows + 1) if rows % n == 0 and n * inner <= max(most, inner)) * inner

    def in_turn(shift: tuple[int, ...]) -> tuple[int, ...]:
        *outer, row, column = (0, *shift)
        return (*(-a for a in outer), -column, row)

    merged = []
    for first in range(0, len(kernel_of), together):
        places = tuple(range(first, first + together))
        shifts = tuple(sorted({shift for place in places for shift in kernel_of[place]}, key=in_turn))
        kernel = tuple(tuple(kernel_of[place].get(shift, -1) for shift in shifts) for place in places)
        merged.append(TapClass(places, shifts, kernel))
    return merged


def runs_of_lines(shifts: Sequence[tuple[int, ...]]) -> list[int]:
    """Of each tap, how many from it on read one row further each, up to `MOST_RUN`."""
    runs = [1] * len(shifts)
    for t in range(len(shifts) - 2, -1, -1):
        *outer, row, column = (0, *shifts[t])
        if (0, *shifts[t + 1]) == (*outer, row + 1, column):
            runs[t] = runs[t + 1] + 1
    # Two and two of four rather than three and one.
    return [2 if run == MOST_RUN + 1 else min(run, MOST_RUN) for run in runs]


def taps_of_pair(
    first: Sequence[tuple[int, ...]], second: Sequence[tuple[int, ...]]
) -> list[tuple[tuple[int, ...], int]]:
    """The taps of two classes, each in the order that it has them in, and which of these has each: 1, 2 or 3."""
    taps = []
    place = {shift: j for j, shift in enumerate(second)}
    i = j = 0
    while i < len(first) or j < len(second):
        if i < len(first) and j < len(second) and first[i] == second[j]:
            taps.append((first[i], 3))
            i, j = i + 1, j + 1
        elif i < len(first) and place.get(first[i], -1) < j:
            taps.append((first[i], 1))
            i += 1
        else:
            taps.append((second[j], 2))
            j += 1
    return taps

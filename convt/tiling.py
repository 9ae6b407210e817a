"""From geometry to boxes of cells: how the vectorised paths cut up the output.

A *cell* is the block of ``stride`` outputs per axis that starts at a multiple of the stride; cell ``j`` and place
``e`` in it make output ``j*stride + e``. Every cell has the same places, and a place has the same taps in every cell:
it reads inputs ``j + shift`` for a fixed list of shifts. Places with equal shifts form a *class*; a class is a matrix
product of cells x (taps, channels) x (places, output channels).

A task computes a *box* of cells (a range along the batch axis and each spatial axis) in scratch memory. The box's
input, with zeros around it, is stored so that all its cells lie at one constant step: a *run*. Neighbouring rows share
the zeros between them, which makes even a 4x4 image one run of 19 places.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from convt.geometry import Axis, Geometry

# Bytes of a box's input and of its sums, per thread: both stay in a 2 MB second-level cache with the weights in use.
INPUT_BYTES = 1 << 20
SUMS_BYTES = 1 << 19
# Beyond this many places in a cell the lists of places outgrow the work.
MOST_PLACES = 4096
MAX_AXES = 8


class TapClass(NamedTuple):
    """Places of a cell that read the same inputs. ``kernel[i][t]`` is the kernel index of place i, shift t."""

    places: tuple[int, ...]
    shifts: tuple[tuple[int, ...], ...]
    kernel: tuple[tuple[int, ...], ...]


class BoxLayout(NamedTuple):
    """A box of cells and its scratch. Axis 0 is the batch, the others are spatial.

    Attributes
    ----------
    axes : ndarray of int64
        Per axis: input, stride, output, cells, box, origin, reach, pitch. `origin` and `reach` are the least and the
        greatest shift, `pitch` is how many input places are stored.
    classes : tuple of TapClass
    run_axis : int
        Axes from this one on make a run; the ones before it are looped over.
    boxes : int
    input_elements, sum_positions : int
        Per channel, and per class and output channel; slack excluded.
    """

    axes: np.ndarray
    classes: tuple[TapClass, ...]
    run_axis: int
    boxes: int
    steps: tuple[int, ...]
    input_elements: int
    sum_positions: int
    tail: int


def normalise(axis: Axis) -> Axis:
    """With one input the stride has no effect: take the one that makes kernel and stride equal, one tap a place."""
    if axis.input == 1:
        return axis._replace(stride=(axis.kernel - 1) * axis.dilation + 1)
    return axis


def axis_classes(axis: Axis) -> list[tuple[tuple[int, ...], tuple[int, ...], list[tuple[int, ...]]]]:
    """Places, shifts and kernel indices of the classes of one axis."""
    taps: dict[int, list[tuple[int, int]]] = {}
    for k in range(axis.kernel):
        back, residue = divmod(k * axis.dilation, axis.stride)
        taps.setdefault(residue, []).append((back, k))
    cells = -(-axis.output // axis.stride)
    groups: dict[tuple[int, ...], tuple[list[int], list[tuple[int, ...]]]] = {}
    for place in range(min(axis.stride, axis.output)):
        ahead, residue = divmod(place + axis.pad, axis.stride)
        # Taps that meet no input in any cell would only widen the box.
        pairs = [(ahead - back, k) for back, k in taps.get(residue, ()) if -cells < ahead - back < axis.input]
        shifts = tuple(shift for shift, _ in pairs)
        places, kernel = groups.setdefault(shifts, ([], []))
        places.append(place)
        kernel.append(tuple(k for _, k in pairs))
    return [(tuple(places), shifts, kernel) for shifts, (places, kernel) in groups.items()]


def cell_classes(axes: Sequence[Axis]) -> tuple[TapClass, ...]:
    """The classes of all axes together; places and kernel indices are flattened in C order."""
    classes = [TapClass((0,), ((),), ((0,),))]
    for axis in axes:
        width = min(axis.stride, axis.output)
        classes = [
            TapClass(
                tuple(p * width + q for p in outer.places for q in places),
                tuple((*s, t) for s in outer.shifts for t in shifts),
                tuple(
                    tuple(a * axis.kernel + b for a in outer_kernel for b in inner_kernel)
                    for outer_kernel in outer.kernel
                    for inner_kernel in kernel
                ),
            )
            for outer in classes
            for places, shifts, kernel in axis_classes(axis)
        ]
    return tuple(classes)


def tile_cost(length: int, most: int) -> int:
    """Relative time of a run in tiles of at most `most` positions; each tile loads its weights anew."""
    return length + 2 * -(-length // most)


class BoxSize(NamedTuple):
    """Numbers of one choice of box."""

    pitch: tuple[int, ...]
    steps: tuple[int, ...]
    tail: int
    run_axis: int
    input_elements: int
    sum_positions: int
    cost: int


def box_size(
    cells: Sequence[int], box: Sequence[int], spans: Sequence[tuple[int, int]], inputs: Sequence[int], most: int
) -> BoxSize:
    """Lay out a box. `spans` are the least and greatest shift per axis."""
    pitch = []
    for a, (n, size, (low, high), length) in enumerate(zip(cells, box, spans, inputs, strict=True)):
        span = high - low
        if a == 0 or size < n:
            pitch.append(size + span)
            continue
        # Whole axis: the zeros after one row may be the zeros before the next.
        before = max(0, -low)
        data = max(0, min(length, n + high) - max(0, low))
        pitch.append(max(before + data, size + span - before, size))
    steps = [1] * len(box)
    for a in range(len(box) - 2, -1, -1):
        steps[a] = steps[a + 1] * pitch[a + 1]
    best = None
    for run_axis in range(len(box)):
        length = sum((n - 1) * s for n, s in zip(box[run_axis:], steps[run_axis:], strict=True)) + 1
        runs = math.prod(box[:run_axis])
        cost = runs * tile_cost(length, most)
        if best is None or cost < best[0]:
            best = cost, run_axis, runs * length
    assert best is not None
    tail = sum((high - low) * s for (low, high), s in zip(spans, steps, strict=True))
    return BoxSize(tuple(pitch), tuple(steps), tail, best[1], pitch[0] * steps[0] + tail, best[2], best[0])


def lay_out(
    geometry: Geometry, most: int, input_bytes: int, sum_bytes: int, least_boxes: int
) -> BoxLayout | None:
    """The largest box that fits the scratch, or None where none does.

    Parameters
    ----------
    geometry : Geometry
    most : int
        Positions of a register tile.
    input_bytes, sum_bytes : int
        Bytes per stored input place, and per position of the sums.
    least_boxes : int
        Boxes wanted for the threads, as far as there are cells.
    """
    spatial = [normalise(axis) for axis in geometry.axes]
    if len(spatial) >= MAX_AXES or math.prod(min(a.stride, a.output) for a in spatial) > MOST_PLACES:
        return None
    classes = cell_classes(spatial)
    batch = Axis(geometry.batch, 1, 1, 1, 0, geometry.batch)
    axes = [batch, *spatial]
    cells = [-(-axis.output // axis.stride) for axis in axes]
    spans = [(0, 0)]
    for a in range(len(spatial)):
        shifts = [shift[a] for tap_class in classes for shift in tap_class.shifts] or [0]
        spans.append((min(shifts), max(shifts)))
    inputs = [axis.input for axis in axes]
    pieces = [1] * len(axes)
    while True:
        box = [-(-n // p) for n, p in zip(cells, pieces, strict=True)]
        size = box_size(cells, box, spans, inputs, most)
        boxes = math.prod(-(-n // b) for n, b in zip(cells, box, strict=True))
        fits = size.input_elements * input_bytes <= INPUT_BYTES and size.sum_positions * sum_bytes <= SUMS_BYTES
        if fits and boxes >= least_boxes:
            break
        axis = next((a for a, b in enumerate(box) if b > 1), None)
        if axis is None:
            if fits:
                break
            return None
        # The next number of pieces that makes the box smaller.
        pieces[axis] = -(-cells[axis] // (box[axis] - 1)) if box[axis] <= 8 else 2 * pieces[axis]
    table = np.array(
        [
            (axis.input, min(axis.stride, axis.output), axis.output, n, b, low, high, p)
            for axis, n, b, (low, high), p in zip(axes, cells, box, spans, size.pitch, strict=True)
        ],
        dtype=np.int64,
    )
    return BoxLayout(
        table,
        classes,
        size.run_axis,
        boxes,
        size.steps,
        size.input_elements,
        size.sum_positions,
        size.tail,
    )

"""From geometry to boxes of cells: how the vectorised paths cut up the output.

A *cell* is the block of ``stride`` outputs per axis that starts at a multiple of the stride; cell ``j`` and
place ``e`` in it make output ``j*stride + e``. Every cell has the same places, and a place has the same taps in
every cell: it reads inputs ``j + shift`` for a fixed list of shifts. Places with equal shifts form a *class*; a
class is a matrix product of cells x (taps, channels) x (places, output channels).

A task computes *boxes* of cells (a range along the batch axis and each spatial axis), one or a chain of them, of
one group or several, in scratch memory. A box's input, with zeros around it, is stored so that the cells of a
*run* lie at one constant step: those of a row or, as neighbouring rows share the zeros between them, of several.
Even a 4x4 image can be one run of 19 places. Or a run is the same cell of several images, which needs no zeros.
"""

import itertools
import math
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

from convt._levels import CHECKED_POSITIONS, MAX_AXES, MOST_ZEROS, TileLimits
from convt.geometry import Axis, Geometry
from convt.phases import phases

# Bytes of a box's sums per thread. With the input they stay in a 2 MB second-level cache, weights in use included.
SUMS_BYTES = 1 << 19
# Positions of a tile may lie so far apart if a row has so many cells for each.
MOST_GAP, GAP_CELLS = 4, 8
MOST_PLACES = 4096  # of a cell: lists of more outgrow the work
# Of so many kernel positions lists take 300 MB.
MOST_KERNEL_POSITIONS = 1 << 20


class TapClass(NamedTuple):
    """Places of a cell that read the same inputs. ``kernel[i][t]`` is the kernel index of place i, shift t.

    Of `classes_sharing_loads` they read most of them alike; the index is -1 where a place lacks the tap.
    """

    places: tuple[int, ...]
    shifts: tuple[tuple[int, ...], ...]
    kernel: tuple[tuple[int, ...], ...]


class Cells(NamedTuple):
    """A geometry cut into cells. Axis 0 is the batch, the others are spatial.

    Attributes
    ----------
    axes : tuple of Axis
    counts : tuple of int
        Cells per axis.
    classes : tuple of TapClass
    spans : tuple of (int, int)
        Least and greatest shift per axis.
    inside : tuple of float
        The share of all classes' taps that read inputs, not zeros beyond the border that can be left out, per
        axis; of the last one by runs that are rows.
    """

    axes: tuple[Axis, ...]
    counts: tuple[int, ...]
    classes: tuple[TapClass, ...]
    spans: tuple[tuple[int, int], ...]
    inside: tuple[float, ...]

    @property
    def places(self) -> int:
        """Places of a cell."""
        return math.prod(axis.places for axis in self.axes)

    @property
    def several_taps(self) -> bool:
        """Whether cells read several inputs."""
        return any(low < high for low, high in self.spans)

    @property
    def inner_places(self) -> int:
        """Places of a row of a cell."""
        return self.axes[-1].places

    def of_single_places(self) -> "Cells":
        """The same with a class for each place."""
        alone = (
            TapClass((p,), c.shifts, (k,)) for c in self.classes for p, k in zip(c.places, c.kernel, strict=True)
        )
        return self._replace(classes=tuple(alone))

    @property
    def gap(self) -> int:
        """Places from one position of a tile to the next, lanes along channels.

        As many as lie between the taps of a row if these are several: they share the loads of inputs then.

        It is part of the order of summation: nothing that depends on threads, as boxes do, may change it.
        """
        axis = self.axes[-1]
        common = math.gcd(axis.dilation, axis.stride)
        gap = axis.dilation // common
        several = axis.kernel > axis.stride // common
        return gap if several and gap <= MOST_GAP and GAP_CELLS * gap <= self.counts[-1] else 1


class BoxAxis(NamedTuple):
    """One axis of a box of cells.

    Attributes
    ----------
    input : int
        Elements.
    places : int
        Of a cell.
    output : int
        Elements.
    cells : int
        Of the axis.
    box : int
        Cells of a box.
    origin, reach : int
        The least and the greatest shift.
    pitch : int
        Input places that are stored.
    """

    input: int
    places: int
    output: int
    cells: int
    box: int
    origin: int
    reach: int
    pitch: int


class BoxLayout(NamedTuple):
    """A box of cells and its scratch. Axis 0 is the batch, the others are spatial.

    Attributes
    ----------
    axes : tuple of BoxAxis
    classes : tuple of TapClass
    run_axis : int
        Axes from this one on make a run; the ones before it are looped over. If there is none, axis 0 makes it.
    boxes : int
    steps : tuple of int
        From one cell to the next in the packed input, per axis.
    runs, run_length : int
        Of a full box.
    input_elements : int
        Places of a full box's packed input.
    gap : int
        As of the cells; 0 for runs of images, no taps of which are neighbours.
    chain : int
        Boxes along axis 1 that one task computes one after the other. What two of them share of the packed
        input, or of its products, is kept.
    """

    axes: tuple[BoxAxis, ...]
    classes: tuple[TapClass, ...]
    run_axis: int
    boxes: int
    steps: tuple[int, ...]
    runs: int
    run_length: int
    input_elements: int
    gap: int = 1
    chain: int = 1

    @property
    def image_runs(self) -> bool:
        """Whether runs go along axis 0."""
        return self.run_axis == len(self.steps)

    @property
    def rows_are_runs(self) -> bool:
        """Whether a run is one row of cells."""
        return self.run_axis == len(self.steps) - 1

    def rows_fill_tiles(self, limits: TileLimits) -> bool:
        """Whether rows of cells have the vectors of a tile of all its rows of sums: each is multiplied alone."""
        return self.axes[-1].cells >= limits.vectors_of(limits.rows) * limits.lanes

    @property
    def looped_axes(self) -> range:
        """The spatial axes on which a run has one cell."""
        return range(1, self.run_axis)

    @property
    def most_taps(self) -> int:
        """Taps of the place that has most of them."""
        return max(len(tap_class.shifts) for tap_class in self.classes)

    @property
    def boxes_along(self) -> int:
        """Boxes along axis 1."""
        return -(-self.axes[1].cells // self.axes[1].box)

    @property
    def full_boxes(self) -> float:
        """As many full ones have the cells of all: the last ones may be filled in part."""
        return math.prod(axis.cells / axis.box for axis in self.axes)

    @property
    def chains(self) -> int:
        """Chains of boxes."""
        return self.boxes // self.boxes_along * -(-self.boxes_along // self.chain)

    @property
    def new_elements(self) -> float:
        """Places of an average box that no box before it in its chain has packed or multiplied."""
        shared = (self.axes[1].reach - self.axes[1].origin) * self.steps[1]
        return self.input_elements - shared * (1 - 1 / self.chain)

    @property
    def parts(self) -> int:
        """Of a run, lanes along channels, whose tiles' positions lie apart."""
        return max(1, self.gap)

    @property
    def line_and_plane(self) -> tuple[int, int]:
        """Positions of a line that is packed at once, lanes along positions, and of a plane of a box's input, one
        of rows or of images with one axis; rows without anything between them are one line."""
        last = self.axes[-1]
        plane = last.pitch * self.axes[-2].pitch
        return plane if last.pitch == last.input and len(self.box) > 2 else last.pitch, plane

    @property
    def box(self) -> tuple[int, ...]:
        """Cells of a box, per axis."""
        return tuple(axis.box for axis in self.axes)


def normalise(axis: Axis) -> Axis:
    """With one input the stride has no effect: take the one that leaves one tap a place."""
    if axis.input == 1:
        return axis._replace(stride=(axis.kernel - 1) * axis.dilation + 1)
    return axis


class AxisClass(NamedTuple):
    """Places of one axis that read the same inputs: `TapClass` is of all axes together."""

    places: tuple[int, ...]
    shifts: tuple[int, ...]
    kernel: tuple[tuple[int, ...], ...]


def axis_classes(axis: Axis) -> list[AxisClass]:
    """The classes of one axis."""
    found = phases(axis.kernel, axis.stride, axis.dilation)
    tap, back = found.tap.tolist(), found.back.tolist()
    bounds = itertools.pairwise(found.first_tap.tolist())
    taps = {phase: range(*bound) for phase, bound in zip(found.residue.tolist(), bounds, strict=True)}
    cells = -(-axis.output // axis.stride)
    groups: dict[tuple[int, ...], tuple[list[int], list[tuple[int, ...]]]] = {}
    for place in range(axis.places):
        ahead, residue = divmod(place + axis.pad, axis.stride)
        # Taps that meet no input in any cell would only widen the box.
        read = ((ahead - back[t], tap[t]) for t in taps.get(residue, ()))
        pairs = [(shift, k) for shift, k in read if -cells < shift < axis.input]
        shifts = tuple(shift for shift, _ in pairs)
        places, kernel = groups.setdefault(shifts, ([], []))
        places.append(place)
        kernel.append(tuple(k for _, k in pairs))
    return [AxisClass(tuple(places), shifts, tuple(kernel)) for shifts, (places, kernel) in groups.items()]


def cell_classes(axes: Sequence[Axis], of_axes: Sequence[Sequence[AxisClass]]) -> tuple[TapClass, ...]:
    """The classes of all axes together; places and kernel indices are flattened in C order."""
    classes = [TapClass((0,), ((),), ((0,),))]
    for axis, of_axis in zip(axes, of_axes, strict=True):
        width = axis.places
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
            for places, shifts, kernel in of_axis
        ]
    return tuple(classes)


class Tile(NamedTuple):
    """Positions that micro-kernels multiply at once.

    Attributes
    ----------
    most, unit : int
        How many at most, in whole numbers of what.
    load : int
        How many more take as long as what a tile takes besides, such as loading its weights.
    waiting : int
        How many take as long as any fewer do: their sums are fewer than the multiply-adds under way at once.
    leave_out : bool
        Whether taps beyond the border are left out: for whole runs and, where positions are single ones, for those
        at the ends of rows.
    """

    most: int
    unit: int = 1
    load: int = 0
    waiting: int = 0
    leave_out: bool = False

    def cost(self, length: int) -> int:
        """Relative time of a run."""
        positions = -(-length // self.unit) * self.unit
        return max(positions, self.waiting) + -(-length // self.most) * self.load

    def positions(self, length: int) -> float:
        """As many positions, of whole tiles, take as long as a run."""
        return self.cost(length) / self.cost(self.most) * self.most

    def bordered_axes(self, run_axis: int, box: Sequence[int]) -> range:
        """The spatial axes at whose ends runs along those from `run_axis` on, of a box, leave out taps."""
        if not self.leave_out:
            return range(0)
        rows = self.unit == 1 and run_axis == len(box) - 1 and box[-1] >= CHECKED_POSITIONS
        return range(1, run_axis + rows)


def taps_of_row(shifts: Sequence[tuple[int, ...]], gap: int) -> int:
    """How many taps of a class read inputs of one row, each `gap` places before the last one; 1 if others do."""
    taps = [1]
    for before, after in itertools.pairwise(shifts):
        if after == (*before[:-1], before[-1] - gap):
            taps[-1] += 1
        else:
            taps.append(1)
    return taps[0] if len(set(taps)) == 1 else 1


class BoxSize(NamedTuple):
    """Numbers of one choice of box; `spans` are the least and greatest shift that input is stored for."""

    spans: tuple[tuple[int, int], ...]
    pitch: tuple[int, ...]
    steps: tuple[int, ...]
    run_axis: int
    runs: int
    run_length: int
    input_elements: int


def box_size(cells: Cells, box: Sequence[int], tile: Tile) -> BoxSize:
    """Lay out a box."""
    pitch = [box[0]]
    for n, size, (low, high), axis in zip(cells.counts[1:], box[1:], cells.spans[1:], cells.axes[1:], strict=True):
        span = high - low
        if size < n:
            pitch.append(size + span)
            continue
        # Whole axis: the zeros after one row may be the zeros before the next.
        before = max(0, -low)
        data = max(0, min(axis.input, n + high) - max(0, low))
        pitch.append(max(before + data, size + span - before, size))
    steps = [1] * len(box)
    for a in range(len(box) - 2, -1, -1):
        steps[a] = steps[a + 1] * pitch[a + 1]
    # The last cells' taps may reach past the last pitch.
    reach = 1
    for n, (low, high), step in zip(box, cells.spans, steps, strict=True):
        reach += (n - 1 + high - low) * step
    least = math.inf
    length = 1
    for axis_of_runs in range(len(box) - 1, -1, -1):
        length += (box[axis_of_runs] - 1) * steps[axis_of_runs]
        of_box = math.prod(box[:axis_of_runs])
        cost = float(of_box * tile.cost(length))
        for a in tile.bordered_axes(axis_of_runs, box):
            cost *= cells.inside[a]
        if cost <= least:  # of equal ones the longest runs
            least, run_axis, runs, run_length = cost, axis_of_runs, of_box, length
    return BoxSize(
        cells.spans, tuple(pitch), tuple(steps), run_axis, runs, run_length, max(pitch[0] * steps[0], reach)
    )


def image_box_size(cells: Cells, box: Sequence[int]) -> BoxSize:
    """Lay out a box whose runs are the images, the innermost axis of its input; only what there is is stored."""
    inputs = [axis.input for axis in cells.axes]
    whole = [a > 0 and size == n for a, (n, size) in enumerate(zip(cells.counts, box, strict=True))]
    spans = [(0, n) if all_of_it else span for n, span, all_of_it in zip(inputs, cells.spans, whole, strict=True)]
    pitch = [
        n if all_of_it else size + high - low
        for n, size, (low, high), all_of_it in zip(inputs, box, spans, whole, strict=True)
    ]
    steps = [1] * len(box)
    for a in range(1, len(box)):
        steps[a] = math.prod(pitch[a + 1 :]) * box[0]
    return BoxSize(
        tuple(spans), tuple(pitch), tuple(steps), len(box), math.prod(box[1:]), box[0], math.prod(pitch)
    )


def cut(geometry: Geometry) -> Cells | None:
    """The cells of a geometry, or None where there are too many axes, places or kernel positions."""
    axes = (Axis(geometry.batch, 1, 1, 1, 0, geometry.batch), *map(normalise, geometry.axes))
    cells = Cells(axes, tuple(-(-axis.output // axis.stride) for axis in axes), (), (), ())
    if len(axes) > MAX_AXES or cells.places > MOST_PLACES or geometry.kernel_positions > MOST_KERNEL_POSITIONS:
        return None
    of_axes = tuple(without_size(axis) for axis in axes[1:])
    classes, of_shifts = (classes_of.__wrapped__ if geometry.has_long_kernel else classes_of)(of_axes)
    shifts = ((0,), *of_shifts)  # of the batch
    most = (*cells.counts[:-1], MOST_ZEROS * cells.gap)
    return cells._replace(
        classes=classes,
        spans=tuple((min(on_axis), max(on_axis)) for on_axis in shifts),
        inside=tuple(map(share_inside, shifts, cells.counts, (axis.input for axis in axes), most)),
    )


def without_size(axis: Axis) -> Axis:
    """The same axis for any size: inputs and outputs beyond its kernel's reach do not change its classes."""
    reach = (axis.stride - 1 + axis.pad + (axis.kernel - 1) * axis.dilation) // axis.stride + 1
    return axis._replace(input=min(axis.input, reach), output=min(axis.output, reach * axis.stride))


@lru_cache(maxsize=32)
def classes_of(axes: tuple[Axis, ...]) -> tuple[tuple[TapClass, ...], tuple[tuple[int, ...], ...]]:
    """The classes of some spatial axes, and the shifts on each axis; a layer asks for them at every size."""
    of_axes = [axis_classes(axis) for axis in axes]
    shifts = [tuple(shift for c in of_axis for shift in c.shifts) for of_axis in of_axes]
    if not all(shifts):
        shifts = [(0,)] * len(of_axes)  # no taps
    return cell_classes(axes, of_axes), tuple(shifts)


def share_inside(shifts: Collection[int], cells: int, inputs: int, most: int) -> float:
    """The share of the taps of some shifts along an axis that read one of its inputs: of others, those of up to
    `most` cells at either end may be left out."""
    left_out = sum(
        min(cells, min(most, max(0, -shift)) + min(most, max(0, cells + shift - inputs))) for shift in shifts
    )
    return 1 - left_out / (cells * len(shifts))


class ScratchLimits(NamedTuple):
    """What boxes may take of the scratch, in bytes.

    Attributes
    ----------
    input_place : int
        Of an input place: packed, unless it is in portions, and with columns first its products.
    input_limit : int
        Of all input places of a box.
    sums : int
        Of the sums of a position.
    """

    input_place: int
    input_limit: int
    sums: int


def lay_out(
    cells: Cells, tile: Tile, scratch: ScratchLimits, least_boxes: int, images: int, least_width: int = 0
) -> BoxLayout | None:
    """The largest box that fits the scratch, or None where none does.

    Parameters
    ----------
    cells : Cells
    tile : Tile
    scratch : ScratchLimits
    least_boxes : int
        Boxes wanted for the threads, as far as there are cells.
    images : int
        Images that make a run; 0 for runs along rows.
    least_width : int
        Cells of a row, to a multiple of which it is cut rather than leave a box no more rows than it shares with
        the next one; 0 leaves rows whole as long as a box has several.
    """
    row_axis = len(cells.counts) - 2
    shared_rows = cells.spans[row_axis][1] - cells.spans[row_axis][0] if least_width else 0

    def try_box(box: list[int]) -> tuple[BoxSize, bool]:
        """Its numbers, and whether it fits."""
        size = image_box_size(cells, box) if images else box_size(cells, box, tile)
        fits = (
            size.input_elements * scratch.input_place <= scratch.input_limit
            and size.runs * size.run_length * scratch.sums <= SUMS_BYTES
        )
        return size, fits

    def boxes_of(box: list[int]) -> int:
        return math.prod(-(-n // b) for n, b in zip(cells.counts, box, strict=True))

    # A cell has sums and, but in runs of images, a place of the input: boxes of more need not be laid out to see
    # that they do not fit.
    most_cells = SUMS_BYTES // max(1, scratch.sums)
    if not images:
        most_cells = min(most_cells, scratch.input_limit // max(1, scratch.input_place))
    box = list(cells.counts)
    parts = [1] * len(box)  # that each axis is cut into
    axis = 0  # that is cut next
    if images:
        parts[0] = -(-box[0] // images)
        box[0] = -(-box[0] // parts[0])
        axis = 1
    while True:
        fits = False
        if math.prod(box) <= most_cells:
            size, fits = try_box(box)
            if fits and boxes_of(box) >= least_boxes:
                break
        while axis < len(box) and box[axis] == 1:
            axis += 1
        if axis == len(box):
            if fits:
                break
            return None
        if axis == row_axis and box[axis] <= shared_rows and box[-1] > least_width:
            box[-1] = max(1, 3 * box[-1] // 4 // least_width) * least_width
            continue
        # A quarter more parts, or the next number of them that makes the box smaller.
        parts[axis] = max(-(-cells.counts[axis] // (box[axis] - 1)), 5 * parts[axis] // 4)
        box[axis] = -(-cells.counts[axis] // parts[axis])
    if len(box) == 2 and not images:
        # Whole units in every run but the last, if there are boxes enough then: up to 6 % of 1-D layers.
        whole = [box[0], min(-(-box[1] // tile.unit) * tile.unit, cells.counts[1])]
        size_of_whole, fits = try_box(whole)
        if fits and boxes_of(whole) >= least_boxes:
            box, size = whole, size_of_whole
    axes = tuple(
        BoxAxis(axis.input, axis.places, axis.output, n, b, low, high, p)
        for axis, n, b, (low, high), p in zip(cells.axes, cells.counts, box, size.spans, size.pitch, strict=True)
    )
    return BoxLayout(
        axes,
        cells.classes,
        size.run_axis,
        boxes_of(box),
        size.steps,
        size.runs,
        size.run_length,
        size.input_elements,
        0 if images else cells.gap,
    )


def lay_out_whole_images(cells: Cells, scratch: ScratchLimits, least_boxes: int) -> BoxLayout | None:
    """Boxes of whole images, their input packed without zeros around it, or None where one image is too large.

    Parameters are those of `lay_out`.
    """
    inputs = [axis.input for axis in cells.axes[1:]]
    places, positions = math.prod(inputs), math.prod(cells.counts[1:])
    if places == 0:
        return None
    images = min(scratch.input_limit // (places * scratch.input_place), SUMS_BYTES // (positions * scratch.sums))
    images = min(images, cells.counts[0], -(-cells.counts[0] // least_boxes))
    if images < 1:
        return None
    batch = cells.counts[0]
    axes = (
        BoxAxis(batch, 1, batch, batch, images, 0, 0, images),
        *(
            BoxAxis(axis.input, axis.places, axis.output, n, n, 0, axis.input, axis.input)
            for axis, n in zip(cells.axes[1:], cells.counts[1:], strict=True)
        ),
    )
    steps = tuple(math.prod(inputs[a:]) for a in range(len(inputs) + 1))
    rows = images * math.prod(cells.counts[1:-1])
    boxes = -(-cells.counts[0] // images)
    return BoxLayout(axes, cells.classes, len(inputs), boxes, steps, rows, cells.counts[-1], images * places)

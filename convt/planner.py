"""From geometry to plan: the path of the least estimate, its boxes, and how many threads these are worth."""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from convt._levels import most_pieces, tile_limits
from convt.boxes import Boxes
from convt.coalesce import as_product, coalesce_axes
from convt.cost import phase_rows_cycles
from convt.dtypes import ITEMSIZE
from convt.geometry import Geometry
from convt.paths import (
    CHANNEL_TILE_COLUMNS,
    CHANNEL_TILES,
    CHANNELS,
    DEPTHWISE_PATHS,
    PIECE_PATHS,
    POSITIONS,
    VECTOR_PATHS,
    Path,
    pieces_of,
)
from convt.plan import BoxPlan, NativePlan, Plan, RowPlan
from convt.tiling import Cells, cut

# Images of one position, by the bytes of an element, that a function multiplies by the weights as they are, three
# at a time: six of floats and doubles took 0.9 to 1.8 times as long as by packed weights, of halves 0.4 to 1.3.
MOST_NATIVE_IMAGES = {2: 6, 4: 3, 8: 3}
# And that a layer does: two to six of floats took 0.3 to 0.8 of the time by packed weights, of doubles 0.3 to
# 0.95, three to six of halves 0.4 to 0.9 (up to 8 MB of weights, Zen 5); one 0.94 to 1.13, 0.95 to 1.27 and 0.8 to
# 2.5.
MOST_NATIVE_IMAGES_OF_LAYERS = {2: 2, 4: 1, 8: 1}
# Even these are packed if no more than this part of all is used: 512 channels, 4 of 16 kernel positions, took 0.27
# of the time.
PACKED_USE = 0.5

FEW_WIDENED = 8  # input channels of a group, up to which multiply-adds of widened elements may beat dot products

# A thread is worth waking for so many estimated cycles: two of a pool that waits take 0.67 of the time of one for
# 22 microseconds of work. Counted in multiplications, layers of few of them but many outputs stayed on one thread:
# two took 0.57 (float32) and 0.63 of the time (bfloat16; random layers).
CYCLES_PER_THREAD = 50_000
NATIVE_CYCLES = 0.25  # of a weight that is read once: 1.6 to 6 MB, all dtypes, Zen 5

# Scratch bytes per thread. Kernels of thousands of positions, whose sums of whole tiles take more, go another way.
MOST_WORKSPACE = 4 << 20


forced_path: Path | None = None  # set by `forced` alone, as plans that were made otherwise must be forgotten


@contextmanager
def forced(path: Path | None) -> Iterator[None]:
    """Wherever boxes are chosen, they are this path's, if it is not None: to test and time it, in one thread."""
    global forced_path
    before, forced_path = forced_path, path
    forget_plans()
    try:
        yield
    finally:
        forced_path = before
        forget_plans()


class Call(NamedTuple):
    """What is planned.

    Attributes
    ----------
    geometry : Geometry
    dtype, isa : str
    threads : int
        At most.
    precision : str
    without : frozenset of str
        Kinds of plans that refused the operands.
    once : bool
        Whether weights serve this call alone: they are not worth packing then where they need not be, and large
        ones of few positions go another way than those of a layer.
    """

    geometry: Geometry
    dtype: str
    isa: str
    threads: int
    precision: str = "highest"
    without: frozenset[str] = frozenset()
    once: bool = False

    @property
    def has_few_single_positions(self) -> bool:
        """Whether images are of one position, and so few that a function multiplies by the weights as they are.

        A layer that packs these has the same order of summation.
        """
        geometry = self.geometry
        few = geometry.batch <= MOST_NATIVE_IMAGES[ITEMSIZE[self.dtype]]
        few = few and all(axis.input == 1 for axis in geometry.axes)
        return few and min(geometry.in_channels, *geometry.output_shape) > 0

    @property
    def packs_for_few_images(self) -> bool:
        """Whether a layer packs the weights that it reads once in each call."""
        many = self.geometry.batch > MOST_NATIVE_IMAGES_OF_LAYERS[ITEMSIZE[self.dtype]]
        return not self.once and (many or used_kernel(self.geometry) <= PACKED_USE)

    @property
    def pieces(self) -> int:
        """bfloat16 pieces that an element is multiplied in; 0 if it is not."""
        pieces = pieces_of(self.dtype, self.precision)
        return 0 if pieces > most_pieces(self.isa) or "pieces" in self.without else pieces

    def threads_for(self, cycles: float) -> int:
        """Threads that are worth waking for work of so many cycles."""
        return int(max(1, min(self.threads, cycles / CYCLES_PER_THREAD)))

    def in_phase_rows(self, reason: str) -> Plan:
        """In phases of rows."""
        threads = self.threads_for(phase_rows_cycles(self.geometry))
        return RowPlan(self.geometry, self.dtype, self.isa, threads, reason)

    def from_native_weights(self, reason: str) -> Plan:
        """From the weights as they are."""
        weights = self.geometry.macs / self.geometry.batch
        return NativePlan(self.geometry, self.dtype, self.isa, self.threads_for(NATIVE_CYCLES * weights), reason)

    def fallback(self, reason: str) -> Plan:
        """From native weights for a few images of one position, otherwise in phase rows."""
        return self.from_native_weights(reason) if self.has_few_single_positions else self.in_phase_rows(reason)


class PathBoxes(NamedTuple):
    """The output cut into cells, and the boxes of these that paths would compute."""

    cells: Cells
    by_path: dict[Path, Boxes]

    @classmethod
    def of(cls, geometry: Geometry, call: Call, paths: Iterable[Path]) -> "PathBoxes | None":
        """Those of a geometry with coalesced axes; None if they make too many kinds of cells."""
        cells = cut(geometry)
        if cells is None:
            return None
        pieces = call.pieces
        asked = geometry, cells, call.dtype, call.isa
        found = ((path, Boxes.of(*asked, path, pieces, call.once)) for path in paths)
        return cls(cells, {path: boxes for path, boxes in found if boxes})


def new_plan(call: Call) -> Plan:
    """Plan a call. The path must not depend on the threads: each has an order of summation of its own."""
    plan = plan_without_choice(call)
    if plan:
        return plan
    geometry, once = call.geometry, call.once
    native = call.has_few_single_positions
    product = coalesce_axes(as_product(geometry))
    # Images of one position: the same chains of multiply-adds as with native weights.
    paths = (CHANNELS,) if native else paths_worth_asking(product, call.dtype, call.isa, call.pieces)
    by_product = PathBoxes.of(product, call, paths)
    if by_product is None:
        return call.fallback("too many axes, places of a cell or kernel positions")
    # By kernel positions, with the same bits, as channels take up to 2.2 times longer to pack.
    own = coalesce_axes(geometry) if once else product
    by_kernel = PathBoxes.of(own, call, paths) if own != product else None
    # Threads decide whether pieces or panels of them refuse an operand: no weights are multiplied in order then.
    in_order = once and not call.without & {"panels", "pieces"}
    cycles = estimates(by_product.by_path, (by_kernel or by_product).by_path if in_order else {})
    reason = reason_of(call, cycles)
    rows = phase_rows_cycles(geometry)
    if not native and not forced_path and rows < min(cycles.values(), default=math.inf):
        plan = call.in_phase_rows(f"{reason}, phase rows {rows / 1e6:.3g} Mcycles")
        if plan.workspace <= MOST_WORKSPACE:
            return plan
    plan = plan_in_boxes(call, [by_kernel, by_product] if by_kernel else [by_product], cycles, reason)
    return plan or call.fallback("no box of cells fits the scratch")


# Plans hold no arrays of their layer: calls that pack anew share them. Few of long kernels, whose lists take 100
# bytes a position.
remembered_plan = lru_cache(maxsize=64)(new_plan)
remembered_long_plan = lru_cache(maxsize=4)(new_plan)


def make_plan(call: Call) -> Plan:
    """Plan a call, or remember its plan."""
    return (remembered_long_plan if call.geometry.has_long_kernel else remembered_plan)(call)


def forget_plans() -> None:
    """Those that calls share."""
    remembered_plan.cache_clear()
    remembered_long_plan.cache_clear()


def plan_without_choice(call: Call) -> Plan | None:
    """The plan of a call that leaves no choice of boxes; None of any other."""
    geometry = call.geometry
    if call.isa == "generic":
        return call.in_phase_rows("the generic level has one path for every shape")
    if call.has_few_single_positions and ("vectors" in call.without or not call.packs_for_few_images):
        return call.from_native_weights("few images of one position read every weight once")
    if "vectors" in call.without:
        return call.in_phase_rows("a weight is Inf or NaN and must not meet the border's zeros")
    if 0 in (geometry.in_channels, *geometry.output_shape):
        return call.in_phase_rows("nothing to multiply")
    return None


def used_kernel(geometry: Geometry) -> float:
    """The part of the kernel positions that an image of one position meets outputs with."""
    used = 1.0
    for a in geometry.axes:
        first, end = -(-a.pad // a.dilation), -(-(a.pad + a.output) // a.dilation)
        used *= max(0, min(end, a.kernel) - first) / a.kernel
    return used


def reason_of(call: Call, cycles: dict[Path, float]) -> str:
    """Why the path of the least estimate is chosen, for people."""
    least_first = sorted(cycles, key=cycles.__getitem__)
    estimated = ", ".join(f"{path.name} {cycles[path] / 1e6:.3g} Mcycles" for path in least_first)
    reason = f"least estimate: {estimated or 'none'}"
    if call.has_few_single_positions:
        reason = "images of one position: packed once, in the order of native weights"
    if "pieces" in call.without:
        reason = "bfloat16 pieces would lose magnitudes of these operands; " + reason
    return reason


def plan_in_boxes(call: Call, ways: list[PathBoxes], cycles: dict[Path, float], reason: str) -> Plan | None:
    """The plan of the least estimate whose scratch is not too large, by the first of `ways` that has one."""
    in_panels = call.once and "panels" not in call.without
    for path in sorted(cycles, key=cycles.__getitem__):
        for cells, by_path in ways:
            if path not in by_path:
                continue
            boxes = by_path[path]
            threads = call.threads_for(boxes.cycles + (boxes.packing_cycles if call.once else 0))
            whole = BoxPlan(call.geometry, boxes, threads, reason, call.once)
            if whole.workspace > MOST_WORKSPACE:
                reason += f"; {path.name} would take more than {MOST_WORKSPACE >> 20} MB of scratch"
                continue
            for panels in boxes_in_panels(call.geometry, boxes, cells, threads) if in_panels else ():
                plan = BoxPlan(call.geometry, panels, threads, reason, call.once)
                if plan.workspace <= MOST_WORKSPACE:
                    return plan
            shared = boxes.for_threads(cells, threads)
            if (shared.work.layout.box, shared.work.layout.chain) == (whole.box, whole.chain):
                return whole
            return BoxPlan(call.geometry, shared, threads, reason, call.once)
    return None


def paths_worth_asking(geometry: Geometry, dtype: str, isa: str, pieces: int) -> tuple[Path, ...]:
    """Paths whose estimate can be the least, or the forced one."""
    if forced_path:
        return (forced_path,) if pieces or not forced_path.in_pieces else ()
    paths: tuple[Path, ...] = VECTOR_PATHS
    if geometry.is_depthwise:
        return tuple(path for path in DEPTHWISE_PATHS if pieces == 1 or not path.in_pieces)
    if pieces:
        if dtype == "bfloat16" and tile_limits(isa, False, pieces).unit == 1:
            # Dot products are faster than multiply-adds of widened elements, but for few channels. Of 3000 random
            # layers 35 had a lower estimate so; those of more channels took up to twice as long.
            few = geometry.group_inputs <= FEW_WIDENED
            paths = (POSITIONS,) if few else ()
        paths = (*paths, *PIECE_PATHS)
    if geometry.batch == 1:
        # Of 1000 random layers none went in runs of one image. Plans that do not ask take 0.76 of the time.
        paths = tuple(path for path in paths if not path.image_runs)
    return paths


def estimates(boxes: dict[Path, Boxes], once: dict[Path, Boxes]) -> dict[Path, float]:
    """Cycles of each path that may be chosen; of columns first along channels those of `once`, whose weights are
    multiplied in the order given, but beside tile registers (not measured)."""
    cycles = {path: of_path.cycles for path, of_path in boxes.items()}
    if all(of_path.work.limits.unit == 1 for of_path in boxes.values()):
        columns = {path: of_path for path, of_path in once.items() if path.columns_first and path.along_channels}
        cycles |= {path: of_path.cycles_once for path, of_path in columns.items()}
    return cycles if forced_path else {path: n for path, n in cycles.items() if n < math.inf}


def boxes_in_panels(geometry: Geometry, boxes: Boxes, cells: Cells, threads: int) -> list[Boxes]:
    """Boxes with the same sums whose weights are multiplied panel by panel in one call, the best first; none if
    they do not gain."""
    work = boxes.work
    candidates: list[Boxes | None] = [boxes]
    larger_kernel = any(axis.kernel > 1 for axis in geometry.axes)
    if boxes.path == CHANNEL_TILES and work.layout.most_taps == 1 and larger_kernel and not work.merged:
        # Where a place has one tap, columns first have nothing to add up. (Of vectors, a sum of products that all
        # underflow can be -0, but not once it is added to 0.)
        columns = Boxes.of(work.geometry, cells, work.dtype, work.isa, CHANNEL_TILE_COLUMNS, work.pieces)
        candidates.insert(0, columns)
    return [panels for found in candidates if found and (panels := found.multiplied_in_panels(threads))]

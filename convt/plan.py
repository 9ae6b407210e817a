"""From geometry to plan: what will run, in how many tasks, on how many threads."""

import math
import os
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from convt import _box_compute, _box_weights, _kernels, _native
from convt._box_table import BoxTable
from convt._levels import ROW_TILE, most_pieces, tile_limits
from convt.arrays import empty_aligned
from convt.boxes import Boxes
from convt.coalesce import as_product, coalesce_axes
from convt.cost import phase_rows_cycles
from convt.geometry import ITEMSIZE, Geometry
from convt.packing import bias_of_sums, pack_bias, pack_tiles, widen
from convt.paths import (
    CHANNEL_TILE_COLUMNS,
    CHANNEL_TILES,
    CHANNELS,
    PIECE_PATHS,
    POSITIONS,
    VECTOR_PATHS,
    Path,
    pieces_of,
)
from convt.report import Report
from convt.shares import TASKS_TO_BALANCE, even_part, even_parts, splits
from convt.tiling import Cells, cut

# Images of one position want the weights that they use packed if these are no more than this part of all, read in
# every call: 512 channels, 4 of 16 kernel positions, 0.73 -> 0.20 ms.
PACKED_USE = 0.5

FEW_WIDENED = 8  # input channels of a group, up to which multiply-adds of widened elements may beat dot products

# A thread is worth waking for about 50 microseconds of work: multiplications in that time at the generic level,
# and what the vectorised ones do more of.
MACS_PER_THREAD = 200_000
VECTOR_SPEED = 10

# Groups share tasks only where so many are left for each thread.
TASKS_PER_THREAD = 32

# Where the system refuses a thread, OpenMP ends the process: no call asks for more than this.
MOST_THREADS = max(64, 4 * (os.cpu_count() or 1))

# Scratch bytes per thread. Kernels of thousands of positions, whose sums of whole tiles take more, go another way.
MOST_WORKSPACE = 4 << 20

# Weights and bias as a plan's kernels read them, and what else `Plan.run` needs of its `Plan.pack`.
Packed: TypeAlias = tuple[Any, ...]


class Phase(NamedTuple):
    """The taps of the outputs ``o`` with ``(o + pad) % stride == residue``.

    ``taps`` holds pairs ``(k, back)``: output ``q = (o + pad) // stride`` reads input ``q - back`` times W[k].
    """

    residue: int
    taps: tuple[tuple[int, int], ...]


def phases(kernel: int, stride: int, dilation: int) -> tuple[Phase, ...]:
    """The phases that have taps, by rising residue. They depend on neither input size nor pads."""
    taps: dict[int, list[tuple[int, int]]] = {}
    for k in range(kernel):
        back, residue = divmod(k * dilation, stride)
        taps.setdefault(residue, []).append((k, back))
    return tuple(Phase(residue, tuple(taps[residue])) for residue in sorted(taps))


class Plan:
    """How one call is computed: packs weights, runs the kernels, explains itself.

    Attributes
    ----------
    geometry : Geometry
    dtype, isa, path, reason : str
    kind : {"panels", "tiles", "vectors", "native", "rows"}
        What multiplies: a kind whose plans refuse an operand is replaced by the next.
    threads : int
    pack_key : tuple
        Plans of one layer with equal keys use the same packed weights.
    """

    path: str
    kind: str

    def __init__(self, geometry: Geometry, dtype: str, isa: str, threads: int, reason: str) -> None:
        self.geometry = geometry
        self.dtype = dtype
        self.isa = isa
        self.threads = threads
        self.reason = reason
        self.output_shape = geometry.output_shape
        self.pack_key: tuple = ()

    @property
    def tiles(self) -> dict[str, object]:
        """Into how large and how many parts the work is cut."""
        raise NotImplementedError

    @property
    def workspace(self) -> int:
        """Scratch bytes per thread."""
        raise NotImplementedError

    def pack(self, w: np.ndarray, b: np.ndarray | None) -> Packed | None:
        """Weights and bias as `run` wants them; None if they are seen not to suit this kind of plan."""
        raise NotImplementedError

    def run(self, x: np.ndarray, y: np.ndarray, packed: Packed) -> bool:
        """Compute every element of `y`, which has some; False if this kind of plan cannot multiply so."""
        raise NotImplementedError

    def explain(self) -> Report:
        """What would run, and why, for people."""
        geometry = self.geometry
        inputs = geometry.batch * geometry.in_channels * math.prod(a.input for a in geometry.axes)
        weights = geometry.in_channels * geometry.out_channels // geometry.group
        weights *= geometry.kernel_positions
        outputs = math.prod(geometry.output_shape)
        by_axis = [phases(a.kernel, a.stride, a.dilation) for a in geometry.axes]
        return Report(
            isa=self.isa,
            kernel=self.path,
            reason=self.reason,
            dtype=self.dtype,
            output_shape=geometry.output_shape,
            phases=tuple(len(axis) for axis in by_axis),
            taps=tuple(tuple(len(phase.taps) for phase in axis) for axis in by_axis),
            tiles=self.tiles,
            threads=self.threads,
            workspace_bytes=self.threads * self.workspace,
            flops=2 * geometry.macs,
            bytes=(inputs + weights + outputs) * ITEMSIZE[self.dtype],
        )


class RowPlan(Plan):
    """Phases of output rows: the generic level, and what other levels have no better way for."""

    path = "phase rows"
    kind = "rows"

    def __init__(self, geometry: Geometry, dtype: str, isa: str, threads: int, reason: str) -> None:
        super().__init__(geometry, dtype, isa, threads, reason)
        inner = geometry.axes[-1]
        self.table = _kernels.PhaseTable(geometry, phases(inner.kernel, inner.stride, inner.dilation))
        self.channels = geometry.out_channels // geometry.group
        self.tile = even_part(self.channels, ROW_TILE)
        tiles = geometry.batch * geometry.group * -(-self.channels // self.tile)
        self.bands = 1
        if threads > 1 and tiles % threads:
            self.bands = min(self.table.strips, max(1, -(-TASKS_TO_BALANCE * threads // max(tiles, 1))))
        self.tasks = tiles * self.bands
        self.threads = max(1, min(threads, self.tasks))
        self.pack_key = (self.path,)

    @property
    def tiles(self) -> dict[str, object]:
        return {"channels": self.tile, "bands": self.bands, "tasks": self.tasks}

    @property
    def workspace(self) -> int:
        return self.table.workspace(self.tile)

    def pack(self, w: np.ndarray, b: np.ndarray | None) -> Packed:
        group = self.geometry.group
        return pack_tiles(w, group, self.tile), pack_bias(b, self.dtype, self.channels, group, self.tile)

    def run(self, x: np.ndarray, y: np.ndarray, packed: Packed) -> bool:
        weights, bias = packed
        _kernels.run(x, y, weights, bias, self.table, self.dtype, self.bands, self.threads)
        return True


class BoxPlan(Plan):
    """The vectorised levels: boxes of cells, lanes along channels or positions, or in bfloat16 pieces."""

    def __init__(
        self, geometry: Geometry, dtype: str, isa: str, threads: int, reason: str, boxes: Boxes, once: bool
    ) -> None:
        super().__init__(geometry, dtype, isa, threads, reason)
        # Of the layout only numbers are kept: the lists of a large kernel take megabytes, and plans are cached.
        work = boxes.work
        layout, path, coalesced = work.layout, work.path, work.geometry
        self.x_shape = (coalesced.batch, coalesced.in_channels, *(a.input for a in coalesced.axes))
        self.y_shape = coalesced.output_shape
        self.path = path.name
        self.once = once
        self.block = work.block
        self.box, self.boxes, self.chain = layout.box, layout.boxes, layout.chain
        self.table = BoxTable(work, boxes.in_panels)
        self.kind = "panels" if boxes.in_panels else "tiles" if work.pieces else "vectors"
        self.pieces = work.pieces
        self.vectors = work.vectors if path.along_channels and not work.pieces else 0  # of a whole tile
        sliced = self.table.slice < geometry.in_channels // geometry.group
        self.slice = self.table.slice if sliced else 0
        whole = layout.chains * geometry.group
        if boxes.in_panels and not path.columns_first:
            self.splits = even_parts(geometry.group, threads)
        else:
            self.splits = splits(layout, geometry.group, work.blocks, threads)
        self.threads = max(1, min(threads, whole * self.splits))
        # Many tasks are as small as a depthwise channel: groups share one, and what their boxes have in common.
        self.groups = max(1, min(geometry.group, whole * self.splits // (TASKS_PER_THREAD * self.threads)))
        self.tasks = -(-geometry.group // self.groups) * layout.chains * self.splits
        self.pack_key = (self.kind, path.name, work.block, work.pieces, self.table.packing_digest)

    @property
    def tiles(self) -> dict[str, object]:
        together = min(self.groups, self.table.groups_together)
        return {
            "channels": self.block,
            **({"pieces": self.pieces} if self.pieces else {}),
            **({"vectors": self.vectors} if self.vectors else {}),
            **({"slice": self.slice} if self.slice else {}),
            **({"one pass": True} if self.table.one_pass else {}),
            **({"shared loads": True} if self.table.shares_loads else {}),
            **({"groups": together} if together > 1 else {}),
            **({"strip": self.table.near} if self.table.strips else {}),
            **({"joined rows": True} if self.table.joins_rows else {}),
            **({"coalesced": self.x_shape[2:]} if self.y_shape != self.output_shape else {}),
            "box": self.box,
            "boxes": self.boxes,
            **({"chain": self.chain} if self.chain > 1 else {}),
            "splits": self.splits,
            "tasks": self.tasks,
        }

    @cached_property
    def workspace(self) -> int:
        return self.table.workspace

    def pack(self, w: np.ndarray, b: np.ndarray | None) -> Packed | None:
        dtype = np.float64 if self.dtype == "float64" else np.float32
        bias = bias_of_sums(b, dtype, self.y_shape[1])
        return _box_weights.pack(self.table, np.ascontiguousarray(w), self.dtype, bias, self.once, self.threads)

    def run(self, x: np.ndarray, y: np.ndarray, packed: Packed) -> bool:
        weights, bias, magnitudes = packed
        target = y
        if self.y_shape != self.output_shape:  # arrays whose coalesced axes do not follow each other are copied
            x, target = x.reshape(self.x_shape), y.reshape(self.y_shape)
        if self.table.shares_loads and target.strides[-1] != target.itemsize:  # written in one pass only
            target = empty_aligned(target.shape, target.dtype)
        done = _box_compute.run(
            x, target, weights, bias, magnitudes, self.table, self.dtype, self.groups, self.splits, self.threads
        )
        if done and target is not y and not np.may_share_memory(target, y):
            y[...] = target.reshape(y.shape)
        return done


class NativePlan(Plan):
    """Images of one input position: the weights as they are."""

    path = "native weights"
    kind = "native"

    def __init__(self, geometry: Geometry, dtype: str, isa: str, threads: int, reason: str) -> None:
        super().__init__(geometry, dtype, isa, threads, reason)
        self.pack_key = (self.path,)
        self.sum_dtype = np.float64 if dtype == "float64" else np.float32
        columns = geometry.out_channels // geometry.group * geometry.kernel_positions
        parts = -(-2 * threads // geometry.group) if threads > 1 else 1
        self.strip = _native.strip_size(columns, geometry.batch, parts)
        self.tasks = geometry.group * -(-columns // self.strip)
        self.threads = min(threads, self.tasks)
        places = [np.arange(a.kernel) * a.dilation - a.pad for a in geometry.axes]
        output_of = np.zeros(1, np.int64)  # of each kernel position, flat
        for axis, place in zip(geometry.axes, places, strict=True):
            inside = (place >= 0) & (place < axis.output) & (output_of[:, None] >= 0)
            output_of = np.where(inside, output_of[:, None] * axis.output + place, -1).reshape(-1)
        self.output_of = output_of
        outputs = math.prod(self.output_shape[2:])  # may be many more than kernel positions
        self.in_order = output_of.size == outputs and np.array_equal(output_of, np.arange(outputs))
        self.fills_outputs = np.count_nonzero(output_of >= 0) == outputs

    @property
    def tiles(self) -> dict[str, object]:
        return {"tasks": self.tasks}

    @property
    def workspace(self) -> int:
        return _native.workspace(self.geometry.batch, self.strip, np.dtype(self.sum_dtype).itemsize)

    def pack(self, w: np.ndarray, b: np.ndarray | None) -> Packed:
        geometry = self.geometry
        native = np.ascontiguousarray(w).reshape(geometry.group, geometry.in_channels // geometry.group, -1)
        bias = bias_of_sums(b, self.sum_dtype, geometry.out_channels)
        return native, bias.reshape(geometry.group, -1)

    def run(self, x: np.ndarray, y: np.ndarray, packed: Packed) -> bool:
        weights, bias = packed
        group, channels = weights.shape[:2]
        images = widen(np.ascontiguousarray(x.reshape(x.shape[0], group, channels).swapaxes(0, 1)), self.sum_dtype)
        result = y if y.flags.c_contiguous else np.empty(y.shape, y.dtype)
        # Allocated here, so that a MemoryError comes before anything is written.
        sums = np.empty((self.threads, self.workspace // images.itemsize), self.sum_dtype)
        if not self.fills_outputs:
            result[...] = _native.outputs_of_bias(bias, y.dtype, self.dtype).reshape(-1, *[1] * (y.ndim - 2))
        flat = result.reshape(y.shape[0], group, bias.shape[1], -1)
        _native.run(
            images, weights, bias, self.output_of, self.in_order, flat, sums, self.strip, self.isa, self.dtype
        )
        if result is not y:
            y[...] = result
        return True


def reads_weights_once(geometry: Geometry) -> bool:
    """Whether images are so few and small that packing the weights would take longer than multiplying by them."""
    few = geometry.batch <= 6 and all(axis.input == 1 for axis in geometry.axes)
    return few and min(geometry.in_channels, *geometry.output_shape) > 0


def used_kernel(geometry: Geometry) -> float:
    """The part of the kernel positions that an image of one position meets outputs with."""
    return math.prod(
        sum(0 <= k * a.dilation - a.pad < a.output for k in range(a.kernel)) / a.kernel for a in geometry.axes
    )


@lru_cache(maxsize=64)  # plans hold no arrays of their layer: calls that pack anew share them
def make_plan(
    geometry: Geometry,
    dtype: str,
    isa: str,
    threads: int,
    precision: str = "highest",
    without: frozenset = frozenset(),
    once: bool = False,
) -> Plan:
    """Plan a call for at most `threads` threads; `without` holds the kinds that refused its operands.

    Weights used `once` are not worth packing where they need not be: large ones of few positions go another way
    than those of a layer.
    """
    row_threads = min(threads, MOST_THREADS, max(1, geometry.macs // MACS_PER_THREAD))
    threads = min(row_threads, max(1, geometry.macs // (VECTOR_SPEED * MACS_PER_THREAD)))

    def by_rows(reason: str) -> Plan:
        return RowPlan(geometry, dtype, isa, row_threads, reason)

    def from_native_weights(reason: str) -> Plan:
        return NativePlan(geometry, dtype, isa, threads, reason)

    if isa == "generic":
        return by_rows("the generic level has one path for every shape")
    native = reads_weights_once(geometry)
    if native and (once or used_kernel(geometry) > PACKED_USE or "vectors" in without):
        return from_native_weights("few images of one position read every weight once")
    if "vectors" in without:
        return by_rows("a weight is Inf or NaN and must not meet the border's zeros")
    if 0 in (geometry.in_channels, *geometry.output_shape):
        return by_rows("nothing to multiply")
    fallback = from_native_weights if native else by_rows
    # The choice must not depend on the threads: each path has an order of summation of its own.
    coalesced = coalesce_axes(as_product(geometry))
    cells = cut(coalesced)
    if cells is None:
        return fallback("cells of too many axes or places")
    pieces = pieces_of(dtype, precision)
    if pieces > most_pieces(isa) or "tiles" in without:
        pieces = 0
    # Images of one position: the same chains of multiply-adds as with native weights.
    paths = (CHANNELS,) if native else paths_worth_asking(geometry, dtype, isa, pieces)

    # By kernel positions, with the same bits, as channels take up to 2.2 times longer to pack.
    own = coalesce_axes(geometry) if once else coalesced
    own_cells = cut(own) if own != coalesced else None
    in_panels = once and "panels" not in without

    def boxes_by(of_geometry: Geometry, of_cells: Cells) -> dict[Path, Boxes]:
        all_boxes = ((path, Boxes.of(of_geometry, of_cells, dtype, isa, path, pieces)) for path in paths)
        return {path: boxes for path, boxes in all_boxes if boxes}

    by_product = boxes_by(coalesced, cells)
    by_kernel = boxes_by(own, own_cells) if own_cells else by_product
    # Threads decide whether tiles or panels of them refuse an operand: no weights are multiplied in order then.
    in_order = in_panels and "tiles" not in without
    cycles = estimates(by_product, by_kernel if in_order else {})
    found = sorted(cycles, key=cycles.__getitem__)
    reason = "least estimate: " + ", ".join(f"{path.name} {cycles[path] / 1e6:.3g} Mcycles" for path in found)
    if native:
        reason = "images of one position use few of the weights, packed once"
    if "tiles" in without:
        reason = "bfloat16 pieces would lose magnitudes of these operands; " + reason
    rows = phase_rows_cycles(geometry)
    if found and rows < cycles[found[0]] and not native:
        without_boxes = by_rows(f"{reason}, phase rows {rows / 1e6:.3g} Mcycles")
        if without_boxes.workspace <= MOST_WORKSPACE:
            return without_boxes
    ways = [(by_kernel, own_cells), (by_product, cells)] if own_cells else [(by_product, cells)]
    for boxes, of_cells in ((by[path], of) for path in found for by, of in ways if path in by):
        chosen = BoxPlan(geometry, dtype, isa, threads, reason, boxes, once)
        if chosen.workspace > MOST_WORKSPACE:
            reason += f"; {boxes.path.name} would take more than {MOST_WORKSPACE >> 20} MB of scratch"
            continue
        for panels in boxes_in_panels(geometry, boxes, of_cells, threads) if in_panels else ():
            given = BoxPlan(geometry, dtype, isa, threads, reason, panels, once)
            if given.workspace <= MOST_WORKSPACE:
                return given
        shared = boxes.for_threads(of_cells, threads)
        if (shared.work.layout.box, shared.work.layout.chain) == (chosen.box, chosen.chain):
            return chosen
        return BoxPlan(geometry, dtype, isa, threads, reason, shared, once)
    return fallback("no box of cells fits the scratch")


def paths_worth_asking(geometry: Geometry, dtype: str, isa: str, pieces: int) -> tuple[Path, ...]:
    """Paths whose estimate can be the least."""
    paths: tuple[Path, ...] = VECTOR_PATHS
    if pieces and PIECE_PATHS:
        if dtype == "bfloat16" and tile_limits(isa, False, pieces).unit == 1:
            # Dot products are faster than multiply-adds of widened elements, but for few channels. Of 3000 random
            # layers 35 had a lower estimate so; those of more channels took up to twice as long.
            few = geometry.in_channels // geometry.group <= FEW_WIDENED
            paths = tuple(path for path in paths if path == POSITIONS and few)
        paths = (*paths, *PIECE_PATHS)
    if geometry.batch == 1:
        # Of 1000 random layers none went in runs of one image. Plans that do not ask take 0.76 of the time.
        paths = tuple(path for path in paths if not path.image_runs) or paths
    return paths


def estimates(boxes: dict[Path, Boxes], once: dict[Path, Boxes]) -> dict[Path, float]:
    """Cycles of each path, of weights that are multiplied `once` in the order given where those boxes can.

    Not measured beside tile registers.
    """
    cycles = {path: of_path.cycles for path, of_path in boxes.items()}
    if all(of_path.work.limits.unit == 1 for of_path in boxes.values()):
        columns = {path: of_path for path, of_path in once.items() if path.columns_first and path.along_channels}
        cycles |= {path: of_path.cycles_once for path, of_path in columns.items()}
    return cycles


def boxes_in_panels(geometry: Geometry, boxes: Boxes, cells: Cells, threads: int) -> list[Boxes]:
    """Boxes with the same sums whose weights are multiplied panel by panel in one call, the best first; none if
    they do not gain."""
    work = boxes.work
    candidates: list[Boxes | None] = [boxes]
    larger_kernel = any(axis.kernel > 1 for axis in geometry.axes)
    if boxes.path == CHANNEL_TILES and work.layout.most_taps == 1 and larger_kernel:
        # Where a place has one tap, columns first have nothing to add up. (Of vectors, a sum of products that all
        # underflow can be -0, but not once it is added to 0.)
        columns = Boxes.of(work.geometry, cells, work.dtype, work.isa, CHANNEL_TILE_COLUMNS, work.pieces)
        candidates.insert(0, columns)
    return [panels for found in candidates if found and (panels := found.multiplied_in_panels(threads))]

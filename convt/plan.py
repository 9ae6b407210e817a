"""What runs: a plan deals boxes out in tasks, packs weights, calls the kernels and explains itself."""

import math
from typing import Any, TypeAlias

import numpy as np

from convt import _box_compute, _box_weights, _kernels, _native
from convt._box_table import BoxTable
from convt._memory import WORKSPACES
from convt.arrays import bias_of_sums, empty_aligned, widen
from convt.boxes import Boxes
from convt.dtypes import ITEMSIZE, VECTOR_DTYPE
from convt.geometry import Geometry
from convt.phases import phases
from convt.report import Report
from convt.row_weights import ROW_TILE, pack_bias, pack_tiles
from convt.shares import TASKS_TO_BALANCE, deal, even_part

# Weights and bias as a plan's kernels read them, and what else `Plan.run` needs of its `Plan.pack`.
Packed: TypeAlias = tuple[Any, ...]


class Plan:
    """How one call is computed: packs weights, runs the kernels, explains itself.

    Attributes
    ----------
    geometry : Geometry
    dtype, isa, path, reason : str
    kind : {"panels", "pieces", "vectors", "native", "rows"}
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
        weights = geometry.in_channels * geometry.group_outputs * geometry.kernel_positions
        by_axis = [phases(a.kernel, a.stride, a.dilation) for a in geometry.axes]
        return Report(
            isa=self.isa,
            kernel=self.path,
            reason=self.reason,
            dtype=self.dtype,
            output_shape=geometry.output_shape,
            phases=tuple(axis.residue.size for axis in by_axis),
            taps=tuple(tuple(np.diff(axis.first_tap).tolist()) for axis in by_axis),
            tiles=self.tiles,
            threads=self.threads,
            workspace_bytes=self.threads * self.workspace,
            flops=2 * geometry.macs,
            bytes=(geometry.inputs + weights + geometry.outputs) * ITEMSIZE[self.dtype],
        )


class RowPlan(Plan):
    """Phases of output rows: the generic level, and what other levels have no better way for."""

    path = "phase rows"
    kind = "rows"

    def __init__(self, geometry: Geometry, dtype: str, isa: str, threads: int, reason: str) -> None:
        super().__init__(geometry, dtype, isa, threads, reason)
        inner = geometry.axes[-1]
        self.table = _kernels.PhaseTable(geometry, phases(inner.kernel, inner.stride, inner.dilation))
        self.channels = geometry.group_outputs
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

    def __init__(self, geometry: Geometry, boxes: Boxes, threads: int, reason: str, once: bool) -> None:
        work = boxes.work
        super().__init__(geometry, work.dtype, work.isa, threads, reason)
        # Of the layout only numbers are kept: the lists of a large kernel take megabytes, and plans are cached.
        layout, path, coalesced = work.layout, work.path, work.geometry
        self.x_shape = (coalesced.batch, geometry.in_channels, *(a.input for a in coalesced.axes))
        self.y_shape = coalesced.output_shape
        self.path = path.name
        self.once = once
        self.block = work.block
        self.box, self.boxes, self.chain = layout.box, layout.boxes, layout.chain
        self.table = BoxTable(work)
        self.kind = "panels" if work.in_panels else "pieces" if work.pieces else "vectors"
        self.pieces = work.pieces
        self.vectors = work.vectors if path.along_channels and not work.pieces else 0  # of a whole tile
        sliced = self.table.slice < geometry.group_inputs
        self.slice = self.table.slice if sliced else 0
        self.dealt = deal(work, boxes.cycles, threads)
        self.threads = self.dealt.threads
        self.pack_key = (self.kind, path.name, work.block, work.pieces, self.table.packing_digest)

    @property
    def tiles(self) -> dict[str, object]:
        together, merged = min(self.dealt.groups, self.table.groups_together), self.table.merged_kernel
        sizes: dict[str, object] = {
            "channels": self.block,
            "pieces": self.pieces,
            "merged taps": 0 if merged is None else len(merged),
            "vectors": self.vectors,
            "slice": self.slice,
            "one pass": self.table.one_pass,
            "shared loads": self.table.shares_loads,
            "groups": together if together > 1 else 0,
            "strip": self.table.strip_vectors if self.table.strips else 0,
            "joined rows": self.table.joins_rows,
            "taps left out": self.table.leaves_out_taps,
            "coalesced": self.x_shape[2:] if self.y_shape != self.output_shape else 0,
            "box": self.box,
            "boxes": self.boxes,
            "chain": self.chain if self.chain > 1 else 0,
            "splits": self.dealt.splits,
            "tasks": self.dealt.total,
        }
        return {name: size for name, size in sizes.items() if size}

    @property
    def workspace(self) -> int:
        return self.table.workspace

    def pack(self, w: np.ndarray, b: np.ndarray | None) -> Packed | None:
        bias = bias_of_sums(b, VECTOR_DTYPE[self.dtype], self.y_shape[1])
        return _box_weights.pack(self.table, np.ascontiguousarray(w), self.dtype, bias, self.once, self.threads)

    def run(self, x: np.ndarray, y: np.ndarray, packed: Packed) -> bool:
        weights, bias, magnitudes = packed
        target, copied = y, False
        if self.y_shape != self.output_shape:  # arrays whose coalesced axes do not follow each other are copied
            x, target = x.reshape(self.x_shape), y.reshape(self.y_shape)
            copied = not np.may_share_memory(target, y)
        only_one_pass = self.table.shares_loads or self.table.by_rows  # which write rows of consecutive outputs
        if only_one_pass and target.strides[-1] != target.itemsize:
            target, copied = empty_aligned(target.shape, target.dtype), True
        done = _box_compute.run(x, target, weights, bias, magnitudes, self.table, self.dtype, self.dealt)
        if done and copied:
            y[...] = target.reshape(y.shape)
        return done


class NativePlan(Plan):
    """Images of one input position: the weights as they are."""

    path = "native weights"
    kind = "native"

    def __init__(self, geometry: Geometry, dtype: str, isa: str, threads: int, reason: str) -> None:
        super().__init__(geometry, dtype, isa, threads, reason)
        self.pack_key = (self.path,)
        self.sum_dtype = VECTOR_DTYPE[dtype]
        columns = geometry.group_outputs * geometry.kernel_positions
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
        geometry, item = self.geometry, np.dtype(self.sum_dtype).itemsize
        return _native.workspace(geometry.batch, geometry.group_inputs, self.strip, item)

    def pack(self, w: np.ndarray, b: np.ndarray | None) -> Packed:
        geometry = self.geometry
        native = np.ascontiguousarray(w).reshape(geometry.group, geometry.group_inputs, -1)
        bias = bias_of_sums(b, self.sum_dtype, geometry.out_channels)
        return native, bias.reshape(geometry.group, -1)

    def run(self, x: np.ndarray, y: np.ndarray, packed: Packed) -> bool:
        weights, bias = packed
        group, channels = weights.shape[:2]
        images = widen(np.ascontiguousarray(x.reshape(x.shape[0], group, channels).swapaxes(0, 1)), self.sum_dtype)
        result = y if y.flags.c_contiguous else np.empty(y.shape, y.dtype)
        # Allocated here, so that a MemoryError comes before anything is written.
        sums = empty_aligned((self.threads, self.workspace // images.itemsize), images.dtype, WORKSPACES)
        if not self.fills_outputs:
            result[...] = _native.outputs_of_bias(bias, y.dtype, self.dtype).reshape(-1, *[1] * (y.ndim - 2))
        flat = result.reshape(y.shape[0], group, bias.shape[1], -1)
        _native.run(
            images, weights, bias, self.output_of, self.in_order, flat, sums, self.strip, self.isa, self.dtype
        )
        if result is not y:
            y[...] = result
        return True

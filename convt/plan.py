"""From geometry to plan: what will run, in how many pieces, on how many threads."""

import math
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Optional, TypeAlias

import numpy as np

from convt import _kernels, _tiles
from convt.geometry import Geometry
from convt.packing import SUM_DTYPE, pack_bias, pack_tiles, widen
from convt.report import Report
from convt.tiling import BoxLayout, Cells, cut, lay_out, lay_out_images

ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

# Channels that share one read of the input: a widened row costs about as much as one channel's products.
MAX_TILE = 8

# A thread is worth waking for about 50 microseconds of work: multiplications in that time at the generic level,
# and what the vectorised ones do more of.
MACS_PER_THREAD = 200_000
VECTOR_SPEED = 10

# The vectorised paths.
CHANNELS, CHANNEL_COLUMNS = "channel lanes", "channel lanes, columns first"
POSITIONS, COLUMNS = "position lanes", "position lanes, columns first"
CHANNEL_TILES, CHANNEL_TILE_COLUMNS = "channel tiles", "channel tiles, columns first"
POSITION_TILES = "position tiles"
PATHS = (CHANNELS, CHANNEL_COLUMNS, POSITIONS, COLUMNS)
TILE_PATHS = (CHANNEL_TILES, CHANNEL_TILE_COLUMNS, POSITION_TILES)

# Products of bfloat16 pieces that an element's product is made of, by the pieces of an element.
PRODUCTS = {1: 1, 2: 4, 3: 6}

# Bytes per thread of a box's packed input, products of every kernel position included where these come first.
INPUT_BYTES = 1 << 20
COLUMNS_BYTES = 5 << 19  # with lanes along positions: 81 products of a row and its neighbours fill a megabyte


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
    kind : {"tiles", "vectors", "rows"}
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
        """Sizes of the pieces."""
        raise NotImplementedError

    @property
    def workspace(self) -> int:
        """Scratch bytes per thread."""
        raise NotImplementedError

    def pack(self, w: np.ndarray, b: np.ndarray | None) -> Packed | None:
        """Weights and bias as `run` wants them; None if this kind of plan cannot multiply them."""
        raise NotImplementedError

    def run(self, x: np.ndarray, y: np.ndarray, packed: Packed) -> bool:
        """Compute every element of `y`, which has some; False if this kind of plan cannot multiply `x`."""
        raise NotImplementedError

    def explain(self) -> Report:
        """What would run, and why, for people."""
        geometry = self.geometry
        inputs = geometry.batch * geometry.in_channels * math.prod(a.input for a in geometry.axes)
        weights = geometry.in_channels * geometry.out_channels // geometry.group
        weights *= math.prod(a.kernel for a in geometry.axes)
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
    """The generic level: phases of output rows."""

    path = "phase rows"
    kind = "rows"

    def __init__(self, geometry: Geometry, dtype: str, isa: str, threads: int, reason: str) -> None:
        super().__init__(geometry, dtype, isa, threads, reason)
        inner = geometry.axes[-1]
        self.table = _kernels.PhaseTable(geometry, phases(inner.kernel, inner.stride, inner.dilation))
        self.channels = geometry.out_channels // geometry.group
        self.tile = even_part(self.channels, MAX_TILE)
        tiles = geometry.batch * geometry.group * -(-self.channels // self.tile)
        self.bands = 1
        if threads > 1 and tiles % threads:
            # Four tasks a thread even out what the last one to finish leaves idle.
            self.bands = min(self.table.strips, max(1, -(-4 * threads // max(tiles, 1))))
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
    """The vectorised levels: boxes of cells, in tile registers or with lanes along channels or positions."""

    def __init__(
        self, geometry: Geometry, dtype: str, isa: str, threads: int, reason: str, boxes: "Boxes"
    ) -> None:
        super().__init__(geometry, dtype, isa, threads, reason)
        # Of the layout only numbers are kept: the lists of a large kernel take megabytes, and plans are cached.
        layout = boxes.layout
        self.path = path = boxes.path
        self.block = block = boxes.block
        self.box, self.boxes = layout.box, layout.boxes
        double = dtype == "float64"
        self.table = _tiles.BoxTable(
            geometry,
            layout,
            isa,
            double,
            path not in (POSITIONS, COLUMNS, POSITION_TILES),
            path in (CHANNEL_COLUMNS, COLUMNS, CHANNEL_TILE_COLUMNS),
            block,
            boxes.pieces,
        )
        self.kind = "tiles" if boxes.pieces else "vectors"
        self.pieces = boxes.pieces
        whole = layout.boxes * geometry.group
        self.splits = 1
        if whole % threads:
            self.splits = min(self.table.weight_blocks, -(-4 * threads // whole))
        self.threads = max(1, min(threads, whole * self.splits))
        self.pack_key = (path, block, boxes.pieces, self.table.packing_digest)

    @property
    def tiles(self) -> dict[str, object]:
        return {
            "channels": self.block,
            **({"pieces": self.pieces} if self.pieces else {}),
            "box": self.box,
            "boxes": self.boxes,
            "splits": self.splits,
            "tasks": self.boxes * self.geometry.group * self.splits,
        }

    @cached_property
    def workspace(self) -> int:
        return self.table.workspace

    def pack(self, w: np.ndarray, b: np.ndarray | None) -> Packed | None:
        dtype = SUM_DTYPE_FMA[self.dtype]
        bias = np.zeros(self.geometry.out_channels, dtype) if b is None else np.ascontiguousarray(widen(b, dtype))
        wide = np.ascontiguousarray(widen(w, dtype)).reshape(w.shape[0], w.shape[1], -1)
        return _tiles.pack(self.table, wide, bias, self.threads)

    def run(self, x: np.ndarray, y: np.ndarray, packed: Packed) -> bool:
        weights, bias, magnitudes = packed
        return _tiles.run(x, y, weights, bias, magnitudes, self.table, self.dtype, self.splits, self.threads)


SUM_DTYPE_FMA = {**SUM_DTYPE, "float32": np.float32}


def pieces_of(dtype: str, precision: str) -> int:
    """bfloat16 pieces that tile registers multiply an element in; three hold a float32, two a float16."""
    if dtype == "float32":
        return {"highest": 3, "high": 2, "medium": 1}[precision]
    return {"float16": 2, "bfloat16": 1}.get(dtype, 0)


def even_part(n: int, most: int) -> int:
    """The size of the parts when `n` is cut as evenly as possible into parts of at most `most`."""
    return max(1, -(-n // max(1, -(-n // most))))


@lru_cache(maxsize=64)  # plans hold no arrays of their layer: calls that pack anew share them
def make_plan(
    geometry: Geometry,
    dtype: str,
    isa: str,
    threads: int,
    precision: str = "highest",
    without: frozenset = frozenset(),
) -> Plan:
    """Plan a call for at most `threads` threads; `without` holds the kinds that refused its operands."""
    speed = 1 if isa == "generic" else VECTOR_SPEED
    threads = min(threads, max(1, geometry.macs // (speed * MACS_PER_THREAD)))
    if isa == "generic":
        return RowPlan(geometry, dtype, isa, threads, "the generic level has one path for every shape")
    if "vectors" in without:
        return RowPlan(
            geometry, dtype, isa, threads, "a weight is Inf or NaN and must not meet the border's zeros"
        )
    if 0 in (geometry.in_channels, *geometry.output_shape):
        return RowPlan(geometry, dtype, isa, threads, "nothing to multiply")
    # The choice must not depend on the threads: each path has an order of summation of its own.
    cells = cut(geometry)
    pieces = pieces_of(dtype, precision) if _tiles.has_tiles(isa) and "tiles" not in without else 0
    paths = (*PATHS, *(TILE_PATHS if pieces else ()))
    candidates = [Boxes.of(geometry, cells, dtype, isa, path, pieces) for path in paths] if cells else []
    found = sorted((boxes for boxes in candidates if boxes), key=lambda boxes: boxes.cycles)
    if cells is None or not found:
        return RowPlan(geometry, dtype, isa, threads, "no box of cells fits the scratch")
    reason = "least estimate: " + ", ".join(f"{b.path} {b.cycles / 1e6:.3g} Mcycles" for b in found)
    if "tiles" in without:
        reason = "tile registers would lose magnitudes of these operands; " + reason
    return BoxPlan(
        geometry, dtype, isa, threads, reason, found[0].for_threads(cells, -(-threads // geometry.group))
    )


class Boxes(NamedTuple):
    """Boxes for one of the vectorised paths, and what they would cost."""

    path: str
    block: int
    pieces: int  # 0 without tile registers
    layout: BoxLayout
    limits: tuple[int, int, int, int]
    cycles: float

    @classmethod
    def of(
        cls, geometry: Geometry, cells: Cells, dtype: str, isa: str, path: str, pieces: int
    ) -> Optional["Boxes"]:
        """The largest boxes for `path`, or None where none fits the scratch."""
        item = 8 if dtype == "float64" else 4
        pieces = pieces if path in TILE_PATHS else 0
        lanes, most = _tiles.lanes_and_positions(isa, dtype == "float64", pieces)
        channels = geometry.out_channels // geometry.group
        in_channels = geometry.in_channels // geometry.group
        kernel = math.prod(a.kernel for a in geometry.axes)
        if path not in (POSITIONS, COLUMNS, POSITION_TILES):
            block = min(channels, 2 * lanes)
            columns = sum(-(-block * len(c.places) // lanes) * lanes for c in cells.classes)
            stored = -(-in_channels // lanes) * lanes
            if pieces:
                stored = (-(-in_channels // 32) * pieces | 1) * 16
            if path in (CHANNEL_COLUMNS, CHANNEL_TILE_COLUMNS):
                stored += -(-block * kernel // lanes) * lanes  # the products lie beside the input
            slack = 0
        elif path == POSITION_TILES:
            block = min(channels, max(1, 32 // cells.places))
            columns = sum(-(-block * len(c.places) // 16) * 16 for c in cells.classes)
            slack = stored = -(-in_channels // 32) * 16 * pieces
        elif path == POSITIONS:
            block = min(channels, max(1, 32 // cells.places))
            columns = block * cells.places
            slack = stored = in_channels
        else:
            block = min(channels, max(1, 96 // kernel))
            columns = block * cells.places
            slack = stored = in_channels + block * kernel  # the products lie beside the input
        limit = COLUMNS_BYTES if path == COLUMNS else INPUT_BYTES
        limits = (most, stored * item, limit - slack * 8 * lanes * item, columns * item)
        layout = cls.laid_out(cells, path, limits, 1)
        if layout is None:
            return None
        cycles = estimate(geometry, layout, path, block, lanes, pieces)
        weights = geometry.in_channels * channels * kernel * (2 * pieces or item)
        if weights > CACHED_WEIGHTS:
            cycles = max(cycles, weights / BYTES_PER_CYCLE)
        return cls(path, block, pieces, layout, limits, cycles)

    @staticmethod
    def laid_out(cells: Cells, path: str, limits: tuple[int, int, int, int], wanted: int) -> BoxLayout | None:
        """At least `wanted` boxes, as far as there are cells."""
        if path in (CHANNEL_COLUMNS, CHANNEL_TILE_COLUMNS):
            return lay_out_images(cells, *limits[1:], wanted)
        return lay_out(cells, *limits, wanted)

    def for_threads(self, cells: Cells, wanted: int) -> "Boxes":
        """The same, in at least `wanted` boxes, as far as there are cells."""
        if self.layout.boxes >= wanted:
            return self
        layout = self.laid_out(cells, self.path, self.limits, wanted)
        return self._replace(layout=layout) if layout else self


def estimate(geometry: Geometry, layout: BoxLayout, path: str, block: int, lanes: int, pieces: int) -> float:
    """Cycles of one thread, for choosing between paths: two vector FMAs a cycle, times what was measured.

    The factors are fits to the layers of asv_benchmarks, AVX-512 and float32. Sums that lie along channels cost
    two cycles per output to transpose and store, interleaving costs a third of one and some cycles a row. Lanes
    along positions load the input anew for every tap and tile, the more often the fewer rows share it.
    """
    in_channels = geometry.in_channels // geometry.group
    channels = geometry.out_channels // geometry.group
    blocks = -(-channels // block)
    boxes = geometry.group * layout.boxes
    kernel = math.prod(a.kernel for a in geometry.axes)
    outputs = math.prod(geometry.output_shape)
    transposed = 2 * outputs
    row = geometry.output_shape[-1]
    interleaved = outputs * (0.3 + (32 if row % lanes else 8) / row)
    if path in (CHANNEL_COLUMNS, COLUMNS) and in_channels < FEW_CHANNELS:
        return math.inf
    if path in TILE_PATHS and in_channels < FEW_PIECES:
        return math.inf
    if path in TILE_PATHS:
        stored = interleaved if path == POSITION_TILES else transposed
        return boxes * tile_cycles(layout, path, block, in_channels, kernel, pieces) * blocks + stored
    if path == CHANNEL_COLUMNS:
        vectors = -(-block * kernel // lanes) * blocks
        addition = 2 if block % lanes == 0 else 4 * lanes  # of a vector, or element by element
        return boxes * (in_channels / 2 + addition) * vectors * layout.input_elements + transposed
    if path == COLUMNS:
        positions = -(-layout.input_elements // (3 * lanes)) * 3 * lanes
        products = boxes * kernel * channels * positions / lanes
        return products * (1.5 * in_channels / 2 + 1.5) + interleaved
    if path == CHANNELS:
        vectors = sum(len(c.shifts) * -(-block * len(c.places) // lanes) for c in layout.classes) * blocks
        # Several taps read the input again, and the zeros between rows.
        again = 1.1 if any(len(c.shifts) > 1 for c in layout.classes) else 1
        return again * boxes * in_channels * vectors * layout.runs * layout.run_length / 2 + transposed
    positions = layout.runs * -(-layout.run_length // (3 * lanes)) * 3 * lanes
    rows = 0.0
    for c in layout.classes:
        n = block * len(c.places)
        rows += len(c.shifts) * n * FEW_ROWS.get(n, 1) * (1.1 if len(c.shifts) == 1 else 1.3)
    return boxes * in_channels * blocks * rows * positions / lanes / 2 + interleaved


def tile_cycles(layout: BoxLayout, path: str, block: int, in_channels: int, kernel: int, pieces: int) -> float:
    """Cycles to multiply one block of channels of a box in tile registers."""
    reductions = -(-in_channels // 32)
    half_tiles = layout.runs * -(-layout.run_length // 16)
    taps_and_columns = [(len(c.shifts), block * len(c.places)) for c in layout.classes]
    added = 0.0
    if path == CHANNEL_TILE_COLUMNS:
        half_tiles = -(-layout.input_elements // 16)
        taps_and_columns = [(1, block * kernel)]
        added = (2 if block % 16 == 0 else 64) * -(-block * kernel // 16) * layout.input_elements
    return added + sum(
        half_tiles * -(-columns // 16) * (TILE_CYCLES * PRODUCTS[pieces] * reductions * taps + TILE_STORE_CYCLES)
        for taps, columns in taps_and_columns
    )


# Larger weights come from memory in every call, at this speed.
CACHED_WEIGHTS, BYTES_PER_CYCLE = 1 << 24, 7

# Of one product of two tile registers on random data, and of storing one.
TILE_CYCLES, TILE_STORE_CYCLES = 24, 25

# Below this many input channels, adding up columns would round more often than one chain of multiply-adds does.
FEW_CHANNELS = 4
# And below this many, the products of pieces; tile registers would be half empty then.
FEW_PIECES = 16

# How much slower a tile of few rows is, whose every vector of input serves few products.
FEW_ROWS = {1: 3.0, 2: 2.0, 3: 1.6, 4: 1.3}

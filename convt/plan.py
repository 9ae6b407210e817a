"""From geometry to plan: what will run, in how many pieces, on how many threads."""

import math
from functools import lru_cache
from typing import NamedTuple

from convt._kernels import PhaseTable
from convt.geometry import Geometry
from convt.report import Report

ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}

# Channels that share one read of the input: a widened row costs about as much as one channel's products.
MAX_TILE = 8

# A thread is worth waking for about 50 microseconds of work; the generic level does 4 multiplications a ns.
MACS_PER_THREAD = 200_000


class Phase(NamedTuple):
    """The taps of the outputs ``o`` with ``(o + pad) % stride == residue``.

    ``taps`` holds pairs ``(k, back)``: output ``q = (o + pad) // stride`` reads input ``q - back`` times W[k].
    """

    residue: int
    taps: tuple[tuple[int, int], ...]


@lru_cache(maxsize=256)
def phases(kernel: int, stride: int, dilation: int) -> tuple[Phase, ...]:
    """The phases that have taps, by rising residue. They depend on neither input size nor pads."""
    taps: dict[int, list[tuple[int, int]]] = {}
    for k in range(kernel):
        back, residue = divmod(k * dilation, stride)
        taps.setdefault(residue, []).append((k, back))
    return tuple(Phase(residue, tuple(taps[residue])) for residue in sorted(taps))


class Plan(NamedTuple):
    """How one call is computed. Everything the kernels need beside the arrays."""

    geometry: Geometry
    dtype: str
    isa: str
    table: PhaseTable
    tile: int
    bands: int
    tasks: int
    threads: int
    reason: str

    def explain(self) -> Report:
        """What would run, and why, for people."""
        geometry = self.geometry
        item = ITEMSIZE[self.dtype]
        inputs = geometry.batch * geometry.in_channels * math.prod(a.input for a in geometry.axes)
        weights = geometry.in_channels * geometry.out_channels // geometry.group
        weights *= math.prod(a.kernel for a in geometry.axes)
        outputs = math.prod(geometry.output_shape)
        counts = [phases(a.kernel, a.stride, a.dilation) for a in geometry.axes]
        return Report(
            isa=self.isa,
            kernel="phase rows",
            reason=self.reason,
            dtype=self.dtype,
            output_shape=geometry.output_shape,
            phases=tuple(len(c) for c in counts),
            taps=tuple(tuple(len(phase.taps) for phase in c) for c in counts),
            tiles={"channels": self.tile, "bands": self.bands, "tasks": self.tasks},
            threads=self.threads,
            workspace_bytes=self.threads * self.table.workspace(self.tile),
            flops=2 * geometry.macs,
            bytes=(inputs + weights + outputs) * item,
        )


def channel_tile(channels: int) -> int:
    """Channels per tile: as even a split into tiles of at most MAX_TILE as there is."""
    tiles = max(1, -(-channels // MAX_TILE))
    return max(1, -(-channels // tiles))


def make_plan(geometry: Geometry, dtype: str, isa: str, threads: int) -> Plan:
    """Plan a call for at most `threads` threads."""
    inner = geometry.axes[-1]
    table = PhaseTable(geometry, phases(inner.kernel, inner.stride, inner.dilation))
    channels = geometry.out_channels // geometry.group
    tile = channel_tile(channels)
    tiles = geometry.batch * geometry.group * -(-channels // tile)
    worth = max(1, geometry.macs // MACS_PER_THREAD)
    threads = min(threads, worth)
    bands = 1
    if threads > 1 and tiles % threads:
        # Four tasks a thread even out what the last one to finish leaves idle.
        bands = min(table.strips, max(1, -(-4 * threads // max(tiles, 1))))
    tasks = tiles * bands
    return Plan(
        geometry,
        dtype,
        isa,
        table,
        tile,
        bands,
        tasks,
        max(1, min(threads, tasks)),
        "the generic level has one path for every shape",
    )

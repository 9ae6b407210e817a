"""Which kernel positions meet which outputs of an axis."""

from typing import NamedTuple


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

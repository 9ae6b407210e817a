"""Axes that follow each other in memory as one: what PyTorch's TensorIterator calls coalescing."""

from convt.geometry import Axis, Geometry


def as_product(geometry: Geometry) -> Geometry:
    """The same layer as a product of matrices, where images are one input and their outputs the whole kernel.

    These become channels: first layers of generators took 0.84 to 0.95 of the time, in bfloat16 0.53 to 0.95.
    """
    if any(a.input != 1 or a.pad or a.output != a.kernel or a.dilation > 1 < a.kernel for a in geometry.axes):
        return geometry
    outputs = geometry.kernel_positions
    return geometry._replace(out_channels=geometry.out_channels * outputs, axes=(Axis(1, 1, 1, 1, 0, 1),))


def coalesce_axes(geometry: Geometry) -> Geometry:
    """The same layer, element for element in memory, with as few spatial axes as there can be.

    An axis of length one is left out. One of kernel 1 and stride 1 only counts rows; it joins the next axis
    inwards if no two inputs share an output there. Rows of one place or of a few vectors gain much: 50 random
    layers took 0.83 of the time (AVX2, float32 and float64).
    """
    axes: list[Axis] = []
    for inner in geometry.axes:
        joined = _joined(axes[-1], inner) if axes else None
        if joined:
            axes[-1] = joined
        else:
            axes.append(inner)
    return geometry._replace(axes=tuple(axes))


def _joined(outer: Axis, inner: Axis) -> Axis | None:
    """Both axes as one, or None where they cannot be."""
    if inner.is_one_place:
        return outer
    if outer.is_one_place:
        return inner
    copies = outer.kernel == outer.stride == 1 and outer.pad == 0 and outer.output == outer.input
    own_outputs = inner.pad == 0 and inner.output == inner.input * inner.stride
    if not copies or not own_outputs or (inner.kernel - 1) * inner.dilation >= inner.stride:
        return None
    return inner._replace(input=outer.input * inner.input, output=outer.output * inner.output)

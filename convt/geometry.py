"""From attributes to geometry: every rule of ONNX and OpenVINO, in plain integers.

Both operators, whatever their attributes, come down to one pair of numbers per spatial axis: the begin
pad ``pad`` and the output size ``output``. With them the operator is ::

    full[i*stride + k*dilation] += X[i] * W[k]        natural size L = (I-1)*stride + (K-1)*dilation + 1
    Y[o] = bias + full[o + pad]                       0 <= o < output; full is 0 outside [0, L)

End pads and output_padding only move ``output``. `OnnxRules` and `OpenvinoRules` hold what the two
specifications say about finding the pair; nothing else in convt knows those rules, and no array is
touched here.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import ClassVar, NamedTuple, Self

from convt.arguments import INT64_MAX, choice, integer, integers, plain_key, shown
from convt.dtypes import DTYPES

MOST_OUTPUTS = (INT64_MAX - 4096) // 8  # of float64, with room to align them
# Of arguments, for errors.
OPENVINO_NAMES = {"x": "data", "w": "filter", "group": "filter", "pads": "pads_begin, pads_end"}
RULES_REMEMBERED = 64  # and as many geometries
LONG_KERNEL = 1 << 13  # positions, of 100 bytes and more in lists
NEWEST_OPSET = 28  # the newest ONNX opset checked; ConvTranspose-22 is still in force there


class Axis(NamedTuple):
    """One spatial axis, resolved. Sizes in elements."""

    input: int
    kernel: int
    stride: int
    dilation: int
    pad: int
    output: int

    @property
    def places(self) -> int:
        """Places of a cell (see `convt.tiling`): the stride, or all outputs if these are fewer."""
        return min(self.stride, self.output)

    @property
    def is_one_place(self) -> bool:
        """Whether it has one input, one kernel position and one output, which is their product."""
        return self.input == self.kernel == self.output == 1 and self.pad == 0


class Geometry(NamedTuple):
    """A transposed convolution with every attribute resolved."""

    batch: int
    group: int
    in_channels: int
    out_channels: int
    axes: tuple[Axis, ...]

    @property
    def outputs(self) -> int:
        """Elements of the output."""
        return math.prod(self.output_shape)

    @property
    def inputs(self) -> int:
        """Elements of the input."""
        return self.batch * self.in_channels * math.prod(axis.input for axis in self.axes)

    @property
    def group_inputs(self) -> int:
        """Input channels of a group."""
        return self.in_channels // self.group

    @property
    def group_outputs(self) -> int:
        """Output channels of a group."""
        return self.out_channels // self.group

    @property
    def is_depthwise(self) -> bool:
        """Whether each of several groups has one channel in and one out."""
        return 1 < self.group == self.in_channels == self.out_channels

    @property
    def is_product(self) -> bool:
        """Whether images are one place, so that a group is a product of two matrices."""
        return all(axis.is_one_place for axis in self.axes)

    @property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of Y: ``(N, M, *O)``."""
        return (self.batch, self.out_channels, *(axis.output for axis in self.axes))

    @property
    def kernel_positions(self) -> int:
        """Of all axes."""
        return math.prod(axis.kernel for axis in self.axes)

    @property
    def has_long_kernel(self) -> bool:
        """Whether lists of its kernel positions are too long to be remembered for many sizes."""
        return self.kernel_positions > LONG_KERNEL

    @property
    def macs(self) -> int:
        """Multiplications in the operator's definition, taps that fall outside Y included."""
        taps = math.prod(axis.input * axis.kernel for axis in self.axes)
        return self.batch * self.in_channels * self.group_outputs * taps


def without_group_axis(shape: Sequence[int]) -> tuple[int, ...]:
    """``(C_in, C_out/group, *K)`` of a filter of shape ``(group, C_in/group, C_out/group, *K)``."""
    if len(shape) < 4:
        raise ValueError(
            "filter: expected 4 or more dimensions, (group, C_in/group, C_out/group, *kernel), "
            f"got shape {shown(tuple(shape))}"
        )
    if shape[0] < 1:
        raise ValueError(f"filter: expected 1 or more groups, got shape {shown(tuple(shape))}")
    if 0 in shape[3:]:
        raise ValueError(f"filter: expected a kernel of 1 or more per axis, got shape {shown(tuple(shape))}")
    return (shape[0] * shape[1], *shape[2:])


class _Rules:
    """What the two operators share: shapes, and one call of `_pad_and_output` per spatial axis.

    Parameters
    ----------
    w_shape : tuple of int
        Shape of the weights as ``(C, M/group, *K)``.
    names : mapping
        What the caller calls an argument, where it differs: ``{"x": "data"}``. Errors use it.
    """

    dtypes: tuple[str, ...] = DTYPES
    group: int
    auto_pad: str
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    output_padding: tuple[int, ...]
    requested: tuple[int, ...] | None  # spatial output sizes, where output_shape gave them
    remembered: ClassVar[dict[tuple, "_Rules"]] = {}  # of all classes

    @classmethod
    def of(cls, *shapes: object, **attributes: object) -> Self:
        """Rules as the constructor makes them, or those that it made of the same arguments before.

        Checking arguments again takes a tenth of a small call. Others than plain integers, texts and lists are
        always checked: what equals an integer need not be one, and objects may change.
        """
        key = plain_key((("rules", cls.__name__), *enumerate(shapes), *attributes.items()))
        rules = cls.remembered.get(key)
        if rules is None:
            if key:  # whose values stay what they are, unlike those of lists
                plain = dict(zip(key[::2], key[1::2], strict=True))
                shapes = tuple(plain[i] for i in range(len(shapes)))
                attributes |= {name: plain[name] for name in attributes if name != "names"}
            rules = cls(*shapes, **attributes)  # type: ignore[arg-type]
            if key:
                if len(cls.remembered) >= RULES_REMEMBERED:
                    cls.remembered.clear()
                cls.remembered[key] = rules
        return rules  # type: ignore[return-value]

    def __init__(self, w_shape: Sequence[int], group: object, names: Mapping[str, str]) -> None:
        self.names = names
        w, group_name = self.argument("w"), self.argument("group")
        if len(w_shape) < 3:
            raise ValueError(
                f"{w}: expected 3 or more dimensions, (C, M/group, *kernel), got shape {shown(tuple(w_shape))}"
            )
        self.kernel = tuple(w_shape[2:])
        if 0 in self.kernel:
            raise ValueError(f"{w}: expected a kernel of 1 or more per axis, got shape {shown(tuple(w_shape))}")
        self.group = integer(group, group_name, 1)
        self.in_channels = w_shape[0]
        if self.in_channels % self.group:
            raise ValueError(
                f"{group_name}: expected a divisor of the {self.in_channels} input channels of {w}, "
                f"got {self.group}"
            )
        self.out_channels = w_shape[1] * self.group

    def argument(self, name: str) -> str:
        """What the caller calls the argument `name`."""
        return self.names.get(name, name)

    def _per_axis(self, values: object, argument: str, minimum: int, default: int | None = None):
        """One integer per spatial axis; `default` for each where None is given and allowed."""
        n = len(self.kernel)
        if values is None and default is not None:
            return (default,) * n
        return integers(values, self.argument(argument), minimum, (n,))

    def _pad_and_output(self, axis: int, size: int, natural: int) -> tuple[int, int]:
        """Begin pad and output size; `natural` is L plus the axis's output_padding."""
        raise NotImplementedError

    def _check_output_shape(self, batch: int) -> None:
        """Anything about output_shape that needs the batch size."""

    def _of_sizes(self, x: str) -> str:
        """The arguments that make an output large: `x` and those that are not what they are by default."""
        given = (("strides", 1), ("dilations", 1), ("output_padding", 0))
        names = [self.argument(name) for name, default in given if set(getattr(self, name)) != {default}]
        group = (self.argument("group"),) if self.group > 1 else ()
        return ", ".join((x, *names, *group, *(("output_shape",) if self.requested else ())))

    def geometry(self, x_shape: Sequence[int], name: str = "") -> Geometry:
        """Resolve the attributes for an input of shape ``(N, C, *I)``, which the caller gave as the argument
        `name`, if not with an input."""
        x = name or self.argument("x")
        if len(x_shape) != 2 + len(self.kernel):
            raise ValueError(
                f"{x}: expected {2 + len(self.kernel)} dimensions (N, C and {len(self.kernel)} spatial), "
                f"got shape {shown(tuple(x_shape))}"
            )
        batch, channels, *sizes = x_shape
        if channels != self.in_channels:
            raise ValueError(
                f"{x}: expected {self.in_channels} channels, as {self.argument('w')} has, "
                f"got shape {shown(tuple(x_shape))}"
            )
        self._check_output_shape(batch)
        axes = []
        for a, (size, kernel, stride, dilation, extra) in enumerate(
            zip(sizes, self.kernel, self.strides, self.dilations, self.output_padding, strict=True)
        ):
            natural = (size - 1) * stride + (kernel - 1) * dilation + 1 + extra
            pad, output = self._pad_and_output(a, size, natural)
            if output < 1:
                pads = self.argument("pads") if self.auto_pad in ("NOTSET", "explicit") else "auto_pad"
                raise ValueError(
                    f"{x}, {pads}: expected an output of at least 1 along spatial axis {a}, "
                    f"got {output} from input {size}, kernel {kernel}, stride {stride}, dilation {dilation}, "
                    f"output_padding {extra} and pads of {natural - output} in all"
                )
            if max(natural, output + pad + stride) > INT64_MAX:
                raise ValueError(
                    f"{self._of_sizes(x)}: sizes of spatial axis {a} overflow int64: input {size}, "
                    f"kernel {kernel}, stride {stride}, dilation {dilation}, output_padding {extra}, "
                    f"begin pad {pad}, output {output}"
                )
            axes.append(Axis(size, kernel, stride, dilation, pad, output))
        geometry = Geometry(batch, self.group, channels, self.out_channels, tuple(axes))
        if math.prod(max(n, 1) for n in geometry.output_shape) > MOST_OUTPUTS:
            raise ValueError(
                f"{self._of_sizes(x)}: expected an output whose bytes int64 can count, got shape "
                f"{shown(geometry.output_shape)}, which overflows it"
            )
        return geometry


@lru_cache(maxsize=RULES_REMEMBERED)
def geometry_of(rules: _Rules, x_shape: tuple[int, ...], name: str) -> Geometry:
    """`rules.geometry`, remembered: where it is asked for in every call. Rules are told apart by identity."""
    return rules.geometry(x_shape, name)


class OnnxRules(_Rules):
    """ONNX ConvTranspose, opsets 1, 11 and 22. Attributes as in `convt.conv_transpose`."""

    def __init__(
        self,
        w_shape: Sequence[int],
        *,
        auto_pad: str = "NOTSET",
        dilations: Sequence[int] | None = None,
        group: int = 1,
        kernel_shape: Sequence[int] | None = None,
        output_padding: Sequence[int] | None = None,
        output_shape: Sequence[int] | None = None,
        pads: Sequence[int] | None = None,
        strides: Sequence[int] | None = None,
        opset: int = 22,
        names: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(w_shape, group, names or {})
        n = len(self.kernel)
        self.opset = integer(opset, "opset", 1, NEWEST_OPSET)
        if self.opset < 22:
            self.dtypes = ("float16", "float32", "float64")
        self.auto_pad = choice(auto_pad, "auto_pad", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"))
        self.strides = self._per_axis(strides, "strides", 1, 1)
        self.dilations = self._per_axis(dilations, "dilations", 1, 1)
        if kernel_shape is not None and (found := self._per_axis(kernel_shape, "kernel_shape", 1)) != self.kernel:
            raise ValueError(
                f"kernel_shape: expected {shown(self.kernel)}, the kernel of {self.argument('w')}, "
                f"got {shown(found)}"
            )
        self.output_padding = self._per_axis(output_padding, "output_padding", 0, 0)
        for a, (extra, stride, dilation) in enumerate(
            zip(self.output_padding, self.strides, self.dilations, strict=True)
        ):
            if extra >= max(stride, dilation):
                raise ValueError(
                    f"output_padding[{a}]: expected less than the larger of stride {stride} and "
                    f"dilation {dilation}, got {extra}"
                )
        self.pads = (0,) * (2 * n)
        if pads is not None:
            self.pads = integers(pads, self.argument("pads"), 0, (2 * n,))
            if any(self.pads) and self.auto_pad != "NOTSET":
                raise ValueError(
                    f"{self.argument('pads')}: cannot be used with auto_pad {self.auto_pad}, "
                    f"got {shown(self.pads)}"
                )
        self.requested = None
        self.requested_prefix: tuple[int, ...] = ()  # N and M, where output_shape begins with them
        if output_shape is not None:
            sizes = integers(output_shape, "output_shape", 0, (n, n + 2))
            self.requested_prefix = sizes[:-n]  # an empty batch's N may be 0
            for i in range(len(sizes) - n, len(sizes)):  # by their place in what was given
                integer(sizes[i], f"output_shape[{i}]", 1)
            self.requested = sizes[-n:]

    def __str__(self) -> str:
        """Channels, kernel, strides and groups, and what else is not as by default."""
        parts = [f"{self.in_channels} -> {self.out_channels} channels", f"kernel {self.kernel}"]
        parts.append(f"strides {self.strides}")
        for name, value in (("dilations", 1), ("pads", 0), ("output_padding", 0)):
            values = getattr(self, name)
            if any(v != value for v in values):
                parts.append(f"{name} {values}")
        if self.auto_pad != "NOTSET":
            parts.append(f"auto_pad {self.auto_pad}")
        if self.requested:
            parts.append(f"output_shape {self.requested_prefix + self.requested}")
        if self.opset < 22:
            parts.append(f"opset {self.opset}")
        return ", ".join([*parts, f"group {self.group}"])

    def _check_output_shape(self, batch: int) -> None:
        if self.requested_prefix not in ((), (batch, self.out_channels)):
            raise ValueError(
                f"output_shape: expected spatial sizes, alone or after N={batch} and M={self.out_channels}, "
                f"got them after {self.requested_prefix}"
            )

    def _pad_and_output(self, axis: int, size: int, natural: int) -> tuple[int, int]:
        upper = self.auto_pad == "SAME_UPPER"
        if self.requested is not None:
            output = self.requested[axis]
            if self.opset < 11:
                # The text of opset 1 has the comparison the other way round from opset 11's.
                upper = not upper
        elif self.auto_pad in ("SAME_UPPER", "SAME_LOWER"):
            output = size * self.strides[axis]
        else:
            begin, end = self.pads[axis], self.pads[axis + len(self.kernel)]
            return begin, natural - begin - end
        total = max(0, natural - output)
        return (total // 2 if upper else total - total // 2), output


class OpenvinoRules(_Rules):
    """OpenVINO ConvolutionBackpropData-1. Attributes as in `convt.convolution_backprop_data`."""

    def __init__(
        self,
        w_shape: Sequence[int],
        output_shape: Sequence[int] | None,
        *,
        strides: Sequence[int],
        pads_begin: Sequence[int],
        pads_end: Sequence[int],
        dilations: Sequence[int],
        auto_pad: str = "explicit",
        output_padding: Sequence[int] | None = None,
        compat: str = "spec",
        group: int = 1,
        names: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(w_shape, group, names or {})
        self.auto_pad = choice(auto_pad, "auto_pad", ("explicit", "same_upper", "same_lower", "valid"))
        self.compat = choice(compat, "compat", ("spec", "runtime"))
        self.strides = self._per_axis(strides, "strides", 1)
        self.dilations = self._per_axis(dilations, "dilations", 1)
        self.pads_begin = self._per_axis(pads_begin, "pads_begin", 0)
        self.pads_end = self._per_axis(pads_end, "pads_end", 0)
        self.output_padding = self._per_axis(output_padding, "output_padding", 0, 0)
        self.requested = None
        if output_shape is not None:
            self.requested = self._per_axis(output_shape, "output_shape", 1)

    def _pad_and_output(self, axis: int, size: int, natural: int) -> tuple[int, int]:
        explicit = self.auto_pad == "explicit"
        if self.requested is None:
            # auto_pad other than explicit crops nothing at all: ONNX's SAME is another rule.
            begin, end = (self.pads_begin[axis], self.pads_end[axis]) if explicit else (0, 0)
            return begin, natural - begin - end
        output = self.requested[axis]
        if self.compat == "runtime" and self.auto_pad in ("explicit", "valid"):
            return (self.pads_begin[axis] if explicit else 0), output
        total = max(0, natural - output)
        # The larger half goes to the begin for same_upper: the opposite of ONNX.
        return (total - total // 2 if self.auto_pad == "same_upper" else total // 2), output

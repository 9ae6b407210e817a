"""Geometry, plan, kernels, array: the one way a transposed convolution is computed."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from convt import isa, threads
from convt._machine import begin_floating, end_floating
from convt.arguments import choice, integers
from convt.arrays import (
    as_array,
    as_native,
    check_out,
    check_same_dtype,
    dtype_name,
    empty_aligned,
    native_copy,
)
from convt.geometry import OnnxRules, OpenvinoRules, geometry_of

if TYPE_CHECKING:
    from convt.plan import Packed, Plan
    from convt.report import Report

PRECISIONS = ("highest", "high", "medium")
# What a layer remembers; a serving process with random lengths must not grow. Small images that leave out taps
# want weights packed their own way: up to 4 ways for kernel 4 and stride 2, dozens for a kernel of 31. So do sizes
# that suit tiles of other widths.
SHAPES_KEPT = 64
PACKED_KEPT = 8
REFUSED_KEPT = 64
# What `_begin` sets, also where a layer is unpickled or copied.
MADE_ANEW = ("_isa", "_dtype", "_ready", "_packed", "_refused")


class Layer:
    """Rules, weights and bias, ready to be applied to inputs of any batch and spatial size.

    The public front ends differ in the rules alone. Weights and bias are read where they are first needed,
    in the layout that the plan wants; a layer that outlives its call must own them.

    Parameters
    ----------
    rules : OnnxRules or OpenvinoRules
    w : ndarray
        ``(C, M/group, *K)``.
    b : array_like or None
        ``(M,)``, dtype of `w`.
    n_threads : int or None
    precision : str
    """

    _once = True  # weights serve one call, in which packing them must pay

    def __init__(
        self,
        rules: OnnxRules | OpenvinoRules,
        w: np.ndarray,
        b: object,
        n_threads: int | None,
        precision: str,
    ) -> None:
        name = rules.argument
        self._rules = rules
        self._w = as_array(w, name("w"), rules.dtypes)
        self._b = None
        if b is not None:
            self._b = as_array(b, name("b"), rules.dtypes)
            check_same_dtype(self._b, name("b"), w, name("w"))
            if self._b.shape != (rules.out_channels,):
                raise ValueError(
                    f"{name('b')}: expected shape ({rules.out_channels},), one value per output channel, "
                    f"got {self._b.shape}"
                )
        self._n_threads = threads.check(n_threads)
        self._precision = choice(precision, "precision", PRECISIONS)
        self._begin()

    def _begin(self) -> None:
        """What depends on the machine, and nothing planned or packed yet."""
        self._isa = isa.choose()
        self._dtype = np.dtype(self._w.dtype.type)  # native, and the same object as other arrays' dtype
        self._ready: dict[tuple, tuple[Plan, Packed | None]] = {}
        self._packed: dict[tuple, Packed] = {}
        # Of plans that cannot multiply the weights. By what they pack, not by their kind: images that leave out a
        # tap do not look at its weights, and their results must not depend on what other images saw.
        self._refused: set[tuple] = set()

    def output_shape(self, x_shape: Sequence[int]) -> tuple[int, ...]:
        """Shape of the result for an input of shape `x_shape`, without computing it.

        Parameters
        ----------
        x_shape : sequence of int
            ``(N, C, *I)``.

        Returns
        -------
        tuple of int
            ``(N, M, *O)``.

        Raises
        ------
        TypeError, ValueError
            If `x_shape` is no sequence of integers, or no output of at least one element per axis exists for it.
        """
        return self._rules.geometry(integers(x_shape, "x_shape", 0), "x_shape").output_shape

    def explain(self, x_shape: Sequence[int]) -> "Report":
        """What would run for an input of shape `x_shape`, and why.

        Weights and inputs are taken to be finite, and of magnitudes that every path can multiply, until a call for
        which weights are packed alike has found these to be otherwise.

        Parameters
        ----------
        x_shape : sequence of int
            ``(N, C, *I)``.

        Returns
        -------
        Report
            A dict that prints as a table: ISA level, path, phases, taps, tiles, threads, workspace in bytes,
            floating-point operations and bytes of arrays touched.

        Raises
        ------
        TypeError, ValueError
            If `x_shape` is no sequence of integers, or no output of at least one element per axis exists for it.
        """
        shape = integers(x_shape, "x_shape", 0)
        found = begin_floating()
        try:
            return self._plan(shape, threads.resolve(self._n_threads), name="x_shape").explain()
        finally:
            end_floating(found)

    def _plan(self, x_shape: tuple[int, ...], limit: int, *without: str, name: str = "") -> "Plan":
        """A plan for `x_shape` and at most so many threads, of none of the kinds `without`."""
        # Here, not above: `import convt` alone should not pay for the planner.
        from convt.planner import Call, make_plan

        geometry = geometry_of(self._rules, x_shape, name)
        operands = geometry, dtype_name(self._dtype), self._isa, limit, self._precision
        kinds = frozenset(without)
        while True:
            plan = make_plan(Call(*operands, kinds, self._once))
            if plan.pack_key not in self._refused:
                return plan
            kinds |= {plan.kind}

    def _prepare(self, x_shape: tuple[int, ...], limit: int, *without: str) -> tuple["Plan", "Packed | None"]:
        """What `_plan` says, and the weights as that plan wants them."""
        plan = self._plan(x_shape, limit, *without)
        packed = self._packed.get(plan.pack_key)
        if 0 in plan.output_shape:
            return plan, None  # nothing will be read
        if packed is None:
            packed = plan.pack(as_native(self._w), None if self._b is None else as_native(self._b))
            if packed is None:
                if len(self._refused) >= REFUSED_KEPT:
                    self._refused.clear()
                self._refused.add(plan.pack_key)
                return self._prepare(x_shape, limit, *without, plan.kind)
            if len(self._packed) >= PACKED_KEPT and plan.pack_key not in self._packed:
                self._packed.clear()
                self._ready.clear()
            packed = self._packed.setdefault(plan.pack_key, packed)  # another thread may have packed them, too
        return plan, packed

    def _make_ready(self, key: tuple[tuple[int, ...], int]) -> tuple["Plan", "Packed | None"]:
        """What `_prepare` says for a shape and thread limit, to be remembered."""
        ready = self._prepare(*key)
        if len(self._ready) >= SHAPES_KEPT or (self._ready and ready[0].geometry.has_long_kernel):
            self._ready.clear()
        self._ready[key] = ready
        return ready

    def __call__(self, x: object, out: np.ndarray | None = None) -> np.ndarray:
        """Apply the layer.

        Parameters
        ----------
        x : array_like
            ``(N, C, *I)``, the dtype of the weights. Any strides; copied only if unaligned or byte-swapped, if an
            image has one position, or where axes that are computed as one, as those of a 1x1 kernel, do not follow
            each other in memory.
        out : ndarray, optional
            Where to put the result: its exact shape and dtype, writable, apart from `x` in memory.

        Returns
        -------
        ndarray
            ``(N, M, *O)``; `out` if that was given.

        Raises
        ------
        TypeError, ValueError
            If `x` or `out` does not fit; nothing is written then.
        MemoryError
            If the result or the workspace cannot be allocated; nothing is written then, unless a first way to
            compute it refused the operands' magnitudes.
        """
        return self._run(x, out, ())

    def _apply_once(self, x: object, out: object, *inputs: tuple[str, np.ndarray]) -> np.ndarray:
        """Apply a layer that reads its caller's own weights and bias, which `out` must not overlap either.

        `inputs` are further arrays, by name, for which that holds.
        """
        name = self._rules.argument
        bias = () if self._b is None else ((name("b"), self._b),)
        return self._run(x, out, ((name("w"), self._w), *bias, *inputs))

    def _run(self, x: object, out: object, inputs: Sequence[tuple[str, np.ndarray]]) -> np.ndarray:
        if type(x) is np.ndarray and x.dtype is self._dtype and x.flags.aligned:
            given = source = x
        else:
            given, source = self._check_input(x)
        found = begin_floating()
        try:
            return self._compute(source, given, out, inputs)
        finally:
            end_floating(found)

    def _compute(
        self, source: np.ndarray, given: np.ndarray, out: object, inputs: Sequence[tuple[str, np.ndarray]]
    ) -> np.ndarray:
        """The result for `source`, which has the elements of `given`."""
        key = source.shape, threads.resolve(self._n_threads)
        ready = self._ready.get(key)
        shape = ready[0].output_shape if ready else geometry_of(self._rules, source.shape, "").output_shape
        # Before weights are packed, which takes time and memory.
        if out is None:
            result = target = empty_aligned(shape, self._dtype)
        else:
            result = check_out(out, shape, self._dtype, ((self._rules.argument("x"), given), *inputs))
            native = result.flags.aligned and result.dtype.isnative
            target = result if native else np.empty(shape, self._dtype)
        plan, packed = ready or self._make_ready(key)
        refused: list[str] = []
        while packed is not None and not plan.run(source, target, packed):
            refused.append(plan.kind)
            plan, packed = self._prepare(*key, *refused)
        if target is not result:
            result[...] = target
        return result

    def _check_input(self, x: object) -> tuple[np.ndarray, np.ndarray]:
        """`x` as an array of the right dtype, and the same as the kernels can read it."""
        name = self._rules.argument
        array = as_array(x, name("x"), self._rules.dtypes)
        check_same_dtype(array, name("x"), self._w, name("w"))
        return array, as_native(array)


class ConvTranspose(Layer):
    """ONNX ConvTranspose with the weights packed once, for a layer that is called again and again.

    Calls are safe from many threads at once; the layer can be pickled; it keeps its own copy of the weights.

    Parameters
    ----------
    w : array_like
        Weights ``(C, M/group, *K)``: float16, float32, float64 or bfloat16 (ml_dtypes).
    b : array_like, optional
        Bias ``(M,)``, dtype of `w`. Default: none.
    auto_pad, dilations, group, kernel_shape, output_padding, output_shape, pads, strides, opset
        As in `convt.conv_transpose`, with the same defaults.
    n_threads, precision
        As in `convt.conv_transpose`.

    Raises
    ------
    TypeError, ValueError
        As `convt.conv_transpose` does.
    MemoryError
        If the copy of the weights cannot be allocated.

    Notes
    -----
    ONNX ConvTranspose-1, -11 and -22, as `convt.conv_transpose` reads them.

    Examples
    --------
    >>> import numpy as np, convt
    >>> layer = convt.ConvTranspose(np.ones((1, 1, 3), np.float32), strides=[2])
    >>> layer(np.array([[[1, 2, 3]]], np.float32))
    array([[[1., 1., 3., 2., 5., 3., 3.]]], dtype=float32)
    """

    _once = False

    def __init__(
        self,
        w: object,
        b: object = None,
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
        n_threads: int | None = None,
        precision: str = "highest",
    ) -> None:
        # Native: bfloat16 of the other byte order, unpickled, breaks that dtype for the process (ml_dtypes).
        w = native_copy(as_array(w, "w"))
        rules = OnnxRules(
            w.shape,
            auto_pad=auto_pad,
            dilations=dilations,
            group=group,
            kernel_shape=kernel_shape,
            output_padding=output_padding,
            output_shape=output_shape,
            pads=pads,
            strides=strides,
            opset=opset,
        )
        super().__init__(rules, w, None if b is None else native_copy(as_array(b, "b")), n_threads, precision)

    def __repr__(self) -> str:
        more = "" if self._precision == PRECISIONS[0] else f", precision {self._precision}"
        more += "" if self._n_threads is None else f", n_threads {self._n_threads}"
        return f"{type(self).__name__}({self._rules}, {self._w.dtype.name}{more})"

    def __getstate__(self) -> dict:
        return {name: value for name, value in vars(self).items() if name not in MADE_ANEW}

    def __setstate__(self, state: dict) -> None:
        vars(self).update(state)
        self._begin()

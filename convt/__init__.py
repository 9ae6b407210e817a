"""convt: transposed convolution on CPUs: ONNX ConvTranspose and OpenVINO ConvolutionBackpropData.

The way through the package; each module knows only those behind it, in its line or further down::

    operators, functional     the public functions: arguments in, array out
    layer                     ConvTranspose: weights packed once, plans remembered by shape
    planner                   geometry -> path, boxes, threads
    plan                      what then runs: tasks dealt out, weights packed, kernels called, explained
    boxes, tile_width, cost   for each path how large its boxes and tiles are, and what they would cost
    depthwise_cost            what they would cost where every group has one channel
    shares                    into how many tasks boxes are dealt out to threads
    work, one_pass, paths     what a path does of a call; whether its boxes are multiplied and stored at once
    cost_factors              what of the estimates differs between levels
    _box_compute              the vectorised levels: tasks of boxes; Cython and OpenMP
    _box_one_pass             boxes multiplied and stored at once
    _box_along_channels, _box_along_positions    their products, by what lanes lie along
    _box_input, _box_output   their input packed before, their outputs stored after
    _weight_panels            weights that are used once, read or packed when they are multiplied
    _box_weights              their packed weights
    _given_weights            weights as they are given: read, looked at, fetched
    _box_operands             what the loops know of the arrays of a call
    _micro_kernels            micro-kernels along positions: of floats, doubles or words of two bfloat16
    _box_table                what the loops know of boxes
    shared_loads              tiles of one input channel, and pairs of tile registers
    merged_taps               neighbouring taps as one of more channels, where these are few
    tiling, coalesce          the output in boxes of cells; axes that are computed as one
    _native                   images of one position, with the weights as they are
    row_weights, _kernels     phases of rows in plain loops, and their weights: the generic level
    _levels                   the levels of this build, the limits of their tiles, sizes that loops and plans share
    levels.c, isa_*.c         their table, and the micro-kernels of each instruction set
    micro*.h, pieces.h        micro-kernels, written once, by registers.h (vectors), micro_common.h (macros),
                              half.h and avx512_floats.h (conversions)
    levels.h                  the contract of a level's micro-kernels
    phases                    which kernel positions meet which outputs of an axis
    geometry                  attributes -> begin pad and output size per axis; the rules of both specifications
    arguments, dtypes         checks of arguments, and how errors quote them; the dtypes of arrays

Beside them: `reference` (the definition in NumPy), `arrays` (what is accepted as x, w, out), `threads` and `isa`
(what this machine allows), `config` (says so), `report` (how `explain` prints), `_machine` (what OpenMP and the
processor give to threads, and how these round), `_memory` and `_elements` (scratch, elements of any dtype) and
`demo`.
"""

try:
    from convt._machine import build_info as _  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "convt._machine":
        raise
    raise ImportError(
        "convt's compiled kernels are missing: this is a source folder that was not built. "
        "Install it with `pip install -e .`, or leave the folder to use an installed convt."
    ) from error

from typing import TYPE_CHECKING

from convt.layer import ConvTranspose
from convt.operators import (
    conv_transpose,
    convolution_backprop_data,
    group_convolution_backprop_data,
    output_shape,
)
from convt.version import __version__

if TYPE_CHECKING:
    from convt import functional, reference
    from convt.config import show_config

__all__ = [
    "ConvTranspose",
    "__version__",
    "conv_transpose",
    "convolution_backprop_data",
    "functional",
    "group_convolution_backprop_data",
    "output_shape",
    "reference",
    "show_config",
]


def __getattr__(name: str) -> object:
    """Import what most programs do not use when it is first used: imports are counted in milliseconds."""
    from importlib import import_module

    if name in ("functional", "reference"):
        return import_module(f"convt.{name}")
    if name == "show_config":
        return import_module("convt.config").show_config
    raise AttributeError(f"module 'convt' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

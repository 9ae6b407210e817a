"""convt: transposed convolution on CPUs, as ONNX ConvTranspose and OpenVINO ConvolutionBackpropData define it.

The way through the package, top to bottom; each floor knows only those below::

    operators, functional     the public functions: arguments in, array out
    layer                     ConvTranspose: weights packed once, plans remembered by shape
    geometry                  attributes -> begin pad and output size per axis; every rule of both specifications
    plan                      geometry -> phases, tiles, tasks, threads
    packing                   weights in the layout that the kernels read
    _kernels                  the loops, in Cython and OpenMP

Beside them: `reference` (the definition in NumPy), `arrays` (what is accepted as x, w, out), `threads` and `isa`
(what this machine allows), `config` (says so).
"""

try:
    from convt import _kernels as _kernels
except ModuleNotFoundError as error:
    if error.name != "convt._kernels":
        raise
    raise ImportError(
        "convt's compiled kernels are missing: this is a source folder that was not built. "
        "Install it with `pip install -e .`, or leave the folder to use an installed convt."
    ) from error

from convt import functional, reference
from convt.config import show_config
from convt.layer import ConvTranspose
from convt.operators import (
    conv_transpose,
    convolution_backprop_data,
    group_convolution_backprop_data,
    output_shape,
)
from convt.version import __version__

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

"""Layers of real networks, and random data for them."""

import json
from pathlib import Path

import numpy as np


def read(file):
    """The layers of a file, by name."""
    return {layer["name"]: layer for layer in json.loads(Path(__file__).with_name(file).read_text())}


LAYERS = read("layers.json")
MORE_LAYERS = read("more_layers.json")  # of other networks, for `peers.py --more`


def attributes(layer):
    """A layer's ONNX attributes."""
    return {
        "group": layer["g"],
        "strides": layer["s"],
        "pads": layer["p"],
        "output_padding": layer["op"],
        "dilations": layer["d"],
    }


def arrays(layer, dtype):
    """Random x, w and b for a layer. Never zeros: some units run faster on them."""
    if dtype == "bfloat16":
        from ml_dtypes import bfloat16 as dtype
    rng = np.random.default_rng(0)
    shapes = (
        (layer["N"], layer["C"], *layer["inp"]),
        (layer["C"], layer["M"] // layer["g"], *layer["k"]),
        (layer["M"],),
    )
    return [rng.standard_normal(shape, dtype=np.float32).astype(dtype) for shape in shapes]

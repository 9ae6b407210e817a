"""Layers of real networks, random ones, and random data for them."""

import json
import math
from pathlib import Path

import numpy as np


def read(file):
    """The layers of a file, by name."""
    return {layer["name"]: layer for layer in json.loads(Path(__file__).with_name(file).read_text())}


LAYERS = read("layers.json")
MORE_LAYERS = read("more_layers.json")  # of other networks, for `peers.py --more`

# What random layers are made of.
CHANNELS = (1, 3, 8, 12, 16, 21, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024)
# kernel, stride, pad before and after, output_padding
KERNELS = (
    *((stride, stride, 0, 0) for stride in (2, 2, 3, 4, 8)),
    *((4, 2, 1, 0), (3, 2, 1, 1), (5, 2, 2, 1), (8, 4, 2, 0), (16, 8, 4, 0), (10, 5, 2, 0)),
    *((kernel, 1, kernel // 2, 0) for kernel in (1, 3, 5)),
)
LARGEST_SIZE = {1: 20_000, 2: 160, 3: 40}  # by the number of spatial axes


def random_layer(rng):
    """Something that takes up to some milliseconds, described as in layers.json."""
    while True:
        rank, batch = int(rng.choice([1, 2, 2, 2, 3])), int(rng.choice([1, 1, 1, 2, 4, 8, 16]))
        channels, outputs = (int(n) for n in rng.choice(CHANNELS, 2))
        kernel, stride, pad, more = KERNELS[rng.integers(len(KERNELS))]
        group = int(rng.choice([1, 1, 1, 1, 1, 4, channels]))
        if group > 1 and (channels % group or outputs % group):
            outputs = channels
        size = [int(math.exp(rng.uniform(math.log(4), math.log(LARGEST_SIZE[rank])))) for _ in range(rank)]
        if rng.random() < 0.6:
            size = size[:1] * rank
        weights = channels * (outputs // group) * kernel**rank
        places = batch * math.prod(size)
        elements = max(channels, outputs * stride**rank) * places
        if channels % group == 0 and 2e5 < weights * places < 3e8 and elements < 4e6 and weights < 6e6:
            layer = {"N": batch, "C": channels, "inp": size, "M": outputs, "g": group, "p": [pad] * 2 * rank}
            by_axis = {"k": kernel, "s": stride, "op": more, "d": 1}
            layer |= {name: [value] * rank for name, value in by_axis.items()}
            sizes = "x".join(map(str, size))
            grouped = f" g{group}" if group > 1 else ""
            return layer | {"name": f"{batch}x{channels}-{outputs} {sizes} k{kernel} s{stride} p{pad}{grouped}"}


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
    drawn = np.float64 if dtype == "float64" else np.float32
    return [rng.standard_normal(shape, dtype=drawn).astype(dtype) for shape in shapes]

"""Depthwise layers and those of kernel = stride beside what bounds them, measured in turn, per dtype.

    python asv_benchmarks/memory_bound.py

The bound is the longer of two times: to copy the input into the output's memory and zero the rest of that, and to
make the layer's multiply-adds at the peak of AVX-512 (peak.c), the level that convt runs at here. x86-64 with
AVX-512 and a C compiler only.
"""

import argparse
import os
import tempfile

os.environ.update(OMP_NUM_THREADS="1", CONVT_ISA="avx512")

import numpy as np
from benchmarks.layers import LAYERS, arrays, attributes
from peak import build, medians, multiplier

import convt


def depthwise_or_kernel_is_stride():
    """Depthwise layers and those whose kernel is their stride."""
    for name, layer in LAYERS.items():
        if layer["k"] == layer["s"] or layer["g"] == layer["C"] > 1:
            yield name


def move(x, y):
    """Reads x, as far as it is no larger than y, and writes y, once."""
    source, target = x.reshape(-1).view(np.uint8), y.reshape(-1).view(np.uint8)
    n = min(source.size, target.size)
    target[:n] = source[:n]
    target[n:] = 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtypes", nargs="+", choices=["float32", "float64"], default=["float32", "float64"])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    print("| layer | dtype | convt, ms | moved, ms | multiplied, ms | convt / bound |")
    print("|---|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        library = build(folder)
        multiply = {dtype: multiplier(library, f"avx512_{dtype}") for dtype in args.dtypes}
    for dtype in args.dtypes:
        for name in depthwise_or_kernel_is_stride():
            x, w, b = arrays(LAYERS[name], dtype)
            layer = convt.ConvTranspose(w, b, n_threads=1, **attributes(LAYERS[name]))
            y = layer(x)
            other, flops = np.empty_like(y), layer.explain(x.shape)["flops"]
            calls = (
                lambda layer=layer, x=x, y=y: layer(x, out=y),
                lambda x=x, other=other: move(x, other),
                lambda dtype=dtype, flops=flops: multiply[dtype](flops),
            )
            ours, moved, multiplied = (1e3 * seconds for seconds in medians(calls, args.rounds))
            print(
                f"| {name} | {dtype} | {ours:.2f} | {moved:.2f} | {multiplied:.2f} |"
                f" {ours / max(moved, multiplied):.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()

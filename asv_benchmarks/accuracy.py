"""Errors of convt's levels and precisions, and of its peers, on the same data.

    python asv_benchmarks/accuracy.py

Per layer the error of every output against float64 is divided by the largest output; the table shows the largest
such error, and the largest root mean square, over the layers. Those of float64 are against longdouble, which takes
minutes for a layer: of the first image and output channels alone. Every way runs in a process of its own, because
a process has one level.
"""

import argparse
import importlib.util
import multiprocessing
import os
import sys

import numpy as np
from benchmarks.layers import LAYERS, arrays, attributes
from peers import DTYPES, ENGINES, to_numpy

PEERS = ("torch", "onnxruntime", "openvino", "jax")
FIRST_OUTPUTS = 8  # channels that are compared with longdouble
# One of each kind of shape, of one group; the definition in float64 takes seconds for a large layer.
SAMPLE = (
    "dcgan_l2_n64",
    "pose_d3_256",
    "hifigan_u1",
    "istft_1026to1",
    "fsrcnn_x3",
    "gan3d_256_8",
    "compressai_128_64",
)


def convt_call(name, dtype, precision):
    import convt

    x, w, b = arrays(LAYERS[name], dtype)
    layer = convt.ConvTranspose(w, b, n_threads=1, precision=precision, **attributes(LAYERS[name]))
    return lambda: layer(x)


def errors(job):
    """Largest error and root mean square of one way over the sample, relative to each layer's largest output."""
    who, dtype, detail = job
    os.environ["OMP_NUM_THREADS"] = "1"
    if who == "convt":
        os.environ["CONVT_ISA"] = detail[0]
    import convt

    largest = rms = 0.0
    for name in SAMPLE:
        layer = LAYERS[name]
        if who == "convt":
            call = convt_call(name, dtype, detail[1])
        else:
            call = ENGINES[who][1](layer, arrays(layer, dtype), 1)
        x, w, b = arrays(layer, dtype)
        summed, result = np.float64, to_numpy(call())
        if dtype == "float64":
            summed, result = np.longdouble, result[:1, :FIRST_OUTPUTS]
            x, w, b = x[:1], w[:, :FIRST_OUTPUTS], b[:FIRST_OUTPUTS]
        exact = convt.reference.conv_transpose(x, w, b, dtype=summed, **attributes(layer))
        error = (result.astype(summed) - exact) / np.abs(exact).max()
        largest = max(largest, float(np.abs(error).max()))
        rms = max(rms, float(np.sqrt(np.square(error).mean())))
    return largest, rms


def jobs():
    """What to measure: (who, dtype, level and precision)."""
    from convt._levels import most_pieces
    from convt.isa import available
    from convt.paths import pieces_of

    for dtype in ("float32", "float16", "bfloat16", "float64"):
        for level in available():
            for precision in ("highest", "high", "medium"):
                in_pieces = level != "generic" and pieces_of(dtype, precision) <= most_pieces(level)
                if precision == "highest" or (dtype == "float32" and in_pieces):
                    yield "convt", dtype, (level, precision)
        for peer in PEERS:
            if importlib.util.find_spec(ENGINES[peer][0]) and dtype in DTYPES.get(peer, (dtype,)):
                yield peer, dtype, None


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("| dtype | computed by | largest error | root mean square |")
    print("|---|---|---:|---:|")
    wanted = list(jobs())
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        for i, (job, found) in enumerate(zip(wanted, pool.imap(errors, wanted), strict=True)):
            print(f"\r{i + 1}/{len(wanted)}", end="", file=sys.stderr, flush=True)
            who, dtype, detail = job
            precision = f", {detail[1]}" if detail and dtype == "float32" else ""
            name = f"convt, {detail[0]}{precision}" if detail else who
            print(f"| {dtype} | {name} | {found[0]:.1e} | {found[1]:.1e} |", flush=True)


if __name__ == "__main__":
    main()

"""Compute-bound layers beside the peak of a core, measured in turn with them, per level and dtype.

    python asv_benchmarks/peak.py

The peak is that of multiply-adds from registers (peak.c): of the dtype's own at `avx2` and `avx512`, of pairs of
bfloat16 at `avx512_bf16`, of float32 and of bfloat16 tiles at `amx`. Every level runs in a process of its own.
x86-64 with a C compiler only.
"""

import argparse
import ctypes
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from benchmarks.layers import LAYERS, arrays, attributes

# Floating-point operations of one step of each loop in peak.c.
STEP = {
    "avx2_float32": 2 * 12 * 8,
    "avx2_float64": 2 * 12 * 4,
    "avx512_float32": 2 * 12 * 16,
    "avx512_float64": 2 * 12 * 8,
    "avx512_bf16": 2 * 12 * 32,
    "amx_bfloat16": 2 * 4 * 16 * 16 * 32,
}
JOBS = [
    ("avx2", "float32", "avx2_float32"),
    ("avx2", "float64", "avx2_float64"),
    ("avx512", "float32", "avx512_float32"),
    ("avx512", "float64", "avx512_float64"),
    ("avx512_bf16", "bfloat16", "avx512_bf16"),
    ("amx", "float32", "avx512_float32"),
    ("amx", "bfloat16", "amx_bfloat16"),
]


def compute_bound():
    """Layers of kernel 4 and stride 2 with at least 128 channels in and out and 16 x 16 positions or more."""
    for name, layer in LAYERS.items():
        large = min(layer["C"], layer["M"]) >= 128 and np.prod(layer["inp"]) >= 256
        if large and set(layer["k"]) == {4} and set(layer["s"]) == {2} and layer["g"] == 1:
            yield name


def build(folder):
    library = Path(folder) / "peak.so"
    source = Path(__file__).with_name("peak.c")
    subprocess.run([os.environ.get("CC", "cc"), "-O2", "-shared", "-fPIC", "-o", library, source], check=True)
    return library


def multiplier(library, peak):
    """A function that makes so many floating-point operations in a loop of peak.c."""
    loop = getattr(ctypes.CDLL(library), peak)
    loop.restype, loop.argtypes = ctypes.c_double, [ctypes.c_int64, ctypes.c_void_p]
    random = np.random.default_rng(0).random(192)
    return lambda operations: loop(operations // STEP[peak], random.ctypes.data)


def medians(calls, rounds):
    """Seconds of each, made in turn."""
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, seen in zip(calls, times, strict=True):
            begin = time.perf_counter()
            call()
            seen.append(time.perf_counter() - begin)
    return [np.median(seen) for seen in times]


def measure(job):
    """GFLOP/s of the peak, and of each layer, by medians."""
    library, (level, dtype, peak), rounds = job
    os.environ.update(CONVT_ISA=level, OMP_NUM_THREADS="1")
    import convt

    multiply = multiplier(library, peak)
    calls = {"peak": (lambda: multiply(10**9), 10**9 // STEP[peak] * STEP[peak])}
    for name in compute_bound():
        x, w, b = arrays(LAYERS[name], dtype)
        layer = convt.ConvTranspose(w, b, n_threads=1, **attributes(LAYERS[name]))
        out = layer(x)
        calls[name] = (lambda layer=layer, x=x, out=out: layer(x, out=out), layer.explain(x.shape)["flops"])
    seconds = medians([call for call, _ in calls.values()], rounds)
    return {name: flops / s / 1e9 for (name, (_, flops)), s in zip(calls.items(), seconds, strict=True)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    from convt.isa import available

    print("| level | dtype | peak, GFLOP/s |", " | ".join(compute_bound()), "|")
    print("|---|---|---:|", "---:|" * len(list(compute_bound())), sep="")
    jobs = [job for job in JOBS if job[0] in available()]
    with (
        tempfile.TemporaryDirectory() as folder,
        multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool,
    ):
        library = build(folder)
        for i, (job, found) in enumerate(
            zip(jobs, pool.imap(measure, [(library, job, rounds) for job in jobs]), strict=True)
        ):
            print(f"\r{i + 1}/{len(jobs)}", end="", file=sys.stderr, flush=True)
            peak = found.pop("peak")
            cells = " | ".join(f"{speed:.0f} ({speed / peak:.0%})" for speed in found.values())
            print(f"| {job[0]} | {job[1]} | {peak:.0f} ({job[2]}) | {cells} |", flush=True)


if __name__ == "__main__":
    main()

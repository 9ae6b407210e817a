"""Random layers: the path that the estimates choose beside the fastest one, on one thread.

    python asv_benchmarks/choices.py --dtype float32 --layers 100

Prints the layers on which the chosen path took more than 1.15 times as long, and the geometric mean over all.
`CONVT_ISA` sets the level. Layers of less than 0.1 ms say little: calls cost 0.01 ms themselves.
"""

import argparse
import math
import time

import numpy as np
from benchmarks.layers import arrays, attributes, random_layer

import convt
from convt import planner
from convt.cost import FEW_CHANNELS
from convt.paths import GROUPS, PIECE_PATHS, VECTOR_PATHS

BURST = 0.006  # seconds


def layers_by_path(layer, x, w, b):
    """The layer as every path computes it; the chosen one first."""
    found = {}
    for path in (None, GROUPS, *VECTOR_PATHS, *PIECE_PATHS):
        if path and path.columns_first and w.shape[0] // layer["g"] < FEW_CHANNELS:
            continue  # which would round more often
        with planner.forced(path):
            computed = convt.ConvTranspose(w, b, n_threads=1, **attributes(layer))
            name = computed.explain(x.shape)["kernel"]
            if path is None or name == path.name:
                found.setdefault(name, computed)
                computed(x)  # plans and packs
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32", choices=["float16", "bfloat16", "float32", "float64"])
    parser.add_argument("--layers", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    rng = np.random.default_rng(args.seed)
    losses = []
    for _ in range(args.layers):
        layer = random_layer(rng)
        x, w, b = arrays(layer, args.dtype)
        layers = layers_by_path(layer, x, w, b)
        best = dict.fromkeys(layers, math.inf)
        for _ in range(3):
            for path, computed in layers.items():
                end = time.perf_counter() + BURST
                while time.perf_counter() < end:
                    begin = time.perf_counter()
                    computed(x)
                    best[path] = min(best[path], time.perf_counter() - begin)
        chosen, fastest = next(iter(layers)), min(best, key=best.get)
        losses.append(best[chosen] / best[fastest])
        if losses[-1] > 1.15:
            times = f"{chosen} {1e3 * best[chosen]:.3f} ms, {fastest} {1e3 * best[fastest]:.3f} ms"
            print(f"{losses[-1]:.2f}  {layer}: {times}", flush=True)
    mean = math.exp(sum(map(math.log, losses)) / len(losses))
    print(
        f"{args.dtype}: geometric mean of the loss {mean:.3f} over {len(losses)} layers, worst {max(losses):.2f}"
    )


if __name__ == "__main__":
    main()

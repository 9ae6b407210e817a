"""Random layers: the path that the estimates choose beside the fastest one, on one thread.

    python asv_benchmarks/choices.py --dtype float32 --layers 100

Prints the layers on which the chosen path took more than 1.15 times as long, and the geometric mean over all.
`CONVT_ISA` sets the level. Layers of less than 0.1 ms say little: calls cost 0.01 ms themselves.
"""

import argparse
import math
import time

import numpy as np
from benchmarks.layers import arrays, attributes

import convt
from convt import planner
from convt.paths import PIECE_PATHS, VECTOR_PATHS

CHANNELS = (1, 3, 8, 12, 16, 21, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 768, 1024)
# kernel, stride, pad before and after, output_padding
KERNELS = (
    *((stride, stride, 0, 0) for stride in (2, 2, 3, 4, 8)),
    *((4, 2, 1, 0), (3, 2, 1, 1), (5, 2, 2, 1), (8, 4, 2, 0), (16, 8, 4, 0), (10, 5, 2, 0)),
    *((kernel, 1, kernel // 2, 0) for kernel in (1, 3, 5)),
)
LARGEST_SIZE = {1: 20_000, 2: 160, 3: 40}  # by the number of spatial axes
BURST = 0.006  # seconds


def random_layer(rng):
    """Something that takes milliseconds, described as in layers.json."""
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
        if channels % group == 0 and 5e5 < weights * places < 3e8 and elements < 4e6 and weights < 6e6:
            layer = {"N": batch, "C": channels, "inp": size, "M": outputs, "g": group, "p": [pad] * 2 * rank}
            by_axis = {"k": kernel, "s": stride, "op": more, "d": 1}
            return layer | {name: [value] * rank for name, value in by_axis.items()}


def layers_by_path(layer, x, w, b):
    """The layer as every path computes it; the chosen one first."""
    asked, rows = planner.paths_worth_asking, planner.phase_rows_cycles
    found = {}
    try:
        for path in (None, *VECTOR_PATHS, *PIECE_PATHS):
            if path:
                planner.paths_worth_asking = lambda geometry, dtype, isa, pieces, path=path: (
                    (path,) if pieces or not path.in_pieces else ()
                )
                planner.phase_rows_cycles = lambda geometry: math.inf
            planner.make_plan.cache_clear()
            computed = convt.ConvTranspose(w, b, n_threads=1, **attributes(layer))
            name = computed.explain(x.shape)["kernel"]
            if path is None or name == path.name:
                found.setdefault(name, computed)
                computed(x)  # plans and packs
    finally:
        planner.paths_worth_asking, planner.phase_rows_cycles = asked, rows
        planner.make_plan.cache_clear()
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

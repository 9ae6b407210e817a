"""convt beside its peers, on the layers of real networks.

    python asv_benchmarks/peers.py --dtype float32 --threads 1 --plot peers.svg

Every engine that is installed (torch contiguous and channels_last, onnxruntime, openvino, jax) runs in a process
of its own, on the same cores, with the same number of threads. Engines take turns in bursts of calls, several
rounds, so that a machine whose speed drifts slows all of them alike; a figure is the median of all calls. Every
output is compared with the float64 definition. "convt one-shot" is the function, which packs the weights in each
call.
"""

import argparse
import importlib.util
import json
import math
import multiprocessing
import os
import platform
import sys
import time
from importlib.metadata import version
from statistics import median

import numpy as np
from benchmarks.layers import LAYERS, MORE_LAYERS, arrays, attributes, random_layer

ALL_LAYERS = LAYERS | MORE_LAYERS
OURS = ("convt", "convt one-shot")


def convt_layer(layer, arrays, threads):
    import convt

    x, w, b = arrays
    call = convt.ConvTranspose(w, b, n_threads=threads, **attributes(layer))
    return lambda: call(x)


def convt_function(layer, arrays, threads):
    import convt

    named = attributes(layer)
    return lambda: convt.conv_transpose(*arrays, n_threads=threads, **named)


def torch_function(layer, arrays, threads, channels_last=False):
    import torch

    torch.set_num_threads(threads)
    tensors = [as_torch(a) for a in arrays]
    if channels_last:
        form = {4: torch.channels_last, 5: torch.channels_last_3d}.get(tensors[0].ndim)
        if form is None:
            return None
        tensors[:2] = [t.to(memory_format=form) for t in tensors[:2]]
    rank = len(layer["k"])
    begin, end = layer["p"][:rank], layer["p"][rank:]
    # PyTorch's padding is the same at both ends: what is more at one of them is cropped from a view afterwards.
    common = [min(pair) for pair in zip(begin, end, strict=True)]
    cropped = [(b - c, e - c) for b, e, c in zip(begin, end, common, strict=True)]
    function = getattr(torch.nn.functional, f"conv_transpose{rank}d")

    def call():
        with torch.inference_mode():
            y = function(*tensors, layer["s"], common, layer["op"], layer["g"], layer["d"])
            if not any(map(any, cropped)):
                return y
            crop = [slice(first, n - last) for (first, last), n in zip(cropped, y.shape[2:], strict=True)]
            return y[(..., *crop)].clone(memory_format=torch.preserve_format)

    return call


def as_torch(array):
    import torch

    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def torch_channels_last(layer, arrays, threads):
    return torch_function(layer, arrays, threads, channels_last=True)


def onnx_model(layer, x, w, b):
    from onnx import TensorProto, helper, numpy_helper

    kind = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE}[x.dtype.name]
    graph = helper.make_graph(
        [helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes(layer))],
        "layer",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [numpy_helper.from_array(w, "w"), numpy_helper.from_array(b, "b")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8).SerializeToString()


def onnxruntime_session(layer, arrays, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    model = onnx_model(layer, *arrays)
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": arrays[0]})[0]


def openvino_model(layer, arrays, threads):
    import openvino

    core = openvino.Core()
    model = core.read_model(onnx_model(layer, *arrays))
    # Without the hint a float32 model may run in bfloat16.
    compiled = core.compile_model(
        model,
        "CPU",
        {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "NUM_STREAMS": 1},
    )
    request = compiled.create_infer_request()

    def call():
        return request.infer([arrays[0]], share_inputs=True, share_outputs=True)[0]

    return call


def jax_function(layer, arrays, threads):
    import jax

    jax.config.update("jax_enable_x64", True)
    x, w, b = arrays
    rank, group = len(layer["k"]), layer["g"]
    flipped = np.flip(w, range(2, 2 + rank)).reshape(group, w.shape[0] // group, *w.shape[1:])
    kernel = np.moveaxis(flipped, 2, 1).reshape(group * w.shape[1], w.shape[0] // group, *w.shape[2:])
    pads = [
        ((k - 1) * d - layer["p"][a], (k - 1) * d - layer["p"][a + rank] + op)
        for a, (k, d, op) in enumerate(zip(layer["k"], layer["d"], layer["op"], strict=True))
    ]
    bias = b.reshape(-1, *[1] * rank)

    @jax.jit
    def function(x, kernel, bias):
        y = jax.lax.conv_general_dilated(
            x,
            kernel,
            [1] * rank,
            pads,
            lhs_dilation=layer["s"],
            rhs_dilation=layer["d"],
            feature_group_count=group,
        )
        return y + bias

    placed = [jax.device_put(a) for a in (x, kernel, bias)]
    return lambda: function(*placed).block_until_ready()


ENGINES = {
    "convt": ("convt", convt_layer),
    "convt one-shot": ("convt", convt_function),
    "torch": ("torch", torch_function),
    "torch channels_last": ("torch", torch_channels_last),
    "onnxruntime": ("onnxruntime", onnxruntime_session),
    "openvino": ("openvino", openvino_model),
    "jax": ("jax", jax_function),
}
DTYPES = {"onnxruntime": ("float32",), "openvino": ("float32",), "jax": ("float32", "float64")}


def work(engine, threads, pipe):
    """A worker process: prepares layers, runs bursts, hands out results."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["OPENBLAS_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    call = None
    while True:
        try:
            order, *arguments = pipe.recv()
        except EOFError:  # nobody asks any more
            return
        try:
            if order == "layer":
                layer, dtype = arguments
                call = None
                call = ENGINES[engine][1](layer, arrays(layer, dtype), threads)
                answer = call is not None
                if answer:
                    call()
            elif order == "burst":
                answer = burst(call, *arguments)
            else:
                answer = to_numpy(call())
            pipe.send((True, answer))
        except Exception as error:  # an engine that cannot do a layer is left out of it, with its reason
            pipe.send((False, f"{type(error).__name__}: {error}"))


def to_numpy(result):
    if hasattr(result, "is_contiguous"):
        result = result.contiguous().double() if str(result.dtype) == "torch.bfloat16" else result.contiguous()
        return result.numpy()
    return np.array(result)


def burst(call, seconds):
    """Times of calls in a row: as many as fit, at least two."""
    times, begin = [], time.perf_counter()
    call()  # after the other engines, bring this one's data back into the caches
    while len(times) < 2 or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times


class Worker:
    """The parent's end of a worker process."""

    def __init__(self, engine, threads):
        self.pipe, other = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=work, args=(engine, threads, other), daemon=True)
        self.process.start()

    def ask(self, *order):
        try:
            self.pipe.send(order)
            return self.pipe.recv()
        except (EOFError, OSError):  # it ran out of memory, say
            return False, "its process has ended"


def measure(workers, layer, dtype, rounds, seconds):
    """Median seconds and largest error, relative to the largest value, of each engine that can do the layer."""
    able, name = {}, layer["name"]
    for engine, worker in workers.items():
        if dtype not in DTYPES.get(engine, (dtype,)):
            continue
        works, answer = worker.ask("layer", layer, dtype)
        if works and answer:
            able[engine] = worker
        elif not works:
            print(f"\r{name}: {engine} cannot: {answer}", file=sys.stderr)
    times = {engine: [] for engine in able}
    for _ in range(rounds):
        for engine, worker in able.items():
            works, answer = worker.ask("burst", seconds)
            times[engine] += answer if works else []
    import convt

    x, w, b = arrays(layer, dtype)
    wanted = convt.reference.conv_transpose(x, w, b, dtype=np.float64, **attributes(layer))
    figures = {}
    for engine, worker in able.items():
        if not times[engine]:
            print(f"\r{name}: {engine} failed", file=sys.stderr)
            continue
        works, y = worker.ask("result")
        error = np.abs(y.astype(np.float64) - wanted).max() / np.abs(wanted).max() if works else math.nan
        figures[engine] = {"ms": 1e3 * median(times[engine]), "error": float(error)}
    return figures


def ratios(results, ours):
    """Per layer: the fastest peer's time over ours."""
    found = {}
    for name, figures in results.items():
        peers = [f["ms"] for engine, f in figures.items() if engine not in OURS]
        if ours in figures and peers:
            found[name] = min(peers) / figures[ours]["ms"]
    return found


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def table(results):
    """The results as a Markdown table."""
    engines = [engine for engine in ENGINES if any(engine in figures for figures in results.values())]
    best = ratios(results, "convt")
    lines = ["| layer | " + " | ".join(f"{e}, ms" for e in engines) + " | fastest peer / convt | error |"]
    lines.append("|---|" + "---:|" * (len(engines) + 2))
    for name, figures in results.items():
        cells = [f"{figures[e]['ms']:.2f}" if e in figures else "" for e in engines]
        ratio = f"{best[name]:.2f}" if name in best else ""
        error = f"{figures['convt']['error']:.0e}" if "convt" in figures else ""
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {ratio} | {error} |")
    return "\n".join(lines)


def summary(results):
    """Geometric means and worst layers."""
    lines = []
    for ours in OURS:
        found = ratios(results, ours)
        if found:
            worst = min(found, key=found.get)
            lines.append(
                f"{ours}: geometric mean of (fastest peer / {ours}) {geometric_mean(found.values()):.2f}, "
                f"worst {worst} {found[worst]:.2f}"
            )
    to_torch = {
        name: figures["torch"]["ms"] / figures["convt one-shot"]["ms"]
        for name, figures in results.items()
        if "torch" in figures and "convt one-shot" in figures
    }
    if to_torch:
        worst = min(to_torch, key=to_torch.get)
        lines.append(
            f"convt one-shot against torch's functional call: geometric mean "
            f"{geometric_mean(to_torch.values()):.2f}, worst {worst} {to_torch[worst]:.2f}"
        )
    return "\n".join(lines)


def plot(results, path, title):
    """Bars of fastest peer / convt, one a layer."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = sorted(ratios(results, "convt").items(), key=lambda item: item[1])
    figure, axes = pyplot.subplots(figsize=(8, 0.2 * len(found) + 1.2), layout="constrained")
    colours = ["#b04030" if ratio < 1 else "#3060a0" for _, ratio in found]
    axes.barh([name for name, _ in found], [ratio for _, ratio in found], color=colours)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel("time of the fastest peer / time of convt")
    axes.set_title(title, fontsize="medium")
    axes.tick_params(axis="y", labelsize=7)
    axes.margins(y=0.01)
    figure.savefig(path)


def processor():
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", default="float32", choices=["float16", "bfloat16", "float32", "float64"])
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.add_mutually_exclusive_group()
    chosen.add_argument("--layers", nargs="*", choices=list(ALL_LAYERS), metavar="LAYER")
    chosen.add_argument("--more", action="store_true", help="the layers of more_layers.json instead")
    chosen.add_argument("--random", type=int, metavar="N", help="so many random layers instead")
    parser.add_argument("--seed", type=int, default=0, help="of these (default: 0)")
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), choices=list(ENGINES), metavar="ENGINE")
    parser.add_argument("--rounds", type=int, default=5, help="bursts per engine and layer (default: 5)")
    parser.add_argument("--seconds", type=float, default=0.1, help="length of a burst (default: 0.1)")
    parser.add_argument("--plot", metavar="FILE", help="draw the ratios (needs matplotlib)")
    parser.add_argument("--json", metavar="FILE", help="write every figure")
    options = parser.parse_args()
    if options.random:
        rng = np.random.default_rng(options.seed)
        layers = [random_layer(rng) for _ in range(options.random)]
    else:
        layers = [ALL_LAYERS[name] for name in options.layers or (MORE_LAYERS if options.more else LAYERS)]

    # convt is what the others are compared with.
    wanted = dict.fromkeys(["convt", *options.engines])
    engines = [e for e in wanted if importlib.util.find_spec(ENGINES[e][0])]
    versions = ", ".join(
        f"{package} {version(package)}" for package in dict.fromkeys(ENGINES[e][0] for e in engines)
    )
    workers = {engine: Worker(engine, options.threads) for engine in engines}
    results = {}
    for i, layer in enumerate(layers):
        bar, name = "#" * (30 * i // len(layers)), layer["name"]
        print(f"\r[{bar:<30}] {i}/{len(layers)} {name:<40}", end="", file=sys.stderr, flush=True)
        results[name] = measure(workers, layer, options.dtype, options.rounds, options.seconds)
    print("\r" + " " * 80 + "\r", end="", file=sys.stderr)

    title = f"{options.dtype}, {options.threads} thread(s), {processor()}"
    print(f"{title}\n{versions}\n\n{table(results)}\n\n{summary(results)}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"title": title, "versions": versions, "results": results}, file, indent=1)
    if options.plot:
        plot(results, options.plot, title)


if __name__ == "__main__":
    main()

"""The main job on real input: a photograph, enlarged three times by a depthwise bilinear kernel."""

import time
from pathlib import Path
from statistics import median

import numpy as np

from convt import reference
from convt.arguments import shown
from convt.layer import ConvTranspose

FACTOR = 3
RUNS = 20
FACE = (slice(FACTOR * 80, FACTOR * 270), slice(FACTOR * 150, FACTOR * 380))  # of the enlarged photograph


def bilinear_weights(factor: int, channels: int) -> np.ndarray:
    """Depthwise ConvTranspose weights that interpolate linearly along both axes.

    Parameters
    ----------
    factor : int
        Enlargement, odd: output ``factor*i + j`` then lies ``j/factor`` of a pixel past input ``i``.
    channels : int

    Returns
    -------
    ndarray of float32
        ``(channels, 1, 2*factor - 1, 2*factor - 1)``, the outer product of two triangles.
    """
    triangle = 1 - np.abs(np.arange(1 - factor, factor)) / factor
    kernel = np.outer(triangle, triangle).astype(np.float32)
    return np.tile(kernel, (channels, 1, 1, 1))


def main(output: str) -> int:
    """Run the demo; write the picture to `output`. Returns 0, or 1 if the result is wrong.

    Raises
    ------
    SystemExit
        If the folder of `output` does not exist, or matplotlib is not installed, before anything is computed; if
        matplotlib cannot write `output`.
    """
    picture = Path(output).resolve()
    if not picture.parent.is_dir():
        raise SystemExit(f"output: expected a file in an existing folder, got {shown(output)}")
    try:
        from matplotlib import cbook, image
    except ImportError:
        raise SystemExit("The demo needs matplotlib: pip install 'convt[demo]'") from None

    photograph = image.imread(cbook.get_sample_data("grace_hopper.jpg", asfileobj=False))
    x = np.moveaxis(photograph, -1, 0)[np.newaxis].astype(np.float32) / 255
    # One pixel of border repeated, then cropped again: without it the outermost pixels would fade to black.
    x = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
    w = bilinear_weights(FACTOR, x.shape[1])
    # The natural size starts with factor - 1 places before the border pixel; half a pixel more centres the grid.
    crop = 2 * FACTOR - 1 - FACTOR // 2
    attributes = {"group": x.shape[1], "strides": [FACTOR] * 2, "pads": [crop] * 4}

    layer = ConvTranspose(w, **attributes)
    y = layer(x)
    seconds = []
    for _ in range(RUNS):
        begin = time.perf_counter()
        layer(x, out=y)
        seconds.append(time.perf_counter() - begin)
    error = float(np.abs(y - reference.conv_transpose(x, w, dtype=np.float64, **attributes)).max())

    height, width = photograph.shape[:2]
    before = np.repeat(np.repeat(photograph, FACTOR, axis=0), FACTOR, axis=1)
    after = np.moveaxis((y[0].clip(0, 1) * 255).round().astype(np.uint8), 0, -1)
    try:
        image.imsave(output, np.concatenate([before[FACE], after[FACE]], axis=1))
    except (KeyError, OSError, ValueError) as failure:  # KeyError: an ending that Pillow does not know
        raise SystemExit(
            f"output: expected a picture that can be written, got {shown(output)} ({failure})"
        ) from None

    print(f"photograph   {width} x {height}, {x.shape[1]} channels, float32")
    print(f"enlarged     {y.shape[3]} x {y.shape[2]}, depthwise bilinear kernel {w.shape[2:]}, strides {FACTOR}")
    print(f"time         {median(seconds) * 1e3:.2f} ms, median of {RUNS} runs")
    print(f"error        {error:.1e}, largest difference from the float64 reference (values 0 to 1)")
    print(f"picture      {picture} (a detail; left: pixels repeated, right: convt)")
    plan = layer.explain(x.shape)
    print(f"isa          {plan['isa']}, {plan['threads']} threads")
    if error > 1e-6:
        print("The result is WRONG: the error should be below 1e-6.")
        return 1
    return 0

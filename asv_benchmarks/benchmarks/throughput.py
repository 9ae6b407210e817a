"""Whole layers: real networks by dtype, by number of threads, and without a layer object."""

import os

import convt
from convt.isa import available

from .layers import LAYERS, arrays, attributes

# Every fourth of the real layers: all kinds of shapes, at a quarter of the time.
SAMPLE = list(LAYERS)[::4]


class Layer:
    """Prepacked, one thread."""

    params = (list(LAYERS), ["float32", "float64"])
    param_names = ("layer", "dtype")

    def setup(self, name, dtype):
        layer = LAYERS[name]
        self.x, w, b = arrays(layer, dtype)
        self.layer = convt.ConvTranspose(w, b, n_threads=1, **attributes(layer))
        self.out = self.layer(self.x)

    def time_layer(self, name, dtype):
        self.layer(self.x, out=self.out)


class Half(Layer):
    """Prepacked, one thread, two-byte dtypes."""

    params = (SAMPLE, ["float16", "bfloat16"])


class Threads:
    """Prepacked, by number of threads."""

    params = (SAMPLE, [1, 2])
    param_names = ("layer", "threads")

    def setup(self, name, threads):
        layer = LAYERS[name]
        self.x, w, b = arrays(layer, "float32")
        self.layer = convt.ConvTranspose(w, b, n_threads=threads, **attributes(layer))
        self.out = self.layer(self.x)

    def time_layer(self, name, threads):
        self.layer(self.x, out=self.out)


class Isa:
    """Prepacked, one thread, by instruction-set level."""

    params = (SAMPLE[::3], list(available()))
    param_names = ("layer", "isa")

    def setup(self, name, isa):
        os.environ["CONVT_ISA"] = isa
        layer = LAYERS[name]
        self.x, w, b = arrays(layer, "float32")
        self.layer = convt.ConvTranspose(w, b, n_threads=1, **attributes(layer))
        self.out = self.layer(self.x)

    def teardown(self, name, isa):
        del os.environ["CONVT_ISA"]

    def time_layer(self, name, isa):
        self.layer(self.x, out=self.out)


class Precision:
    """Prepacked, one thread, by what float32 may give up."""

    params = (SAMPLE[::2], ["highest", "high", "medium"])
    param_names = ("layer", "precision")

    def setup(self, name, precision):
        layer = LAYERS[name]
        self.x, w, b = arrays(layer, "float32")
        self.layer = convt.ConvTranspose(w, b, n_threads=1, precision=precision, **attributes(layer))
        self.out = self.layer(self.x)

    def time_layer(self, name, precision):
        self.layer(self.x, out=self.out)


class OneShot:
    """The function, which packs the weights in every call."""

    params = (SAMPLE,)
    param_names = ("layer",)

    def setup(self, name):
        self.arguments = arrays(LAYERS[name], "float32")
        self.attributes = attributes(LAYERS[name])

    def time_function(self, name):
        convt.conv_transpose(*self.arguments, n_threads=1, **self.attributes)

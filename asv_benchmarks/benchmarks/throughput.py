"""Whole layers: real networks by dtype, by number of threads, and without a layer object."""

import os

import convt
from convt.isa import available

from .layers import LAYERS, arrays, attributes

# Every fourth of the real layers: all kinds of shapes, at a quarter of the time.
SAMPLE = list(LAYERS)[::4]


class Prepacked:
    """What the suites of prepacked layers share; one thread."""

    def prepare(self, name, dtype="float32", n_threads=1, precision="highest"):
        layer = LAYERS[name]
        self.x, w, b = arrays(layer, dtype)
        self.layer = convt.ConvTranspose(w, b, n_threads=n_threads, precision=precision, **attributes(layer))
        self.out = self.layer(self.x)

    def run(self):
        self.layer(self.x, out=self.out)


class Layer(Prepacked):
    """Prepacked, one thread."""

    params = (list(LAYERS), ["float32", "float64"])
    param_names = ("layer", "dtype")

    def setup(self, name, dtype):
        self.prepare(name, dtype)

    def time_layer(self, name, dtype):
        self.run()


class Half(Layer):
    """Prepacked, one thread, two-byte dtypes."""

    params = (SAMPLE, ["float16", "bfloat16"])


class Threads(Prepacked):
    """Prepacked, by number of threads; `Layer` has one."""

    params = (SAMPLE, [2])
    param_names = ("layer", "threads")

    def setup(self, name, threads):
        self.prepare(name, n_threads=threads)

    def time_layer(self, name, threads):
        self.run()


class Isa(Prepacked):
    """Prepacked, one thread, by instruction-set level; `Layer` has the best unless `CONVT_ISA` is set."""

    params = (SAMPLE[::3], list(available())[:-1])
    param_names = ("layer", "isa")

    def setup(self, name, isa):
        self.before = os.environ.get("CONVT_ISA")
        os.environ["CONVT_ISA"] = isa
        self.prepare(name)

    def teardown(self, name, isa):
        del os.environ["CONVT_ISA"]
        if self.before is not None:
            os.environ["CONVT_ISA"] = self.before

    def time_layer(self, name, isa):
        self.run()


class Precision(Prepacked):
    """Prepacked, one thread, by what float32 may give up; `Layer` gives up nothing."""

    params = (SAMPLE[::2], ["high", "medium"])
    param_names = ("layer", "precision")

    def setup(self, name, precision):
        self.prepare(name, precision=precision)

    def time_layer(self, name, precision):
        self.run()


class OneShot:
    """The function, which packs the weights in every call."""

    params = (SAMPLE,)
    param_names = ("layer",)

    def setup(self, name):
        self.arguments = arrays(LAYERS[name], "float32")
        self.attributes = attributes(LAYERS[name])

    def time_function(self, name):
        convt.conv_transpose(*self.arguments, n_threads=1, **self.attributes)

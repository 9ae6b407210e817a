"""What a call costs beside its arithmetic: tiny layers, planning, import, memory."""

import itertools

import numpy as np

import convt

from .layers import LAYERS, arrays, attributes


class Tiny:
    """A layer of a few microseconds, where the call itself decides."""

    def setup(self):
        self.x = np.ones((1, 3, 64, 64), np.float32)
        self.w = np.ones((3, 3, 2, 2), np.float32)
        self.layer = convt.ConvTranspose(self.w, strides=[2, 2], n_threads=1)
        self.out = self.layer(self.x)

    def time_layer(self):
        self.layer(self.x, out=self.out)

    def time_function(self):
        convt.conv_transpose(self.x, self.w, strides=[2, 2], n_threads=1)

    def time_output_shape(self):
        self.layer.output_shape((1, 3, 64, 64))


class NewSizes:
    """A layer that is given another spatial size each time: planned anew, with the weights packed once."""

    def setup(self):
        # More than plans are remembered.
        self.inputs = itertools.cycle([np.ones((1, 16, n), np.float32) for n in range(100, 250)])
        self.layer = convt.ConvTranspose(np.ones((16, 8, 4), np.float32), strides=[2], pads=[1, 1], n_threads=1)

    def time_layer(self):
        self.layer(next(self.inputs))


class Import:
    """A fresh process; compare with NumPy's own."""

    def timeraw_convt(self):
        return "import convt"

    def timeraw_numpy_alone(self):
        return "import numpy"


class Memory:
    """Peak of the whole process, arrays included, for an image and one four times larger."""

    params = (["unet_128_184x240", "pix2pix_128_128", "cyclegan_up2"], [1, 4])
    param_names = ("layer", "times")

    def setup(self, name, times):
        layer = dict(LAYERS[name])
        layer["inp"] = [layer["inp"][0] * times, layer["inp"][1]]
        self.x, w, b = arrays(layer, "float32")
        self.layer = convt.ConvTranspose(w, b, n_threads=1, **attributes(layer))

    def peakmem_layer(self, name, times):
        self.layer(self.x)

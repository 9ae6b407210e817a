"""The dtypes of arrays, by NumPy's and ml_dtypes' names."""

import numpy as np

ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
DTYPES = tuple(ITEMSIZE)
# What vectors multiply an element as, and sum it up in, and the bytes of that.
VECTOR_DTYPE = {name: np.float64 if name == "float64" else np.float32 for name in DTYPES}
VECTOR_ITEMSIZE = {name: max(size, 4) for name, size in ITEMSIZE.items()}

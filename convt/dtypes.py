"""The dtypes of arrays, by NumPy's and ml_dtypes' names."""

ITEMSIZE = {"float16": 2, "bfloat16": 2, "float32": 4, "float64": 8}
DTYPES = tuple(ITEMSIZE)
# Bytes of what vectors multiply an element as, and sum it up in.
VECTOR_ITEMSIZE = {name: max(size, 4) for name, size in ITEMSIZE.items()}

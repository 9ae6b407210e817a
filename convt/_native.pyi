import numpy as np

def strip_size(columns: int, images: int, parts: int) -> int: ...
def workspace(images: int, channels: int, strip: int, sum_bytes: int) -> int: ...
def outputs_of_bias(bias: np.ndarray, y_dtype: np.dtype, dtype: str) -> np.ndarray: ...
def run(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray,
    output_of: np.ndarray,
    in_order: bool,
    y: np.ndarray,
    sums: np.ndarray,
    strip: int,
    isa: str,
    dtype: str,
) -> None: ...

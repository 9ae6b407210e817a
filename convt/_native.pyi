import numpy as np

def strip_size(columns: int, images: int, parts: int) -> int: ...
def workspace(images: int, strip: int, sum_bytes: int) -> int: ...
def run(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray,
    output_of: np.ndarray,
    y: np.ndarray,
    sums: np.ndarray,
    strip: int,
    isa: str,
    dtype: str,
) -> None: ...

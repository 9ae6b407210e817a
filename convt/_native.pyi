import numpy as np

def strips(columns: int) -> int: ...
def workspace(itemsize: int) -> int: ...
def run(
    x: np.ndarray,
    w: np.ndarray,
    bias: np.ndarray,
    output_of: np.ndarray,
    y: np.ndarray,
    isa: str,
    n_threads: int,
) -> None: ...

import numpy as np

from convt._box_table import BoxTable

def run(
    x: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray,
    magnitudes: tuple[int, int],
    table: BoxTable,
    dtype: str,
    groups: int,
    splits: int,
    n_threads: int,
) -> bool: ...

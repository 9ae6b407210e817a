import numpy as np

from convt._box_table import BoxTable

LONG_ROW_BYTES: int
FEW_COLUMNS_FIRST: int
NEAR_INPUT_BYTES: int
PAGE_BYTES: int
MOST_ROWS: int

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

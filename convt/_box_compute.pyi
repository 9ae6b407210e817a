import numpy as np

from convt._box_table import BoxTable
from convt.shares import Tasks

def run(
    x: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray,
    magnitudes: tuple[int, int],
    table: BoxTable,
    dtype: str,
    tasks: Tasks,
) -> bool: ...

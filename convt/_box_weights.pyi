import numpy as np

from convt._box_table import BoxTable

def multipliable(least: int, most: int) -> tuple[int, int] | None: ...
def pack(
    table: BoxTable, w: np.ndarray, dtype: str, b: np.ndarray, once: bool, n_threads: int
) -> tuple[np.ndarray, np.ndarray, tuple[int, int]] | None: ...

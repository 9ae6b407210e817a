import numpy as np

LARGE: int
MOST_KEPT: int
BLOCKS_KEPT: int

def allocate(size: int) -> np.ndarray: ...

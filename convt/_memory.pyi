import numpy as np

LARGE: int
MOST_KEPT: int
BLOCKS_KEPT: int

def allocate(size: int) -> np.ndarray: ...
def bytes_to_line(block: np.ndarray, line: int) -> int: ...

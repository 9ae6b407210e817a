import numpy as np

MOST_KEPT: int

class Reserve:
    blocks: list[np.ndarray]
    def __init__(self, least: int, spare: float) -> None: ...
    def take(self, size: int) -> np.ndarray: ...

LASTING: Reserve
RESULTS: Reserve
WORKSPACES: Reserve

def bytes_to_line(block: np.ndarray, line: int) -> int: ...

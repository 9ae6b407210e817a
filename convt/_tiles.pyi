import numpy as np

from convt.geometry import Geometry
from convt.tiling import BoxLayout

class BoxTable:
    def __init__(
        self,
        geometry: Geometry,
        layout: BoxLayout,
        level: str,
        double: bool,
        along_channels: bool,
        columns_first: bool,
        block: int,
        pieces: int,
    ) -> None: ...
    @property
    def packed_elements(self) -> tuple[int, int]: ...
    @property
    def packing_digest(self) -> bytes: ...
    @property
    def weight_blocks(self) -> int: ...
    @property
    def workspace(self) -> int: ...

def levels() -> list[str]: ...
def has_tiles(level: str) -> bool: ...
def lanes_and_positions(level: str, double: bool, pieces: int) -> tuple[int, int]: ...
def pack(
    table: BoxTable, w: np.ndarray, b: np.ndarray, n_threads: int
) -> tuple[np.ndarray, np.ndarray, tuple[int, int]] | None: ...
def run(
    x: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray,
    magnitudes: tuple[int, int],
    table: BoxTable,
    dtype: str,
    splits: int,
    n_threads: int,
) -> bool: ...

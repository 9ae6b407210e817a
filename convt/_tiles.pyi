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
def lanes_and_positions(level: str, double: bool) -> tuple[int, int]: ...
def pack(
    table: BoxTable, w: np.ndarray, b: np.ndarray, n_threads: int
) -> tuple[np.ndarray, np.ndarray] | None: ...
def run(
    x: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray,
    table: BoxTable,
    dtype: str,
    splits: int,
    n_threads: int,
) -> None: ...

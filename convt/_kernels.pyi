import numpy as np

from convt.geometry import Geometry
from convt.phases import Phases

class PhaseTable:
    def __init__(self, geometry: Geometry, phases: Phases) -> None: ...
    @property
    def strips(self) -> int: ...
    def workspace(self, tile: int) -> int: ...

def run(
    x: np.ndarray,
    y: np.ndarray,
    weights: np.ndarray,
    bias: np.ndarray,
    table: PhaseTable,
    dtype: str,
    bands: int,
    n_threads: int,
) -> None: ...

from typing import NamedTuple

from convt.geometry import Geometry
from convt.tiling import BoxLayout

class OnePass(NamedTuple):
    possible: bool = False
    pairs: bool = False
    shares_loads: bool = False
    strips: bool = False
    joins_rows: bool = False

class BoxTable:
    slice: int
    one_pass: bool
    shares_loads: bool
    near: int
    strips: bool
    joins_rows: bool

    def __init__(
        self,
        geometry: Geometry,
        layout: BoxLayout,
        level: str,
        double: bool,
        plain: bool,
        along_channels: bool,
        columns_first: bool,
        block: int,
        vectors: int,
        pieces: int,
        words: bool,
        in_panels: bool,
    ) -> None: ...
    @property
    def packed_elements(self) -> tuple[int, int]: ...
    @property
    def packing_digest(self) -> bytes: ...
    @property
    def weight_blocks(self) -> int: ...
    @property
    def workspace(self) -> int: ...

def tiles_in_one_pass(layout: BoxLayout, block: int) -> bool: ...
def vectors_in_one_pass(
    geometry: Geometry, layout: BoxLayout, block: int, level: str, double: bool, plain: bool, words: bool
) -> OnePass: ...

from typing import NamedTuple

def levels() -> list[str]: ...
def has_tiles(level: str) -> bool: ...

class TileLimits(NamedTuple):
    lanes: int
    sums: int
    columns: int
    weights: int

def tile_limits(level: str, double: bool, pieces: int) -> TileLimits: ...

from typing import NamedTuple

def levels() -> list[str]: ...
def most_pieces(level: str) -> int: ...

class TileLimits(NamedTuple):
    lanes: int
    sums: int
    columns: int
    weights: int
    unit: int = 1

def stream_bytes(level: str) -> int: ...
def tile_limits(level: str, double: bool, pieces: int) -> TileLimits: ...

from typing import NamedTuple

MAX_AXES: int
MAX_ROWS: int
MOST_TILE_VECTORS: int
MAX_OUTER: int
TILE_CHANNELS: int
ONE_PASS_COLUMNS: int
TWO_CLASSES_CHANNELS: int
MOST_TURNED: int
JOINED_LINE: int
LONG_ROW: int
ROW_STRIP: int
CACHE_LINE: int
MANY_SUMS: int
MOST_ZEROS: int
MOST_RUN: int
CHECKED_POSITIONS: int
PLACE_UNIT: int
ROW_PLACES: int
CHAIN: int
LONGEST_CHAIN: int

def level_names() -> list[str]: ...
def runs_here(level: str) -> bool: ...
def gains_here(level: str) -> bool: ...
def most_pieces(level: str) -> int: ...
def multiplies_words(level: str) -> bool: ...

class TileLimits(NamedTuple):
    lanes: int
    sums: int
    columns: int
    weights: int
    load: int
    waiting: int
    two_cycles: bool
    half_tile: int
    unit: int
    @property
    def rows(self) -> int: ...
    def vectors_of(self, rows: int) -> int: ...
    def pairs_of(self, channels: int, along_channels: bool) -> int: ...

def lines_stream_bytes(row_bytes: int) -> int: ...
def sets_wait() -> bool: ...
def stream_bytes(level: str, halves: bool, group_inputs: int) -> int: ...
def tile_limits(level: str, double: bool, pieces: int) -> TileLimits: ...

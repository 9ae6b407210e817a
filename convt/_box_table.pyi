import numpy as np

from convt.work import Work

TOGETHER: int

def row_tile(left: int, most: int, together: int) -> int: ...
def columns_gain_in_place(columns: int, rows: int, sums: int, channel_bytes: int) -> bool: ...

class BoxTable:
    slice: int
    one_pass: bool
    shares_loads: bool
    by_rows: bool
    leaves_out_taps: bool
    strip_vectors: int
    strips: bool
    joins_rows: bool
    groups_together: int
    merged_kernel: np.ndarray | None
    workspace: int

    def __init__(self, work: Work) -> None: ...
    @property
    def packed_elements(self) -> tuple[int, int]: ...
    @property
    def packing_digest(self) -> bytes: ...

"""The vectorised ways to compute a box of cells."""

from typing import NamedTuple


class Path(NamedTuple):
    """A way to compute a box.

    Attributes
    ----------
    name : str
    along_channels : bool
        Lanes along output channels, the input packed position by position and the sums transposed on their way
        out; otherwise along positions, the input packed channel by channel.
    columns_first : bool
        Multiply every input by every kernel position, then add up the products of each output.
    tiles : bool
        Multiply pairs of bfloat16 pieces: in tile registers or, at levels without, as dot products in vectors,
        packed alike (what is said of tile registers elsewhere is meant of both).
    image_runs : bool
        The input packed with the images innermost: the same cell of several images is a run, which leaves out the
        taps beyond its border.
    words : bool
        Multiply words of two bfloat16 channels as vectors of positions multiply floats. Where neither this nor
        `tiles`, multiply-adds.
    along_groups : bool
        Along channels, each of which is a group of its own: a lane multiplies its own input.
    by_rows : bool
        Along channels, in tile registers alone, of several taps: one row of cells after the other, whose outputs
        are written while their sums are in the first-level cache.
    """

    name: str
    along_channels: bool = False
    columns_first: bool = False
    tiles: bool = False
    image_runs: bool = False
    words: bool = False
    along_groups: bool = False
    by_rows: bool = False

    @property
    def in_pieces(self) -> bool:
        """Whether elements are multiplied as bfloat16 pieces."""
        return self.tiles or self.words


CHANNELS = Path("channel lanes", along_channels=True)
CHANNEL_COLUMNS = Path("channel lanes, columns first", along_channels=True, columns_first=True)
CHANNEL_IMAGES = Path("channel lanes, runs of images", along_channels=True, image_runs=True)
GROUPS = Path("group lanes", along_channels=True, along_groups=True)
POSITIONS = Path("position lanes")
POSITION_COLUMNS = Path("position lanes, columns first", columns_first=True)
CHANNEL_TILES = Path("channel tiles", along_channels=True, tiles=True)
CHANNEL_TILE_ROWS = Path("channel tiles, row by row", along_channels=True, tiles=True, by_rows=True)
CHANNEL_TILE_COLUMNS = Path("channel tiles, columns first", along_channels=True, columns_first=True, tiles=True)
CHANNEL_TILE_IMAGES = Path("channel tiles, runs of images", along_channels=True, tiles=True, image_runs=True)
POSITION_TILES = Path("position tiles", tiles=True)
POSITION_TILE_COLUMNS = Path("position tiles, columns first", columns_first=True, tiles=True)
POSITION_WORDS = Path("position words", words=True)

VECTOR_PATHS = (CHANNELS, CHANNEL_COLUMNS, CHANNEL_IMAGES, POSITIONS, POSITION_COLUMNS)
PIECE_PATHS = (
    CHANNEL_TILES,
    CHANNEL_TILE_ROWS,
    CHANNEL_TILE_COLUMNS,
    CHANNEL_TILE_IMAGES,
    POSITION_TILES,
    POSITION_TILE_COLUMNS,
    POSITION_WORDS,
)
DEPTHWISE_PATHS = (GROUPS, POSITIONS, POSITION_TILES, POSITION_WORDS)


def pieces_of(dtype: str, precision: str) -> int:
    """bfloat16 pieces that an element is multiplied in; three hold a float32, two a float16."""
    if dtype == "float32":
        return {"highest": 3, "high": 2, "medium": 1}[precision]
    return {"float16": 2, "bfloat16": 1}.get(dtype, 0)

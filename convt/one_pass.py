"""Which boxes are multiplied and stored in one pass: their sums are written as outputs, from registers."""

from typing import NamedTuple

from convt._levels import (
    CACHE_LINE,
    CHAIN,
    LONG_ROW,
    MANY_SUMS,
    MAX_OUTER,
    ONE_PASS_COLUMNS,
    TWO_CLASSES_CHANNELS,
    TileLimits,
)
from convt.paths import Path
from convt.shared_loads import shares_loads
from convt.tiling import BoxLayout

# Where registers are few, places of two classes are written in one pass if an output sums no more products than
# these, channels times taps. By AVX2 up to 27 took 0.78 of the time (59 random layers), up to 54 1.0.
TWO_CLASSES_PRODUCTS = 27
SHORT_ROW = 4  # vectors: rows of fewer are short
SHORT_ROWS_CHANNELS = 16  # up to which even short rows that do not fill their vectors are written in one pass
STRIPS_CHANNELS = 128  # and up to which those are that nearly do, of cells that read one input each
# Halves wait in floats then, to be narrowed line by line: 1 to 8 channels took 0.43 to 0.84 of the time, 16 to 24
# of them 0.82 to 1.6 times as long, 64 of them 1.24.
HALVES_CHANNELS = 8
# Products of an output, channels times taps, that lanes beyond the ends of rows may add to it: through memory,
# outputs take about as long as these.
UNFILLED_PRODUCTS = 16
ROWS_PRODUCTS = 8  # the same of several rows: with more, 10 layers took 0.88 to 1.03 of the time
# The same that copying outputs, as joined rows want it, takes; the latter where outputs pass the caches.
JOINED_PRODUCTS = (4, 2)
MANY_PLACES_PRODUCTS = 2  # and the same of six and eight places a cell, as each lane makes so many outputs
# Above so many input channels, or bytes of them, strips are read along one row after the other rather than several
# rows at once, where registers are many.
FAR_ROWS_CHANNELS, FAR_ROWS_BYTES = 32, 1 << 23
LINES_CHANNELS, LINES_BYTES = 64, 1 << 23  # of words up to which, and of results from which tiles fill cache lines
# Input channels, or words of two, from which on taps beyond the border are left out. 80 layers of 2 to 24
# channels took 0.98 of the time (float32 and bfloat16), those of one word 1.01.
LEAVE_OUT_CHANNELS = 2
INTERLEAVED_PLACES = (1, 2, 3, 4, 6, 8)  # a cell, that vectors interleave: PLACES_IN_REGISTERS of micro_common.h
TILE_PLACES = (1, 2, 4, 8)  # and that tiles of pieces do
FOUR_PLACES_CHANNELS = 8  # up to which rows of four places a cell are, however filled their vectors


class OnePass(NamedTuple):
    """How sums in registers, lanes along positions, are written as outputs.

    Attributes
    ----------
    possible : bool
    two_classes : bool
        Two classes together make a row of outputs.
    shares_loads : bool
        Of one input channel, rows of outputs share what they read.
    strips : bool
        The input is packed strip by strip.
    joins_rows : bool
        Rows of cells are multiplied as one line; those that are packed strip by strip or not at all where they
        follow each other in x, those of words where they do in y.
    rows_are_vectors : bool
        Where rows may be joined: those of outputs are whole vectors, written where they belong.
    whole_lines : bool
        Tiles have few rows of sums, and so many vectors that these fill cache lines of outputs.
    leaves_out_taps : bool
        Rows of outputs at the border are multiplied without the taps that lie beyond the input.
    """

    possible: bool = False
    two_classes: bool = False
    shares_loads: bool = False
    strips: bool = False
    joins_rows: bool = False
    rows_are_vectors: bool = False
    whole_lines: bool = False
    leaves_out_taps: bool = False


class Rows(NamedTuple):
    """Rows of outputs, and what of their call says how to write them.

    Attributes
    ----------
    layout : BoxLayout
    block : int
        Output channels at a time.
    limits : TileLimits
        Of the level's tiles.
    group_inputs : int
        Input channels of a group.
    item : int
        Bytes of an output.
    input_bytes, output_bytes : int
        Of the whole input and result.
    past_caches : bool
        Whether a result of that size is written past the caches.
    """

    layout: BoxLayout
    block: int
    limits: TileLimits
    group_inputs: int
    item: int
    input_bytes: int
    output_bytes: int
    past_caches: bool

    @property
    def lanes(self) -> int:
        """Of a vector."""
        return self.limits.lanes

    @property
    def width(self) -> int:
        """Cells of a row."""
        return self.layout.axes[-1].box

    @property
    def filled(self) -> bool:
        """Whether they fill their vectors to 7 of 8."""
        return 8 * self.width >= 7 * -(-self.width // self.lanes) * self.lanes

    @property
    def inner(self) -> int:
        """Outputs of a cell in a row."""
        return self.layout.axes[-1].places

    @property
    def many_registers(self) -> bool:
        """Whether tiles hold many sums."""
        return self.limits.sums >= MANY_SUMS

    @property
    def alternate(self) -> bool:
        """Whether two classes take turns: the last axis is the innermost, even places come before odd ones."""
        return self.inner == 2 and all(len({p % 2 for p in c.places}) == 1 for c in self.layout.classes)

    @property
    def of_one_class(self) -> bool:
        """Whether all outputs of a row are in one class."""
        return all(len({p % self.inner for p in c.places}) == self.inner for c in self.layout.classes)


def find_one_pass(rows: Rows, path: Path) -> OnePass:
    """How rows of outputs of a path are written in one pass, if they are."""
    if path.along_channels or path.columns_first:
        return OnePass()
    if path.tiles:
        return OnePass(tiles_in_one_pass(rows))
    one_pass = vectors_in_one_pass(rows, path)
    return one_pass._replace(leaves_out_taps=worth_leaving_out(rows, path, one_pass))


def worth_leaving_out(rows: Rows, path: Path, one_pass: OnePass) -> bool:
    """Whether rows at the border have taps to leave out, and channels enough that to find these takes less time.

    Words of rows of 32 cells and more took what their share of products says: kernels 3 to 7 of 8 to 48 rows 0.89
    to 0.98 of the time (30 layers of 2 to 768 channels, mean 0.98, Zen 4).
    """
    depth = -(-rows.group_inputs // 2) if path.words else rows.group_inputs
    bordered = any(axis.origin < 0 or axis.cells + axis.reach > axis.input for axis in rows.layout.axes[1:-1])
    # Sums of products that underflow are 0 or -0 by the zeros that are multiplied, which must not depend on what
    # rows a box, and so a thread, puts together. Those of words, which are guarded, do not underflow.
    alone = rows.layout.rows_fill_tiles(rows.limits) and not one_pass.joins_rows
    return one_pass.possible and bordered and depth >= LEAVE_OUT_CHANNELS and (path.words or alone)


def tiles_in_one_pass(rows: Rows) -> bool:
    """Whether tiles of pieces, lanes along positions, are: of whole cells, alike.

    Through sums in the second-level cache halves take 1.1 to 2.6 times as long, floats 1.0 to 1.3 times; floats
    whose rows are not whole cache lines 0.9 times, but those are faster along channels.
    """
    layout = rows.layout
    places = sum(len(c.places) for c in layout.classes)
    return (
        len(layout.classes) == 1
        and layout.axes[-1].places in TILE_PLACES
        and rows.block * places <= ONE_PASS_COLUMNS
        and not any(axis.output % axis.places for axis in layout.axes)
    )


def vectors_in_one_pass(rows: Rows, path: Path) -> OnePass:
    """How vectors, lanes along positions, are.

    For rows of four outputs a cell that took 0.5 to 0.9 of the time up to 128 channels, 0.93 to 1.17 for 256;
    without strips 1.15 to 1.2 for 16 channels, where rows leave a fifth of their vectors unfilled or registers are
    few. For rows of three it took 0.68 to 1.03, of words 0.42 to 0.99 (15 layers, Zen 4); of six
    and eight 0.91 (float32), 0.91 and 0.88 (float64), 0.81 and 0.96 (words; 36 and 50 layers, 0.45 to 1.1).
    """
    layout, channels, inner = rows.layout, rows.group_inputs, rows.inner
    if sum(len(c.places) for c in layout.classes) // inner > MAX_OUTER:
        return OnePass()
    if channels == 1 and (inner in (1, 2, 4, 8) or (inner == 3 and not path.words)) and shares_loads(layout):
        return OnePass(True, shares_loads=True)
    halves = rows.item == 2 and not path.words
    if inner not in INTERLEAVED_PLACES or (halves and channels > HALVES_CHANNELS):
        return OnePass()
    if inner > 4 and (halves or not many_places_suit(rows)):
        return OnePass()
    if path.words:
        return words_in_one_pass(rows)
    if inner > 2 and not rows.of_one_class:
        return OnePass()
    if inner in (3, 6) and rows.lanes * max(rows.item, 4) < CACHE_LINE:
        # By AVX2 the indices that interleave threes of places push sums out of the registers: 1.0 to 2.1 times as
        # long. (NEON, whose shuffles want them too, was not measured.)
        return OnePass()
    return floats_in_one_pass(rows)


def many_places_suit(rows: Rows) -> bool:
    """Whether a tile has rows for all places of a cell, and rows of cells leave few lanes unfilled."""
    return rows.limits.rows >= rows.inner and rows.filled and ends_are_few(rows, MANY_PLACES_PRODUCTS)


def words_in_one_pass(rows: Rows) -> OnePass:
    """How words of two bfloat16 channels are.

    Through sums 16 channels took 1.2 times as long, 128 and 512 of them 1.03 and 1.02; rows of 56, which fill 7 of
    8 lanes, 0.9.
    """
    joins_rows = worth_joining(rows) and rows.layout.axes[-1].output % 2 == rows.width * rows.inner % 2 == 0
    if not (rows.inner < 3 or rows.of_one_class) or not (joins_rows or ends_are_few(rows)):
        return OnePass()
    # A vector of one place is half a cache line, and the other half of a tile's last one waits for the next tile.
    # 14 layers of up to 64 channels took 0.67 to 0.98 of the time so, those of 96 to 256 channels 1.0 to 1.03,
    # smaller results 0.77 to 1.21 (Zen 4).
    whole_lines = rows.inner == 1 and rows.group_inputs <= LINES_CHANNELS and rows.output_bytes >= LINES_BYTES
    return OnePass(
        True,
        two_classes=rows.alternate,
        joins_rows=joins_rows,
        rows_are_vectors=rows_are_vectors(rows),
        whole_lines=whole_lines,
    )


def floats_in_one_pass(rows: Rows) -> OnePass:
    """How floats and doubles are, and halves of few channels, which wait in floats."""
    layout, channels = rows.layout, rows.group_inputs
    strips = reads_one_place(layout) and rows.block * len(layout.classes[0].places) > rows.limits.rows
    of_many = strips and channels > SHORT_ROWS_CHANNELS
    joins_rows = of_many or (rows.item > 2 and (layout.most_taps > 1 or rows_are_vectors(rows)))
    joins_rows = joins_rows and worth_joining(rows, of_many)
    # Of few channels strips take 0.97 (float32) and 0.96 of the time (float64) that packing whole boxes takes (13
    # layers, Zen 5); rows that are joined for them took up to 1.4 times as long.
    strips = of_many or (strips and rows.filled and not joins_rows and rows.item > 2)
    # Several short rows share a vector otherwise: slower by 1.1 to 4 times for few channels, faster for many.
    # Strips of vectors that are filled to 7 of 8 took 0.93 of the time for 32 to 128 channels, 1.05 for 256 and
    # 512.
    part_filled = rows.width % rows.lanes > 0 and rows.width < SHORT_ROW * rows.lanes
    if rows.inner == 4:
        if channels > STRIPS_CHANNELS:
            return OnePass()
        through_sums = not (rows.filled or joins_rows) or not rows.many_registers
        if channels > FOUR_PLACES_CHANNELS and not of_many and through_sums:
            return OnePass()
    enough = rows.filled and strips and channels <= STRIPS_CHANNELS
    if part_filled and channels > SHORT_ROWS_CHANNELS and not enough and not joins_rows:
        return OnePass()
    if rows.alternate:
        return OnePass(True, two_classes=True) if two_classes_suit(rows) else OnePass()
    rows_as_one = not layout.rows_are_runs and len(layout.axes) > 2  # through sums, with the zeros between them
    rows_as_one = rows_as_one and layout.most_taps > 1 and channels > SHORT_ROWS_CHANNELS
    rows_as_one = rows_as_one and rows.many_registers and not joins_rows
    if rows_as_one and not ends_are_few(rows, ROWS_PRODUCTS):
        return OnePass()
    # All places of a row lie in one class, and in one tile: `BoxTable.tile_width` keeps them together.
    return OnePass(True, strips=strips, joins_rows=joins_rows, rows_are_vectors=rows_are_vectors(rows))


def two_classes_suit(rows: Rows) -> bool:
    """Whether the sums of two classes go to registers together.

    48 to 512 channels, kernel 4, stride 2, took 0.90 to 0.98 of the time (measured on Zen 4 alone; with eight rows
    of a class, as half of them read the input twice as often); few registers hold fewer. Each sum is one chain
    then: of longer ones, which are several elsewhere, boxes and with them threads would change the bits.
    """
    if rows.group_inputs * rows.layout.most_taps > CHAIN:
        return False
    if max(rows.block * len(c.places) for c in rows.layout.classes) <= 2:
        return True
    if rows.many_registers:
        return rows.group_inputs <= TWO_CLASSES_CHANNELS or ends_are_few(rows)
    return rows.group_inputs * rows.layout.most_taps <= TWO_CLASSES_PRODUCTS


def reads_one_place(layout: BoxLayout) -> bool:
    """Whether every cell reads one place of the input, which is its own, and has all its rows of outputs."""
    if len(layout.classes) > 1 or len(layout.classes[0].shifts) != 1:
        return False
    if any(axis.origin or axis.reach or axis.cells > axis.input for axis in layout.axes):
        return False
    return all(axis.cells * axis.places <= axis.output for axis in layout.axes[:-1])


def reads_own_columns(layout: BoxLayout) -> bool:
    """Whether cells read no inputs before or behind their own of a row: packed rows follow each other then."""
    last = layout.axes[-1]
    return last.origin == last.reach == 0 and last.cells <= last.input


def ends_are_few(rows: Rows, most: int = UNFILLED_PRODUCTS) -> bool:
    """Whether vectors that reach beyond the ends of rows cost less than sums that go through memory, which take as
    long as `most` products."""
    classes = rows.layout.classes
    places = sum(len(c.places) for c in classes)
    products = rows.group_inputs * sum(len(c.places) * len(c.shifts) for c in classes) / places
    return -rows.width % rows.lanes * products <= most * rows.width


def rows_are_vectors(rows: Rows) -> bool:
    """Whether rows of outputs are whole vectors, which tiles of joined rows write to where they belong."""
    last = rows.layout.axes[-1]
    return last.output % rows.lanes == 0 and last.output == last.cells * last.places


def reads_slowly(rows: Rows) -> bool:
    """Whether strips that take turns between several rows would wait for an input of many channels or bytes.

    Joined, whole vectors of 40 to 512 channels took 0.97 (float32, 60 layers of 20 to 500 MFLOP, 0.73 to 1.03) and
    0.97 of the time (float64, 0.72 to 1.06), 24 channels of 16 images 96x96 0.65; smaller inputs of up to 32
    channels 1.0 (0.93 to 1.08), all by AVX2 0.99 (Zen 4).
    """
    return rows.many_registers and (rows.group_inputs > FAR_ROWS_CHANNELS or rows.input_bytes >= FAR_ROWS_BYTES)


def worth_joining(rows: Rows, strips: bool = False) -> bool:
    """Whether rows of cells that read their own columns of the input should be multiplied as one line.

    That leaves no vector of a row part filled. Outputs whose rows are whole vectors are written where they
    belong: 60 layers took 0.91 (float32, 0.74 to 1.05) and 0.88 of the time (bfloat16, 0.57 to 1.0), 60 of up
    to 16 channels 0.87 (float32), 0.92 (by AVX2) and 0.91 (float64). Others are copied. Rows whose vectors
    would leave products enough unfilled took 0.84 to 1.03 of the time, mean 0.96 (28 layers of float32 and of
    words; float64 0.99). Where outputs pass the caches, so do rows that are not whole cache lines: 0.83 to 1.0,
    when all of these were copied anyway; of 2 to 16 MB 1.0 (20 layers, 0.82 to 1.21, Xeon with AMX) since most
    are not (`lines_stream_bytes`). Otherwise rows took 1.0 to 1.26 times as long. Rows that are whole vectors are
    joined in strips of inputs that are read slowly, two or four places a cell, which tiles write so. Of strips and
    words it is decided for rows that follow each other in memory; where they do not, small layers take 1.1 to 1.4
    times as long as they would along channels. Tiles of six and eight places write along a row alone.
    """
    layout, width = rows.layout, rows.width
    if rows.inner > 4 or len(layout.axes) == 2 or not (rows.of_one_class and reads_own_columns(layout)):
        return False
    *_, outer, last = layout.axes
    if outer.cells == 1 or width < last.cells or last.cells < last.input:
        return False
    if width % rows.lanes == 0 and not (strips and reads_slowly(rows) and rows.inner in (2, 4)):
        return False
    if last.output * min(rows.item, 4) < 4 * rows.lanes:
        return False  # lines of floats or doubles that do not fill a vector are not copied
    row_bytes = last.output * rows.item
    if rows_are_vectors(rows) and not (rows.item > 2 and rows.past_caches and row_bytes % CACHE_LINE):
        return True
    plane_bytes = outer.output * row_bytes  # as `choose_stores` of _box_compute asks
    past_caches = rows.past_caches and (plane_bytes % CACHE_LINE == 0 or plane_bytes >= LONG_ROW)
    unfilled = not ends_are_few(rows, JOINED_PRODUCTS[past_caches])
    return unfilled or (past_caches and row_bytes % CACHE_LINE > 0)

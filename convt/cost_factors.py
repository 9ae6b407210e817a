"""Factors of the estimates, by what they were fitted to.

Those of the level `avx512_bf16`, which is for AMD's processors, are chosen for the least loss of time by choices
between the paths of 2000 random layers and those of asv_benchmarks (Zen 5; float16, float32 and float64). So are
those of `avx512` and `amx` for the latter and 700 random ones (Xeon with AMX; all dtypes, and float32 as
`avx512`). Choices on 173 to 216 others take 1.038 (float32, before 1.056), 1.022 (float64, 1.026), 1.033
(float16, 1.040), 1.018 (bfloat16, 1.018) and, of float32 as `avx512`, 1.033 times as long as the best (1.041).
Their `far_line`, `waiting` and `one_pass_places` are newer, chosen likewise on 390 layers of few outputs or of
kernel = stride.
Those of others, on AMD's processors too, are fits to the latter and 150 more, most of them measured on Intel.
"""

from typing import NamedTuple


class Factors(NamedTuple):
    """Cycles of vectors, or times what something else takes; of a dtype by the bytes of its elements.

    Attributes
    ----------
    tap, tile, block : float
        Lanes along channels, to begin a tap of a tile's position, a tile, and a block of channels of a box.
    packed, written : dict of int to float
        To pack an element of the input, and to write an output.
    slow_outputs : bool
        Whether outputs that pass the caches take longer to write.
    filled, pointers, row : float
        To transpose an output, whatever fills its vector; to find where the sums of a position of a block lie, and
        a row of outputs.
    images : float
        Times the multiply-adds of runs of images.
    added, added_written : float
        Of columns first, to begin a kernel position of an input and to add a vector of its products, and more to
        write an output.
    one_tap, strip_tap, joined_tap : float
        Lanes along positions, of a vector of sums for each channel; packed strip by strip; of joined rows, where
        registers are many.
    several_taps : (float, float)
        The same of several taps, whose loads cross cache lines, of classes of fewer than `MAX_ROWS` columns and of
        others.
    wide_columns : float
        Times the multiply-adds of columns first, but of few that are multiplied in place.
    through_sums : float
        Times the multiply-adds of what is not written in one pass.
    one_pass_block : float
        To begin a block of channels of a box that is.
    one_pass_written, one_pass_copied : dict of int to float
        An output of it, and more where outputs leave the second-level cache whose rows are not whole vectors.
    one_pass_places : float
        More for a float of one tap, of several places of a row, that does not pass the caches.
    far_line : float
        Of one tap of few columns in one pass, for a cache line of a large input.
    read, line : dict of int to float
        To pack an element, and to begin a row of them.
    waiting : (int, int)
        Channels from which on few columns wait for their input, columns first where it lies: of one tap, and of
        several.
    sums_row : (float, float, float)
        To write a row of outputs through sums: of fewer cells than a vector has lanes, of more, of whole vectors.
    sums_written, sums_vector : float
        An output of it, and a vector of outputs, filled or not.
    more_places : float
        More for an output of a row whose places are interleaved in squares or as cells of more of them.
    stream_speed : float
        Bytes of large weights that come from memory in a cycle, but of columns first.
    """

    tap: float
    tile: float
    block: float
    packed: dict[int, float]
    written: dict[int, float]
    slow_outputs: bool
    filled: float
    pointers: float
    row: float
    images: float
    added: float
    added_written: float
    one_tap: float
    strip_tap: float
    joined_tap: float
    several_taps: tuple[float, float]
    wide_columns: float
    through_sums: float
    one_pass_block: float
    one_pass_written: dict[int, float]
    one_pass_copied: dict[int, float]
    one_pass_places: float
    far_line: float
    read: dict[int, float]
    line: dict[int, float]
    waiting: tuple[int, int]
    sums_row: tuple[float, float, float]
    sums_written: float
    sums_vector: float
    more_places: float
    stream_speed: float


AVX512_BF16 = Factors(
    tap=0,
    tile=95,
    block=525,
    packed={2: 1.75, 4: 0.52, 8: 0.92},
    written={2: 1.04, 4: 0.08, 8: 0.8},
    slow_outputs=False,
    filled=0.25,
    pointers=3.25,
    row=2,
    images=0.94,
    added=3,
    added_written=0.48,
    one_tap=0.59,
    strip_tap=0.495,
    joined_tap=0.47,
    several_taps=(0.57, 0.52),
    wide_columns=1.04,
    through_sums=0.88,
    one_pass_block=800,
    one_pass_written={2: 0.7, 4: 0.22, 8: 0.48},
    one_pass_copied={2: 0, 4: 0.28, 8: 0.5},
    one_pass_places=0,
    far_line=6,
    read={2: 0.25, 4: 0.27, 8: 0.6},
    line={2: 38, 4: 6.4, 8: 6.4},
    waiting=(32, 32),
    sums_row=(20, 20, 20),
    sums_written=0,
    sums_vector=8,
    more_places=0.45,
    stream_speed=6,
)
OTHERS = Factors(
    tap=2,
    tile=100,
    block=0,
    packed={2: 1.1, 4: 0.45, 8: 0.9},
    written={2: 1.45, 4: 0.58, 8: 1.0},
    slow_outputs=True,
    filled=0.35,
    pointers=6,
    row=0,
    images=1,
    added=6,
    added_written=0,
    one_tap=0.55,
    strip_tap=0.515,
    joined_tap=0.47,
    several_taps=(0.65, 0.65),
    wide_columns=1.35,
    through_sums=1,
    one_pass_block=0,
    one_pass_written={2: 0.7, 4: 0.3, 8: 0.3},
    one_pass_copied={2: 0, 4: 0, 8: 0},
    one_pass_places=0,
    far_line=6,
    read={2: 0.25, 4: 0.3, 8: 0.6},
    line={2: 40, 4: 8, 8: 8},
    waiting=(32, 32),
    sums_row=(64, 32, 8),
    sums_written=0.3,
    sums_vector=0,
    more_places=0.45,
    stream_speed=7,
)
AVX512 = OTHERS._replace(
    tap=1.2,
    tile=75,
    written={2: 1.26, 4: 0.44, 8: 0.6},
    filled=0.26,
    pointers=6.9,
    images=1.07,
    one_tap=0.48,
    strip_tap=0.5,
    joined_tap=0.45,
    wide_columns=1.175,
    one_pass_copied={2: 0, 4: 0.3, 8: 0},
    far_line=0,
    read={2: 0.425, 4: 0.3, 8: 0.6},
    line={2: 24, 4: 8, 8: 8},
    waiting=(96, 32),
    sums_row=(64, 54, 8),
    sums_vector=3,
    more_places=0.7,
    stream_speed=4.2,
)
OF_LEVELS = {"avx512_bf16": AVX512_BF16, "avx512": AVX512, "amx": AVX512._replace(one_pass_places=0.2)}


class TileFactors(NamedTuple):
    """Cycles of products of bfloat16 pieces, or times what something else takes; by the pieces of an element.

    Attributes
    ----------
    product, tap, store : float
        Of 16 positions, 16 columns and `TILE_CHANNELS` channels of one piece each; to begin a tap of it, and to
        store its sums.
    images, along_channels, along_positions, columns : float
        Times products: of runs of images, of other lanes along channels or positions, and of columns first.
    one_pass, one_pass_store : dict of int to float
        Products of pieces of an element with lanes along positions in one pass, and to store their sums.
    by_rows, row_written : dict of int to float
        Products by rows of cells, and to write an output of these.
    row : float
        To begin a row of outputs of them.
    one_pass_row : float
        More for a byte of an element where a row of outputs ends within a tile.
    packed, packed_piece : float
        To pack an element along channels, and more for each piece.
    pairs, pairs_piece, pairs_line : float
        Along positions, two channels of 16 positions, more for each piece, and to begin a line of them.
    box : float
        To begin a box along channels.
    added, column, column_run, column_store : float
        Of columns first along positions, to add up 16 products, to begin a column of those of a box, to begin a
        run of a column, and `store`.
    added_vector, added_product, added_row, added_sum : float
        Of columns first along channels, to add a vector of products, to begin those of an input for a kernel
        position and those of a row of inputs, and to begin a vector of sums.
    written, summed : float
        To write an output, transposed or from sums along positions.
    """

    product: float
    tap: float
    store: float
    images: float
    along_channels: float
    along_positions: float
    columns: float
    one_pass: dict[int, float]
    one_pass_store: dict[int, float]
    one_pass_row: float
    by_rows: dict[int, float]
    row_written: dict[int, float]
    row: float
    packed: float
    packed_piece: float
    pairs: float
    pairs_piece: float
    pairs_line: float
    box: float
    added: float
    column: float
    column_run: float
    column_store: float
    added_vector: float
    added_product: float
    added_row: float
    added_sum: float
    written: float
    summed: float


# The chosen path takes 1.01 to 1.02 times as long as the best with them (430 layers, most random, Zen 5). Without
# the factor of images choices of 491 layers took 1.011, not 1.009 (Zen 4).
DOTS = TileFactors(
    product=162,
    tap=6,
    store=30,
    images=0.95,
    along_channels=1,
    along_positions=1,
    columns=1,
    one_pass={},
    one_pass_store={},
    one_pass_row=0,
    by_rows={},
    row_written={},
    row=0,
    packed=0.2,
    packed_piece=0,
    pairs=8,
    pairs_piece=4,
    pairs_line=20,
    box=0,
    added=5,
    column=0,
    column_run=0,
    column_store=30,
    added_vector=2,
    added_product=0,
    added_row=0,
    added_sum=0,
    written=0.7,
    summed=0.65,
)
# Those of one pass are chosen with `AVX512`. Those of rows fit what 100 layers took for each number of pieces
# within a fifth; of 259 layers the chosen paths took 1.017 (bfloat16), 1.012 (float16) and 1.023 times as long as
# the best (float32). Without cycles of pairs and of adding 80 random layers took 1.08 (float32) and 1.03 times as
# long as the best (bfloat16), not 1.03 and 1.01 (Xeon with AMX). Of 1,906 layers, 550 of them of small groups, 46
# (float32), 47 (bfloat16) and 37 (float16) go another way since boxes take time to begin, as columns in place do:
# 0.81, 0.73 and 0.59 of the time. Those of columns first are fits to 300 times (along channels) and 570; of 919
# layers 43 (float32), 72 (bfloat16) and 96 (float16) go another way by them: 0.86, 0.80 and 0.76 of the time.
REGISTERS = DOTS._replace(
    product=17,
    tap=0,
    store=60,
    images=1.28,
    along_channels=1.2,
    along_positions=0.95,
    columns=1.3,
    one_pass={1: 29, 2: 80, 3: 140},
    one_pass_store={1: 107, 2: 145, 3: 100},
    one_pass_row=1.6,
    by_rows={1: 29, 2: 99, 3: 136},
    row_written={1: 0.2, 2: 0.05, 3: 0.4},
    row=180,
    packed=0.3,
    packed_piece=0.25,
    box=1600,
    added=3,
    column=28,
    column_run=14,
    column_store=0,
    added_vector=2,
    added_product=2,
    added_row=18,
    added_sum=5,
)

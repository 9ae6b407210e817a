"""The levels of this build: micro-kernels for an instruction set, linked to this module."""

from cpython.pyport cimport PY_SSIZE_T_MAX

from typing import NamedTuple

cdef extern from "levels.h" nogil:
    int amd_family "convt_amd_family" ()

# Of the processor, 0 of others; asked once, as in a virtual machine the answer takes 10 µs.
cdef int AMD_FAMILY = amd_family()
READS_AHEAD = AMD_FAMILY >= 26


def level_names():
    """Names of the levels that this build has, least capable first."""
    cdef int i = 0
    found = []
    while convt_levels[i].name != NULL:
        found.append(convt_levels[i].name.decode())
        i += 1
    return found


def runs_here(str level):
    """Whether this build has the level, and this processor and its system run it."""
    return level in level_names() and find_level(level).runs_here() != 0


def gains_here(str level):
    """Whether the level, where it runs, is faster on this processor than those of less."""
    return not find_level(level).of_amd or is_amd()


def most_pieces(str level):
    """The most bfloat16 pieces of an element that the level multiplies; 0 if it multiplies none."""
    return find_level(level).tiles.most_pieces


def multiplies_words(str level):
    """Whether the level multiplies words of two bfloat16 with lanes along positions."""
    return find_level(level).tiles.word_positions != NULL


class TileLimits(NamedTuple):
    """Elements of a vector, and the most vectors that a tile holds: of sums and, lanes along channels, of columns and
    of weights, columns times taps of a run. To load its weights takes as long as `load` more positions, and fewer than
    `waiting` positions of two vectors of columns wait for their sums. Multiply-adds that take `two_cycles` hide the
    loads beside them; up to `half_tile` columns that are left are multiplied by half a vector. A tile's positions are
    computed in whole numbers of a `unit`."""

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
    def rows(self):
        """The most of a tile with lanes along positions: as many as leave registers for two vectors each."""
        return min(MAX_ROWS, self.sums // 2)

    def vectors_of(self, rows):
        """Vectors of positions of a tile of so many rows."""
        return tile_vectors(self.sums, rows)

    def pairs_of(self, channels, along_channels):
        """Pairs of input channels that pieces are packed of, zeros included: tile registers want whole ones."""
        together = TILE_CHANNELS if self.unit > 1 or along_channels else 2
        return -(-channels // together) * together // 2


# Cycles of a multiply-add and of a dot product: as many positions of two vectors of columns are under way at once where
# two of them begin in a cycle. Of Zen 4's vectors of 64 bytes one does. Most of the layers that go another way are
# images 2 to 9 wide of bfloat16: 71 took 0.81 of the time by 6 instead of 4 (Zen 5), 33 took 0.87 by 3 (Zen 4).
cdef enum:
    FUSED_LATENCY = 4
    DOT_LATENCY = 6

cdef bint TWO_CYCLES = AMD_FAMILY == 25  # Zen 3 has no such vectors


def tile_limits(str level, bint double, int pieces):
    """The limits of a level's tiles."""
    cdef const convt_level *found = find_level(level)
    # AMD's processors load weights beside multiply-adds: layers of 16x16 images, whose rows are runs so, took 0.89 to
    # 0.94 of the time (Zen 4).
    cdef int load = 1 if is_amd() else 2
    cdef bint two_cycles = TWO_CYCLES and found.f32.sizes.lanes * sizeof(float) == CACHE_LINE
    cdef int waiting = (DOT_LATENCY if pieces else FUSED_LATENCY) // (1 + two_cycles)
    cdef const tile_sizes_t *sizes = &found.f64.sizes if double else &found.f32.sizes
    cdef bint halves = two_cycles and not pieces and sizes.narrowest == 0
    return TileLimits(
        lanes=sizes.lanes,
        sums=found.tiles.most_sums if pieces else sizes.most_sums,
        columns=2 if pieces else sizes.widest,
        weights=2 if pieces else sizes.most_weights,
        load=load,
        waiting=waiting,
        two_cycles=two_cycles,
        half_tile=sizes.lanes // 2 if halves else 0,
        unit=found.tiles.unit if pieces else 1,
    )


# Results of so many bytes of one input channel pass the caches on AMD's processors: they wait for little but their
# stores, which the third-level cache takes three times as fast. 4 MB took 0.57 to 0.98 of the time (Zen 4, four
# layers). On Intel's they take 1.9 times as long through the caches.
ONE_CHANNEL_STREAM = 1 << 23


def stream_bytes(str level, bint halves, Py_ssize_t group_inputs):
    """The bytes from which results are written past the caches: of halves or not, of so many channels of a group."""
    cdef const convt_level *found = find_level(level)
    cdef Py_ssize_t least = found.stream_bytes
    if halves:  # not by vectors of widened ones
        least = found.halves_stream_bytes if found.tiles.most_pieces else PY_SSIZE_T_MAX
    return max(least, ONE_CHANNEL_STREAM) if group_inputs == 1 and is_amd() else least


# Vectors in one pass whose rows share cache lines pass the caches only by way of lines of sums, and are copied then. On
# AMD's processors results that have fewer bytes with their input do not: 306 layers of 2 MB and more took 0.96
# (float32) and 0.95 of the time (float64), those whose writing changed 0.38 to 0.93 (Zen 5). Of 20 MB they took 1.1 to
# 1.6 times as long. On others fewer than the second do not (48 to 78 layers of 2 to 32 MB, depthwise ones among them,
# took 0.90 to 0.93, by AVX2 0.88, 44 of 20 MB 0.84), and if their rows have as many as the third fewer than the last:
# of 45 MB such took 0.55 to 1.14, mean 0.82 (33 layers), others up to 1.8 times as long (Xeon with AMX).
LINES_STREAM_OF_AMD, LINES_STREAM = 1 << 24, 3 << 23
MIDDLE_ROW, LONGER_LINES_STREAM = 1 << 10, 1 << 26


def lines_stream_bytes(Py_ssize_t row_bytes):
    """The bytes of input and result from which rows of so many bytes in one pass that share cache lines are written
    past the caches."""
    if is_amd():
        return LINES_STREAM_OF_AMD
    return LONGER_LINES_STREAM if row_bytes >= MIDDLE_ROW else LINES_STREAM


def sets_wait():
    """Whether stores to lines that meet in one set of the first-level cache wait for each other: Zen 5.

    16 transposed lines, one of each of 16 channels, took 97 cycles where these lie 1 KB apart, 217 for 2 KB, 360 to 500
    for 4 KB and its multiples, and 65 elsewhere; 16 of 64 lines, four of each channel in turn, 69 to 99 anywhere.
    """
    return AMD_FAMILY >= 26


cdef const convt_level *find_level(str level) except NULL:
    cdef int i = 0
    while convt_levels[i].name != NULL:
        if convt_levels[i].name.decode() == level:
            return &convt_levels[i]
        i += 1
    raise ValueError(f"level: expected one of this build's, got {level!r}")

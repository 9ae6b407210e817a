"""The contract of a level's micro-kernels."""

from libc.stdint cimport int32_t, uint8_t, uint16_t, uint32_t

# Sizes that the loops and the modules that plan for them have in common.
cpdef enum:
    MAX_AXES = 8  # the batch and the spatial ones
    MAX_ROWS = 8  # of a tile with lanes along positions
    MAX_OUTER = 32  # rows of outputs of a cell that are written in one pass
    TILE_CHANNELS = 32  # of input, that products of pieces are made of at once
    ONE_PASS_COLUMNS = 128  # of a block in tile registers that are written in one pass
    # Input channels up to which places of two classes are written in one pass, rows filled or not, half as many rows of
    # each class at once.
    TWO_CLASSES_CHANNELS = 32
    MOST_TURNED = 256  # kernel positions, of which 32 channels are transposed in the caches for tile registers
    JOINED_LINE = 30  # vectors of rows that are joined: half took 1.025 times as long, twice 1.0
    LONG_ROW = 1 << 12  # bytes, of which the cache lines at both ends are few
    # Outputs of a phase that `_kernels` sums at once: with 8 channels 16 KB of doubles, half of the smallest
    # first-level cache around.
    ROW_STRIP = 256
    CACHE_LINE = 64

cdef extern from "levels.h" nogil:
    bint is_amd "convt_is_amd" ()
    ctypedef struct tap_t "convt_tap":
        Py_ssize_t offset
        int32_t before
        int32_t after
    cpdef enum:
        MANY_SUMS "CONVT_MANY_SUMS"
        MOST_ZEROS "CONVT_MOST_ZEROS"
        MOST_RUN "CONVT_MOST_RUN"
        MOST_TILE_VECTORS "CONVT_MOST_TILE_VECTORS"
        CHECKED_POSITIONS "CONVT_CHECKED_POSITIONS"
        PLACE_UNIT "CONVT_PLACE_UNIT"
        ROW_PLACES "CONVT_ROW_PLACES"
        CHAIN "CONVT_CHAIN"
        LONGEST_CHAIN "CONVT_LONGEST_CHAIN"
    const Py_ssize_t NO_TAP "CONVT_NO_TAP"
    Py_ssize_t tile_vectors "CONVT_TILE_VECTORS" (Py_ssize_t sums, Py_ssize_t rows)
    Py_ssize_t out_vectors "CONVT_OUT_VECTORS" (Py_ssize_t sums, Py_ssize_t rows, int kind, Py_ssize_t places)
    ctypedef struct tap_class_t "convt_tap_class":
        Py_ssize_t taps
        Py_ssize_t chain
        const Py_ssize_t *tap_offset
        const void *w
        const void *bias
        const uint8_t *users
        const uint8_t *runs
    enum:
        MOST_LINES "CONVT_MOST_LINES"
        NATIVE_IMAGES "CONVT_NATIVE_IMAGES"
        SMALL_PRODUCTS "CONVT_SMALL_PRODUCTS"
        LARGE_PRODUCTS "CONVT_LARGE_PRODUCTS"
        ALL_PRODUCTS "CONVT_ALL_PRODUCTS"
        BEGUN_SUMS "CONVT_BEGUN_SUMS"
        PIECE_STEP "CONVT_PIECE_STEP"
        TILE_FLOATS "CONVT_TILE_FLOATS"
        ONE_CLASS "CONVT_ONE_CLASS"
        TWO_CLASSES "CONVT_TWO_CLASSES"
        SHARED_LOADS "CONVT_SHARED_LOADS"
    ctypedef struct lines_t "convt_lines":
        Py_ssize_t length
        Py_ssize_t count
        Py_ssize_t x_line
        Py_ssize_t out_line
        Py_ssize_t channels
        Py_ssize_t x_channel
        Py_ssize_t row
        Py_ssize_t row_left
        Py_ssize_t row_skip
        void *packed
        Py_ssize_t packed_line
        Py_ssize_t packed_channel
        const char *soon
        Py_ssize_t soon_channel
        Py_ssize_t soon_vector
        Py_ssize_t soon_second
    ctypedef struct shared_tap_t "convt_shared_tap":
        Py_ssize_t offset
        Py_ssize_t users
    ctypedef struct tile_pair_t "convt_tile_pair":
        Py_ssize_t taps
        Py_ssize_t users
        Py_ssize_t w_piece
        const shared_tap_t *tap
        const float *w[2]
    ctypedef struct output_row_t "convt_output_row":
        int precision
        int places
        bint stream
        Py_ssize_t outputs
        Py_ssize_t channels
        Py_ssize_t channel_step
        Py_ssize_t height
        char *first
    ctypedef struct tile_rows_t "convt_tile_rows":
        int precision
        int places
        bint stream
        bint fetch
        Py_ssize_t width
        char **first
        const Py_ssize_t *offsets

cdef extern from "levels.h" nogil:
    ctypedef struct tile_sizes_t "convt_tile_sizes":
        int lanes
        int most_sums
        int most_weights
        int widest
        int narrowest
    # Of floats or doubles, which are void here: the C compiler compares types where `kernels_for` these are called, by
    # the flags of setup.py. Nothing of it may be stored.
    ctypedef struct kernels_t "convt_kernels_f32":
        tile_sizes_t sizes
        void (*channels)(
            int, int, Py_ssize_t, Py_ssize_t, const tap_t *, Py_ssize_t, const void *, Py_ssize_t, const void *,
            const void *, Py_ssize_t, bint, void *, Py_ssize_t
        ) noexcept nogil
        void (*groups)(
            int, Py_ssize_t, const tap_t *, const void *, Py_ssize_t, const void *, void *, Py_ssize_t
        ) noexcept nogil
        void (*native)(
            int, int, int, int, Py_ssize_t, Py_ssize_t, const void *, Py_ssize_t, const void *, Py_ssize_t, void *,
            Py_ssize_t
        ) noexcept nogil
        void (*native_tiles)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const void *, Py_ssize_t, const void *, Py_ssize_t, Py_ssize_t, void *,
            Py_ssize_t
        ) noexcept nogil
        void (*positions)(
            int, Py_ssize_t, const tap_class_t *, Py_ssize_t, const void *, Py_ssize_t, Py_ssize_t, Py_ssize_t, void *,
            Py_ssize_t
        ) noexcept nogil
        void (*positions_out)(
            int, int, int, const tap_class_t *, const lines_t *, const void *, void **, bint
        ) noexcept nogil
        void (*transpose)(
            const void *, int, Py_ssize_t, const void *, void *, Py_ssize_t, int, bint
        ) noexcept nogil
        void (*accumulate)(Py_ssize_t, Py_ssize_t, const void *, double, void *) noexcept nogil
        void (*add_rows)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const void *, Py_ssize_t, Py_ssize_t, void *, Py_ssize_t, Py_ssize_t
        ) noexcept nogil
        void (*biased_rows)(
            Py_ssize_t, Py_ssize_t, const void *, Py_ssize_t, double, void *, Py_ssize_t
        ) noexcept nogil
        void (*interleave)(Py_ssize_t, Py_ssize_t, const void *, void *, bint) noexcept nogil
        void (*drain)() noexcept nogil
        void (*copy_lines)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const char *, Py_ssize_t, void *, Py_ssize_t
        ) noexcept nogil
        void (*stream_rows)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, const void *, Py_ssize_t, Py_ssize_t, void *
        ) noexcept nogil
        void (*filled_lines)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const char *, Py_ssize_t, void *, Py_ssize_t,
            Py_ssize_t
        ) noexcept nogil
        void (*transpose_to)(const void *, Py_ssize_t, int, void *) noexcept nogil
        bint (*all_finite)(const void *, Py_ssize_t) noexcept nogil
    ctypedef struct halves_t "convt_halves":
        void (*widen)(bint, const uint16_t *, Py_ssize_t, Py_ssize_t, float *) noexcept nogil
        void (*narrow)(bint, const float *, Py_ssize_t, uint16_t *) noexcept nogil
        bint (*interleave_narrow)(bint, Py_ssize_t, Py_ssize_t, const float **, uint16_t *) noexcept nogil
        void (*transpose_narrow)(
            bint, Py_ssize_t, Py_ssize_t, const float **, Py_ssize_t, const float *, uint16_t *, Py_ssize_t, bint
        ) noexcept nogil
    ctypedef struct tiles_t "convt_tiles":
        int most_sums
        int unit
        int most_pieces
        void (*configure)(int) noexcept nogil
        void (*release)() noexcept nogil
        void (*channels)(
            int, int, int, int, Py_ssize_t, const tap_t *, Py_ssize_t, const float *, Py_ssize_t, Py_ssize_t,
            const float *, const float *, Py_ssize_t, float *, Py_ssize_t
        ) noexcept nogil
        void (*positions)(
            int, int, Py_ssize_t, Py_ssize_t, Py_ssize_t, const float *, Py_ssize_t, const float *, const float *,
            float *, Py_ssize_t
        ) noexcept nogil
        void (*positions_out)(
            int, int, Py_ssize_t, Py_ssize_t, Py_ssize_t, const float *, Py_ssize_t, const float *, const float *,
            const tile_rows_t *
        ) noexcept nogil
        void (*row_out)(
            int, const tile_pair_t *, Py_ssize_t, Py_ssize_t, const float *, Py_ssize_t, const float *,
            const output_row_t *
        ) noexcept nogil
        bint (*word_lines)(
            Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, const char *, const char *, Py_ssize_t, Py_ssize_t, float *,
            Py_ssize_t, uint32_t, uint32_t
        ) noexcept nogil
        void (*word_positions)(
            int, Py_ssize_t, const tap_class_t *, Py_ssize_t, const float *, Py_ssize_t, Py_ssize_t, Py_ssize_t,
            float *, Py_ssize_t
        ) noexcept nogil
        void (*word_positions_out)(
            int, int, int, const tap_class_t *, const lines_t *, const float *, void **, bint
        ) noexcept nogil
        bint (*split_channels)(
            int, int, const char *, Py_ssize_t, Py_ssize_t, Py_ssize_t, float *, Py_ssize_t, Py_ssize_t, uint32_t,
            uint32_t
        ) noexcept nogil
        bint (*split_positions)(
            int, int, const char *, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, Py_ssize_t, float *,
            Py_ssize_t, Py_ssize_t, uint32_t, uint32_t
        ) noexcept nogil
        void (*split_left)(int, const float *, float *, Py_ssize_t) noexcept nogil
        void (*split_right)(
            int, const float *, Py_ssize_t, float *, Py_ssize_t, uint32_t *, uint32_t *
        ) noexcept nogil
        void (*join_rows)(
            const char *, const char *, Py_ssize_t, Py_ssize_t, float *, Py_ssize_t, Py_ssize_t, Py_ssize_t, uint32_t *,
            uint32_t *
        ) noexcept nogil
        void (*magnitudes)(const float *, Py_ssize_t, uint32_t *, uint32_t *) noexcept nogil
        halves_t halves
    ctypedef struct convt_level:
        const char *name
        int (*runs_here)() noexcept nogil
        const kernels_t *f32
        const kernels_t *f64
        const halves_t *halves
        const tiles_t *tiles
        Py_ssize_t stream_bytes
        int native_rows
        bint of_amd
        Py_ssize_t halves_stream_bytes
        Py_ssize_t fetch_bytes
    const convt_level convt_levels[]
    const kernels_t *kernels_for "CONVT_KERNELS_FOR" (const convt_level *level, const void *pointer)

cdef enum:
    PAGE = 1 << 12  # what is so many bytes apart, or a multiple, meets in one set of a first-level cache
    SET_STEP = 1 << 10  # likewise in four sets or fewer

# Whether the processor reads long rows best if nobody fetches them early: Zen 5 and later.
cdef bint READS_AHEAD

cdef const convt_level *find_level(str level) except NULL

/* What a level consists of: micro-kernels behind one contract. See micro.h, micro_channels.h,
   micro_positions.h, micro_rows.h, micro_native.h, micro_half.h, isa_amx.c and isa_avx512_bf16.c for what each
   computes. */
#ifndef CONVT_LEVELS_H
#define CONVT_LEVELS_H

#include <stddef.h>
#include <stdint.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

/* Which levels a build has: their vectors want __builtin_shufflevector, which came with gcc 12. */
#if defined(__clang__) || __GNUC__ >= 12
#if defined(__x86_64__)
#define CONVT_X86
#if defined(__linux__)
#define CONVT_AMX
#endif
#elif defined(__aarch64__)
#define CONVT_NEON
#endif
#endif

/* A tap of a tile of `channels`: where its first position reads, elements behind x, and how many of its first and of
   its last positions, up to CONVT_MOST_ZEROS, read zeros beyond the border, which may be left out. Vectors do so in
   tiles of CONVT_CHECKED_POSITIONS and more: shorter ones mostly wait for their sums, and took up to 1.6 times as long
   with the checks. Of taps that share their inputs, the first says what is left out after, the last what is before. */
typedef struct {
    ptrdiff_t offset;
    int32_t before, after;
} convt_tap;

enum { CONVT_MOST_ZEROS = 2, CONVT_CHECKED_POSITIONS = 4 };

/* Vectors of positions of a tile with lanes along these: as many as `positions` may read and write past a run. */
enum { CONVT_MOST_TILE_VECTORS = 8 };
enum { CONVT_MANY_SUMS = 24 /* vectors of a tile: registers are few where they are fewer */ };
enum { CONVT_NATIVE_IMAGES = 3 /* whose sums `native` makes together */ };
enum { CONVT_MOST_LINES = 4 /* cache lines of a row that `transpose` writes at once */ };
#define CONVT_TILE_VECTORS(sums, rows)                                                                                 \
    ((sums) / (rows) > CONVT_MOST_TILE_VECTORS ? CONVT_MOST_TILE_VECTORS : (sums) / (rows))
_Static_assert(sizeof(convt_tap) == 2 * sizeof(int64_t), "BoxTable makes taps as rows of two int64_t");

/* Floats from one piece of 32 channels of a place to the next, unless all places of a piece follow each other: then
   places have channels in multiples of CONVT_PLACE_UNIT. */
enum { CONVT_PIECE_STEP = 16, CONVT_PLACE_UNIT = 8, CONVT_TILE_FLOATS = 256 /* of 16 rows of 16 pairs */ };
/* Which products of pieces, and whether on top of sums that are begun. */
enum { CONVT_SMALL_PRODUCTS = 1, CONVT_LARGE_PRODUCTS = 2, CONVT_ALL_PRODUCTS = 3, CONVT_BEGUN_SUMS = 4 };
enum { CONVT_ROW_PLACES = 8 /* most of a cell's row whose sums wait for `row_out` to write them */ };

/* Products are summed in chains of fused multiply-adds of about so many, and the sums of chains are added up, as errors
   grow with the length of a chain: of istft_1026to1's 4104 products their root mean square became 0.36 of that of one
   chain. Chains of half the length err 0.7 times as much, but then some layers' products of pieces, which may err no
   more than those of the level `avx512`, would. */
enum { CONVT_CHAIN = 512, CONVT_LONGEST_CHAIN = 3 * CONVT_CHAIN / 2 };

/* In place of a tap's offset: `channels` leaves the tap out, but not its weights. */
#define CONVT_NO_TAP PTRDIFF_MIN

/* What lanes along positions are multiplied by: taps of a class of places, weights and bias of some of its rows. */
typedef struct {
    ptrdiff_t taps, chain; /* the latter: channels that a chain is of, with all their taps */
    const ptrdiff_t *tap_offset;
    const void *w, *bias; /* of REAL; without a bias `positions` of floats and doubles adds to what is there */
    /* Of one input channel: for each tap, which rows of a tile have it, a bit each, and how many taps from it on make a
       run, each of which reads a line further than the one before. */
    const uint8_t *users, *runs;
} convt_tap_class;

/* What makes up a tile of `positions_out`: some rows of a class, as many of each of two, or places of one class that
   some taps of one input channel are not for. */
enum { CONVT_ONE_CLASS, CONVT_TWO_CLASSES, CONVT_SHARED_LOADS };
enum { CONVT_MOST_RUN = 3 }; /* taps that share the loads of several lines */
/* Vectors of positions of such a tile, with registers for so many sums, unless loads are shared. Of two classes few
   rows are kept in registers together: enet_up2_16 took 1.03 times as long with eight of each. Where three places are
   interleaved, six registers hold the indices for that. Of 24 sums the compiler moved some to memory and back for each
   channel: 88 layers of kernel 3, stride 3, took 0.97 (float32), 0.95 (float64) and 0.99 of the time (bfloat16), those
   whose path it is 0.83 to 0.9. */
#define CONVT_OUT_VECTORS(sums, rows, kind, places)                                                                    \
    CONVT_TILE_VECTORS((places) == 3 ? (sums) - 6 : (sums),                                                            \
                       (kind) == CONVT_TWO_CLASSES && (rows) <= 4 ? 2 * (rows) : (rows))

/* Lines of cells that `positions_out` computes, and their input: `count` lines of `length` outputs and `channels` of
   input; x_line and out_line elements lead from one line to the next, x_channel from one channel to the next. For one
   class of floats or doubles, at levels of many sums: unless `soon` is NULL, a cache line is fetched from there
   for each channel and each vector of a line, or line, that many bytes apart, and unless `soon_second` is 0, another
   one so many bytes further; unless `packed` is NULL too, the input is copied there. */
typedef struct {
    ptrdiff_t length, count, x_line, out_line, channels, x_channel;
    /* Unless `row` is 0, the line, which is the only one, is several rows of so many outputs, whole vectors, that lie
       `row_skip` elements apart in `out`, whole vectors too if these pass the caches; of the first there are
       `row_left`. Of one class of 2 or 4 places only. */
    ptrdiff_t row, row_left, row_skip;
    void *packed;
    ptrdiff_t packed_line, packed_channel;
    const char *soon;
    ptrdiff_t soon_channel, soon_vector, soon_second;
} convt_lines;

/* Rows of outputs that tiles of positions are written to: elements of `precision` 24 (float), 11 (float16) or 8
   (bfloat16) bits. Rows of cells of `places` outputs (1, 2, 4 or 8), `width` cells each, begin at first[0], first[1]
   ..., and `offsets` bytes further those of every `places` rows of sums. To `fetch`, ask for cache lines that are
   written in parts before the products. */
typedef struct {
    int precision, places, stream, fetch;
    ptrdiff_t width;
    char *const *first;
    const ptrdiff_t *offsets;
} convt_tile_rows;

/* A tap of two classes of places or of one, a bit each. */
typedef struct {
    ptrdiff_t offset, users;
} convt_shared_tap;

/* Two tiles of weights that are multiplied by the same input: of two places or, rows of cells having one, of up to 32
   channels; `users` has a bit for each that there is. w is, for each of them, [32 channels][tap][piece], w_piece floats
   from one piece to the next. */
typedef struct {
    ptrdiff_t taps, users, w_piece;
    const convt_shared_tap *tap;
    const float *w[2];
} convt_tile_pair;

/* A row of outputs of each of some channels, `channel_step` bytes apart: of `precision` and `stream` as in
   `convt_tile_rows`, up to CONVT_ROW_PLACES places a cell. */
typedef struct {
    int precision, places, stream;
    ptrdiff_t outputs, channels, channel_step;
    ptrdiff_t height; /* positions of a tile, which tiles are configured for */
    char *first;
} convt_output_row;

typedef struct {
    int lanes;        /* elements of a vector */
    int most_sums;    /* vectors of sums of a tile */
    int most_weights; /* of weights of `channels`: columns times taps of a run */
    int widest;       /* most vectors of its columns */
    int narrowest;    /* fewest: 1, or 0 for half a one */
} convt_tile_sizes;

#define CONVT_KERNELS(REAL)                                                                                            \
    struct {                                                                                                           \
        convt_tile_sizes sizes;                                                                                        \
        void (*channels)(int positions, int vectors, ptrdiff_t taps, ptrdiff_t row_taps, const convt_tap *tap,         \
                         ptrdiff_t channels, const REAL *x, ptrdiff_t x_step, const REAL *w, const REAL *soon,         \
                         ptrdiff_t soon_step, int begun, REAL *out, ptrdiff_t out_step);                               \
        void (*groups)(int positions, ptrdiff_t taps, const convt_tap *tap, const REAL *x, ptrdiff_t x_step,           \
                       const REAL *w, REAL *out, ptrdiff_t out_step);                                                  \
        void (*native)(int rows, int fetch, int precision, int images, ptrdiff_t channels, ptrdiff_t n, const REAL *x, \
                       ptrdiff_t x_step, const void *w, ptrdiff_t w_step, REAL *out, ptrdiff_t out_step);              \
        void (*native_tiles)(ptrdiff_t positions, ptrdiff_t channels, ptrdiff_t n, const REAL *x, ptrdiff_t x_step,    \
                             const REAL *w, ptrdiff_t w_step, ptrdiff_t later, REAL *out, ptrdiff_t out_step);         \
        void (*positions)(int rows, ptrdiff_t positions, const convt_tap_class *of, ptrdiff_t channels, const REAL *x, \
                          ptrdiff_t x_step, ptrdiff_t ahead, ptrdiff_t later, REAL *out, ptrdiff_t out_step);          \
        void (*positions_out)(int rows, int kind, int places, const convt_tap_class *classes,                          \
                              const convt_lines *lines, const REAL *x, void **out, int stream);                        \
        void (*transpose)(const REAL *const *rows, int blocks, ptrdiff_t offset, const REAL *bias, REAL *out,          \
                          ptrdiff_t out_step, int kept, int stream);                                                   \
        void (*accumulate)(ptrdiff_t n, ptrdiff_t taps, const REAL *const *terms, REAL bias, REAL *out);               \
        void (*add_rows)(ptrdiff_t rows, ptrdiff_t n, ptrdiff_t width, const REAL *source, ptrdiff_t source_row,       \
                         ptrdiff_t source_step, REAL *target, ptrdiff_t target_row, ptrdiff_t target_step);            \
        void (*biased_rows)(ptrdiff_t rows, ptrdiff_t n, const REAL *sums, ptrdiff_t sums_step, REAL bias, REAL *out,  \
                            ptrdiff_t out_step);                                                                       \
        void (*interleave)(ptrdiff_t n, ptrdiff_t places, const REAL *const *rows, REAL *out, int stream);             \
        void (*drain)(void);                                                                                           \
        void (*copy_lines)(ptrdiff_t count, ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, const char *source,        \
                           ptrdiff_t source_step, REAL *target, ptrdiff_t target_step);                                \
        void (*stream_rows)(ptrdiff_t rows, ptrdiff_t n, ptrdiff_t places, const REAL *from, ptrdiff_t step,           \
                            ptrdiff_t place_step, REAL *out);                                                          \
        void (*filled_lines)(ptrdiff_t channels, ptrdiff_t source_channel, ptrdiff_t count, ptrdiff_t source_step,     \
                             ptrdiff_t n, const char *source, ptrdiff_t ahead, REAL *target, ptrdiff_t target_channel, \
                             ptrdiff_t target_step);                                                                   \
        void (*transpose_to)(const REAL *rows, ptrdiff_t step, int n, REAL *const *out);                               \
        int (*all_finite)(const REAL *elements, ptrdiff_t n);                                                          \
    }

typedef CONVT_KERNELS(float) convt_kernels_f32;
typedef CONVT_KERNELS(double) convt_kernels_f64;

/* A level's kernels for the type that `pointer` points to. */
#define CONVT_KERNELS_FOR(level, pointer) _Generic(*(pointer), float: (level)->f32, double: (level)->f64)

/* Conversions of float16 and bfloat16; see micro_half.h. */
typedef struct {
    void (*widen)(int bfloat16, const uint16_t *source, ptrdiff_t n, ptrdiff_t ahead, float *target);
    void (*narrow)(int bfloat16, const float *source, ptrdiff_t n, uint16_t *target);
    int (*interleave_narrow)(int bfloat16, ptrdiff_t n, ptrdiff_t places, const float *const *rows, uint16_t *out);
    void (*transpose_narrow)(int bfloat16, ptrdiff_t n, ptrdiff_t columns, const float *const *rows, ptrdiff_t offset,
                             const float *bias, uint16_t *out, ptrdiff_t out_step, int stream);
} convt_halves;

/* Matrix products of bfloat16 pieces; see pieces.h, isa_amx.c and isa_avx512_bf16.c. All NULL or 0 where a level has
   none. */
typedef struct {
    int most_sums;                    /* vectors of sums of a tile of `channels` */
    int unit;                         /* of its positions: whole ones are read and written */
    int most_pieces;                  /* of an element that are worth it */
    void (*configure)(int positions); /* of tiles of `row_out`, up to 16, which all others have */
    void (*release)(void);
    void (*channels)(int products, int pieces, int positions, int columns, ptrdiff_t taps, const convt_tap *tap,
                     ptrdiff_t pairs, const float *x, ptrdiff_t x_step, ptrdiff_t piece_step, const float *w,
                     const float *soon, ptrdiff_t soon_step, float *out, ptrdiff_t out_step);
    void (*positions)(int pieces, int outputs, ptrdiff_t positions, ptrdiff_t taps, ptrdiff_t pairs, const float *x,
                      ptrdiff_t x_step, const float *w, const float *bias, float *out, ptrdiff_t out_step);
    void (*positions_out)(int pieces, int columns, ptrdiff_t positions, ptrdiff_t taps, ptrdiff_t pairs, const float *x,
                          ptrdiff_t x_step, const float *w, const float *bias, const convt_tile_rows *y);
    void (*row_out)(int pieces, const convt_tile_pair *pairs, ptrdiff_t positions, ptrdiff_t channels, const float *x,
                    ptrdiff_t x_step, const float *bias, const convt_output_row *y);
    /* `copy_lines`, `positions` and `positions_out` of CONVT_KERNELS for words of two channels, or NULL. */
    int (*word_lines)(ptrdiff_t count, ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, const char *even,
                      const char *odd, ptrdiff_t source_step, ptrdiff_t ahead, float *target, ptrdiff_t target_step,
                      uint32_t least, uint32_t most);
    void (*word_positions)(int rows, ptrdiff_t positions, const convt_tap_class *of, ptrdiff_t words, const float *x,
                           ptrdiff_t x_step, ptrdiff_t ahead, ptrdiff_t later, float *out, ptrdiff_t out_step);
    void (*word_positions_out)(int rows, int kind, int places, const convt_tap_class *classes, const convt_lines *lines,
                               const float *x, void **out, int stream);
    int (*split_channels)(int pieces, int precision, const char *x, ptrdiff_t channel_step, ptrdiff_t channels,
                          ptrdiff_t n, float *target, ptrdiff_t x_step, ptrdiff_t piece_step, uint32_t least,
                          uint32_t most);
    int (*split_positions)(int pieces, int precision, const char *x, ptrdiff_t channel_step, ptrdiff_t channels,
                           ptrdiff_t pairs, ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, float *target,
                           ptrdiff_t place, ptrdiff_t step, uint32_t least, uint32_t most);
    void (*split_left)(int pieces, const float *source, float *target, ptrdiff_t piece_step);
    void (*split_right)(int pieces, const float *source, ptrdiff_t source_step, float *target, ptrdiff_t piece_step,
                        uint32_t *least, uint32_t *most);
    void (*join_rows)(const char *even, const char *odd, ptrdiff_t columns, ptrdiff_t tile, float *words,
                      ptrdiff_t column_step, ptrdiff_t vector_step, ptrdiff_t ahead, uint32_t *least, uint32_t *most);
    void (*magnitudes)(const float *elements, ptrdiff_t n, uint32_t *least, uint32_t *most);
    convt_halves halves; /* of sums that are never subnormal */
} convt_tiles;

typedef struct {
    const char *name;
    int (*runs_here)(void);
    const convt_kernels_f32 *f32;
    const convt_kernels_f64 *f64;
    const convt_halves *halves;
    const convt_tiles *tiles;
    ptrdiff_t stream_bytes; /* results of so many pass the caches */
    int native_rows;        /* channels of weights that `native` reads at once and fetches: 4 or 8 */
    int of_amd;             /* chosen on AMD's processors alone, wherever it runs */
    /* Where there are tiles: */
    ptrdiff_t halves_stream_bytes; /* results of halves of so many pass the caches */
    ptrdiff_t fetch_bytes;         /* of results of so many, lines written in parts are fetched before the products */
} convt_level;

/* Of this build, ended by one without a name. */
extern const convt_level convt_levels[];

static inline int convt_is_amd(void)
{
#if defined(__x86_64__)
    return __builtin_cpu_is("amd");
#else
    return 0;
#endif
}

/* The family of an AMD processor, as gcc 12 knows no name for Zen 5's, which is 26; Zen 3's and 4's is 25. Otherwise
   0. */
static inline int convt_amd_family(void)
{
#if defined(__x86_64__)
    unsigned int a, b, c, d;
    if (convt_is_amd() && __get_cpuid(1, &a, &b, &c, &d))
        return (a >> 8 & 15) + (a >> 20 & 255);
#endif
    return 0;
}

#endif

/* AMX: products of bfloat16 matrices, summed in float32, in tiles of 16 rows of 64 bytes.

   Six of the nine products of three pieces are made: the other three are below 2^-25 of the product. Without the least
   of the four products of two pieces, 2^-17, float16 sums that cancel would be wrong by several units. A task
   configures the tiles of its thread before its first product and releases them after its last. */

#include "micro_common.h"

#ifdef CONVT_AMX
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__clang__)
#pragma clang attribute push(                                                                                          \
    __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prfchw"))),             \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prfchw")
#endif

#include "pieces.h"

/* Not a local: gcc 12 does not see that the instruction reads more than its first 8 bytes. */
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} convt_amx_config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};

static void convt_amx_configure(void)
{
    _tile_loadconfig(&convt_amx_config);
}

static void convt_amx_release(void)
{
    _tile_release();
}

/* Where the tiles of an operand lie, in floats. */
typedef struct {
    const float *at;
    const convt_tap *taps; /* offsets of the taps from `at`, for the left operand; or NULL */
    ptrdiff_t second;      /* to the tile beside this one */
    ptrdiff_t row;         /* to its next row */
    ptrdiff_t piece;       /* to the next piece of the elements */
    ptrdiff_t next; /* to the next 32 channels or, without a list, to the next tap's, and after the last to 32 more */
} convt_amx_operand;

/* Sums lie in tiles 0 to 3, up to two rows of up to two tiles, and so in memory. */
INLINE void convt_amx_store_sums(const int rows, const int columns, float *sums, ptrdiff_t step)
{
    _tile_stored(0, sums, step * sizeof(float));
    if (columns > 1)
        _tile_stored(1, sums + 16, step * sizeof(float));
    if (rows > 1) {
        _tile_stored(2, sums + 16 * step, step * sizeof(float));
        if (columns > 1)
            _tile_stored(3, sums + 16 * step + 16, step * sizeof(float));
    }
}

/* A bias to each row of sums, in memory: tile registers would have to be stored for it and loaded again. */
INLINE void convt_amx_add_bias(const int rows, const int columns, const float *bias, float *sums, ptrdiff_t step)
{
    const __m512 any = _mm512_or_ps(_mm512_loadu_ps(bias), _mm512_loadu_ps(bias + 16 * (rows - 1)));
    if (!_mm512_cmp_ps_mask(any, _mm512_setzero_ps(), _CMP_NEQ_UQ))
        return;
    for (int i = 0; i < 16 * rows; i++)
        for (int v = 0; v < columns; v++) {
            float *at = sums + i * step + 16 * v;
            _mm512_storeu_ps(at, _mm512_add_ps(_mm512_loadu_ps(at), _mm512_set1_ps(bias[i])));
        }
}

#define LOAD_TILES(t0, t1, operand, pointer, number, which)                                                            \
    do {                                                                                                               \
        _tile_loadd(t0, (pointer) + (which) * (operand).piece, (operand).row * sizeof(float));                         \
        if (number > 1)                                                                                                \
            _tile_loadd(t1, (pointer) + (which) * (operand).piece + (operand).second, (operand).row * sizeof(float));  \
    } while (0)
#define LOAD_LEFT(which) LOAD_TILES(4, 5, left, l, rows, which)
#define LOAD_RIGHT(which) LOAD_TILES(6, 7, right, r, columns, which)
#define MULTIPLY()                                                                                                     \
    do {                                                                                                               \
        _tile_dpbf16ps(0, 4, 6);                                                                                       \
        if (columns > 1)                                                                                               \
            _tile_dpbf16ps(1, 4, 7);                                                                                   \
        if (rows > 1) {                                                                                                \
            _tile_dpbf16ps(2, 5, 6);                                                                                   \
            if (columns > 1)                                                                                           \
                _tile_dpbf16ps(3, 5, 7);                                                                               \
        }                                                                                                              \
    } while (0)

/* The products of some pieces of every 32 channels and tap. Taps inside: neighbouring ones read nearly the same x, from
   the first-level cache then, which made these loops 12 % faster with one piece of 512 channels, 7 % with three.

   Any tile is stored, every 600 cycles or so: a store more than about 2200 cycles after the last one takes 850 cycles
   longer, also from the first-level cache and behind a fence. Three pieces of 64 channels went from 75 to 91 % of the
   unit's peak, of 128 from 84 to 91 %, one piece of 256 from 57 to 72 %. */
#define EVERY_TAP(pieces_fetched, ...)                                                                                 \
    do {                                                                                                               \
        const float *at = left.at, *r = right.at;                                                                      \
        for (ptrdiff_t pair = 0; pair < pairs; pair += 16, at += left.next)                                            \
            for (ptrdiff_t t = 0; t < taps; t++, r += right.next, soon += 16 * (pieces_fetched) * soon_step) {         \
                if (left.taps && left.taps[t].offset == CONVT_NO_TAP)                                                  \
                    continue;                                                                                          \
                const float *l = left.taps ? at + left.taps[t].offset : at;                                            \
                __VA_ARGS__;                                                                                           \
                if (++steps % (8 / pieces) == 0)                                                                       \
                    _tile_stored(4, awake, 64);                                                                        \
                for (ptrdiff_t line = 0; line < (pieces_fetched) * soon_step; line++)                                  \
                    __builtin_prefetch(soon + 16 * line, 0, 2);                                                        \
            }                                                                                                          \
    } while (0)

/* Up to 32 x 32 sums of products; taps without a list are one or none. First the small ones, then, on top of their sum,
   those of the first pieces: these alone round at the size of the sum, and half as often as a chain of fused
   multiply-adds does. */
INLINE void convt_amx_product(const int pieces, const int rows, const int columns, ptrdiff_t taps, ptrdiff_t pairs,
                              const convt_amx_operand left, const convt_amx_operand right, const float *soon,
                              ptrdiff_t soon_step, float *out, ptrdiff_t out_step)
{
    float awake[CONVT_TILE_FLOATS] __attribute__((aligned(64)));
    unsigned steps = 0;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    /* Tiles that stay loaded serve two products. */
    if (pieces == 3)
        EVERY_TAP(2, LOAD_LEFT(0); LOAD_RIGHT(2); MULTIPLY(); LOAD_RIGHT(1); MULTIPLY(); LOAD_LEFT(1); MULTIPLY();
                  LOAD_RIGHT(0); MULTIPLY(); LOAD_LEFT(2); MULTIPLY());
    if (pieces == 2)
        EVERY_TAP(1, LOAD_LEFT(0); LOAD_RIGHT(1); MULTIPLY(); LOAD_LEFT(1); MULTIPLY(); LOAD_RIGHT(0); MULTIPLY());
    EVERY_TAP(1, LOAD_LEFT(0); LOAD_RIGHT(0); MULTIPLY());
    convt_amx_store_sums(rows, columns, out, out_step);
}

#undef LOAD_TILES
#undef LOAD_LEFT
#undef LOAD_RIGHT
#undef MULTIPLY
#undef EVERY_TAP

/* One instance for each number of pieces and of tiles in rows and columns. */
#define INSTANCES(product)                                                                                             \
    switch (8 * pieces + 2 * (rows - 1) + (columns - 1)) {                                                             \
        FOUR(1, product)                                                                                               \
        FOUR(2, product)                                                                                               \
        FOUR(3, product)                                                                                               \
    }
#define FOUR(p, product) ONE(p, 1, 1, product) ONE(p, 1, 2, product) ONE(p, 2, 1, product) ONE(p, 2, 2, product)
#define ONE(p, r, c, product)                                                                                          \
    case 8 * p + 2 * (r - 1) + (c - 1):                                                                                \
        product(p, r, c) break;

/* What `channels` of micro.h computes, for up to 32 positions, in pieces: x is [place][32 channels][piece][32] or,
   unless `piece_step` is CONVT_PIECE_STEP, [piece][place][channel], w [32 channels][tap][piece][vector] tiles, two
   bfloat16 to a float; `pairs` of channels are multiplied, and steps and offsets are in floats. Sums of whole tiles are
   written: out has room for 15 positions more, and x too. */
static void convt_amx_channels(int pieces, int positions, int columns, ptrdiff_t taps, const convt_tap *tap,
                               ptrdiff_t pairs, const float *x, ptrdiff_t x_step, ptrdiff_t piece_step, const float *w,
                               const float *soon, ptrdiff_t soon_step, float *out, ptrdiff_t out_step)
{
    const int rows = (positions + 15) / 16;
    const ptrdiff_t tile = CONVT_TILE_FLOATS, next = piece_step == CONVT_PIECE_STEP ? 16 * pieces : 16;
    const convt_amx_operand left = {x, tap, 16 * x_step, x_step, piece_step, next};
    const convt_amx_operand right = {w, NULL, tile, 16, columns * tile, pieces * columns * tile};
#define PRODUCT(p, r, c) convt_amx_product(p, r, c, taps, pairs, left, right, soon, soon_step, out, out_step);
    INSTANCES(PRODUCT)
#undef PRODUCT
}

/* What `positions` of micro.h computes, likewise, for up to 32 outputs, filled up to one or two tiles, and one tap or
   none: x is [16 places][32 channels][piece][pair of channels][16], x_step from 16 places to the next, w
   [32 channels][piece][row of 16 outputs] tiles. Nothing needs to be transposed. Without `bias` none is added. */
static void convt_amx_positions(int pieces, int outputs, ptrdiff_t positions, ptrdiff_t taps, ptrdiff_t pairs,
                                const float *x, ptrdiff_t x_step, const float *w, const float *bias, float *out,
                                ptrdiff_t out_step)
{
    const int rows = outputs > 16 ? 2 : 1;
    const ptrdiff_t tile = CONVT_TILE_FLOATS;
    const convt_amx_operand left = {w, NULL, tile, 16, rows * tile, pieces * rows * tile};
    for (ptrdiff_t p = 0; p < positions; p += 32) {
        const int columns = positions - p > 16 ? 2 : 1;
        const convt_amx_operand right = {x + p / 16 * x_step, NULL, x_step, 16, tile, pieces * tile};
#define PRODUCT(p_, r, c)                                                                                              \
    convt_amx_product(p_, r, c, taps, pairs, left, right, w, 0, out + p, out_step);                                    \
    if (bias)                                                                                                          \
        convt_amx_add_bias(r, c, bias, out + p, out_step);
        INSTANCES(PRODUCT)
#undef PRODUCT
    }
}

/* `positions` for any number of `columns` of weights, their sums written as outputs from y->first[0] on. */
static void convt_amx_positions_out(int pieces, int columns, ptrdiff_t positions, ptrdiff_t taps, ptrdiff_t pairs,
                                    const float *x, ptrdiff_t x_step, const float *w, const float *bias,
                                    const convt_tile_rows *y)
{
    convt_pieces_part parts[32]; /* each has a position */
    ptrdiff_t row = 0, cell = 0;
    for (ptrdiff_t p = 0; p < positions; p += 32) {
        const ptrdiff_t n = positions - p < 32 ? positions - p : 32;
        int whole;
        const int count = convt_pieces_find_parts(n, y, &row, &cell, parts, &whole);
        convt_pieces_columns_out(convt_amx_positions, pieces, columns, n, taps, pairs, x + p / 16 * x_step, x_step, w,
                                 bias, y, parts, count, whole);
    }
}

const convt_tiles convt_amx_tiles = {CONVT_PIECES_TILES(amx), .most_sums = 64, .unit = 16, .most_pieces = 3};

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* Asks the kernel to let this process use the tiles; what it has granted once it grants again. */
int convt_amx_runs_here(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    enum { AVX512_BF16 = 1 << 5 };
    unsigned a, b, c, d;
    return convt_avx512_runs_here() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE) &&
           __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & AVX512_BF16) &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

#endif

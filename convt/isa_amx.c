/* AMX: products of bfloat16 matrices, summed in float32, in tiles of 16 rows of 64 bytes.

   Six of the nine products of three pieces are made: the other three are below 2^-25 of the product. Without the least
   of the four products of two pieces, 2^-17, float16 sums that cancel would be wrong by several units. For
   every box the tiles of its thread are configured before its first product and released after its last. */

#include "micro_common.h"

#ifdef CONVT_AMX
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

BEGIN_TARGET("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prfchw")

#include "pieces.h"

typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} convt_amx_config;

static void convt_amx_configure(int rows)
{
    convt_amx_config config = {
        1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {rows, rows, rows, rows, rows, rows, 16, 16}};
    /* gcc 12 does not see that the instruction reads more than its first 8 bytes. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

static void convt_amx_release(void)
{
    _tile_release();
}

/* Where the tiles of an operand lie, in floats. To load one takes 8 cycles, or 50 if its rows cross cache lines. */
typedef struct {
    const float *at;
    const convt_tap *taps; /* offsets of the taps from `at`, for the left operand; or NULL */
    ptrdiff_t second;      /* to the tile beside this one */
    ptrdiff_t row;         /* to its next row */
    ptrdiff_t piece;       /* to the next piece of the elements */
    ptrdiff_t next; /* to the next 32 channels or, without a list, to the next tap's, and after the last to 32 more */
} convt_amx_operand;

/* Sums lie in tiles 0 to 3: two of the first `height` rows, and of as many more if there are any. */
INLINE void convt_amx_store_sums(const int two, const int columns, ptrdiff_t height, float *first, ptrdiff_t step)
{
    float *second = first + height * step;
    _tile_stored(0, first, step * sizeof(float));
    if (columns > 1)
        _tile_stored(1, first + 16, step * sizeof(float));
    if (two) {
        _tile_stored(2, second, step * sizeof(float));
        if (columns > 1)
            _tile_stored(3, second + 16, step * sizeof(float));
    }
}

INLINE void convt_amx_load_sums(const int rows, const int columns, const float *first, ptrdiff_t step)
{
    const float *second = first + 16 * step;
    _tile_loadd(0, first, step * sizeof(float));
    if (columns > 1)
        _tile_loadd(1, first + 16, step * sizeof(float));
    if (rows > 1) {
        _tile_loadd(2, second, step * sizeof(float));
        if (columns > 1)
            _tile_loadd(3, second + 16, step * sizeof(float));
    }
}

INLINE void convt_amx_clear_sums(void)
{
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
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

/* Products with the tiles on the right that `users` has a bit for. */
#define MULTIPLY()                                                                                                     \
    do {                                                                                                               \
        if (users & 1) {                                                                                               \
            _tile_dpbf16ps(0, 4, 6);                                                                                   \
            if (rows > 1)                                                                                              \
                _tile_dpbf16ps(2, 5, 6);                                                                               \
        }                                                                                                              \
        if (users & 2) {                                                                                               \
            _tile_dpbf16ps(1, 4, 7);                                                                                   \
            if (rows > 1)                                                                                              \
                _tile_dpbf16ps(3, 5, 7);                                                                               \
        }                                                                                                              \
    } while (0)
/* The small products of two and three pieces, once the first of the left operand is loaded. Tiles that stay loaded
   serve two of them. */
#define SMALL_OF_TWO()                                                                                                 \
    do {                                                                                                               \
        LOAD_RIGHT(1);                                                                                                 \
        MULTIPLY();                                                                                                    \
        LOAD_LEFT(1);                                                                                                  \
        MULTIPLY();                                                                                                    \
        LOAD_RIGHT(0);                                                                                                 \
        MULTIPLY();                                                                                                    \
    } while (0)
#define SMALL_OF_THREE()                                                                                               \
    do {                                                                                                               \
        LOAD_RIGHT(2);                                                                                                 \
        MULTIPLY();                                                                                                    \
        SMALL_OF_TWO();                                                                                                \
        LOAD_LEFT(2);                                                                                                  \
        MULTIPLY();                                                                                                    \
    } while (0)
#define LARGE()                                                                                                        \
    do {                                                                                                               \
        LOAD_RIGHT(0);                                                                                                 \
        MULTIPLY();                                                                                                    \
    } while (0)

#define LOAD_TILES(t0, t1, operand, pointer, number, which)                                                            \
    do {                                                                                                               \
        _tile_loadd(t0, (pointer) + (which) * (operand).piece, (operand).row * sizeof(float));                         \
        if (number > 1)                                                                                                \
            _tile_loadd(t1, (pointer) + (which) * (operand).piece + (operand).second, (operand).row * sizeof(float));  \
    } while (0)
#define LOAD_LEFT(which) LOAD_TILES(4, 5, left, l, rows, which)
#define LOAD_RIGHT(which) LOAD_TILES(6, 7, right, r, columns, which)

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
   multiply-adds does. A slice of the channels makes one kind of `products` at a time, and fetches all that comes next
   with the first kind. */
INLINE void convt_amx_product(const int products, const int pieces, const int rows, const int columns, ptrdiff_t taps,
                              ptrdiff_t pairs, const convt_amx_operand left, const convt_amx_operand right,
                              const float *soon, ptrdiff_t soon_step, float *out, ptrdiff_t out_step)
{
    float awake[CONVT_TILE_FLOATS] __attribute__((aligned(64)));
    const int users = columns > 1 ? 3 : 1;
    const int both = pieces > 1 && (products & CONVT_ALL_PRODUCTS) == CONVT_ALL_PRODUCTS;
    unsigned steps = 0;
    if (products & CONVT_BEGUN_SUMS)
        convt_amx_load_sums(rows, columns, out, out_step);
    else
        convt_amx_clear_sums();
    if (pieces == 3 && products & CONVT_SMALL_PRODUCTS)
        EVERY_TAP(3 - both, LOAD_LEFT(0); SMALL_OF_THREE());
    if (pieces == 2 && products & CONVT_SMALL_PRODUCTS)
        EVERY_TAP(2 - both, LOAD_LEFT(0); SMALL_OF_TWO());
    if (products & CONVT_LARGE_PRODUCTS)
        EVERY_TAP(both || pieces == 1, LOAD_LEFT(0); LARGE());
    convt_amx_store_sums(rows > 1, columns, 16, out, out_step);
}

#undef LOAD_RIGHT
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
   written unless they were begun: out has room for 15 positions more, and x too. */
static void convt_amx_channels(int products, int pieces, int positions, int columns, ptrdiff_t taps,
                               const convt_tap *tap, ptrdiff_t pairs, const float *x, ptrdiff_t x_step,
                               ptrdiff_t piece_step, const float *w, const float *soon, ptrdiff_t soon_step, float *out,
                               ptrdiff_t out_step)
{
    const int rows = (positions + 15) / 16;
    const ptrdiff_t tile = CONVT_TILE_FLOATS, next = piece_step == CONVT_PIECE_STEP ? 16 * pieces : 16;
    const convt_amx_operand left = {x, tap, 16 * x_step, x_step, piece_step, next};
    const convt_amx_operand right = {w, NULL, tile, 16, columns * tile, pieces * columns * tile};
    /* Whole tiles would be written over the sums that the positions behind them have begun. */
    const int apart = products & CONVT_BEGUN_SUMS && positions % 16;
    float part[32 * 32];
    float *const sums = apart ? part : out;
    const ptrdiff_t step = apart ? 32 : out_step;
    if (apart)
        for (int i = 0; i < positions; i++)
            memcpy(part + i * step, out + i * out_step, columns * 16 * sizeof(float));
#define PRODUCT(p, r, c) convt_amx_product(products, p, r, c, taps, pairs, left, right, soon, soon_step, sums, step);
    INSTANCES(PRODUCT)
#undef PRODUCT
    if (apart)
        for (int i = 0; i < positions; i++)
            memcpy(out + i * out_step, part + i * step, columns * 16 * sizeof(float));
}

/* What `positions` of micro_positions.h computes, likewise, for up to 32 outputs, filled up to one or two tiles, and
   one tap or none: x is [16 places][32 channels][piece][pair of channels][16], x_step from 16 places to the next, w
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
    convt_amx_product(CONVT_ALL_PRODUCTS, p_, r, c, taps, pairs, left, right, w, 0, out + p, out_step);                \
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

/* The products of one or two tiles of positions with two of weights, either of which may lack taps. */
#define LOAD_RIGHT(which)                                                                                              \
    do {                                                                                                               \
        if (users & 1)                                                                                                 \
            _tile_loadd(6, w[0] + (which) * pair->w_piece, 64);                                                        \
        if (users & 2)                                                                                                 \
            _tile_loadd(7, w[1] + (which) * pair->w_piece, 64);                                                        \
    } while (0)
#define EVERY_TAP(...)                                                                                                 \
    do {                                                                                                               \
        const float *w[2] = {pair->w[0], pair->w[1]};                                                                  \
        for (ptrdiff_t c = 0; c < channels; c += 32)                                                                   \
            for (ptrdiff_t t = 0; t < pair->taps; t++) {                                                               \
                const int users = (int)(pair->tap[t].users & pair->users);                                             \
                const float *l = x + c / 2 * pieces + pair->tap[t].offset;                                             \
                __VA_ARGS__;                                                                                           \
                w[0] += users & 1 ? pieces * pair->w_piece : 0;                                                        \
                w[1] += users & 2 ? pieces * pair->w_piece : 0;                                                        \
                if (++steps % (8 / pieces) == 0)                                                                       \
                    _tile_stored(4, awake, 64);                                                                        \
            }                                                                                                          \
    } while (0)

INLINE void convt_amx_pair_product(const int pieces, const int rows, ptrdiff_t height, const convt_tile_pair *pair,
                                   ptrdiff_t channels, const float *x, ptrdiff_t x_step, float *sums, ptrdiff_t step)
{
    float awake[CONVT_TILE_FLOATS] __attribute__((aligned(64)));
    const convt_amx_operand left = {.second = height * x_step, .row = x_step, .piece = CONVT_PIECE_STEP};
    unsigned steps = 0;
    convt_amx_clear_sums();
    if (pieces == 3)
        EVERY_TAP(LOAD_LEFT(0); SMALL_OF_THREE());
    if (pieces == 2)
        EVERY_TAP(LOAD_LEFT(0); SMALL_OF_TWO());
    EVERY_TAP(LOAD_LEFT(0); LARGE());
    convt_amx_store_sums(rows > 1, pair->users == 3 ? 2 : 1, height, sums, step);
}

#undef LOAD_LEFT
#undef LOAD_RIGHT
#undef LOAD_TILES
#undef EVERY_TAP
#undef MULTIPLY
#undef SMALL_OF_THREE
#undef SMALL_OF_TWO
#undef LARGE

/* n outputs of each of up to 16 channels, from their sums, those of an output `step` floats after those of the one
   before it, and their bias: into rows of `y` from channel `channel` and output `done` on. */
INLINE void convt_amx_turn_out(const int precision, const float *sums, ptrdiff_t step, const float *bias, ptrdiff_t n,
                               ptrdiff_t done, ptrdiff_t channel, const convt_output_row *y)
{
    const ptrdiff_t item = precision == 24 ? 4 : 2, of_line = 64 / item;
    const ptrdiff_t channels = y->channels - channel < 16 ? y->channels - channel : 16;
    const convt_pieces_vector added = (convt_pieces_vector)_mm512_loadu_ps(bias);
    char *to = y->first + channel * y->channel_step + done * item;
    for (; n > 0; n -= of_line, to += 64, sums += of_line * step) {
        convt_pieces_vector block[16];
        UNROLLED (i, 16) {
            const ptrdiff_t first = precision == 24 ? i : i / 8 * 16 + i % 8,
                            second = precision == 24 ? first : first + 8;
            block[i] = (convt_pieces_vector)_mm512_loadu_ps(sums + first * step) + added;
            if (precision != 24)
                block[i] = (convt_pieces_vector)convt_pieces_two_halves(
                    precision, (__m512)block[i],
                    (__m512)((convt_pieces_vector)_mm512_loadu_ps(sums + second * step) + added));
        }
        if (precision == 24)
            convt_pieces_transpose_registers(block);
        else
            convt_pieces_transpose_words((__m512i *)block);
        if (channels == 16 && n >= of_line)
            UNROLLED (i, 16) {
                char *at = to + i * y->channel_step;
                if (y->stream && (uintptr_t)at % 64 == 0)
                    _mm512_stream_ps((float *)at, (__m512)block[i]);
                else
                    _mm512_storeu_ps(at, (__m512)block[i]);
            }
        else {
            const uint32_t words = n < of_line ? (1u << n * item / 2) - 1 : UINT32_MAX;
            for (ptrdiff_t i = 0; i < channels; i++)
                _mm512_mask_storeu_epi16(to + i * y->channel_step, words, (__m512i)block[i]);
        }
    }
}

/* The same of the precision of y. */
static void convt_amx_outputs(const float *sums, ptrdiff_t step, const float *bias, ptrdiff_t n, ptrdiff_t done,
                              ptrdiff_t channel, const convt_output_row *y)
{
    if (y->precision == 24)
        convt_amx_turn_out(24, sums, step, bias, n, done, channel, y);
    else if (y->precision == 11)
        convt_amx_turn_out(11, sums, step, bias, n, done, channel, y);
    else
        convt_amx_turn_out(8, sums, step, bias, n, done, channel, y);
}

/* A row of outputs of up to 16 channels, or 32 of one place a cell: of every two places a pair of `pairs`. x is as that
   of `channels`. */
static void convt_amx_row_out(int pieces, const convt_tile_pair *pairs, ptrdiff_t positions, ptrdiff_t channels,
                              const float *x, ptrdiff_t x_step, const float *bias, const convt_output_row *y)
{
    float sums[32 * 16 * CONVT_ROW_PLACES] __attribute__((aligned(64))); /* [position][place or 16 channels][channel] */
    const int tiles = y->places > 1 ? y->places : y->channels > 16 ? 2 : 1;
    for (ptrdiff_t p = 0; p < positions; p += 2 * y->height) {
        const ptrdiff_t done = p * y->places, left = y->outputs - done, n = 2 * y->height * y->places;
        for (int i = 0; i < tiles; i += 2) {
#define PRODUCT(n, rows)                                                                                               \
    case 2 * n + rows:                                                                                                 \
        convt_amx_pair_product(n, rows, y->height, pairs + i / 2, channels, x + p * x_step, x_step, sums + 16 * i,     \
                               16 * tiles);                                                                            \
        break;
            switch (2 * pieces + (positions - p > y->height ? 2 : 1)) {
                PRODUCT(1, 1)
                PRODUCT(1, 2)
                PRODUCT(2, 1)
                PRODUCT(2, 2)
                PRODUCT(3, 1)
                PRODUCT(3, 2)
            }
#undef PRODUCT
        }
        for (ptrdiff_t c = 0; c < y->channels; c += 16)
            convt_amx_outputs(sums + c, y->places > 1 ? 16 : 16 * tiles, bias + c, left < n ? left : n, done, c, y);
    }
}

const convt_tiles convt_amx_tiles = {CONVT_PIECES_TILES(amx), .row_out = convt_amx_row_out, .most_sums = 64, .unit = 16,
                                     .most_pieces = 3};

END_TARGET

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

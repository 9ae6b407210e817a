/* AMX: products of bfloat16 matrices, summed in float32, in tiles of 16 rows of 64 bytes.

   A float32 is the sum of three bfloat16 pieces, a float16 of two. Six of the nine products of three pieces are made:
   the other three are below 2^-25 of the product. Without the least of the four products of two pieces, 2^-18,
   float16 sums that cancel would be wrong by several units. A task configures the tiles of its thread before its
   first product and releases them after its last.

   The unit flushes subnormal operands and results, and Inf - Inf in the pieces of Inf makes NaN: callers check that
   every magnitude lies between two limits (`split_positions`, `magnitudes`). */

#define CONVT_AMX
#define CONVT_AMX_TILES                                                                                                \
    {convt_amx_configure,       convt_amx_release,       convt_amx_multiply,                                           \
     convt_amx_split_positions, convt_amx_split_weights, convt_amx_magnitudes}

#include <sys/syscall.h>
#include <unistd.h>

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,fma"))),      \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,fma")
#endif

enum { CONVT_AMX_ROWS = 16, CONVT_AMX_TILE = 256 /* floats of memory */ };

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

/* Tiles 0 to 3 hold sums, 4 and 5 two times 16 positions, 6 and 7 two times 16 columns of weights. */
#define LOAD_X(piece)                                                                                                  \
    do {                                                                                                               \
        _tile_loadd(4, row + (piece) * 16, x_step * sizeof(float));                                                    \
        if (rows > 1)                                                                                                  \
            _tile_loadd(5, row + 16 * x_step + (piece) * 16, x_step * sizeof(float));                                  \
    } while (0)
#define LOAD_W(piece)                                                                                                  \
    do {                                                                                                               \
        _tile_loadd(6, w + (piece) * vectors * CONVT_AMX_TILE, 64);                                                    \
        if (vectors > 1)                                                                                               \
            _tile_loadd(7, w + ((piece) * vectors + 1) * CONVT_AMX_TILE, 64);                                          \
    } while (0)
#define MULTIPLY()                                                                                                     \
    do {                                                                                                               \
        _tile_dpbf16ps(0, 4, 6);                                                                                       \
        if (vectors > 1)                                                                                               \
            _tile_dpbf16ps(1, 4, 7);                                                                                   \
        if (rows > 1) {                                                                                                \
            _tile_dpbf16ps(2, 5, 6);                                                                                   \
            if (vectors > 1)                                                                                           \
                _tile_dpbf16ps(3, 5, 7);                                                                               \
        }                                                                                                              \
    } while (0)

#define INLINE static inline __attribute__((always_inline))

INLINE void convt_amx_store(const int rows, const int vectors, float *out, ptrdiff_t out_step)
{
    _tile_stored(0, out, out_step * sizeof(float));
    if (vectors > 1)
        _tile_stored(1, out + 16, out_step * sizeof(float));
    if (rows > 1) {
        _tile_stored(2, out + 16 * out_step, out_step * sizeof(float));
        if (vectors > 1)
            _tile_stored(3, out + 16 * out_step + 16, out_step * sizeof(float));
    }
}

/* Adds the bias to the sums in tiles, by way of memory if they are not 0. */
INLINE void convt_amx_add_bias(const int pieces, const int rows, const int vectors, const float *bias, float *out,
                               ptrdiff_t out_step)
{
    ptrdiff_t step = 0; /* every row begins with the bias */
    const float *sums = bias;
    if (pieces > 1) {
        const __m512 first = _mm512_loadu_ps(bias), second = vectors > 1 ? _mm512_loadu_ps(bias + 16) : first;
        if (!_mm512_cmp_ps_mask(_mm512_or_ps(first, second), _mm512_setzero_ps(), _CMP_NEQ_UQ))
            return;
        convt_amx_store(rows, vectors, out, out_step);
        for (int i = 0; i < 16 * rows; i++) {
            _mm512_storeu_ps(out + i * out_step, _mm512_add_ps(_mm512_loadu_ps(out + i * out_step), first));
            if (vectors > 1)
                _mm512_storeu_ps(out + i * out_step + 16,
                                 _mm512_add_ps(_mm512_loadu_ps(out + i * out_step + 16), second));
        }
        sums = out;
        step = out_step;
    }
    _tile_loadd(0, sums, step * sizeof(float));
    if (vectors > 1)
        _tile_loadd(1, sums + 16, step * sizeof(float));
    if (rows > 1) {
        _tile_loadd(2, sums + 16 * step, step * sizeof(float));
        if (vectors > 1)
            _tile_loadd(3, sums + 16 * step + 16, step * sizeof(float));
    }
}

/* First the small products, then, on top of their sum and the bias, those of the first pieces: these alone round at
   the size of the sum, and half as often as a chain of fused multiply-adds does. */
INLINE void convt_amx_tile(const int pieces, const int rows, const int vectors, ptrdiff_t taps,
                           const ptrdiff_t *tap_offset, ptrdiff_t depth, const float *x, ptrdiff_t x_step,
                           const float *weights, const float *soon, ptrdiff_t soon_step, const float *bias, float *out,
                           ptrdiff_t out_step)
{
    const float *w = weights;
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (ptrdiff_t t = 0; pieces > 1 && t < taps; t++) {
        const float *row = x + tap_offset[t];
        for (ptrdiff_t d = 0; d < depth; d += 16 * pieces) {
            /* Tiles that stay loaded serve two products. */
            if (pieces == 3) {
                LOAD_X(0);
                LOAD_W(2);
                MULTIPLY();
                LOAD_W(1);
                MULTIPLY();
                LOAD_X(1);
                MULTIPLY();
                LOAD_W(0);
                MULTIPLY();
                LOAD_X(2);
                MULTIPLY();
            } else {
                LOAD_X(1);
                LOAD_W(1);
                MULTIPLY();
                LOAD_X(0);
                MULTIPLY();
                LOAD_X(1);
                LOAD_W(0);
                MULTIPLY();
            }
            row += 16 * pieces;
            w += pieces * vectors * CONVT_AMX_TILE;
        }
    }
    convt_amx_add_bias(pieces, rows, vectors, bias, out, out_step);
    w = weights;
    for (ptrdiff_t t = 0; t < taps; t++) {
        const float *row = x + tap_offset[t];
        for (ptrdiff_t d = 0; d < depth; d += 16 * pieces) {
            LOAD_X(0);
            LOAD_W(0);
            MULTIPLY();
            for (ptrdiff_t line = 0; line < pieces * soon_step; line++)
                __builtin_prefetch(soon + 16 * line, 0, 2);
            soon += 16 * pieces * soon_step;
            row += 16 * pieces;
            w += pieces * vectors * CONVT_AMX_TILE;
        }
    }
    convt_amx_store(rows, vectors, out, out_step);
}

#undef LOAD_X
#undef LOAD_W
#undef MULTIPLY
#undef INLINE

/* What `channels` of micro.h computes, for up to 32 positions, in pieces: x is [place][32 channels][piece][32], w
   [tap][32 channels][piece][vector] tiles, two bfloat16 to a float; `depth` is the floats of a place, and steps and
   offsets are in floats. Sums of whole tiles are written: out has room for 31 positions more, and x too. */
static void convt_amx_multiply(int pieces, int positions, int vectors, ptrdiff_t taps, const ptrdiff_t *tap_offset,
                               ptrdiff_t depth, const float *x, ptrdiff_t x_step, const float *w, const float *soon,
                               ptrdiff_t soon_step, const float *bias, float *out, ptrdiff_t out_step)
{
#define SIZE(p, r, v)                                                                                                  \
    if (pieces == p && (positions > CONVT_AMX_ROWS) + 1 == r && vectors == v) {                                        \
        convt_amx_tile(p, r, v, taps, tap_offset, depth, x, x_step, w, soon, soon_step, bias, out, out_step);          \
        return;                                                                                                        \
    }
    SIZE(1, 1, 1)
    SIZE(1, 1, 2)
    SIZE(1, 2, 1)
    SIZE(1, 2, 2)
    SIZE(2, 1, 1) SIZE(2, 1, 2) SIZE(2, 2, 1) SIZE(2, 2, 2) SIZE(3, 1, 1) SIZE(3, 1, 2) SIZE(3, 2, 1) SIZE(3, 2, 2)
#undef SIZE
}

/* The upper half of the result is the bfloat16 next to a finite x, the lower half is 0. */
static inline __m512i convt_amx_round(__m512 x)
{
    const __m512i bits = _mm512_castps_si512(x);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_and_si512(rounded, _mm512_set1_epi32((int)0xffff0000));
}

/* Takes the next piece from `rest`. */
static inline __m512i convt_amx_piece(__m512 *rest)
{
    const __m512i piece = convt_amx_round(*rest);
    *rest = _mm512_sub_ps(*rest, _mm512_castsi512_ps(piece));
    return piece;
}

/* The n elements (up to 16) of a line, widened: of float (`precision` 24), float16 (11) or bfloat16 (8). */
static inline __m512 convt_amx_load(int precision, const void *line, ptrdiff_t n)
{
    const __mmask16 some = (__mmask16)((1u << n) - 1);
    if (precision == 24)
        return _mm512_maskz_loadu_ps(some, line);
    const __m256i halves = _mm256_maskz_loadu_epi16(some, line);
    if (precision == 11)
        return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* Lanes of x other than 0 whose magnitude lies outside [least, most], two floats by their bits; NaN does. */
static inline __mmask16 convt_amx_outside(__m512 x, uint32_t least, uint32_t most)
{
    const __m512i size = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    return _mm512_mask_cmpgt_epu32_mask(_mm512_test_epi32_mask(size, size),
                                        _mm512_sub_epi32(size, _mm512_set1_epi32((int)least)),
                                        _mm512_set1_epi32((int)(most - least)));
}

/* n places (up to 16) of 32 channels, one line each, into n rows of [piece][32]. Returns whether an element other than
   0 has a magnitude outside [least, most]. */
static inline __attribute__((always_inline)) int convt_amx_split_lines(const int pieces, const int precision,
                                                                       const void *const *lines, ptrdiff_t n,
                                                                       float *target, ptrdiff_t x_step, uint32_t least,
                                                                       uint32_t most)
{
    __attribute__((aligned(64))) float pairs[3][16][16]; /* of channels, in one word per place */
    const float *rows[16];
    convt_avx512_f32_vector turned[16];
    __mmask16 outside = 0;
    for (int pair = 0; pair < 16; pair++) {
        __m512 even = convt_amx_load(precision, lines[2 * pair], n);
        __m512 odd = convt_amx_load(precision, lines[2 * pair + 1], n);
        outside |= convt_amx_outside(even, least, most) | convt_amx_outside(odd, least, most);
        for (int p = 0; p < pieces; p++) {
            const __m512i low = _mm512_srli_epi32(convt_amx_piece(&even), 16);
            _mm512_store_si512(pairs[p][pair], _mm512_or_si512(low, convt_amx_piece(&odd)));
        }
    }
    for (int p = 0; p < pieces; p++) {
        for (int pair = 0; pair < 16; pair++)
            rows[pair] = pairs[p][pair];
        convt_avx512_f32_transpose_block(rows, 0, turned);
        if (n == 16) {
#pragma GCC unroll 16
            for (int i = 0; i < 16; i++)
                _mm512_storeu_ps(target + i * x_step + 16 * p, (__m512)turned[i]);
        } else {
            for (ptrdiff_t i = 0; i < n; i++)
                _mm512_storeu_ps(target + i * x_step + 16 * p, (__m512)turned[i]);
        }
    }
    return outside != 0;
}

static int convt_amx_split_positions(int pieces, int precision, const void *const *lines, ptrdiff_t n, float *target,
                                     ptrdiff_t x_step, uint32_t least, uint32_t most)
{
#define CASE(p, b)                                                                                                     \
    if (pieces == p && precision == b)                                                                                 \
        return convt_amx_split_lines(p, b, lines, n, target, x_step, least, most);
    CASE(1, 8)
    CASE(2, 11)
    CASE(3, 24)
    CASE(2, 24)
    CASE(1, 24)
#undef CASE
    return 1;
}

/* 32 channels of 16 columns, `source` [channel][source_step], into one tile per piece, `piece_step` floats apart. */
static void convt_amx_split_weights(int pieces, const float *source, ptrdiff_t source_step, float *target,
                                    ptrdiff_t piece_step)
{
    for (int pair = 0; pair < 16; pair++) {
        __m512 even = _mm512_loadu_ps(source + 2 * pair * source_step);
        __m512 odd = _mm512_loadu_ps(source + (2 * pair + 1) * source_step);
        for (int p = 0; p < pieces; p++) {
            const __m512i low = _mm512_srli_epi32(convt_amx_piece(&even), 16);
            _mm512_storeu_si512(target + p * piece_step + 16 * pair, _mm512_or_si512(low, convt_amx_piece(&odd)));
        }
    }
}

/* The least magnitude other than 0 and the greatest of n elements, by their bits; NaN is the greatest. */
static void convt_amx_magnitudes(const float *elements, ptrdiff_t n, uint32_t *least, uint32_t *most)
{
    __m512i low = _mm512_set1_epi32(-1), high = _mm512_setzero_si512();
    for (ptrdiff_t i = 0; i < n; i += 16) {
        const __mmask16 some = n - i < 16 ? (__mmask16)((1u << (n - i)) - 1) : (__mmask16)-1;
        const __m512i bits = _mm512_maskz_loadu_epi32(some, elements + i);
        const __m512i size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
        low = _mm512_mask_min_epu32(low, _mm512_test_epi32_mask(size, size), low, size);
        high = _mm512_max_epu32(high, size);
    }
    *least = _mm512_reduce_min_epu32(low);
    *most = _mm512_reduce_max_epu32(high);
}

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* Asks the kernel to let this process use the tiles; what it has granted once it grants again. */
static int convt_amx_runs_here(void)
{
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18, AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    unsigned a, b, c, d;
    return convt_avx512_runs_here() && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & AMX_BF16) && (d & AMX_TILE) &&
           syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

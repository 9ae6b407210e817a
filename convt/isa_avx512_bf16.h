/* AVX512_BF16: products of pairs of bfloat16 in vectors, summed in float32. Only of single pieces: two products of a
   pair take as long as one fused multiply-add (on Zen 4, 234 GFLOP/s instead of 117), more pieces want more of them. */

#define CONVT_AVX512_BF16

#if defined(__clang__)
#pragma clang attribute push(                                                                                          \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prfchw"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prfchw")
#endif

/* Registers that a tile fills with sums, 24 as with multiply-adds, are two vectors of columns by 12 positions, or of
   positions by 8 columns. */
enum { CONVT_DOT_POSITIONS = 12, CONVT_DOT_ROWS = 8 };

static void convt_avx512_bf16_configure(void)
{
}

static void convt_avx512_bf16_release(void)
{
}

#define INLINE static inline __attribute__((always_inline))

INLINE __m512 convt_dot(__m512 sum, const float *pair, __m512bh others)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_ps(*pair), others);
}

/* Up to 16 pairs of channels of one tap: rows[i] points to every third position. */
INLINE void convt_dot_channels(const int positions, const int vectors, ptrdiff_t pairs, const float *x,
                               ptrdiff_t x_step, const float *w, __m512 (*sums)[2])
{
    const float *rows[(CONVT_DOT_POSITIONS + 2) / 3];
    UNROLLED (i, (positions + 2) / 3)
        rows[i] = x + 3 * i * x_step;
    UNROLL_TWICE
    for (ptrdiff_t pair = 0; pair < pairs; pair++) {
        __m512bh weights[2];
        UNROLLED (v, vectors)
            weights[v] = (__m512bh)_mm512_loadu_ps(w + v * CONVT_TILE_FLOATS + 16 * pair);
        UNROLLED (p, positions)
            UNROLLED (v, vectors)
                sums[p][v] = convt_dot(sums[p][v], rows[p / 3] + p % 3 * x_step + pair, weights[v]);
    }
}

INLINE void convt_dot_channels_tile(const int positions, const int vectors, ptrdiff_t taps, const ptrdiff_t *tap_offset,
                                    ptrdiff_t pairs, const float *x, ptrdiff_t x_step, const float *w,
                                    const float *soon, ptrdiff_t soon_step, float *out, ptrdiff_t out_step)
{
    __m512 sums[CONVT_DOT_POSITIONS][2];
    UNROLLED (p, positions)
        UNROLLED (v, vectors)
            sums[p][v] = _mm512_setzero_ps();
    for (ptrdiff_t pair = 0; pair < pairs; pair += 16)
        for (ptrdiff_t t = 0; t < taps; t++) {
            for (ptrdiff_t line = 0; line < soon_step; line++)
                __builtin_prefetch(soon + 16 * line, 0, 2);
            soon += 16 * soon_step;
            if (tap_offset[t] != CONVT_NO_TAP)
                convt_dot_channels(positions, vectors, pairs - pair < 16 ? pairs - pair : 16, x + tap_offset[t] + pair,
                                   x_step, w, sums);
            w += vectors * CONVT_TILE_FLOATS;
        }
    UNROLLED (p, positions)
        UNROLLED (v, vectors)
            _mm512_storeu_ps(out + p * out_step + 16 * v, sums[p][v]);
}

/* What `channels` of AMX computes, for up to 12 positions. */
static void convt_avx512_bf16_channels(int pieces, int positions, int columns, ptrdiff_t taps,
                                       const ptrdiff_t *tap_offset, ptrdiff_t pairs, const float *x, ptrdiff_t x_step,
                                       const float *w, const float *soon, ptrdiff_t soon_step, float *out,
                                       ptrdiff_t out_step)
{
#define ONE(p, v)                                                                                                      \
    case 2 * p + v:                                                                                                    \
        convt_dot_channels_tile(p, v, taps, tap_offset, pairs, x, x_step, w, soon, soon_step, out, out_step);          \
        break;
#define BOTH(p) ONE(p, 1) ONE(p, 2)
    (void)pieces; /* one */
    switch (2 * positions + columns) {
        BOTH(1)
        BOTH(2)
        BOTH(3)
        BOTH(4)
        BOTH(5)
        BOTH(6)
        BOTH(7)
        BOTH(8)
        BOTH(9)
        BOTH(10)
        BOTH(11)
        BOTH(12)
    }
#undef ONE
#undef BOTH
}

/* 8 outputs of up to 32 positions, at most one tap. */
INLINE void convt_dot_positions_tile(const int vectors, ptrdiff_t pairs, ptrdiff_t w_next, const float *x,
                                     ptrdiff_t x_step, const float *w, const float *bias, float *out,
                                     ptrdiff_t out_step)
{
    __m512 sums[CONVT_DOT_ROWS][2];
    UNROLLED (i, CONVT_DOT_ROWS)
        UNROLLED (v, vectors)
            sums[i][v] = bias ? _mm512_set1_ps(bias[i]) : _mm512_setzero_ps();
    for (ptrdiff_t begin = 0; begin < pairs; begin += 16, x += CONVT_TILE_FLOATS, w += w_next)
        for (ptrdiff_t pair = 0; pair < pairs - begin && pair < 16; pair++) {
            __m512bh inputs[2];
            UNROLLED (v, vectors)
                inputs[v] = (__m512bh)_mm512_loadu_ps(x + v * x_step + 16 * pair);
            UNROLLED (i, CONVT_DOT_ROWS)
                UNROLLED (v, vectors)
                    sums[i][v] = convt_dot(sums[i][v], w + 16 * i + pair, inputs[v]);
        }
    UNROLLED (i, CONVT_DOT_ROWS)
        UNROLLED (v, vectors)
            _mm512_storeu_ps(out + i * out_step + 16 * v, sums[i][v]);
}

/* What `positions` of AMX computes. */
static void convt_avx512_bf16_positions(int pieces, int rows, ptrdiff_t positions, ptrdiff_t taps, ptrdiff_t pairs,
                                        const float *x, ptrdiff_t x_step, const float *w, const float *bias, float *out,
                                        ptrdiff_t out_step)
{
    (void)pieces; /* one */
    for (ptrdiff_t p = 0; p < positions; p += 32)
        for (int i = 0; i < 16 * rows; i += CONVT_DOT_ROWS) {
            const float *from = x + p / 16 * x_step, *weights = w + 16 * i, *added = bias ? bias + i : NULL;
            float *to = out + i * out_step + p;
            if (positions - p > 16)
                convt_dot_positions_tile(2, taps * pairs, rows * CONVT_TILE_FLOATS, from, x_step, weights, added, to,
                                         out_step);
            else
                convt_dot_positions_tile(1, taps * pairs, rows * CONVT_TILE_FLOATS, from, x_step, weights, added, to,
                                         out_step);
        }
}

static void convt_avx512_bf16_positions_out(int pieces, int columns, ptrdiff_t positions, ptrdiff_t taps,
                                            ptrdiff_t pairs, const float *x, ptrdiff_t x_step, const float *w,
                                            const float *bias, const convt_tile_rows *y)
{
    convt_pieces_positions_out(convt_avx512_bf16_positions, pieces, columns, positions, taps, pairs, x, x_step, w, bias,
                               y);
}

#undef INLINE

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* Only where these products are worth it: Sapphire Rapids makes 112 GFLOP/s of them, half of what multiply-adds do. */
static int convt_avx512_bf16_runs_here(void)
{
    return convt_avx512_runs_here() && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_is("amd");
}

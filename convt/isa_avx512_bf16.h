/* AVX512_BF16: products of pairs of bfloat16 in vectors, summed in float32. Only of single pieces: two products of a
   pair take as long as one fused multiply-add (on Zen 4, 234 GFLOP/s instead of 117), more pieces want more of them. */

#define CONVT_AVX512_BF16

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prfchw"))),      \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prfchw")
#endif

/* Of 32 registers 24 hold sums, as with multiply-adds, of two vectors of columns by 12 positions; lanes along positions
   16, of two vectors by 8 columns. */
enum { CONVT_DOT_POSITIONS = 12, CONVT_DOT_COLUMNS = 8 };

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
    const float *rows[(2 * CONVT_DOT_POSITIONS + 2) / 3];
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
    __m512 sums[2 * CONVT_DOT_POSITIONS][2];
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

/* What `channels` of AMX computes, for up to 12 positions of two vectors of columns or 24 of one. */
static void convt_avx512_bf16_channels(int pieces, int positions, int columns, ptrdiff_t taps,
                                       const ptrdiff_t *tap_offset, ptrdiff_t pairs, const float *x, ptrdiff_t x_step,
                                       const float *w, const float *soon, ptrdiff_t soon_step, float *out,
                                       ptrdiff_t out_step)
{
#define ONE(p, v)                                                                                                      \
    case 32 * v + p:                                                                                                   \
        convt_dot_channels_tile(p, v, taps, tap_offset, pairs, x, x_step, w, soon, soon_step, out, out_step);          \
        break;
#define BOTH(p) ONE(p, 1) ONE(p, 2)
    (void)pieces; /* one */
    switch (32 * columns + positions) {
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
        ONE(13, 1)
        ONE(14, 1)
        ONE(15, 1)
        ONE(16, 1)
        ONE(17, 1)
        ONE(18, 1)
        ONE(19, 1)
        ONE(20, 1)
        ONE(21, 1)
        ONE(22, 1)
        ONE(23, 1)
        ONE(24, 1)
    }
#undef ONE
#undef BOTH
}

/* The sums of 8 outputs of one or two vectors of positions; w_next elements from 16 pairs' weights to the next. */
INLINE void convt_dot_positions(const int vectors, ptrdiff_t pairs, const float *x, ptrdiff_t x_step, const float *w,
                                ptrdiff_t w_next, convt_pieces_vector (*sums)[2])
{
    UNROLLED (i, CONVT_DOT_COLUMNS)
        UNROLLED (v, vectors)
            sums[i][v] = (convt_pieces_vector){0};
    for (ptrdiff_t begin = 0; begin < pairs; begin += 16, x += CONVT_TILE_FLOATS, w += w_next) {
        const ptrdiff_t n = pairs - begin < 16 ? pairs - begin : 16;
        UNROLL_TWICE
        for (ptrdiff_t pair = 0; pair < n; pair++) {
            __m512bh inputs[2];
            UNROLLED (v, vectors)
                inputs[v] = (__m512bh)_mm512_loadu_ps(x + v * x_step + 16 * pair);
            UNROLLED (i, CONVT_DOT_COLUMNS)
                UNROLLED (v, vectors)
                    sums[i][v] = (convt_pieces_vector)convt_dot((__m512)sums[i][v], w + 16 * i + pair, inputs[v]);
        }
    }
}

INLINE void convt_dot_positions_to(const int vectors, ptrdiff_t pairs, const float *x, ptrdiff_t x_step, const float *w,
                                   ptrdiff_t w_next, const float *bias, float *out, ptrdiff_t out_step)
{
    convt_pieces_vector sums[CONVT_DOT_COLUMNS][2];
    convt_dot_positions(vectors, pairs, x, x_step, w, w_next, sums);
    UNROLLED (i, CONVT_DOT_COLUMNS)
        UNROLLED (v, vectors)
            *(convt_pieces_unaligned *)(out + i * out_step + 16 * v) = bias ? sums[i][v] + bias[i] : sums[i][v];
}

/* What `positions` of AMX computes. */
static void convt_avx512_bf16_positions(int pieces, int outputs, ptrdiff_t positions, ptrdiff_t taps, ptrdiff_t pairs,
                                        const float *x, ptrdiff_t x_step, const float *w, const float *bias, float *out,
                                        ptrdiff_t out_step)
{
    const ptrdiff_t w_next = (outputs > 16 ? 2 : 1) * CONVT_TILE_FLOATS;
    (void)pieces; /* one */
    pairs *= taps;
    for (ptrdiff_t p = 0; p < positions; p += 32)
        for (int i = 0; i < outputs; i += CONVT_DOT_COLUMNS) {
            const float *from = x + p / 16 * x_step, *weights = w + 16 * i, *added = bias ? bias + i : NULL;
            float *to = out + i * out_step + p;
            if (positions - p > 16)
                convt_dot_positions_to(2, pairs, from, x_step, weights, w_next, added, to, out_step);
            else
                convt_dot_positions_to(1, pairs, from, x_step, weights, w_next, added, to, out_step);
        }
}

/* Whole vectors of outputs of 32 positions, from registers. */
INLINE void convt_dot_outputs(const int precision, const int places, int columns, ptrdiff_t pairs, const float *x,
                              ptrdiff_t x_step, const float *w, const float *bias, const convt_tile_rows *y,
                              const convt_pieces_part *parts)
{
    const ptrdiff_t column = (pairs + 15) / 16 * 16; /* of weights */
    convt_pieces_vector sums[CONVT_DOT_COLUMNS][2];
    for (int done = 0; done < columns; done += CONVT_DOT_COLUMNS) {
        const int tile = done / 32 * 32, rows = columns - tile > 16 ? 2 : 1;
        convt_dot_positions(2, pairs, x, x_step, w + tile * column + (done - tile) * 16, rows * CONVT_TILE_FLOATS,
                            sums);
        UNROLLED (i, CONVT_DOT_COLUMNS)
            if (i % places == 0 && done + i < columns)
                convt_pieces_write_output(precision, places, sums + i, bias + done + i, y->offsets[(done + i) / places],
                                          y->stream, parts, 0, 1);
    }
}

static void convt_avx512_bf16_positions_out(int pieces, int columns, ptrdiff_t positions, ptrdiff_t taps,
                                            ptrdiff_t pairs, const float *x, ptrdiff_t x_step, const float *w,
                                            const float *bias, const convt_tile_rows *y)
{
    convt_pieces_part parts[32]; /* each has a position */
    ptrdiff_t row = 0, cell = 0;
    for (ptrdiff_t p = 0; p < positions; p += 32) {
        const ptrdiff_t n = positions - p < 32 ? positions - p : 32;
        const float *from = x + p / 16 * x_step;
        int whole;
        const int count = convt_pieces_find_parts(n, y, &row, &cell, parts, &whole);
#define OUTPUTS(precision, places)                                                                                     \
    case 16 * precision + places:                                                                                      \
        convt_dot_outputs(precision, places, columns, taps *pairs, from, x_step, w, bias, y, parts);                   \
        break;
        switch (whole ? 16 * y->precision + y->places : 0) {
            OUTPUTS(24, 1)
            OUTPUTS(24, 2)
            OUTPUTS(24, 4)
            OUTPUTS(24, 8)
            OUTPUTS(8, 1)
            OUTPUTS(8, 2)
            OUTPUTS(8, 4)
            OUTPUTS(8, 8)
        default:
            convt_pieces_columns_out(convt_avx512_bf16_positions, pieces, columns, n, taps, pairs, from, x_step, w,
                                     bias, y, parts, count, whole);
        }
#undef OUTPUTS
    }
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

/* AVX512_BF16: products of pairs of bfloat16 in vectors, summed in float32. Only of single pieces: two products of a
   pair take as long as one fused multiply-add (on Zen 4, 234 GFLOP/s instead of 117), more pieces want more of them. */

#include "micro_common.h"

#ifdef CONVT_X86
#include <immintrin.h>

BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma,prfchw")

#include "pieces.h"

/* Of 32 registers 24 hold sums, as with multiply-adds, of two vectors of columns by 12 positions; lanes along positions
   16, of two vectors by 8 columns. */
enum { CONVT_DOT_POSITIONS = 12, CONVT_DOT_COLUMNS = 8 };
#define MOST_SUMS (2 * CONVT_DOT_POSITIONS)

static void convt_avx512_bf16_configure(int positions)
{
    (void)positions;
}

static void convt_avx512_bf16_release(void)
{
}

/* Of integers, as `vbroadcastss` takes as long as 1.3 products, `vpbroadcastd` no longer than one: 16 outputs of 96 and
   256 channels took 0.77 of the time (Zen 4). */
INLINE __m512 convt_dot_broadcast(const float *pair)
{
    int bits;
    memcpy(&bits, pair, sizeof bits);
    return (__m512)_mm512_set1_epi32(bits);
}

INLINE __m512 convt_dot(__m512 sum, const float *pair, __m512bh others)
{
    return _mm512_dpbf16_ps(sum, (__m512bh)convt_dot_broadcast(pair), others);
}

/* Up to 16 pairs of channels of one tap. Weights come from the second-level cache, a kilobyte of each vector at a time:
   those of the next tap or pairs are fetched, 0.98 to 1.0 of the time (10 layers, Zen 4). */
INLINE void convt_dot_channels(const int positions, const int vectors, const convt_tap *tap, ptrdiff_t pairs,
                               const float *x, ptrdiff_t x_step, const float *w, __m512 (*sums)[2])
{
    const float *rows[(2 * CONVT_DOT_POSITIONS + 2) / 3]; /* every third position */
    const int checked = positions >= CONVT_CHECKED_POSITIONS, before = checked ? tap->before : 0;
    const int end = positions - (checked ? tap->after : 0);
    x += tap->offset;
    UNROLLED (i, (positions + 2) / 3)
        rows[i] = x + 3 * i * x_step;
    UNROLL_TWICE
    for (ptrdiff_t pair = 0; pair < pairs; pair++) {
        __m512bh weights[2];
        UNROLLED (v, vectors) {
            weights[v] = (__m512bh)_mm512_loadu_ps(w + v * CONVT_TILE_FLOATS + 16 * pair);
            __builtin_prefetch(w + (vectors + v) * CONVT_TILE_FLOATS + 16 * pair);
        }
        UNROLLED (p, positions) {
            if ((p < CONVT_MOST_ZEROS && p < before) || (p >= positions - CONVT_MOST_ZEROS && p >= end))
                continue;
            UNROLLED (v, vectors)
                sums[p][v] = convt_dot(sums[p][v], rows[p / 3] + p % 3 * x_step + pair, weights[v]);
        }
    }
}

INLINE void convt_dot_channels_tile(const int positions, const int vectors, ptrdiff_t taps, const convt_tap *tap,
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
            if (tap[t].offset != CONVT_NO_TAP)
                convt_dot_channels(positions, vectors, tap + t, pairs - pair < 16 ? pairs - pair : 16, x + pair, x_step,
                                   w, sums);
            w += vectors * CONVT_TILE_FLOATS;
        }
    UNROLLED (p, positions)
        UNROLLED (v, vectors)
            _mm512_storeu_ps(out + p * out_step + 16 * v, sums[p][v]);
}

/* What `channels` of AMX computes, for up to 12 positions of two vectors of columns or 24 of one. */
static void convt_avx512_bf16_channels(int products, int pieces, int positions, int columns, ptrdiff_t taps,
                                       const convt_tap *tap, ptrdiff_t pairs, const float *x, ptrdiff_t x_step,
                                       ptrdiff_t piece_step, const float *w, const float *soon, ptrdiff_t soon_step,
                                       float *out, ptrdiff_t out_step)
{
#define CALL(p, v) convt_dot_channels_tile(p, v, taps, tap, pairs, x, x_step, w, soon, soon_step, out, out_step)
    (void)products, (void)pieces, (void)piece_step; /* all, of one */
    if (columns == 1)
        EVERY_TILE(positions, 1, CALL)
    else
        EVERY_TILE(positions, 2, CALL)
#undef CALL
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

/* Words of a channel and the next one, or of one and zeros if `odd` is NULL, as `copy_lines` of micro_rows.h packs a
   channel's elements, and fetches what lies so many bytes `ahead` of whole vectors. Returns whether an element other
   than 0 has a magnitude outside [least, most]. */
static int convt_avx512_bf16_word_lines(ptrdiff_t count, ptrdiff_t before, ptrdiff_t n, ptrdiff_t after,
                                        const char *even, const char *odd, ptrdiff_t source_step, ptrdiff_t ahead,
                                        float *target, ptrdiff_t target_step, uint32_t least, uint32_t most)
{
    convt_pieces_range range = {_mm512_set1_epi32(-1), _mm512_setzero_si512()};
    for (ptrdiff_t line = 0; line < count; line++) {
        float *to = target + line * target_step;
        memset(to, 0, before * sizeof(float));
        to += before;
        for (ptrdiff_t i = 0; i < n; i += 16) {
            __m256i low, high = _mm256_setzero_si256();
            if (n < 16) {
                const __mmask16 some = (__mmask16)((1u << n) - 1);
                low = _mm256_maskz_loadu_epi16(some, even);
                if (odd)
                    high = _mm256_maskz_loadu_epi16(some, odd);
            } else {
                i = i < n - 16 ? i : n - 16; /* over a few once more */
                low = _mm256_loadu_si256((const __m256i *)(even + 2 * i));
                __builtin_prefetch(even + 2 * i + ahead, 0, 2);
                if (odd) {
                    high = _mm256_loadu_si256((const __m256i *)(odd + 2 * i));
                    __builtin_prefetch(odd + 2 * i + ahead, 0, 2);
                }
            }
            const __m512i words = convt_pieces_join(low, high);
            convt_pieces_extend(8, &range, words);
            if (n < 16)
                _mm512_mask_storeu_ps(to, (__mmask16)((1u << n) - 1), (__m512)words);
            else
                _mm512_storeu_ps(to + i, (__m512)words);
        }
        memset(to + n, 0, after * sizeof(float));
        even += source_step;
        odd += odd ? source_step : 0;
    }
    return convt_pieces_leaves(8, &range, least, most);
}

/* micro_positions.h of words of two channels. */
#define REAL float
#define OUTPUT uint16_t
#define LANES 16
#define OPERANDS 32
#define NAME(kernel) convt_avx512_bf16_word_##kernel
typedef convt_pieces_vector NAME(vector);
typedef convt_pieces_unaligned NAME(unaligned);
#define BROADCAST(element) ((VECTOR)convt_dot_broadcast(&(element)))
#define MULTIPLY_ADD(sum, weights, inputs)                                                                             \
    ((VECTOR)_mm512_dpbf16_ps((__m512)(sum), (__m512bh)(weights), (__m512bh)(inputs)))
/* Two places fill a cache line, one half of it; three are written in halves. */
#define ALIGNED(pointer, places) ((uintptr_t)(pointer) % ((places) % 2 ? 32 : 64) == 0)
/* Of an even number of places, as words of two outputs. */
INLINE void NAME(words_of_cells)(const int places, VECTOR *cells, VECTOR *words)
{
    UNROLLED (i, places / 2)
        words[i] = (VECTOR)convt_pieces_narrow_pairs(1, cells[2 * i], cells[2 * i + 1]);
    convt_pieces_interleave_registers(places / 2, words);
}

INLINE void NAME(write_cells)(const int places, VECTOR *cells, uint16_t *at, int kept, int past_caches)
{
    if (places % 2) {
        convt_pieces_interleave_registers(places, cells);
        UNROLLED (i, places) {
            const __m256i halves = (__m256i)convt_pieces_narrow_vector(1, cells[i]);
            const int left = kept - 16 * i;
            if (past_caches)
                _mm256_stream_si256((__m256i *)(at + 16 * i), halves);
            else if (!kept || left >= 16)
                _mm256_storeu_si256((__m256i *)(at + 16 * i), halves);
            else if (left > 0)
                _mm256_mask_storeu_epi16(at + 16 * i, (__mmask16)((1u << left) - 1), halves);
        }
        return;
    }
    VECTOR words[4];
    NAME(words_of_cells)(places, cells, words);
    UNROLLED (i, places / 2) {
        const int left = kept - 32 * i;
        if (past_caches)
            _mm512_stream_ps((void *)(at + 32 * i), (__m512)words[i]);
        else if (!kept || left >= 32)
            _mm512_storeu_ps(at + 32 * i, (__m512)words[i]);
        else if (left > 0)
            _mm512_mask_storeu_epi16(at + 32 * i, (1u << left) - 1, (__m512i)words[i]);
    }
}

/* The same of an even number of places, each half of a cache line to an offset of its own. */
INLINE void NAME(write_cells_apart)(const int places, VECTOR *cells, uint16_t *at, const ptrdiff_t *offsets, int kept,
                                    int past_caches)
{
    VECTOR words[4];
    NAME(words_of_cells)(places, cells, words);
    UNROLLED (i, places) {
        const __m512i both = (__m512i)words[i / 2];
        const __m256i halves = i % 2 ? _mm512_extracti64x4_epi64(both, 1) : _mm512_castsi512_si256(both);
        if (past_caches)
            _mm256_stream_si256((__m256i *)(at + offsets[i]), halves);
        else if (!kept || kept > 16 * i)
            _mm256_storeu_si256((__m256i *)(at + offsets[i]), halves);
    }
}
#define COPIES 0
#define CHAINS 0
#include "micro_positions.h"

const convt_tiles convt_avx512_bf16_tiles = {CONVT_PIECES_TILES(avx512_bf16),
                                             .most_sums = MOST_SUMS,
                                             .unit = 1,
                                             .most_pieces = 1,
                                             .word_lines = convt_avx512_bf16_word_lines,
                                             .word_positions = convt_avx512_bf16_word_positions,
                                             .word_positions_out = convt_avx512_bf16_word_positions_out};

END_TARGET

int convt_avx512_bf16_runs_here(void)
{
    return convt_avx512_runs_here() && __builtin_cpu_supports("avx512bf16");
}

#endif

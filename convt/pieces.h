/* What multiplies bfloat16 in pairs wants of elements, and what becomes of its sums, on x86: written once for AMX and
   for dot products in vectors, whose sources include it inside their target regions, each for itself.

   A float32 is the sum of three bfloat16 pieces, a float16 of two. Products of pairs flush subnormal operands and
   results, and Inf - Inf in the pieces of Inf makes NaN: callers check that every magnitude lies between two limits
   (`split_channels`, `split_positions`, `split_right`, `join_rows`, `magnitudes`, `word_lines`), and that a bias is no
   less than the least product. Sums of one piece are then never subnormal, which the processor's own rounding to
   bfloat16 would flush too. */

#define CONVT_PIECES_TILES(isa)                                                                                        \
    .configure = convt_##isa##_configure, .release = convt_##isa##_release, .channels = convt_##isa##_channels,        \
    .positions = convt_##isa##_positions, .positions_out = convt_##isa##_positions_out,                                \
    .split_channels = convt_pieces_split_channels, .split_positions = convt_pieces_split_positions,                    \
    .split_left = convt_pieces_split_left, .split_right = convt_pieces_split_right,                                    \
    .join_rows = convt_pieces_join_rows, .magnitudes = convt_pieces_magnitudes, .halves = CONVT_HALVES(convt_pieces_)

#define REAL float
#define NAME(kernel) convt_pieces_##kernel
#include "avx512_floats.h"
#include "registers.h"

/* Two halves of the processor's result, interleaved. */
static inline __m512i convt_pieces_pair_bfloat16(__m512 first, __m512 second)
{
    const __m512i order = _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25, 9, 24, 8, 23, 7, 22, 6,
                                           21, 5, 20, 4, 19, 3, 18, 2, 17, 1, 16, 0);
    return _mm512_permutexvar_epi16(order, (__m512i)_mm512_cvtne2ps_pbh(second, first));
}
/* 32 lines of 16 words into 16 of 32. Lines 0 and 8, 1 and 9 ... 7 and 15, 16 and 24 ... 23 and 31 share a register:
   64 shuffles then, where pairs of words take 96 or 80. bfloat16 layers to 64 or 128 channels took 3 to 10 % longer. */
INLINE void convt_pieces_transpose_words(__m512i *block)
{
    __m512i next[16];
    for (int stage = 0; stage < 3; stage++) {
        UNROLLED (i, 16) {
            const __m512i first = block[i / 8 * 8 + i % 8 / 2], second = block[i / 8 * 8 + i % 8 / 2 + 4];
            next[i] = i % 2 ? _mm512_unpackhi_epi16(first, second) : _mm512_unpacklo_epi16(first, second);
        }
        UNROLLED (i, 16)
            block[i] = next[i];
    }
    UNROLLED (i, 8) {
        next[i] = _mm512_shuffle_i32x4(block[i], block[i + 8], 0x88);
        next[i + 8] = _mm512_shuffle_i32x4(block[i], block[i + 8], 0xdd);
    }
    UNROLLED (i, 16)
        block[i] = next[i];
}
/* 32 rows of 16 floats, `added` to each, as bfloat16, transposed. */
INLINE void convt_pieces_transpose_bfloat16(const float *const *rows, ptrdiff_t offset, __m512 added, __m512i *block)
{
    UNROLLED (i, 16) {
        const float *const *first = rows + i / 8 * 16 + i % 8;
        block[i] = (__m512i)_mm512_cvtne2ps_pbh(_mm512_add_ps(_mm512_loadu_ps(first[8] + offset), added),
                                                _mm512_add_ps(_mm512_loadu_ps(first[0] + offset), added));
    }
    convt_pieces_transpose_words(block);
}
#define NARROW_BFLOAT16(vector) ((NAME(halves))_mm512_cvtneps_pbh((__m512)(vector)))
#define PAIR_BFLOAT16(first, second) ((NAME(words))convt_pieces_pair_bfloat16((__m512)(first), (__m512)(second)))
#define TRANSPOSE_BFLOAT16(rows, offset, added, block)                                                                 \
    convt_pieces_transpose_bfloat16(rows, offset, (__m512)(added), (__m512i *)(block))
#include "micro_half.h"
#undef LOAD_FLOAT16
#undef STREAM
#undef STORE_FIRST
#undef LANES
#undef NAME
#undef REAL

/* Two vectors as halves, the first one in the lower half of the result. */
static inline __m512i convt_pieces_two_halves(const int precision, __m512 first, __m512 second)
{
    if (precision == 8)
        return (__m512i)_mm512_cvtne2ps_pbh(second, first);
    return _mm512_inserti64x4(
        _mm512_castsi256_si512((__m256i)convt_pieces_narrow_vector(0, (convt_pieces_vector)first)),
        (__m256i)convt_pieces_narrow_vector(0, (convt_pieces_vector)second), 1);
}

/* `positions` of a level. */
typedef void convt_pieces_positions(int pieces, int outputs, ptrdiff_t positions, ptrdiff_t taps, ptrdiff_t pairs,
                                    const float *x, ptrdiff_t x_step, const float *w, const float *bias, float *out,
                                    ptrdiff_t out_step);

/* Lanes from `begin` on and before `end`, which may lie outside of a vector's. */
static inline __mmask16 convt_pieces_lanes(ptrdiff_t begin, ptrdiff_t end)
{
    const uint32_t to = end >= 16 ? 0xffff : end <= 0 ? 0 : (1u << end) - 1;
    return (__mmask16)(begin >= 16 ? 0 : begin <= 0 ? to : to & ~((1u << begin) - 1));
}

/* What of a tile's vectors of outputs goes to one row: 16-bit words by a mask. */
typedef struct {
    char *y; /* where the vector's first word would lie */
    int vector;
    uint32_t words;
} convt_pieces_part;

/* The sums of 16 positions of some places and their bias, as interleaved outputs; returns their vectors' number. */
INLINE int convt_pieces_interleave(const int precision, const int places, convt_pieces_vector sums[][2],
                                   const float *bias, int half, convt_pieces_vector *out)
{
    const int n = precision == 24 ? places : places / 2;
    UNROLLED (i, n)
        out[i] = precision == 24
                     ? sums[i][half] + bias[i]
                     : (convt_pieces_vector)convt_pieces_narrow_pairs(precision == 8, sums[2 * i][half] + bias[2 * i],
                                                                      sums[2 * i + 1][half] + bias[2 * i + 1]);
    convt_pieces_interleave_registers(n, out);
    return n;
}

/* One output of 32 positions: `sums` and `bias` of its places. */
INLINE void convt_pieces_write_output(const int precision, const int places, convt_pieces_vector sums[][2],
                                      const float *bias, ptrdiff_t offset, const int stream,
                                      const convt_pieces_part *parts, int count, const int whole)
{
    convt_pieces_vector out[16];
    int n;
    if (places == 1 && precision != 24) {
        out[0] = (convt_pieces_vector)convt_pieces_two_halves(precision, (__m512)(sums[0][0] + *bias),
                                                              (__m512)(sums[0][1] + *bias));
        n = 1;
    } else {
        n = convt_pieces_interleave(precision, places, sums, bias, 0, out);
        n += convt_pieces_interleave(precision, places, sums, bias, 1, out + n);
    }
    if (!whole) {
        for (int part = 0; part < count; part++)
            _mm512_mask_storeu_epi16(parts[part].y + offset, parts[part].words, (__m512i)out[parts[part].vector]);
        return;
    }
    UNROLLED (v, n) {
        char *at = parts[v].y + offset;
        if (stream && (uintptr_t)at % 64 == 0)
            _mm512_stream_ps((void *)at, (__m512)out[v]);
        else {
            _mm512_storeu_ps(at, (__m512)out[v]);
            /* Where the next positions' outputs end: rows are too many to be foreseen. 3 to 10 % of halves. */
            __builtin_prefetch(at + 64 * n + 63, 1, 3);
        }
    }
}

/* The outputs of 32 positions of so many rows of sums, `places` of which are interleaved. */
INLINE void convt_pieces_write_outputs(int precision, int places, int rows, convt_pieces_vector sums[][2],
                                       const float *bias, const ptrdiff_t *offsets, int stream,
                                       const convt_pieces_part *parts, int count, int whole)
{
#define OUTPUTS(d, e, stream, whole)                                                                                   \
    for (int i = 0; i < rows; i += e)                                                                                  \
        convt_pieces_write_output(d, e, sums + i, bias + i, offsets[i / e], stream, parts, count, whole);
#define WRITE(d, e)                                                                                                    \
    case 16 * d + e:                                                                                                   \
        if (!whole)                                                                                                    \
            OUTPUTS(d, e, 0, 0)                                                                                        \
        else if (stream)                                                                                               \
            OUTPUTS(d, e, 1, 1)                                                                                        \
        else                                                                                                           \
            OUTPUTS(d, e, 0, 1)                                                                                        \
        break;
    switch (16 * precision + places) {
        WRITE(24, 1)
        WRITE(24, 2)
        WRITE(24, 4)
        WRITE(24, 8)
        WRITE(11, 1)
        WRITE(11, 2)
        WRITE(11, 4)
        WRITE(11, 8)
        WRITE(8, 1)
        WRITE(8, 2)
        WRITE(8, 4)
        WRITE(8, 8)
    }
#undef WRITE
#undef OUTPUTS
}

/* The outputs of n (up to 32) positions by `positions` of a level; `whole`: they fill their parts. */
INLINE void convt_pieces_columns_out(convt_pieces_positions *multiply, int pieces, int columns, ptrdiff_t n,
                                     ptrdiff_t taps, ptrdiff_t pairs, const float *x, ptrdiff_t x_step, const float *w,
                                     const float *bias, const convt_tile_rows *y, const convt_pieces_part *parts,
                                     int count, int whole)
{
    const ptrdiff_t column = taps * ((pairs + 15) / 16) * 16 * pieces; /* of weights */
    convt_pieces_vector sums[32][2];
    for (int done = 0; done < columns; done += 32) {
        const int some = columns - done < 32 ? columns - done : 32;
        const ptrdiff_t *offsets = y->offsets + done / y->places;
        for (int i = 0; y->fetch && !whole && i < some / y->places; i++)
            for (int part = 0; part < count; part++)
                __builtin_prefetch(parts[part].y + offsets[i] + 2 * __builtin_ctz(parts[part].words), 1, 3);
        multiply(pieces, some, n, taps, pairs, x, x_step, w + done * column, NULL, (float *)sums, 32);
        convt_pieces_write_outputs(y->precision, y->places, some, sums, bias + done, offsets, y->stream, parts, count,
                                   whole);
    }
}

/* Where n (up to 32) positions are written: their vectors and rows, cut into parts, and whether these are whole
   vectors. Returns the parts' number; `row` and `cell` of it go on from call to call. */
INLINE int convt_pieces_find_parts(ptrdiff_t n, const convt_tile_rows *rows, ptrdiff_t *row, ptrdiff_t *cell,
                                   convt_pieces_part *parts, int *whole)
{
    const ptrdiff_t words = rows->places * (rows->precision == 24 ? 2 : 1), positions = 32 / words;
    int count = 0;
    if (n == 32 && rows->width - *cell > 32) { /* most of them, without the divisions */
        char *const y = rows->first[*row] + 2 * words * *cell;
        for (; count < words; count++)
            parts[count] = (convt_pieces_part){y + 64 * count, count, UINT32_MAX};
        *cell += 32;
        *whole = 1;
        return count;
    }
    *whole = n == 32;
    for (ptrdiff_t i = 0; i < n;) {
        const ptrdiff_t lane = i % positions;
        const ptrdiff_t most = n - i < positions - lane ? n - i : positions - lane;
        const ptrdiff_t some = rows->width - *cell < most ? rows->width - *cell : most;
        parts[count].y = rows->first[*row] + 2 * words * (*cell - lane);
        parts[count].vector = (int)(i / positions);
        parts[count].words = (uint32_t)(((1ull << some * words) - 1) << lane * words);
        *whole &= parts[count++].words == UINT32_MAX;
        i += some;
        *cell += some;
        if (*cell == rows->width) {
            *cell = 0;
            ++*row;
        }
    }
    return count;
}

/* Takes the next piece, the upper half of a word, from a finite `rest`, rounded or `cut`. */
static inline __m512i convt_pieces_piece(int cut, __m512 *rest)
{
    const __m512i bits =
        cut ? _mm512_castps_si512(*rest) : (__m512i)convt_pieces_round_bfloat16((convt_pieces_vector)*rest);
    const __m512i piece = _mm512_and_si512(bits, _mm512_set1_epi32((int)0xffff0000));
    *rest = _mm512_sub_ps(*rest, _mm512_castsi512_ps(piece));
    return piece;
}

/* 16 elements of a line of halves, those that are not `some` 0; NULL is a line of zeros, and `whole` ones are there. */
INLINE __m256i convt_pieces_load_halves(const int whole, const void *line, __mmask16 some)
{
    if (whole)
        return _mm256_loadu_si256(line);
    return line ? _mm256_maskz_loadu_epi16(some, line) : _mm256_setzero_si256();
}

/* The same of float (`precision` 24) or float16 (11), widened. */
INLINE __m512 convt_pieces_load(const int precision, const int whole, const void *line, __mmask16 some)
{
    if (precision == 11)
        return _mm512_cvtph_ps(convt_pieces_load_halves(whole, line, some));
    if (whole)
        return _mm512_loadu_ps(line);
    return line ? _mm512_maskz_loadu_ps(some, line) : _mm512_setzero_ps();
}

/* The least magnitude other than 0, less 1, and the greatest so far, lane by lane: bits of floats, or of bfloat16 where
   `precision` is 8. NaN is the greatest. */
typedef struct {
    __m512i least, most;
} convt_pieces_range;

static inline void convt_pieces_extend(int precision, convt_pieces_range *range, __m512i bits)
{
    if (precision == 8) {
        const __m512i size = _mm512_and_si512(bits, _mm512_set1_epi16(0x7fff));
        range->least = _mm512_min_epu16(range->least, _mm512_add_epi16(size, _mm512_set1_epi16(-1)));
        range->most = _mm512_max_epu16(range->most, size);
    } else {
        const __m512i size = _mm512_and_si512(bits, _mm512_set1_epi32(0x7fffffff));
        range->least = _mm512_min_epu32(range->least, _mm512_add_epi32(size, _mm512_set1_epi32(-1)));
        range->most = _mm512_max_epu32(range->most, size);
    }
}

/* Whether the range leaves [least, most], two floats by their bits. */
static inline int convt_pieces_leaves(int precision, const convt_pieces_range *range, uint32_t least, uint32_t most)
{
    if (precision == 8) {
        const short from = (short)((least + 0xffff) >> 16), to = (short)(most >> 16);
        return (_mm512_cmplt_epu16_mask(range->least, _mm512_set1_epi16((short)(from - 1))) |
                _mm512_cmpgt_epu16_mask(range->most, _mm512_set1_epi16(to))) != 0;
    }
    return (_mm512_cmplt_epu32_mask(range->least, _mm512_set1_epi32((int)(least - 1))) |
            _mm512_cmpgt_epu32_mask(range->most, _mm512_set1_epi32((int)most))) != 0;
}

/* Two bfloat16 to a word. */
static inline __m512i convt_pieces_join(__m256i low, __m256i high)
{
    const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6,
                                           37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    return _mm512_permutex2var_epi16(_mm512_castsi256_si512(low), order, _mm512_castsi256_si512(high));
}

/* Two channels of 16 places, one word of two bfloat16 per place and piece, 0 where not `some`; NULL is a line of zeros,
   and `whole` lines are all there. Their magnitudes extend the range. */
INLINE void convt_pieces_pair(const int pieces, const int precision, const int whole, const void *even, const void *odd,
                              __mmask16 some, convt_pieces_range *range, __m512i *words)
{
    if (precision == 8) { /* as they are */
        words[0] =
            convt_pieces_join(convt_pieces_load_halves(whole, even, some), convt_pieces_load_halves(whole, odd, some));
        convt_pieces_extend(precision, range, words[0]);
        return;
    }
    __m512 a = convt_pieces_load(precision, whole, even, some), b = convt_pieces_load(precision, whole, odd, some);
    convt_pieces_extend(precision, range, _mm512_castps_si512(a));
    convt_pieces_extend(precision, range, _mm512_castps_si512(b));
    UNROLLED (p, pieces) {
        /* Pieces that hold the whole element need no rounding, and what is left for their last one is a bfloat16. */
        const int exact = 8 * pieces >= precision, left = exact && p == pieces - 1;
        const __m512i low = left ? _mm512_castps_si512(a) : convt_pieces_piece(exact, &a);
        const __m512i high = left ? _mm512_castps_si512(b) : convt_pieces_piece(exact, &b);
        words[p] = _mm512_or_si512(_mm512_srli_epi32(low, 16), high);
    }
}

/* `split_channels` of bfloat16, which are only transposed; `whole`: 16 places of 32 channels. */
INLINE int convt_pieces_bfloat16_channels(const int whole, const char *x, ptrdiff_t channel_step, ptrdiff_t channels,
                                          ptrdiff_t n, float *target, ptrdiff_t x_step, __mmask16 pairs, uint32_t least,
                                          uint32_t most)
{
    const __mmask16 some = (__mmask16)((1u << n) - 1);
    convt_pieces_range range = {_mm512_set1_epi32(-1), _mm512_setzero_si512()};
    __m512i block[16];
    UNROLLED (i, 16) {
        const int first = i / 8 * 16 + i % 8, second = first + 8;
        __m256i low = _mm256_setzero_si256(), high = low;
        if (whole || first < channels)
            low = whole ? _mm256_loadu_si256((const __m256i *)(x + first * channel_step))
                        : _mm256_maskz_loadu_epi16(some, x + first * channel_step);
        if (whole || second < channels)
            high = whole ? _mm256_loadu_si256((const __m256i *)(x + second * channel_step))
                         : _mm256_maskz_loadu_epi16(some, x + second * channel_step);
        if (whole) { /* lines are too many to be foreseen: 0.82 to 1.02 of the time, mean 0.98 (56 layers, Zen 4) */
            __builtin_prefetch(x + first * channel_step + 128);
            __builtin_prefetch(x + second * channel_step + 128);
        }
        block[i] = _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
        convt_pieces_extend(8, &range, block[i]);
    }
    convt_pieces_transpose_words(block);
    if (whole)
        UNROLLED (i, 16)
            _mm512_storeu_si512(target + i * x_step, block[i]);
    else
        for (ptrdiff_t i = 0; i < n; i++)
            _mm512_mask_storeu_epi32(target + i * x_step, pairs, block[i]);
    return convt_pieces_leaves(8, &range, least, most);
}

/* The same of float and float16, which come in pieces. */
INLINE int convt_pieces_split_block(const int pieces, const int precision, const int whole, const char *x,
                                    ptrdiff_t channel_step, ptrdiff_t channels, ptrdiff_t n, float *target,
                                    ptrdiff_t x_step, ptrdiff_t piece_step, __mmask16 stored, uint32_t least,
                                    uint32_t most)
{
    convt_pieces_vector pairs[3][16];
    __m512i words[3];
    const __mmask16 some = (__mmask16)((1u << n) - 1);
    convt_pieces_range range = {_mm512_set1_epi32(-1), _mm512_setzero_si512()};
    for (int pair = 0; pair < 16; pair++) {
        const char *even = x + 2 * pair * channel_step;
        convt_pieces_pair(pieces, precision, whole, whole || 2 * pair < channels ? even : NULL,
                          whole || 2 * pair + 1 < channels ? even + channel_step : NULL, some, &range, words);
        for (int p = 0; p < pieces; p++)
            pairs[p][pair] = (convt_pieces_vector)words[p];
    }
    for (int p = 0; p < pieces; p++) {
        convt_pieces_transpose_registers(pairs[p]);
        for (ptrdiff_t i = 0; i < n; i++)
            _mm512_mask_storeu_ps(target + i * x_step + p * piece_step, stored, (__m512)pairs[p][i]);
    }
    return convt_pieces_leaves(precision, &range, least, most);
}

INLINE int convt_pieces_channels_of(const int pieces, const int precision, const char *x, ptrdiff_t channel_step,
                                    ptrdiff_t channels, ptrdiff_t n, float *target, ptrdiff_t x_step,
                                    ptrdiff_t piece_step, uint32_t least, uint32_t most)
{
    const int whole = channels == 32 && n == 16;
    const ptrdiff_t unit = piece_step == CONVT_PIECE_STEP ? 32 : CONVT_PLACE_UNIT;
    const __mmask16 pairs = convt_pieces_lanes(0, (channels + unit - 1) / unit * unit / 2);
#define BLOCK(whole)                                                                                                   \
    (precision == 8                                                                                                    \
         ? convt_pieces_bfloat16_channels(whole, x, channel_step, channels, n, target, x_step, pairs, least, most)     \
         : convt_pieces_split_block(pieces, precision, whole, x, channel_step, channels, n, target, x_step,            \
                                    piece_step, pairs, least, most))
    return whole ? BLOCK(1) : BLOCK(0);
#undef BLOCK
}

INLINE void convt_pieces_pair_positions(const int pieces, const int precision, const char *even, const char *odd,
                                        ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, float *target, ptrdiff_t place,
                                        ptrdiff_t step, convt_pieces_range *range)
{
    const ptrdiff_t item = precision == 24 ? 4 : 2, end = place + before + n + after;
    __m512i words[3];
    for (ptrdiff_t chunk = place / 16 * 16; chunk < end; chunk += 16) {
        ptrdiff_t first = chunk - place - before; /* the line's element in lane 0 */
        if (first >= 0 && first + 16 <= n && even && odd) {
            float *to = target + chunk / 16 * step;
            const ptrdiff_t whole = (n - first) / 16;
            for (ptrdiff_t i = 0; i < whole; i++, first += 16, to += step) {
                convt_pieces_pair(pieces, precision, 1, even + first * item, odd + first * item, 0xffff, range, words);
                UNROLLED (p, pieces)
                    _mm512_storeu_si512(to + p * CONVT_TILE_FLOATS, words[p]);
            }
            chunk += 16 * (whole - 1);
            continue;
        }
        const __mmask16 some = convt_pieces_lanes(-first, n - first),
                        written = convt_pieces_lanes(place - chunk, end - chunk);
        convt_pieces_pair(pieces, precision, 0, even ? even + first * item : NULL, odd ? odd + first * item : NULL,
                          some, range, words);
        for (int p = 0; p < pieces; p++)
            _mm512_mask_storeu_epi32(target + chunk / 16 * step + p * CONVT_TILE_FLOATS, written, words[p]);
    }
}

INLINE int convt_pieces_positions_of(const int pieces, const int precision, const char *x, ptrdiff_t channel_step,
                                     ptrdiff_t channels, ptrdiff_t pairs, ptrdiff_t before, ptrdiff_t n,
                                     ptrdiff_t after, float *target, ptrdiff_t place, ptrdiff_t step, uint32_t least,
                                     uint32_t most)
{
    convt_pieces_range range = {_mm512_set1_epi32(-1), _mm512_setzero_si512()};
    for (ptrdiff_t pair = 0; pair < pairs; pair++) {
        const char *even = x + 2 * pair * channel_step;
        convt_pieces_pair_positions(pieces, precision, 2 * pair < channels ? even : NULL,
                                    2 * pair + 1 < channels ? even + channel_step : NULL, before, n, after,
                                    target + 16 * pair, place, step, &range);
    }
    return convt_pieces_leaves(precision, &range, least, most);
}

/* The numbers of pieces that elements of a precision come in; of floats fewer than 3 where less is asked for. */
#define INSTANCES(function, ...)                                                                                       \
    switch (32 * pieces + precision) {                                                                                 \
    case 32 * 1 + 8:                                                                                                   \
        return function(1, 8, __VA_ARGS__);                                                                            \
    case 32 * 2 + 11:                                                                                                  \
        return function(2, 11, __VA_ARGS__);                                                                           \
    case 32 * 3 + 24:                                                                                                  \
        return function(3, 24, __VA_ARGS__);                                                                           \
    case 32 * 2 + 24:                                                                                                  \
        return function(2, 24, __VA_ARGS__);                                                                           \
    case 32 * 1 + 24:                                                                                                  \
        return function(1, 24, __VA_ARGS__);                                                                           \
    }                                                                                                                  \
    return 1

/* n places (up to 16) of up to 32 channels, channel_step bytes apart, and zeros for the rest, into n rows of
   [piece][32] or, by `piece_step`, a row of each piece without the rest, as `channels` reads them. Returns whether an
   element other than 0 has a magnitude outside [least, most]. */
static int convt_pieces_split_channels(int pieces, int precision, const char *x, ptrdiff_t channel_step,
                                       ptrdiff_t channels, ptrdiff_t n, float *target, ptrdiff_t x_step,
                                       ptrdiff_t piece_step, uint32_t least, uint32_t most)
{
    INSTANCES(convt_pieces_channels_of, x, channel_step, channels, n, target, x_step, piece_step, least, most);
}

/* n places of some channels, zeros before and after them, in up to 16 pairs, as `positions` reads them:
   from place number `place` of `target` on, `step` from 16 places to the next. Returns the same. */
static int convt_pieces_split_positions(int pieces, int precision, const char *x, ptrdiff_t channel_step,
                                        ptrdiff_t channels, ptrdiff_t pairs, ptrdiff_t before, ptrdiff_t n,
                                        ptrdiff_t after, float *target, ptrdiff_t place, ptrdiff_t step, uint32_t least,
                                        uint32_t most)
{
    INSTANCES(convt_pieces_positions_of, x, channel_step, channels, pairs, before, n, after, target, place, step, least,
              most);
}

#undef INSTANCES

/* 32 channels of 16 outputs, `source` [output][32], into one tile per piece: weights as the left operand. */
static void convt_pieces_split_left(int pieces, const float *source, float *target, ptrdiff_t piece_step)
{
    for (int row = 0; row < 16; row++) {
        __m512 low = _mm512_loadu_ps(source + 32 * row), high = _mm512_loadu_ps(source + 32 * row + 16);
        for (int p = 0; p < pieces; p++) {
            __m256i *to = (__m256i *)(target + p * piece_step + 16 * row);
            _mm256_storeu_si256(to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(convt_pieces_piece(0, &low), 16)));
            _mm256_storeu_si256(to + 1, _mm512_cvtepi32_epi16(_mm512_srli_epi32(convt_pieces_piece(0, &high), 16)));
        }
    }
}

/* Takes the next pieces of two rows, the last of three as it is: what two leave of a float is a bfloat16. */
static inline __m512i convt_pieces_next_pair(const int last, __m512 *even, __m512 *odd)
{
    const __m512i upper = _mm512_set1_epi32((int)0xffff0000);
    if (last)
        return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(*even), 16), _mm512_castps_si512(*odd));
    const __m512i words = convt_pieces_pair_bfloat16(*even, *odd);
    *even = _mm512_sub_ps(*even, _mm512_castsi512_ps(_mm512_slli_epi32(words, 16)));
    *odd = _mm512_sub_ps(*odd, _mm512_castsi512_ps(_mm512_and_si512(words, upper)));
    return words;
}

INLINE void convt_pieces_right_of(const int pieces, const float *source, ptrdiff_t source_step, float *target,
                                  ptrdiff_t piece_step, convt_pieces_range *range)
{
    for (int pair = 0; pair < 16; pair++) {
        __m512 even = _mm512_loadu_ps(source + 2 * pair * source_step);
        __m512 odd = _mm512_loadu_ps(source + (2 * pair + 1) * source_step);
        convt_pieces_extend(24, range, _mm512_castps_si512(even));
        convt_pieces_extend(24, range, _mm512_castps_si512(odd));
        UNROLLED (p, pieces)
            _mm512_storeu_si512(target + p * piece_step + 16 * pair, convt_pieces_next_pair(p == 2, &even, &odd));
    }
}

/* 32 channels of 16 outputs, `source` [channel][source_step], likewise: weights as the right operand. `least` and
   `most` are, lane by lane, the least magnitude other than 0, less 1, and the greatest so far. */
static void convt_pieces_split_right(int pieces, const float *source, ptrdiff_t source_step, float *target,
                                     ptrdiff_t piece_step, uint32_t *least, uint32_t *most)
{
    convt_pieces_range range = {_mm512_loadu_si512(least), _mm512_loadu_si512(most)};
    if (pieces == 3)
        convt_pieces_right_of(3, source, source_step, target, piece_step, &range);
    else if (pieces == 2)
        convt_pieces_right_of(2, source, source_step, target, piece_step, &range);
    else
        convt_pieces_right_of(1, source, source_step, target, piece_step, &range);
    _mm512_storeu_si512(least, range.least);
    _mm512_storeu_si512(most, range.most);
}

/* Two channels of bfloat16 weights, rows of so many columns, as words, with zeros for what is not there; NULL is a row
   of zeros. The words of a tile begin `column_step` floats for each column before it, those of its every 16 columns
   `vector_step` after the last. `least` and `most` as in `split_right`. What lies `ahead` bytes further is fetched. */
static void convt_pieces_join_rows(const char *even, const char *odd, ptrdiff_t columns, ptrdiff_t tile, float *words,
                                   ptrdiff_t column_step, ptrdiff_t vector_step, ptrdiff_t ahead, uint32_t *least,
                                   uint32_t *most)
{
    convt_pieces_range range = {_mm512_set1_epi32(-1), _mm512_setzero_si512()};
    for (ptrdiff_t done = 0; done < columns; done += tile) {
        const ptrdiff_t end = columns - done < tile ? columns : done + tile;
        float *target = words + done * column_step;
        for (ptrdiff_t column = done; column < end; column += 16) {
            const __mmask16 some = end - column < 16 ? (__mmask16)((1u << (end - column)) - 1) : (__mmask16)-1;
            __m512i word;
            if (even && odd && end - column >= 16)
                convt_pieces_pair(1, 8, 1, even + 2 * column, odd + 2 * column, some, &range, &word);
            else
                convt_pieces_pair(1, 8, 0, even ? even + 2 * column : NULL, odd ? odd + 2 * column : NULL, some, &range,
                                  &word);
            _mm512_storeu_si512(target, word);
            target += vector_step;
            if (odd && column % 32 == 0) { /* a cache line of each */
                __builtin_prefetch(even + 2 * column + ahead, 0, 2);
                __builtin_prefetch(odd + 2 * column + ahead, 0, 2);
            }
        }
    }
    /* From bfloat16 to floats: less 1 in their last digit. */
    const __m512i one = _mm512_set1_epi32(1), low_half = _mm512_set1_epi32(0xffff);
    const __m512i least_low = _mm512_slli_epi32(_mm512_add_epi32(_mm512_and_si512(range.least, low_half), one), 16);
    const __m512i least_high = _mm512_slli_epi32(_mm512_add_epi32(_mm512_srli_epi32(range.least, 16), one), 16);
    __m512i low = _mm512_loadu_si512(least), high = _mm512_loadu_si512(most);
    low = _mm512_min_epu32(low, _mm512_sub_epi32(least_low, one));
    low = _mm512_min_epu32(low, _mm512_sub_epi32(least_high, one));
    high = _mm512_max_epu32(high, _mm512_slli_epi32(range.most, 16));
    high = _mm512_max_epu32(high, _mm512_andnot_si512(low_half, range.most));
    _mm512_storeu_si512(least, low);
    _mm512_storeu_si512(most, high);
}

/* The least magnitude other than 0 and the greatest of n elements, by their bits; NaN is the greatest. */
static void convt_pieces_magnitudes(const float *elements, ptrdiff_t n, uint32_t *least, uint32_t *most)
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

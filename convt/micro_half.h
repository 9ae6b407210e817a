/* float16 and bfloat16 in memory, float in registers: written once, instantiated beside the float kernels of micro.h.

   An ISA header defines, besides what micro.h wants for float,
     LOAD_FLOAT16(pointer)    LANES elements, widened
     NARROW_FLOAT16(vector)   LANES elements, rounded to nearest even
   The dtype is a flag: a call converts so many elements that a well predicted branch costs nothing. */

typedef uint16_t NAME(halves) __attribute__((vector_size(LANES * sizeof(uint16_t))));
typedef uint16_t NAME(unaligned_halves)
    __attribute__((vector_size(LANES * sizeof(uint16_t)), aligned(sizeof(uint16_t)), may_alias));
typedef uint32_t NAME(words) __attribute__((vector_size(LANES * sizeof(uint32_t))));

static inline NAME(vector) NAME(load_half)(int bfloat16, const uint16_t *source)
{
    if (!bfloat16)
        return LOAD_FLOAT16(source);
    const NAME(halves) bits = *(const NAME(unaligned_halves) *)source;
    return (NAME(vector))(__builtin_convertvector(bits, NAME(words)) << 16);
}

static inline NAME(halves) NAME(narrow_vector)(int bfloat16, NAME(vector) value)
{
    if (!bfloat16)
        return NARROW_FLOAT16(value);
    const NAME(words) bits = (NAME(words))value;
    const NAME(words) rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const NAME(words) is_nan = (NAME(words))((bits & 0x7fffffffu) > 255u << 23);
    return __builtin_convertvector((is_nan & (bits >> 16 | 0x40u)) | (~is_nan & rounded), NAME(halves));
}

/* n consecutive elements. */
static void NAME(widen)(int bfloat16, const uint16_t *source, ptrdiff_t n, float *target)
{
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        *(NAME(unaligned) *)(target + i) = NAME(load_half)(bfloat16, source + i);
    for (; i < n; i++)
        target[i] = bfloat16 ? convt_widen_bfloat16((convt_bfloat16){source[i]})
                             : convt_widen_float16((convt_float16){source[i]});
}

static void NAME(narrow)(int bfloat16, const float *source, ptrdiff_t n, uint16_t *target)
{
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        *(NAME(unaligned_halves) *)(target + i) = NAME(narrow_vector)(bfloat16, *(const NAME(unaligned) *)(source + i));
    for (; i < n; i++)
        target[i] = bfloat16 ? convt_narrow_bfloat16(source[i]).bits : convt_narrow_float16(source[i]).bits;
}

/* `interleave` of micro.h into halves, for one or two places. */
static void NAME(interleave_narrow)(int bfloat16, ptrdiff_t n, ptrdiff_t places, const float *const *rows,
                                    uint16_t *out)
{
    if (places == 1) {
        NAME(narrow)(bfloat16, rows[0], n, out);
        return;
    }
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const NAME(halves) even = NAME(narrow_vector)(bfloat16, *(const NAME(unaligned) *)(rows[0] + i));
        const NAME(halves) odd = NAME(narrow_vector)(bfloat16, *(const NAME(unaligned) *)(rows[1] + i));
        const NAME(words) pairs = __builtin_convertvector(even, NAME(words)) | __builtin_convertvector(odd, NAME(words))
                                                                                   << 16;
        memcpy(out + 2 * i, &pairs, sizeof pairs); /* little-endian, as every level's processor is */
    }
    for (; i < n; i++)
        for (int e = 0; e < 2; e++)
            NAME(narrow)(bfloat16, rows[e] + i, 1, out + 2 * i + e);
}

/* `transpose` of micro.h into rows of halves; `twice`: of 2 * LANES rows, whole cache lines with 16 lanes. Streaming
   them measured no faster. */
static void NAME(transpose_narrow)(int bfloat16, int twice, const float *const *rows, ptrdiff_t offset, uint16_t *out,
                                   ptrdiff_t out_step)
{
    NAME(vector) block[LANES];
    NAME(halves) low[LANES];
    NAME(transpose_block)(rows, offset, block);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        low[i] = NAME(narrow_vector)(bfloat16, block[i]);
    if (twice)
        NAME(transpose_block)(rows + LANES, offset, block);
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++) {
        *(NAME(unaligned_halves) *)(out + i * out_step) = low[i];
        if (twice)
            *(NAME(unaligned_halves) *)(out + i * out_step + LANES) = NAME(narrow_vector)(bfloat16, block[i]);
    }
}

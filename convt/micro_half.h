/* float16 and bfloat16 in memory, float in registers: written once, instantiated beside the float kernels of micro.h.

   The source of an instruction set defines, besides what micro.h wants for float, STORE_FIRST included,
     LOAD_FLOAT16(pointer)    LANES elements, widened
     NARROW_FLOAT16(vector)   LANES elements, rounded to nearest even
     STREAM(pointer, vector)  as there, if a vector is a cache line
   may define
     LOAD_FIRST_HALVES(pointer, n)            LANES elements of which the first n are read and the others 0
     STORE_FIRST_HALVES(pointer, vector, n)   a store of the first n halves of a variable, of LANES floats or halves
   and, where sums are never subnormal,
     NARROW_BFLOAT16(vector)  and  PAIR_BFLOAT16(first, second)   what the processor rounds, as NAME(narrow_vector) and
   NAME(narrow_pairs) do, and
     TRANSPOSE_BFLOAT16(rows, offset, added, block)   what NAME(transpose_pairs) does.
   The dtype is a flag: a call converts so many elements that a well predicted branch costs nothing. */

typedef uint16_t NAME(halves) __attribute__((vector_size(LANES * sizeof(uint16_t))));
typedef uint16_t NAME(unaligned_halves)
    __attribute__((vector_size(LANES * sizeof(uint16_t)), aligned(sizeof(uint16_t)), may_alias));
typedef uint32_t NAME(words) __attribute__((vector_size(LANES * sizeof(uint32_t))));

#ifndef LOAD_FIRST_HALVES
static inline NAME(halves) NAME(load_first_halves)(const uint16_t *source, ptrdiff_t n)
{
    NAME(halves) few = {0};
    memcpy(&few, source, n * sizeof(uint16_t));
    return few;
}
#define LOAD_FIRST_HALVES NAME(load_first_halves)
#define STORE_FIRST_HALVES(pointer, vector, n) memcpy(pointer, &(vector), (n) * sizeof(uint16_t))
#endif

static inline VECTOR NAME(load_half)(int bfloat16, const uint16_t *source)
{
    if (!bfloat16)
        return LOAD_FLOAT16(source);
    const NAME(halves) bits = *(const NAME(unaligned_halves) *)source;
    return (VECTOR)(__builtin_convertvector(bits, NAME(words)) << 16);
}

/* Rounded to bfloat16: the upper half of every word. It keeps NaN, because sums of halves have none whose payload
   reaches the lower half: the processor passes on operands, made quiet, or makes its own. */
static inline NAME(words) NAME(round_bfloat16)(VECTOR value)
{
    const NAME(words) bits = (NAME(words))value;
    return bits + (0x7fffu + (bits >> 16 & 1u));
}

#ifndef NARROW_BFLOAT16
#define NARROW_BFLOAT16(vector) __builtin_convertvector(NAME(round_bfloat16)(vector) >> 16, NAME(halves))
#define PAIR_BFLOAT16(first, second) (NAME(round_bfloat16)(first) >> 16 | (NAME(round_bfloat16)(second) & 0xffff0000u))
#endif

static inline NAME(halves) NAME(narrow_vector)(int bfloat16, VECTOR value)
{
    if (!bfloat16)
        return NARROW_FLOAT16(value);
    return NARROW_BFLOAT16(value);
}

/* Two halves in a word, the first one first in memory (little-endian, as every level's processor is). */
static inline NAME(words) NAME(narrow_pairs)(int bfloat16, VECTOR first, VECTOR second)
{
    if (bfloat16)
        return PAIR_BFLOAT16(first, second);
    return __builtin_convertvector(NARROW_FLOAT16(first), NAME(words)) |
           __builtin_convertvector(NARROW_FLOAT16(second), NAME(words)) << 16;
}

/* n consecutive elements; those that do not fill the last vector come in one over a few once more. Fewer than a vector
   go through one of their own: one by one 1 x 1 of 768 channels of 41 x 15 took 1.6 times as long. What lies so many
   bytes `ahead` of whole vectors is fetched. */
static void NAME(widen)(int bfloat16, const uint16_t *source, ptrdiff_t n, ptrdiff_t ahead, float *target)
{
    if (n < LANES) {
        const NAME(halves) few = LOAD_FIRST_HALVES(source, n);
        const VECTOR wide = NAME(load_half)(bfloat16, (const uint16_t *)&few);
        STORE_FIRST(target, wide, n);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        i = i < n - LANES ? i : n - LANES;
        STORE(target + i, NAME(load_half)(bfloat16, source + i));
        __builtin_prefetch((const char *)(source + i) + ahead, 0, 2);
    }
}

static void NAME(narrow)(int bfloat16, const float *source, ptrdiff_t n, uint16_t *target)
{
    if (n < LANES) {
        float few[LANES] = {0};
        memcpy(few, source, n * sizeof(float));
        const NAME(halves) narrow = NAME(narrow_vector)(bfloat16, LOAD(few));
        STORE_FIRST_HALVES(target, narrow, n);
        return;
    }
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        i = i < n - LANES ? i : n - LANES;
        *(NAME(unaligned_halves) *)(target + i) = NAME(narrow_vector)(bfloat16, LOAD(source + i));
    }
}

/* LANES cells of some places from the i-th on, after each other; of places in pairs words are interleaved, half as
   many. */
INLINE void NAME(narrow_cells)(int bfloat16, const int places, const float *const *rows, ptrdiff_t i, uint16_t *out)
{
    VECTOR cells[8];
    UNROLLED (e, places)
        cells[e] = LOAD(rows[e] + i);
    if (places % 2) {
        NAME(interleave_registers)(places, cells);
        UNROLLED (e, places)
            *(NAME(unaligned_halves) *)(out + e * LANES) = NAME(narrow_vector)(bfloat16, cells[e]);
        return;
    }
    UNROLLED (e, places / 2)
        cells[e] = (VECTOR)NAME(narrow_pairs)(bfloat16, cells[2 * e], cells[2 * e + 1]);
    NAME(interleave_registers)(places / 2, cells);
    UNROLLED (e, places / 2)
        memcpy(out + 2 * e * LANES, &cells[e], sizeof cells[e]);
}

/* `interleave` of micro_rows.h into halves, in registers. Returns whether that many places can be. */
static int NAME(interleave_narrow)(int bfloat16, ptrdiff_t n, ptrdiff_t places, const float *const *rows, uint16_t *out)
{
    uint16_t few[8 * LANES];
#define PLACES(e)                                                                                                      \
    case e:                                                                                                            \
        for (ptrdiff_t i = 0; n >= LANES && i < n; i += LANES) {                                                       \
            i = i < n - LANES ? i : n - LANES;                                                                         \
            NAME(narrow_cells)(bfloat16, e, rows, i, out + i * e);                                                     \
        }                                                                                                              \
        if (n < LANES) {                                                                                               \
            NAME(narrow_cells)(bfloat16, e, rows, 0, few);                                                             \
            memcpy(out, few, n * e * sizeof(uint16_t));                                                                \
        }                                                                                                              \
        return 1;
    switch (places) {
        PLACES_IN_REGISTERS(PLACES)
    }
#undef PLACES
    return 0;
}

/* 2 * LANES rows of LANES floats, `added` to each, transposed as halves: two rows become words, and these are
   transposed, half as many. */
INLINE void NAME(transpose_pairs)(int bfloat16, const float *const *rows, ptrdiff_t offset, VECTOR added, VECTOR *block)
{
    UNROLLED (i, LANES)
        block[i] = (VECTOR)NAME(narrow_pairs)(bfloat16, LOAD(rows[2 * i] + offset) + added,
                                              LOAD(rows[2 * i + 1] + offset) + added);
    NAME(transpose_registers)(block);
}

#ifndef TRANSPOSE_BFLOAT16
#define TRANSPOSE_BFLOAT16(rows, offset, added, block) NAME(transpose_pairs)(1, rows, offset, added, block)
#endif

/* Up to 2 * LANES rows of `columns` (up to LANES) elements, plus bias[offset] and so on, transposed into rows of
   halves. `stream`: past the caches, where they are whole cache lines. */
static void NAME(transpose_narrow)(int bfloat16, ptrdiff_t n, ptrdiff_t columns, const float *const *rows,
                                   ptrdiff_t offset, const float *bias, uint16_t *out, ptrdiff_t out_step, int stream)
{
    (void)stream;
    const VECTOR added = LOAD(bias + offset);
    VECTOR block[LANES];
    if (n == 2 * LANES && columns == LANES) {
        if (bfloat16)
            TRANSPOSE_BFLOAT16(rows, offset, added, block);
        else
            NAME(transpose_pairs)(0, rows, offset, added, block);
#if LANES == 16 /* whole cache lines */
        if (stream && (uintptr_t)out % 64 == 0 && out_step % 32 == 0) {
            UNROLLED (i, LANES)
                STREAM((float *)(out + i * out_step), block[i]);
            return;
        }
#endif
        UNROLLED (i, LANES) {
            memcpy(out + i * out_step, &block[i], sizeof block[i]);
            /* Where the next ones end, as rows are too many to be foreseen: 1 to 3 % of bfloat16 in tiles. */
            __builtin_prefetch((const char *)(out + i * out_step) + 2 * sizeof block[i] - 1, 1, 3);
        }
        return;
    }
    for (int i = 0; i < LANES; i++)
        block[i] = (VECTOR)NAME(narrow_pairs)(bfloat16, LOAD(rows[2 * i < n ? 2 * i : 0] + offset) + added,
                                              LOAD(rows[2 * i + 1 < n ? 2 * i + 1 : 0] + offset) + added);
    NAME(transpose_registers)(block);
    for (ptrdiff_t i = 0; i < columns; i++)
        STORE_FIRST_HALVES(out + i * out_step, block[i], n);
}

/* LOAD_FLOAT16 stays, by which micro_native.h knows floats. */
#undef NARROW_FLOAT16
#undef LOAD_FIRST_HALVES
#undef STORE_FIRST_HALVES
#undef NARROW_BFLOAT16
#undef PAIR_BFLOAT16
#undef TRANSPOSE_BFLOAT16

/* The levels of this build, compiled. */
#ifndef CONVT_KERNELS_H
#define CONVT_KERNELS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "half.h"
#include "levels.h"

/* The next loop, of at most 32 rounds, is unrolled and what it indexes with constants becomes registers; or two rounds
   of it, however many there are, become one. */
#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL_TWICE _Pragma("clang loop unroll_count(2)")
#else
#define UNROLL _Pragma("GCC unroll 32")
#define UNROLL_TWICE _Pragma("GCC unroll 2")
#endif
#define UNROLLED(i, n) UNROLL for (int i = 0; i < (n); i++)

/* Sizes that a caller passes as constants are known when it is compiled. */
#define INLINE static inline __attribute__((always_inline))

/* Positions of a tile of so many vectors: 24 sums load 25 vectors singly, 14 in pairs, 10 by fours. */
#define MOST_POSITIONS(vectors) (ACCUMULATORS / (vectors))

/* The numbers of places of a cell that are interleaved in registers. */
#define PLACES_IN_REGISTERS(CALL) CALL(1) CALL(2) CALL(3) CALL(4) CALL(6) CALL(8)

/* `CALL(positions, vectors)` with both known to the compiler, of up to MOST_POSITIONS(vectors). */
#define EVERY_TILE(positions, vectors, CALL)                                                                           \
    switch (positions) {                                                                                               \
        ONE_TILE(1, vectors, CALL)                                                                                     \
        ONE_TILE(2, vectors, CALL)                                                                                     \
        ONE_TILE(3, vectors, CALL)                                                                                     \
        ONE_TILE(4, vectors, CALL)                                                                                     \
        ONE_TILE(5, vectors, CALL)                                                                                     \
        ONE_TILE(6, vectors, CALL)                                                                                     \
        ONE_TILE(7, vectors, CALL)                                                                                     \
        ONE_TILE(8, vectors, CALL)                                                                                     \
        ONE_TILE(9, vectors, CALL)                                                                                     \
        ONE_TILE(10, vectors, CALL)                                                                                    \
        ONE_TILE(11, vectors, CALL)                                                                                    \
        ONE_TILE(12, vectors, CALL)                                                                                    \
        ONE_TILE(13, vectors, CALL)                                                                                    \
        ONE_TILE(14, vectors, CALL)                                                                                    \
        ONE_TILE(15, vectors, CALL)                                                                                    \
        ONE_TILE(16, vectors, CALL)                                                                                    \
        ONE_TILE(17, vectors, CALL)                                                                                    \
        ONE_TILE(18, vectors, CALL)                                                                                    \
        ONE_TILE(19, vectors, CALL)                                                                                    \
        ONE_TILE(20, vectors, CALL)                                                                                    \
        ONE_TILE(21, vectors, CALL)                                                                                    \
        ONE_TILE(22, vectors, CALL)                                                                                    \
        ONE_TILE(23, vectors, CALL)                                                                                    \
        ONE_TILE(24, vectors, CALL)                                                                                    \
    }
#define ONE_TILE(p, vectors, CALL)                                                                                     \
    case p:                                                                                                            \
        if (p <= MOST_POSITIONS(vectors))                                                                              \
            CALL(p <= MOST_POSITIONS(vectors) ? p : 1, vectors);                                                       \
        break;

#define CONVT_INSTANCE(prefix)                                                                                         \
    {.lanes = prefix##lanes,                                                                                           \
     .most_sums = prefix##most_sums,                                                                                   \
     .most_weights = prefix##most_weights,                                                                             \
     .widest = prefix##widest,                                                                                         \
     .channels = prefix##channels,                                                                                     \
     .groups = prefix##groups,                                                                                         \
     .native = prefix##native,                                                                                         \
     .native_tiles = prefix##native_tiles,                                                                             \
     .positions = prefix##positions,                                                                                   \
     .positions_out = prefix##positions_out,                                                                           \
     .transpose = prefix##transpose,                                                                                   \
     .accumulate = prefix##accumulate,                                                                                 \
     .add_rows = prefix##add_rows,                                                                                     \
     .biased_rows = prefix##biased_rows,                                                                               \
     .interleave = prefix##interleave,                                                                                 \
     .drain = prefix##drain,                                                                                           \
     .lines = prefix##lines,                                                                                           \
     .stream_rows = prefix##stream_rows,                                                                               \
     .filled_lines = prefix##filled_lines,                                                                             \
     .transpose_to = prefix##transpose_to,                                                                             \
     .finite = prefix##finite}
#define CONVT_HALVES(prefix)                                                                                           \
    {.widen = prefix##widen,                                                                                           \
     .narrow = prefix##narrow,                                                                                         \
     .interleave_narrow = prefix##interleave_narrow,                                                                   \
     .transpose_narrow = prefix##transpose_narrow}
/* The kernels of a level, with products of pieces or {0}. */
#define CONVT_LEVEL(isa, kernels, rows, ...)                                                                           \
    {.name = #isa,                                                                                                     \
     .runs_here = convt_##isa##_runs_here,                                                                             \
     .stream_bytes = convt_##kernels##_stream_bytes,                                                                   \
     .native_rows = rows,                                                                                              \
     .f32 = CONVT_INSTANCE(convt_##kernels##_f32_),                                                                    \
     .f64 = CONVT_INSTANCE(convt_##kernels##_f64_),                                                                    \
     .halves = CONVT_HALVES(convt_##kernels##_f32_),                                                                   \
     .tiles = __VA_ARGS__}

/* __builtin_shufflevector came with gcc 12. */
#if defined(__clang__) || __GNUC__ >= 12
#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include "isa_avx2.h"
#include "isa_avx512.h"
#include "pieces.h"
#include "isa_avx512_bf16.h"
#if defined(__linux__)
#include "isa_amx.h"
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>
#include "isa_neon.h"
#endif
#endif

/* From the least to the most capable; the generic level, which needs none, is not in it. */
static const convt_level convt_levels[] = {
#ifdef CONVT_AVX2
    CONVT_LEVEL(avx2, avx2, 4, {0}),
#endif
#ifdef CONVT_AVX512
    CONVT_LEVEL(avx512, avx512, 4, {0}),
#endif
#ifdef CONVT_AVX512_BF16
    /* Eight rows at once: 131 MB of floats in 0.92, 262 MB of doubles in 0.84 of the time (Zen 4). Fetched, results
       whose rows are not whole vectors (14x14 and 18x18 images, Zen 5) took 0.84 to 0.98 of the time from 9.6 MB
       on, 1.01 to 1.05 up to 8 MB. */
    CONVT_LEVEL(avx512_bf16, avx512, 8,
                {CONVT_PIECES_TILES(avx512_bf16), .most_sums = 2 * CONVT_DOT_POSITIONS, .unit = 1, .most_pieces = 1,
                 .stream_bytes = 1 << 21, .fetch_bytes = 1 << 23, .word_lines = convt_avx512_bf16_word_lines,
                 .word_positions = convt_avx512_bf16_word_positions,
                 .word_positions_out = convt_avx512_bf16_word_positions_out}),
#endif
#ifdef CONVT_AMX
    CONVT_LEVEL(amx, avx512, 4,
                {CONVT_PIECES_TILES(amx), .most_sums = 64, .unit = 16, .most_pieces = 3, .stream_bytes = PTRDIFF_MAX,
                 .fetch_bytes = PTRDIFF_MAX}),
#endif
#ifdef CONVT_NEON
    CONVT_LEVEL(neon, neon, 4, {0}),
#endif
    {0}};

#endif

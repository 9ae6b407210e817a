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

#define CONVT_INSTANCE(prefix)                                                                                         \
    {prefix##lanes,      prefix##most_sums,    prefix##most_weights, prefix##widest,        prefix##channels,          \
     prefix##native,     prefix##native_tiles, prefix##positions,    prefix##positions_out, prefix##transpose,         \
     prefix##accumulate, prefix##add_rows,     prefix##biased_rows,  prefix##interleave,    prefix##drain,             \
     prefix##lines,      prefix##stream_rows,  prefix##filled_lines, prefix##transpose_to,  prefix##finite}
#define CONVT_HALVES(prefix) {prefix##widen, prefix##narrow, prefix##interleave_narrow, prefix##transpose_narrow}
/* The kernels of a level, with products of pieces or {0}. */
#define CONVT_LEVEL(isa, kernels, native_rows, ...)                                                                    \
    {#isa,                                                                                                             \
     convt_##isa##_runs_here,                                                                                          \
     convt_##kernels##_stream_bytes,                                                                                   \
     native_rows,                                                                                                      \
     CONVT_INSTANCE(convt_##kernels##_f32_),                                                                           \
     CONVT_INSTANCE(convt_##kernels##_f64_),                                                                           \
     CONVT_HALVES(convt_##kernels##_f32_),                                                                             \
     __VA_ARGS__}

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
    /* Eight rows at once: 131 MB of floats in 0.92, 262 MB of doubles in 0.84 of the time (Zen 4). */
    CONVT_LEVEL(avx512_bf16, avx512, 8,
                CONVT_PIECES_TILES(avx512_bf16, 2 * CONVT_DOT_POSITIONS, 1, 1, 1 << 21, convt_avx512_bf16_word_lines,
                                   convt_avx512_bf16_word_positions, convt_avx512_bf16_word_positions_out)),
#endif
#ifdef CONVT_AMX
    CONVT_LEVEL(amx, avx512, 4, CONVT_PIECES_TILES(amx, 64, 16, 3, PTRDIFF_MAX, NULL, NULL, NULL)),
#endif
#ifdef CONVT_NEON
    CONVT_LEVEL(neon, neon, 4, {0}),
#endif
    {0}};

#endif

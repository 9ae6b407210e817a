/* What the sources of micro-kernels (isa_*.c) have in common, and what they give to levels.c. */
#ifndef CONVT_MICRO_COMMON_H
#define CONVT_MICRO_COMMON_H

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

/* What lies between the two is compiled for a processor with these features, as the pragma names them. */
#define PRAGMA(...) _Pragma(#__VA_ARGS__)
#if defined(__clang__)
#define BEGIN_TARGET(features) PRAGMA(clang attribute push(__attribute__((target(features))), apply_to = function))
#define END_TARGET PRAGMA(clang attribute pop)
#else
#define BEGIN_TARGET(features) PRAGMA(GCC push_options) PRAGMA(GCC target(features))
#define END_TARGET PRAGMA(GCC pop_options)
#endif

/* Sizes that a caller passes as constants are known when it is compiled. */
#define INLINE static inline __attribute__((always_inline))

/* Positions of a tile of so many vectors: 24 sums load 25 vectors singly, 14 in pairs, 10 by fours. */
#define MOST_POSITIONS(vectors) (MOST_SUMS / (vectors))

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
    {.sizes = {.lanes = prefix##lanes,                                                                                 \
               .most_sums = prefix##most_sums,                                                                         \
               .most_weights = prefix##most_weights,                                                                   \
               .widest = prefix##widest,                                                                               \
               .narrowest = prefix##narrowest},                                                                        \
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
     .copy_lines = prefix##copy_lines,                                                                                 \
     .stream_rows = prefix##stream_rows,                                                                               \
     .filled_lines = prefix##filled_lines,                                                                             \
     .transpose_to = prefix##transpose_to,                                                                             \
     .all_finite = prefix##all_finite}
#define CONVT_HALVES(prefix)                                                                                           \
    {.widen = prefix##widen,                                                                                           \
     .narrow = prefix##narrow,                                                                                         \
     .interleave_narrow = prefix##interleave_narrow,                                                                   \
     .transpose_narrow = prefix##transpose_narrow}

/* What the source of an instruction set gives to the table of levels. */
#define CONVT_DECLARE_KERNELS(isa)                                                                                     \
    extern const convt_kernels_f32 convt_##isa##_f32;                                                                  \
    extern const convt_kernels_f64 convt_##isa##_f64;                                                                  \
    extern const convt_halves convt_##isa##_halves;                                                                    \
    int convt_##isa##_runs_here(void)
#define CONVT_DEFINE_KERNELS(isa)                                                                                      \
    const convt_kernels_f32 convt_##isa##_f32 = CONVT_INSTANCE(convt_##isa##_f32_);                                    \
    const convt_kernels_f64 convt_##isa##_f64 = CONVT_INSTANCE(convt_##isa##_f64_);                                    \
    const convt_halves convt_##isa##_halves = CONVT_HALVES(convt_##isa##_f32_)
#define CONVT_DECLARE_TILES(isa)                                                                                       \
    extern const convt_tiles convt_##isa##_tiles;                                                                      \
    int convt_##isa##_runs_here(void)
CONVT_DECLARE_KERNELS(avx2);
CONVT_DECLARE_KERNELS(avx512);
CONVT_DECLARE_KERNELS(neon);
CONVT_DECLARE_TILES(avx512_bf16);
CONVT_DECLARE_TILES(amx);

#endif

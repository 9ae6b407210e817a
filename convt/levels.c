/* The table of levels, with what has been measured of each. */

#include "micro_common.h"

/* A level by kernels and products of pieces, perhaps those of another one. */
#define LEVEL(isa, kernels, products, ...)                                                                             \
    {.name = #isa,                                                                                                     \
     .runs_here = convt_##isa##_runs_here,                                                                             \
     .f32 = &convt_##kernels##_f32,                                                                                    \
     .f64 = &convt_##kernels##_f64,                                                                                    \
     .halves = &convt_##kernels##_halves,                                                                              \
     .tiles = &convt_##products##_tiles,                                                                               \
     __VA_ARGS__}

static const convt_tiles convt_no_tiles = {0};

/* Results larger than the second-level cache go past all: 2 to 4 MB took 1.04 times as long otherwise (24 random
   layers of float32; 1.28 espnet_20), 4 MB of a depthwise layer 1.9 times. */
enum { AVX512_STREAM_BYTES = 1 << 21 };

/* From the least to the most capable; the generic level, which needs none, is not in it. */
const convt_level convt_levels[] = {
#ifdef CONVT_X86
    /* From 2 MB on, as with AVX-512, results of 2 to 4 MB take 1.17 times as long on a processor whose best level this
       is, which keeps them in its third-level cache (22 random layers of float32). */
    LEVEL(avx2, avx2, no, .stream_bytes = 1 << 22, .native_rows = 4),
    LEVEL(avx512, avx512, no, .stream_bytes = AVX512_STREAM_BYTES, .native_rows = 4),
    /* Eight rows at once: 131 MB of floats in 0.92, 262 MB of doubles in 0.84 of the time (Zen 4). Fetched, results
       whose rows are not whole vectors (14x14 and 18x18 images, Zen 5) took 0.84 to 0.98 of the time from 9.6 MB
       on, 1.01 to 1.05 up to 8 MB. Sapphire Rapids makes 112 GFLOP/s of its products, half of what multiply-adds do. */
    LEVEL(avx512_bf16, avx512, avx512_bf16, .stream_bytes = AVX512_STREAM_BYTES, .native_rows = 8, .of_amd = 1,
          .halves_stream_bytes = 1 << 21, .fetch_bytes = 1 << 23),
#endif
#ifdef CONVT_AMX
    /* Halves past the caches took 1.0 to 1.13 of the time, but for those of PLACES_STREAM_BYTES (_box_compute.pyx). */
    LEVEL(amx, avx512, amx, .stream_bytes = AVX512_STREAM_BYTES, .native_rows = 4, .halves_stream_bytes = PTRDIFF_MAX,
          .fetch_bytes = PTRDIFF_MAX),
#endif
#ifdef CONVT_NEON
    /* Its vectors have no stores that pass the caches, for which rows that share lines would be copied. */
    LEVEL(neon, neon, no, .stream_bytes = PTRDIFF_MAX, .native_rows = 4),
#endif
    {0}};

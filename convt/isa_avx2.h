/* AVX2 and FMA: 16 registers of 32 bytes. */

#define CONVT_AVX2

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

/* Beside two or three vectors of weights and one broadcast: 15 or 16 of 16 registers. */
#define ACCUMULATORS 12
#define MOST_WEIGHTS 3
#define WIDEST 3

#define DRAIN() _mm_sfence()

#define REAL float
#define STREAM(pointer, vector) _mm256_stream_ps(pointer, (__m256)(vector))
#define STORE_FIRST(pointer, vector, n) _mm256_maskstore_ps(pointer, (__m256i)NAME(first_lanes)(n), (__m256)(vector))
#define LANES 8
#define NAME(kernel) convt_avx2_f32_##kernel
#define LOAD_FLOAT16(pointer) ((NAME(vector))_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(pointer))))
#define NARROW_FLOAT16(vector) ((NAME(halves))_mm256_cvtps_ph((__m256)(vector), _MM_FROUND_TO_NEAREST_INT))
#include "micro.h"
#include "micro_half.h"
#undef LOAD_FLOAT16
#undef NARROW_FLOAT16
enum {
    convt_avx2_f32_lanes = LANES,
    convt_avx2_f32_most_sums = ACCUMULATORS,
    convt_avx2_f32_most_weights = MOST_WEIGHTS,
    convt_avx2_f32_widest = WIDEST
};
#undef REAL
#undef STREAM
#undef STORE_FIRST
#undef LANES
#undef NAME

#define REAL double
#define STREAM(pointer, vector) _mm256_stream_pd(pointer, (__m256d)(vector))
#define STORE_FIRST(pointer, vector, n) _mm256_maskstore_pd(pointer, (__m256i)NAME(first_lanes)(n), (__m256d)(vector))
#define LANES 4
#define NAME(kernel) convt_avx2_f64_##kernel
#include "micro.h"
enum {
    convt_avx2_f64_lanes = LANES,
    convt_avx2_f64_most_sums = ACCUMULATORS,
    convt_avx2_f64_most_weights = MOST_WEIGHTS,
    convt_avx2_f64_widest = WIDEST
};
#undef REAL
#undef STREAM
#undef STORE_FIRST
#undef LANES
#undef NAME

#undef DRAIN
#undef ACCUMULATORS
#undef MOST_WEIGHTS
#undef WIDEST

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

static int convt_avx2_runs_here(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & bit_F16C);
}

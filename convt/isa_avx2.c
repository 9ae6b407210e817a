/* AVX2 and FMA: 16 registers of 32 bytes. */

#include "micro_common.h"

#ifdef CONVT_X86
#include <immintrin.h>

BEGIN_TARGET("avx2,fma,f16c")

/* Beside two or three vectors of weights and one broadcast: 15 or 16 of 16 registers. */
#define MOST_SUMS 12
#define OPERANDS 15
#define MOST_WEIGHTS 3
#define WIDEST 3
#define NARROWEST 1

#define DRAIN() _mm_sfence()

/* The first n elements in up to three stores, as AMD's processors take a dozen cycles and more for a masked one: rows
   of 41 outputs took twice as long. */
INLINE void convt_avx2_store_floats(float *target, __m256 vector, int n)
{
    __m128 part = _mm256_castps256_ps128(vector);
    if (n >= 8) {
        _mm256_storeu_ps(target, vector);
        return;
    }
    if (n & 4) {
        _mm_storeu_ps(target, part);
        part = _mm256_extractf128_ps(vector, 1);
        target += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)target, part);
        part = _mm_movehl_ps(part, part);
        target += 2;
    }
    if (n & 1)
        _mm_store_ss(target, part);
}

INLINE void convt_avx2_store_doubles(double *target, __m256d vector, int n)
{
    __m128d part = _mm256_castpd256_pd128(vector);
    if (n >= 4) {
        _mm256_storeu_pd(target, vector);
        return;
    }
    if (n & 2) {
        _mm_storeu_pd(target, part);
        part = _mm256_extractf128_pd(vector, 1);
        target += 2;
    }
    if (n & 1)
        _mm_store_sd(target, part);
}

#define REAL float
#define STREAM(pointer, vector) _mm256_stream_ps(pointer, (__m256)(vector))
#define STORE_FIRST(pointer, vector, n) convt_avx2_store_floats(pointer, (__m256)(vector), n)
#define LANES 8
#define NAME(kernel) convt_avx2_f32_##kernel
#define LOAD_FLOAT16(pointer) ((NAME(vector))_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(pointer))))
#define NARROW_FLOAT16(vector) ((NAME(halves))_mm256_cvtps_ph((__m256)(vector), _MM_FROUND_TO_NEAREST_INT))
#include "micro.h"
#include "micro_half.h"
#include "micro_native.h"
#undef LOAD_FLOAT16
#undef REAL
#undef STREAM
#undef STORE_FIRST
#undef LANES
#undef NAME

#define REAL double
#define STREAM(pointer, vector) _mm256_stream_pd(pointer, (__m256d)(vector))
#define STORE_FIRST(pointer, vector, n) convt_avx2_store_doubles(pointer, (__m256d)(vector), n)
#define LANES 4
#define NAME(kernel) convt_avx2_f64_##kernel
#include "micro.h"
#include "micro_native.h"

CONVT_DEFINE_KERNELS(avx2);

END_TARGET

int convt_avx2_runs_here(void)
{
    unsigned a, b, c, d;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & bit_F16C);
}

#endif

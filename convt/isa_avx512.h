/* AVX-512 F, BW, DQ, VL: 32 registers of 64 bytes. */

#define CONVT_AVX512

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,fma")
#endif

/* Of 32 registers 24 sums leave room for weights and an input; 28 measured no faster. A multiply-add broadcasts an
   element from memory itself. */
#define ACCUMULATORS 24
#define OPERANDS 32
#define MOST_WEIGHTS 7
#define WIDEST 4

#define DRAIN() _mm_sfence()

/* Results that leave the second-level cache pass the others: 2 to 4 MB took 1.04 times as long otherwise (24 random
   layers of float32; 1.28 espnet_20), 4 MB of a depthwise layer 1.9 times. */
enum { convt_avx512_stream_bytes = 1 << 21 };

/* Of halves; pieces.h wants them, too. A vector that is stored is one of halves or of words. */
#define LOAD_FIRST_HALVES(pointer, n) ((NAME(halves))_mm256_maskz_loadu_epi16((1u << (n)) - 1, pointer))
#define STORE_FIRST_HALVES(pointer, vector, n)                                                                         \
    (sizeof(vector) == 32 ? _mm256_mask_storeu_epi16(pointer, (1u << (n)) - 1, *(const __m256i *)&(vector))            \
                          : _mm512_mask_storeu_epi16(pointer, (1ull << (n)) - 1, *(const __m512i *)&(vector)))

#define REAL float
#define STREAM(pointer, vector) _mm512_stream_ps(pointer, (__m512)(vector))
#define STORE_FIRST(pointer, vector, n) _mm512_mask_storeu_ps(pointer, (1u << (n)) - 1, (__m512)(vector))
#define LANES 16
#define NAME(kernel) convt_avx512_f32_##kernel
#define LOAD_FLOAT16(pointer) ((NAME(vector))_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(pointer))))
#define NARROW_FLOAT16(vector) ((NAME(halves))_mm512_cvtps_ph((__m512)(vector), _MM_FROUND_TO_NEAREST_INT))
#include "micro.h"
#include "micro_half.h"
#include "micro_native.h"
#undef LOAD_FLOAT16
#undef NARROW_FLOAT16
#undef REAL
#undef STREAM
#undef STORE_FIRST
#undef LANES
#undef NAME

#define REAL double
#define STREAM(pointer, vector) _mm512_stream_pd(pointer, (__m512d)(vector))
#define STORE_FIRST(pointer, vector, n) _mm512_mask_storeu_pd(pointer, (1u << (n)) - 1, (__m512d)(vector))
#define LANES 8
#define NAME(kernel) convt_avx512_f64_##kernel
#include "micro.h"
#include "micro_native.h"
#undef REAL
#undef STREAM
#undef STORE_FIRST
#undef LANES
#undef NAME

#undef DRAIN
#undef ACCUMULATORS
#undef OPERANDS
#undef MOST_WEIGHTS
#undef WIDEST

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

static int convt_avx512_runs_here(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
}

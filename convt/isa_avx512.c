/* AVX-512 F, BW, DQ, VL: 32 registers of 64 bytes. */

#include "micro_common.h"

#ifdef CONVT_X86
#include <immintrin.h>

BEGIN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,fma")

/* Of 32 registers 24 sums leave room for weights and an input; 28 measured no faster. A multiply-add broadcasts an
   element from memory itself. */
#define MOST_SUMS 24
#define OPERANDS 32
#define MOST_WEIGHTS 7
#define NARROWEST 0
#define WIDEST 4

#define DRAIN() _mm_sfence()

#define REAL float
#define NAME(kernel) convt_avx512_f32_##kernel
#include "avx512_floats.h"
#include "micro.h"
#include "micro_half.h"
#include "micro_native.h"
#undef REAL
#undef STREAM
#undef STORE_FIRST
#undef LOAD_FLOAT16
#undef LANES
#undef NAME

#define REAL double
#define STREAM(pointer, vector) _mm512_stream_pd(pointer, (__m512d)(vector))
#define STORE_FIRST(pointer, vector, n) _mm512_mask_storeu_pd(pointer, (1u << (n)) - 1, (__m512d)(vector))
#define LANES 8
#define NAME(kernel) convt_avx512_f64_##kernel
#include "micro.h"
#include "micro_native.h"

CONVT_DEFINE_KERNELS(avx512);

END_TARGET

int convt_avx512_runs_here(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
}

#endif

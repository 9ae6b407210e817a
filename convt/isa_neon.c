/* NEON of AArch64, part of its baseline: 32 registers of 16 bytes. */

#include "micro_common.h"

#ifdef CONVT_NEON
#include <arm_neon.h>

/* As on AVX-512, but for an element that is broadcast. */
#define MOST_SUMS 24
#define OPERANDS 31
#define MOST_WEIGHTS 7
#define WIDEST 4
#define NARROWEST 1

/* The compilers' vector types have no streaming store: an ordinary one. */
#define STREAM(pointer, vector) STORE(pointer, vector)
#define DRAIN()
#define STORE_FIRST(pointer, vector, n) memcpy(pointer, &(vector), (n) * sizeof(REAL))

#define REAL float
#define LANES 4
#define NAME(kernel) convt_neon_f32_##kernel
#define LOAD_FLOAT16(pointer) ((NAME(vector))vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(pointer))))
#define NARROW_FLOAT16(vector) ((NAME(halves))vreinterpret_u16_f16(vcvt_f16_f32((float32x4_t)(vector))))
#include "micro.h"
#include "micro_half.h"
#include "micro_native.h"
#undef LOAD_FLOAT16
#undef REAL
#undef LANES
#undef NAME

#define REAL double
#define LANES 2
#define NAME(kernel) convt_neon_f64_##kernel
#include "micro.h"
#include "micro_native.h"

CONVT_DEFINE_KERNELS(neon);

int convt_neon_runs_here(void)
{
    return 1;
}

#endif

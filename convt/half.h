/* float16 and bfloat16 as storage types: widening is exact, narrowing rounds once, to nearest even.

   Integer arithmetic on the bits, so that every baseline compiles and vectorises it: gcc 12 has no __bf16
   arithmetic, and its _Float16 calls a library routine per element without F16C. Written without branches for
   the vectoriser. No step depends on the caller's denormal mode: float16's subnormals as results are made by one
   addition of normal numbers, which the rounding mode would change. */
#ifndef CONVT_HALF_H
#define CONVT_HALF_H

#include <stdint.h>
#include <string.h>

typedef struct {
    uint16_t bits;
} convt_float16;

typedef struct {
    uint16_t bits;
} convt_bfloat16;

static inline float convt_float_from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t convt_bits_from_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float convt_widen_float16(convt_float16 half)
{
    const uint32_t sign = (uint32_t)(half.bits & 0x8000u) << 16;
    const uint32_t magnitude = (uint32_t)(half.bits & 0x7fffu) << 13;
    const uint32_t exponent = magnitude & (31u << 23);
    /* Rebias 15 -> 127; Inf and NaN (exponent 31) go on to 255. */
    const uint32_t rebias = exponent == 31u << 23 ? 224u << 23 : 112u << 23;
    /* Subnormals: put the bits below a leading one of 2^-14, then take that one away again, exactly. */
    const float subnormal = convt_float_from_bits(magnitude + (113u << 23)) - convt_float_from_bits(113u << 23);
    const uint32_t bits = exponent ? magnitude + rebias : convt_bits_from_float(subnormal);
    return convt_float_from_bits(bits | sign);
}

static inline convt_float16 convt_narrow_float16(float value)
{
    const uint32_t bits = convt_bits_from_float(value);
    const uint32_t magnitude = bits & 0x7fffffffu;
    /* Normal results: rebias 127 -> 15, add just under half a unit and the odd bit, cut. A carry into the
       exponent is the right result, up to and including Inf. */
    const uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    /* Below 2^-14: adding 1/2 aligns the unit of float with float16's smallest subnormal, 2^-24. */
    const uint32_t subnormal = convt_bits_from_float(convt_float_from_bits(magnitude) + 0.5f) - (126u << 23);
    uint32_t result = magnitude < 113u << 23 ? subnormal : normal;
    result = magnitude >= 143u << 23 ? 0x7c00u : result; /* 65536 and above, Inf */
    /* NaN, made quiet, keeps the upper bits of its payload, as the processor's own conversions do. */
    result = magnitude > 255u << 23 ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : result;
    convt_float16 half = {(uint16_t)(result | (bits >> 16 & 0x8000u))};
    return half;
}

static inline float convt_widen_bfloat16(convt_bfloat16 half)
{
    return convt_float_from_bits((uint32_t)half.bits << 16);
}

static inline convt_bfloat16 convt_narrow_bfloat16(float value)
{
    const uint32_t bits = convt_bits_from_float(value);
    const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const uint32_t nan = bits >> 16 | 0x40u;
    convt_bfloat16 half = {(uint16_t)((bits & 0x7fffffffu) > 255u << 23 ? nan : rounded)};
    return half;
}

#endif

/* Multiply-adds as fast as a core makes them: from registers, nothing loaded or stored. For peak.py. */

#include <immintrin.h>
#include <stdint.h>

/* 12 independent sums hide the latency of an addition on two units. */
#define PEAK(name, REAL, BYTES, TARGET)                                                                                \
    typedef REAL name##_vector __attribute__((vector_size(BYTES)));                                                    \
    __attribute__((target(TARGET))) double name(int64_t n, const double *random)                                       \
    {                                                                                                                  \
        name##_vector sums[12], factor, added;                                                                         \
        for (int lane = 0; lane < (int)(BYTES / sizeof(REAL)); lane++) {                                               \
            factor[lane] = (REAL)(random[lane] / 2 + 0.5);                                                             \
            added[lane] = (REAL)random[lane + 16];                                                                     \
            for (int i = 0; i < 12; i++)                                                                               \
                sums[i][lane] = (REAL)random[lane + 16 * i];                                                           \
        }                                                                                                              \
        for (int64_t k = 0; k < n; k++)                                                                                \
            _Pragma("GCC unroll 12") for (int i = 0; i < 12; i++) sums[i] = sums[i] * factor + added;                  \
        double total = 0;                                                                                              \
        for (int i = 0; i < 12; i++)                                                                                   \
            total += sums[i][0];                                                                                       \
        return total;                                                                                                  \
    }

PEAK(avx2_float32, float, 32, "avx2,fma")
PEAK(avx2_float64, double, 32, "avx2,fma")
PEAK(avx512_float32, float, 64, "avx512f,fma")
PEAK(avx512_float64, double, 64, "avx512f,fma")

/* Products of pairs of bfloat16, in vectors. */
__attribute__((target("avx512f,avx512bf16"))) double avx512_bf16(int64_t n, const double *random)
{
    __m512 sums[12];
    float pairs[2][16]; /* any: their halves are read as bfloat16 */
    for (int i = 0; i < 12; i++)
        sums[i] = _mm512_set1_ps((float)random[i]);
    for (int lane = 0; lane < 16; lane++) {
        pairs[0][lane] = (float)random[lane + 16];
        pairs[1][lane] = (float)random[lane + 32];
    }
    const __m512bh left = (__m512bh)_mm512_loadu_ps(pairs[0]), right = (__m512bh)_mm512_loadu_ps(pairs[1]);
    for (int64_t k = 0; k < n; k++)
        _Pragma("GCC unroll 12") for (int i = 0; i < 12; i++) sums[i] = _mm512_dpbf16_ps(sums[i], left, right);
    float total = 0;
    for (int i = 0; i < 12; i++)
        total += sums[i][0];
    return total;
}

/* Products of bfloat16 tiles, 16 x 32 by 32 x 16. */
__attribute__((target("amx-tile,amx-bf16,avx512f"))) double amx_bfloat16(int64_t n, const double *random)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t row_bytes[16];
        uint8_t rows[16];
    } config = {1, 0, {0}, {64, 64, 64, 64, 64, 64, 64, 64}, {16, 16, 16, 16, 16, 16, 16, 16}};
    uint16_t bits[4][512];
    float sums[256];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 512; j++) {
            union {
                float value;
                uint32_t bits;
            } x = {(float)random[(i * 512 + j) % 192] - 0.5f};
            bits[i][j] = (uint16_t)(x.bits >> 16);
        }
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, bits[0], 64);
    _tile_loadd(5, bits[1], 64);
    _tile_loadd(6, bits[2], 64);
    _tile_loadd(7, bits[3], 64);
    for (int64_t k = 0; k < n; k++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, 64);
    _tile_release();
    return sums[0];
}

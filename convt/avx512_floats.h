/* What AVX-512 gives to micro-kernels of floats, those of pieces included. */

#define LANES 16
#define STREAM(pointer, vector) _mm512_stream_ps(pointer, (__m512)(vector))
#define STORE_FIRST(pointer, vector, n) _mm512_mask_storeu_ps(pointer, (1u << (n)) - 1, (__m512)(vector))
#define LOAD_FLOAT16(pointer) ((NAME(vector))_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(pointer))))
#define NARROW_FLOAT16(vector) ((NAME(halves))_mm512_cvtps_ph((__m512)(vector), _MM_FROUND_TO_NEAREST_INT))
#define LOAD_FIRST_HALVES(pointer, n) ((NAME(halves))_mm256_maskz_loadu_epi16((1u << (n)) - 1, pointer))
/* A vector that is stored is one of halves or of words. */
#define STORE_FIRST_HALVES(pointer, vector, n)                                                                         \
    (sizeof(vector) == 32 ? _mm256_mask_storeu_epi16(pointer, (1u << (n)) - 1, *(const __m256i *)&(vector))            \
                          : _mm512_mask_storeu_epi16(pointer, (1ull << (n)) - 1, *(const __m512i *)&(vector)))

/* Every micro-kernel of every level that the processor runs but those of pairs of bfloat16, against its definition, on
   small integers (exact), and the conversions of halves.

   Built and run by tests/test_micro_kernels.py; for another architecture as CONTRIBUTING.md says. */

#include "half.h"
#include "levels.h"

#include <stdio.h>
#include <stdlib.h>

enum { TAPS = 2, CHANNELS = 5, STEP = 300, OUT = 400, LONGEST = 20 };

static int failures = 0;

static void report(const char *level, const char *kernel, int wrong)
{
    printf("%s %s: %s\n", level, kernel, wrong ? "WRONG" : "ok");
    failures += wrong != 0;
}

#define REAL float
#define TYPE "float"
#define NAME(name) float_##name
#define KERNELS convt_kernels_f32
#include "micro_kernels_of.h"
#undef REAL
#undef TYPE
#undef NAME
#undef KERNELS

#define REAL double
#define TYPE "double"
#define NAME(name) double_##name
#define KERNELS convt_kernels_f64
#include "micro_kernels_of.h"

static uint16_t narrowed(int bfloat16, float value)
{
    return bfloat16 ? convt_narrow_bfloat16(value).bits : convt_narrow_float16(value).bits;
}

static float widened(int bfloat16, uint16_t bits)
{
    return bfloat16 ? convt_widen_bfloat16((convt_bfloat16){bits}) : convt_widen_float16((convt_float16){bits});
}

static void test_halves(const char *level, const char *kernels, int lanes, const convt_halves *k)
{
    static float x[2048], bias[64], wide[64];
    static uint16_t out[2048] __attribute__((aligned(64)));
    const float *rows[32];
    int wrong = 0;
    for (int i = 0; i < 2048; i++)
        x[i] = (float)(rand() % 60001 - 30000) / 1024; /* to be rounded, never subnormal */
    for (int i = 0; i < 64; i++)
        bias[i] = (float)(rand() % 7 - 3);
    for (int i = 0; i < 32; i++)
        rows[i] = x + 31 * i;
    for (int bfloat16 = 0; bfloat16 < 2; bfloat16++) {
        for (int n = 1; n <= 40; n++) {
            out[n] = 99;
            k->narrow(bfloat16, x, n, out);
            k->widen(bfloat16, out, n, 0, wide);
            for (int i = 0; i < n; i++) {
                wrong += out[i] != narrowed(bfloat16, x[i]);
                wrong += wide[i] != widened(bfloat16, out[i]);
            }
            wrong += out[n] != 99;
        }
        wrong += k->interleave_narrow(bfloat16, 40, 5, rows, out);
        for (int places = 1; places <= 8; places += 1 + (places > 3))
            for (int n = 1; n <= 40; n++) {
                out[places * n] = 99;
                wrong += !k->interleave_narrow(bfloat16, n, places, rows, out);
                for (int i = 0; i < places * n; i++)
                    wrong += out[i] != narrowed(bfloat16, rows[i % places][i / places]);
                wrong += out[places * n] != 99;
            }
        for (int stream = 0; stream < 2; stream++)
            for (int n = 1; n <= 2 * lanes; n++)
                for (int columns = 1; columns <= lanes; columns++) {
                    const int step = stream ? 64 : 40;
                    for (int i = 0; i < 2048; i++)
                        out[i] = 99;
                    k->transpose_narrow(bfloat16, n, columns, rows, 3, bias, out, step, stream);
                    for (int i = 0; i < columns; i++)
                        for (int j = 0; j < step; j++)
                            wrong +=
                                out[i * step + j] != (j < n ? narrowed(bfloat16, rows[j][3 + i] + bias[3 + i]) : 99);
                    wrong += out[columns * step] != 99;
                }
    }
    report(level, kernels, wrong);
}

/* `native` by weights of halves. */
static void test_native_of_halves(const char *level, const convt_kernels_f32 *k)
{
    enum { N = 37, ROW = 40, MOST_CHANNELS = 21 };
    static float x[3 * MOST_CHANNELS], out[3 * ROW];
    static uint16_t w[MOST_CHANNELS * ROW];
    int wrong = 0;
    for (int i = 0; i < 3 * MOST_CHANNELS; i++)
        x[i] = (float)(rand() % 7 - 3);
    for (int bfloat16 = 0; bfloat16 < 2; bfloat16++) {
        for (int i = 0; i < MOST_CHANNELS * ROW; i++)
            w[i] = narrowed(bfloat16, (float)(rand() % 7 - 3));
        for (int channels = 1; channels <= MOST_CHANNELS; channels += 5)
            for (int images = 1; images <= 3; images++) {
                for (int i = 0; i < 3 * ROW; i++)
                    out[i] = (float)(i % 5);
                k->native(4, 1, bfloat16 ? 8 : 11, images, channels, N, x, MOST_CHANNELS, w, ROW, out, ROW);
                for (int i = 0; i < 3 * ROW; i++) {
                    float sum = (float)(i % 5);
                    for (int c = 0; c < channels && i / ROW < images && i % ROW < N; c++)
                        sum += x[i / ROW * MOST_CHANNELS + c] * widened(bfloat16, w[c * ROW + i % ROW]);
                    wrong += out[i] != sum;
                }
            }
    }
    report(level, "native of halves", wrong);
}

int main(void)
{
    for (const convt_level *level = convt_levels; level->name; level++)
        if (level->runs_here()) {
            float_test(level->name, level->f32);
            double_test(level->name, level->f64);
            test_halves(level->name, "halves", level->f32->sizes.lanes, level->halves);
            test_native_of_halves(level->name, level->f32);
            if (level->tiles->configure)
                test_halves(level->name, "halves beside tiles", level->f32->sizes.lanes, &level->tiles->halves);
        }
    return failures != 0;
}

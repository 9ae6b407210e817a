/* Tile registers in software, to run the level `amx` on a processor that has AVX512_BF16 but no AMX: exact
   sums are the same, others are rounded in another order; times mean nothing. Included before everything else, as
   CONTRIBUTING.md says. */
#if defined(__x86_64__)

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1 /* before the first of the system's headers, as Python's own do */
#endif
#include <cpuid.h>
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static __thread __attribute__((unused)) struct {
    int configured;
    unsigned char rows[16]; /* of every register, by the configuration */
    char registers[8][16][64];
} software_tiles;

/* A register of a thread that has configured its tiles, as the processor wants. */
static inline char (*software_tile(int tile))[64]
{
    if (!software_tiles.configured)
        abort();
    return software_tiles.registers[tile];
}

static inline void software_configure(const void *config)
{
    memcpy(software_tiles.rows, (const char *)config + 48, sizeof software_tiles.rows);
    software_tiles.configured = 1;
}

static inline void software_load(int tile, const void *from, ptrdiff_t step)
{
    char (*registers)[64] = software_tile(tile);
    for (int row = 0; row < software_tiles.rows[tile]; row++)
        memcpy(registers[row], (const char *)from + row * step, 64);
}

static inline void software_store(int tile, void *to, ptrdiff_t step)
{
    char (*registers)[64] = software_tile(tile);
    for (int row = 0; row < software_tiles.rows[tile]; row++)
        memcpy((char *)to + row * step, registers[row], 64);
}

__attribute__((target("avx512f,avx512bf16"))) static inline void software_product(int sums, int left, int right)
{
    char (*out)[64] = software_tile(sums), (*a)[64] = software_tile(left), (*b)[64] = software_tile(right);
    for (int row = 0; row < software_tiles.rows[sums]; row++) {
        __m512 sum = _mm512_loadu_ps(out[row]);
        for (int pair = 0; pair < 16; pair++) {
            int both;
            memcpy(&both, a[row] + 4 * pair, 4);
            sum = _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(both), (__m512bh)_mm512_loadu_si512(b[pair]));
        }
        _mm512_storeu_ps(out[row], sum);
    }
}

static inline int software_cpuid(unsigned leaf, unsigned subleaf, unsigned *a, unsigned *b, unsigned *c, unsigned *d)
{
    enum { AMX_BF16 = 1 << 22, AMX_TILE = 1 << 24 };
    const int found = __get_cpuid_count(leaf, subleaf, a, b, c, d);
    if (leaf == 7 && subleaf == 0)
        *d |= AMX_BF16 | AMX_TILE;
    return found;
}

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_zero
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig software_configure
#define _tile_release() ((void)(software_tiles.configured = 0))
#define _tile_zero(tile) ((void)memset(software_tile(tile), 0, sizeof software_tiles.registers[0]))
#define _tile_loadd software_load
#define _tile_stored software_store
#define _tile_dpbf16ps software_product
#define __get_cpuid_count software_cpuid
#define syscall(...) 0 /* the system need not know of these registers */

#endif

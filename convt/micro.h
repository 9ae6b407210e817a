/* The micro-kernels, written once in compiler vector types and instantiated per element type and ISA.

   The source of an instruction set (isa_*.c) includes this file inside its target region, after defining
     REAL           float or double
     LANES          elements of a vector
     NAME(kernel)   the instance's name of a kernel
     MOST_SUMS      registers that a tile may fill with sums
     OPERANDS       those that it may fill with sums and what is multiplied, but for one element broadcast at a time
     MOST_WEIGHTS   those that a tile of `channels` may fill with weights
     WIDEST         most vectors of a tile of `channels`
     NARROWEST      fewest: 1, or 0 for tiles of half a vector
     STREAM(pointer, vector)   a store past the caches to an aligned place, and DRAIN(), which orders such stores
     STORE_FIRST(pointer, vector, n)   a store of a variable's first n elements, up to LANES, alone

   A tile keeps its sums in registers for a chain of CONVT_CHAIN fused multiply-adds, about, and adds chains up: slices
   of the channels outside, where these are many, then taps or runs of them, channels inside, in a run its taps
   innermost. Of single taps two channels a round: with one layers took 1 to 10 % longer, four are no better. gcc 12 and
   clang 14 turn the unrolled arrays into registers (seen in the disassembly). */

#include "registers.h"

#if WIDEST < 3 || WIDEST > 4
#error "tiles of `channels` are three or four vectors wide at most"
#endif
/* Taps of a run, up to three, of which a tile of so many vectors holds the weights beside the sums and an input. */
#define MOST_TAPS(vectors) (MOST_WEIGHTS / (vectors) > 2 ? 3 : MOST_WEIGHTS / (vectors) > 1 ? 2 : 1)

/* Cache lines that so many vectors fill, at least one. By AVX2, which is short of loads, three that fill one and a half
   reached 89 % of the FMA peak so, 86 % by asking for both (float64, Zen 4). */
#define WHOLE_LINES(vectors)                                                                                           \
    ((vectors) * LANES * (int)sizeof(REAL) / 64 > 1 ? (vectors) * LANES * (int)sizeof(REAL) / 64 : 1)

#define TILE(kernel) NAME(kernel)
#include "micro_channels.h"
#undef TILE
#if NARROWEST == 0
typedef REAL NAME(half_vector) __attribute__((vector_size(LANES / 2 * sizeof(REAL))));
typedef REAL NAME(half_unaligned)
    __attribute__((vector_size(LANES / 2 * sizeof(REAL)), aligned(sizeof(REAL)), may_alias));
#define TILE(kernel) NAME(half_##kernel)
#include "micro_channels.h"
#undef TILE
#endif

/* One register tile: `positions` places x_step apart, `vectors` (NARROWEST to WIDEST) vectors of output channels, half
   a one if that is 0.
   Taps come in rows of `row_taps`, each reading the position before the last one's; two or three of a row make a run.
   Runs are part of the order of summation: they must follow from the geometry, not from offsets, which boxes change.
   w is [tap][channel][vectors * LANES]; out gets a row of vectors * LANES per position, added to what it holds if that
   is `begun`, and holds the sums of the chains that ended. Meanwhile what lies from `soon` on is fetched into the
   second-level cache, `soon_step` elements further with every channel and tap, a run at once: the weights that come
   after these. As many lines a channel as a tap's weights fill: with one, weights that come from memory took 1.25 times
   as long (1024 to 512 channels of 2x2, Zen 4).
 */
static void NAME(channels)(int positions, int vectors, ptrdiff_t taps, ptrdiff_t row_taps, const convt_tap *tap,
                           ptrdiff_t channels, const REAL *x, ptrdiff_t x_step, const REAL *w, const REAL *soon,
                           ptrdiff_t soon_step, int begun, REAL *out, ptrdiff_t out_step)
{
#define CALL(p, v)                                                                                                     \
    NAME(channels_tile)(p, v, taps, row_taps, tap, channels, x, x_step, w, soon, soon_step, begun, out, out_step)
#define CALL_HALF(p, v)                                                                                                \
    NAME(half_channels_tile)(p, v, taps, row_taps, tap, channels, x, x_step, w, soon, soon_step, begun, out, out_step)
    switch (vectors) {
#if NARROWEST == 0
    case 0:
        EVERY_TILE(positions, 1, CALL_HALF)
        break;
#endif
    case 1:
        EVERY_TILE(positions, 1, CALL)
        break;
    case 2:
        EVERY_TILE(positions, 2, CALL)
        break;
    case 3:
        EVERY_TILE(positions, 3, CALL)
        break;
#if WIDEST > 3
    case 4:
        EVERY_TILE(positions, 4, CALL)
        break;
#endif
    }
#undef CALL
#undef CALL_HALF
}

/* Lanes along groups of one channel each: sums[p] = x[tap][p] * w[tap], lane by lane. */
INLINE void NAME(groups_tile)(const int positions, ptrdiff_t taps, const convt_tap *tap, const REAL *x,
                              ptrdiff_t x_step, const REAL *w, REAL *out, ptrdiff_t out_step)
{
    VECTOR sums[MOST_POSITIONS(1)];
    UNROLLED (p, positions)
        sums[p] = (VECTOR){0};
    for (ptrdiff_t t = 0; t < taps; t++) {
        const VECTOR weights = LOAD(w + t * LANES);
        const REAL *from = x + tap[t].offset;
        UNROLLED (p, positions)
            sums[p] += LOAD(from + p * x_step) * weights;
    }
    UNROLLED (p, positions)
        STORE(out + p * out_step, sums[p]);
}

/* One register tile of `positions` places, x_step apart, of as many groups as there are lanes. w is [tap][group]; all
   taps are multiplied, zeros beyond the border included. */
static void NAME(groups)(int positions, ptrdiff_t taps, const convt_tap *tap, const REAL *x, ptrdiff_t x_step,
                         const REAL *w, REAL *out, ptrdiff_t out_step)
{
#define CALL(p, v) NAME(groups_tile)(p, taps, tap, x, x_step, w, out, out_step)
    EVERY_TILE(positions, 1, CALL);
#undef CALL
}

#include "micro_rows.h"

#define OUTPUT REAL
#define BROADCAST(element) ((element) - (VECTOR){0}) /* keeps -0 */
#define MULTIPLY_ADD(sum, weights, inputs) ((sum) + (weights) * (inputs))
#define ALIGNED(pointer, places) ON_VECTOR(pointer)
#define COPIES (MOST_SUMS >= CONVT_MANY_SUMS)
#define CHAINS 1
#include "micro_positions.h"
#undef COPIES
#undef CHAINS
#undef OUTPUT
#undef BROADCAST
#undef MULTIPLY_ADD
#undef ALIGNED

/* Orders streamed stores before whatever follows. */
static void NAME(drain)(void)
{
    DRAIN();
}

/* Whether every element is finite: Inf and NaN times 0 are NaN. */
static int NAME(all_finite)(const REAL *elements, ptrdiff_t n)
{
    VECTOR sum = {0};
    REAL rest = 0;
    ptrdiff_t i = 0;
    for (; i + LANES <= n; i += LANES)
        sum += LOAD(elements + i) * 0;
    for (; i < n; i++)
        rest += elements[i] * 0;
    for (int v = 0; v < LANES; v++)
        rest += sum[v];
    return rest == 0;
}

/* As in levels.h. */
enum {
    NAME(lanes) = LANES,
    NAME(most_sums) = MOST_SUMS,
    NAME(most_weights) = MOST_WEIGHTS,
    NAME(widest) = WIDEST,
    NAME(narrowest) = NARROWEST
};

#undef MOST_TAPS
#undef WHOLE_LINES

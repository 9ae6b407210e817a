/* Tiles with lanes along channels: written once, instantiated by micro.h for whole vectors and for half ones.

   Whoever includes this file defines, beside what micro.h asks for,
     TILE(kernel)   the instance's name of a kernel, and TILE(vector) and TILE(unaligned), its vectors: the first lanes
                    of LANES, which lie in memory all the same */

#define TILE_LOAD(pointer) ((TILE(vector)) * (const TILE(unaligned) *)(pointer))

/* One channel of `channels_run`; rows[i] points to every third position. The first `before` inputs and those from
   `end` on are zeros: up to two at either end are left out. */
INLINE void TILE(channel_of_run)(const int positions, const int vectors, const int taps, const REAL *const *rows,
                                 ptrdiff_t x_step, ptrdiff_t c, const int before, const int end, const REAL **w,
                                 TILE(vector) (*sums)[WIDEST])
{
    TILE(vector) weights[3][WIDEST];
    UNROLLED (t, taps) {
        UNROLLED (v, vectors)
            weights[t][v] = TILE_LOAD(w[t] + v * LANES);
        w[t] += vectors * LANES;
    }
    UNROLLED (i, positions + taps - 1) {
        if ((i < CONVT_MOST_ZEROS && i < before) || (i >= positions + taps - 1 - CONVT_MOST_ZEROS && i >= end))
            continue;
        const REAL input = rows[i / 3][c + i % 3 * x_step];
        UNROLLED (t, taps) {
            const int p = i - (taps - 1 - t);
            if (p >= 0 && p < positions)
                UNROLLED (v, vectors)
                    sums[p][v] += input * weights[t][v];
        }
    }
}

/* A run of taps, each of which reads one position less than the one before it: an input is loaded once for all of them.
   w is [tap][c][vector], w_tap from tap to tap; n channels are multiplied. A core whose other thread is busy is held up
   by loads first: 24 sums of 2 vectors made 117 GFLOP/s of 171 tap by tap, 153 in runs of three. */
INLINE void TILE(channels_run)(const int positions, const int vectors, const int taps, const convt_tap *tap,
                               ptrdiff_t n, const REAL *x, ptrdiff_t x_step, const REAL *w, ptrdiff_t w_tap,
                               const REAL *soon, ptrdiff_t soon_step, TILE(vector) (*sums)[WIDEST])
{
    const int checked = positions >= CONVT_CHECKED_POSITIONS, before = checked ? tap[taps - 1].before : 0;
    const int end = positions + taps - 1 - (checked ? tap[0].after : 0);
    /* A pointer for each position would not fit into the registers: 92 instead of 99 % of the FMA peak. */
    const REAL *rows[(MOST_POSITIONS(1) + 2 + 2) / 3];
    const REAL *w_of[3];
    x += tap[taps - 1].offset;
    UNROLLED (i, (positions + taps - 1 + 2) / 3)
        rows[i] = x + 3 * i * x_step;
    UNROLLED (t, taps)
        w_of[t] = w + t * w_tap;
    soon_step *= taps;
#define CHANNEL                                                                                                        \
    TILE(channel_of_run)(positions, vectors, taps, rows, x_step, c, before, end, w_of, sums);                          \
    UNROLLED (line, WHOLE_LINES(vectors))                                                                              \
        __builtin_prefetch(soon + line * (64 / (int)sizeof(REAL)), 0, 2);                                              \
    soon += soon_step;
    if (taps > 1) {
        for (ptrdiff_t c = 0; c < n; c++) {
            CHANNEL
        }
        return;
    }
    UNROLL_TWICE
    for (ptrdiff_t c = 0; c < n; c++) {
        CHANNEL
    }
#undef CHANNEL
}

/* Lanes along channels: sums[p][v] = x[tap][p][c] * w[tap][c][v]. A chain ends behind whole runs, or a part of the
   channels of one; taps that are left out count as others do. */
INLINE void TILE(channels_tile)(const int positions, const int vectors, ptrdiff_t taps, ptrdiff_t row_taps,
                                const convt_tap *tap, ptrdiff_t channels, const REAL *x, ptrdiff_t x_step,
                                const REAL *w, const REAL *soon, ptrdiff_t soon_step, int begun, REAL *out,
                                ptrdiff_t out_step)
{
    TILE(vector) sums[MOST_POSITIONS(1)][WIDEST];
    const ptrdiff_t w_tap = channels * vectors * LANES, longest = taps > 1 ? CONVT_LONGEST_CHAIN : CONVT_CHAIN;
    ptrdiff_t t = 0, first = 0;
    do {
        UNROLLED (p, positions)
            UNROLLED (v, vectors)
                sums[p][v] = (TILE(vector)){0};
        for (ptrdiff_t products = 0; t < taps;) {
            const ptrdiff_t left = row_taps - t % row_taps; /* of a row */
            /* Two and two of four rather than three and one. */
            const int run = left <= MOST_TAPS(vectors)            ? left
                            : MOST_TAPS(vectors) > 2 && left == 4 ? 2
                                                                  : MOST_TAPS(vectors);
            const ptrdiff_t rest = channels - first;
            ptrdiff_t some = rest;
            /* What is too long for a chain is cut evenly; of one tap into CONVT_CHAIN, as native weights are. */
            if (run * rest > longest)
                some = taps > 1 ? rest / ((run * rest - 1) / longest + 1) : longest;
            if (products && products + run * some > longest)
                break;
#define RUN(n)                                                                                                         \
    TILE(channels_run)(positions, vectors, n, tap + t, some, x + first, x_step, w, w_tap, soon, soon_step, sums)
            if (tap[t].offset == CONVT_NO_TAP)
                ; /* nor the others of the row */
            else if (MOST_TAPS(vectors) > 2 && run == 3)
                RUN(MOST_TAPS(vectors) > 2 ? 3 : 1);
            else if (MOST_TAPS(vectors) > 1 && run == 2)
                RUN(MOST_TAPS(vectors) > 1 ? 2 : 1);
            else
                RUN(1);
#undef RUN
            products += run * some;
            first += some;
            w += some * vectors * LANES;
            soon += run * some * soon_step;
            if (first == channels) {
                t += run;
                w += (run - 1) * w_tap;
                first = 0;
            }
        }
        if (begun)
            UNROLLED (p, positions)
                UNROLLED (v, vectors)
                    sums[p][v] += TILE_LOAD(out + p * out_step + v * LANES);
        UNROLLED (p, positions)
            UNROLLED (v, vectors)
                *(TILE(unaligned) *)(out + p * out_step + v * LANES) = sums[p][v];
        begun = 1;
    } while (t < taps);
}

#undef TILE_LOAD

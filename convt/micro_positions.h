/* The micro-kernels with lanes along positions: written once, instantiated by micro.h for floats and doubles and by
   isa_avx512_bf16.c for pairs of bfloat16.

   Whoever includes this file, behind registers.h, defines REAL, LANES, NAME, MOST_SUMS and OPERANDS as for micro.h
   and
     OUTPUT                               an element that `positions_out` writes
     BROADCAST(element)                   a vector of it
     MULTIPLY_ADD(sum, weights, inputs)   sum + weights * inputs
     COPIES                               whether tiles of one class may copy what they read
     CHAINS                               whether sums of many products are made of chains, and added to others
     ALIGNED(pointer, places)             whether `write_cells` may pass the caches there
     NAME(write_cells)(places, cells, at, kept, past_caches)
                                          LANES cells, a vector of sums for each of their places (1 to 4, 6 or 8), as
                                          outputs that follow each other: `kept` of them or, if that is 0, all
     NAME(write_cells_apart)(places, cells, at, offsets, kept, past_caches)
                                          the same of 2 or 4 places, every LANES outputs to an offset of their own */

/* What a tile does of a strip besides, at levels with registers to spare: it fetches a cache line for each channel from
   `soon` on, so many bytes apart, or two of them, and copies its inputs to `packed`, so many elements from one channel
   and vector to the next. The latter or both may be NULL. */
typedef struct {
    REAL *packed;
    ptrdiff_t packed_channel, packed_vector;
    const char *soon;
    ptrdiff_t soon_channel, soon_second;
} NAME(strip);

/* Lanes along positions: sums[r][v] = bias[r] + x[tap][c][v] * w[tap][c][r], x_vector from one v to the next, w_tap
   from one tap's weights to the next one's; what lies `ahead`, unless 0, is fetched into the first-level cache, and
   what lies `later` into the second-level one. */
INLINE void NAME(positions_tile)(const int rows, const int vectors, ptrdiff_t taps, const ptrdiff_t *tap_offset,
                                 ptrdiff_t channels, const REAL *x, ptrdiff_t x_step, ptrdiff_t x_vector,
                                 ptrdiff_t ahead, ptrdiff_t later, const NAME(strip) strip, const REAL *w,
                                 ptrdiff_t w_tap, const REAL *bias, VECTOR (*sums)[8])
{
    const char *soon = strip.soon;
    REAL *packed = strip.packed;
    UNROLLED (r, rows)
        UNROLLED (v, vectors)
            sums[r][v] = BROADCAST(bias[r]);
    for (ptrdiff_t t = 0; t < taps; t++, w += w_tap - channels * rows) {
        const REAL *line = x + tap_offset[t];
        UNROLL_TWICE
        for (ptrdiff_t c = 0; c < channels; c++) {
            if (ahead)
                UNROLLED (v, vectors)
                    __builtin_prefetch(line + ahead + v * x_vector);
            if (later)
                UNROLLED (v, vectors)
                    __builtin_prefetch(line + later + v * x_vector, 0, 2);
            if (soon) {
                __builtin_prefetch(soon);
                if (strip.soon_second)
                    __builtin_prefetch(soon + strip.soon_second);
                soon += strip.soon_channel;
                if (packed) {
                    UNROLLED (v, vectors)
                        STORE(packed + v * strip.packed_vector, LOAD(line + v * x_vector));
                    packed += strip.packed_channel;
                }
            }
            if ((rows + 1) * vectors > OPERANDS) { /* weights are the fewer: 2 and 3 rows, by AVX2, 1.3 to 1.9 times */
                VECTOR weights[8];
                UNROLLED (r, rows)
                    weights[r] = BROADCAST(w[r]);
                UNROLLED (v, vectors) {
                    const VECTOR input = LOAD(line + v * x_vector);
                    UNROLLED (r, rows)
                        sums[r][v] = MULTIPLY_ADD(sums[r][v], weights[r], input);
                }
            } else {
                VECTOR inputs[8];
                UNROLLED (v, vectors)
                    inputs[v] = LOAD(line + v * x_vector);
                UNROLLED (r, rows)
                    UNROLLED (v, vectors)
                        sums[r][v] = MULTIPLY_ADD(sums[r][v], BROADCAST(w[r]), inputs[v]);
            }
            line += x_step;
            w += rows;
        }
    }
}

/* The same in chains of some channels, with all their taps, if sums are `chained`. Two classes are not: enet_up2_16
   took 1.05 times as long so, though its sums are one chain anyway. */
INLINE void NAME(positions_chains)(const int chained, const int rows, const int vectors, const convt_tap_class *of,
                                   ptrdiff_t channels, const REAL *x, ptrdiff_t x_step, ptrdiff_t x_vector,
                                   ptrdiff_t ahead, ptrdiff_t later, NAME(strip) strip, VECTOR (*sums)[8])
{
    static const REAL zeros[8];
    const REAL *bias = of->bias ? of->bias : zeros;
    const ptrdiff_t w_tap = channels * rows;
    VECTOR chains[8][8]; /* the sum of those that ended */
    for (ptrdiff_t first = 0;;) {
        const ptrdiff_t left = channels - first, n = chained && of->chain < left ? of->chain : left;
        NAME(positions_tile)(rows, vectors, of->taps, of->tap_offset, n, x + first * x_step, x_step, x_vector, ahead,
                             later, strip, (const REAL *)of->w + first * rows, w_tap, bias, sums);
        if (!chained)
            return;
        if (first)
            UNROLLED (r, rows)
                UNROLLED (v, vectors)
                    sums[r][v] += chains[r][v];
        first += n;
        if (first == channels)
            return;
        UNROLLED (r, rows)
            UNROLLED (v, vectors)
                chains[r][v] = sums[r][v];
        /* Not in registers, which the sums take. */
        __asm__ volatile("" : : "r"(chains) : "memory");
        bias = zeros;
        strip.soon = strip.soon ? strip.soon + of->taps * n * strip.soon_channel : NULL;
        strip.packed = strip.packed ? strip.packed + of->taps * n * strip.packed_channel : NULL;
    }
}

#if CHAINS
/* A tile's sums added to those of `out`, the first `done` positions of which have them already. */
INLINE void NAME(add_to)(const int rows, const int vectors, ptrdiff_t done, const REAL *out, ptrdiff_t out_step,
                         VECTOR (*sums)[8])
{
    UNROLLED (v, vectors) {
        const ptrdiff_t left = done - v * LANES;
        const NAME(mask) kept = NAME(first_lanes)(left < 0 ? 0 : left < LANES ? left : LANES);
        UNROLLED (r, rows) {
            const VECTOR before = LOAD(out + r * out_step + v * LANES), added = sums[r][v] + before;
            sums[r][v] = (VECTOR)(((NAME(mask))before & kept) | ((NAME(mask))added & ~kept));
        }
    }
}
#define ADD_TO(n, done, out)                                                                                           \
    if (!of->bias)                                                                                                     \
        NAME(add_to)(n, VECTORS(n), done, out, out_step, sums);
#else
#define ADD_TO(n, done, out)
#endif

#define VECTORS(r) CONVT_TILE_VECTORS(MOST_SUMS, r)

/* `rows` (1 to 8) outputs at `positions` consecutive places, in whole register tiles, the last of which begins early;
   fewer than 8 vectors are rounded up: x and out must have room for them. Weights are [tap][channel][rows]; a channel's
   places lie x_step after the last one's. Without a bias the sums are added to what `out` holds. What lies `ahead` of
   the places, unless 0, is fetched into the first-level cache, and then what lies `later`, unless 0, into the
   second-level one: asked for in the loop over channels, packed input took 5 % longer. */
static void NAME(positions)(int rows, ptrdiff_t positions, const convt_tap_class *of, ptrdiff_t channels, const REAL *x,
                            ptrdiff_t x_step, ptrdiff_t ahead, ptrdiff_t later, REAL *out, ptrdiff_t out_step)
{
#define SUM_TILE(n, ahead, later)                                                                                      \
    NAME(positions_chains)(CHAINS, n, VECTORS(n), of, channels, x + p, x_step, LANES, ahead, later, (NAME(strip)){0},  \
                           sums)
#define ROWS(n)                                                                                                        \
    case n:                                                                                                            \
        for (ptrdiff_t next = 0; next < positions; next += VECTORS(n) * LANES) {                                       \
            const ptrdiff_t early = positions - VECTORS(n) * LANES, p = early < next && early > 0 ? early : next;      \
            VECTOR sums[8][8];                                                                                         \
            if (later)                                                                                                 \
                SUM_TILE(n, ahead, later);                                                                             \
            else if (ahead)                                                                                            \
                SUM_TILE(n, ahead, 0);                                                                                 \
            else                                                                                                       \
                SUM_TILE(n, 0, 0);                                                                                     \
            ADD_TO(n, next - p, out + p)                                                                               \
            UNROLLED (r, n)                                                                                            \
                UNROLLED (v, VECTORS(n))                                                                               \
                    STORE(out + r * out_step + p + v * LANES, sums[r][v]);                                             \
        }                                                                                                              \
        break;
    switch (rows) {
        ROWS(1)
        ROWS(2)
        ROWS(3)
        ROWS(4)
        ROWS(5)
        ROWS(6)
        ROWS(7)
        ROWS(8)
    }
#undef ROWS
#undef ADD_TO
#undef SUM_TILE
}

/* Where the outputs of a tile go: `begin` elements into each of `out`, `vector` elements from one vector's to the next
   one's, of which the first `kept` exist or, if that is 0, all; these go past the caches for `stream`, where they are
   aligned. Of rows that make a line as in `convt_lines`, the one that `begin` lies in has `left` outputs from there on,
   and each vector of LANES outputs goes to an offset of its own. */
typedef struct {
    OUTPUT *const *out;
    ptrdiff_t begin, vector;
    int kept, stream;
    ptrdiff_t row, left, skip;
    const ptrdiff_t *offsets;
} NAME(target);

/* The offsets of so many vectors of outputs, which `to` is moved behind. */
INLINE void NAME(find_offsets)(const int vectors, NAME(target) * to, ptrdiff_t *offsets)
{
    UNROLLED (n, vectors) {
        offsets[n] = to->begin;
        to->begin += LANES;
        to->left -= LANES;
        if (!to->left) {
            to->begin += to->skip;
            to->left = to->row;
        }
    }
}

/* Sums of a tile to outputs: the places of out[i] lie in consecutive rows or, of two classes, in row i of both. */
INLINE void NAME(write_tile)(const int outputs, const int vectors, const int kind, const int places,
                             VECTOR (*sums)[8][8], const NAME(target) to)
{
    UNROLLED (i, outputs) {
        OUTPUT *target = to.offsets ? to.out[i] : to.out[i] + to.begin;
        const int past_caches = to.stream && !to.kept && (to.offsets || ALIGNED(target, places));
        UNROLLED (v, vectors) {
            VECTOR cells[8];
            UNROLLED (e, places)
                cells[e] = kind == CONVT_TWO_CLASSES ? sums[e][i][v] : sums[0][i * places + e][v];
            if (to.offsets)
                NAME(write_cells_apart)(places, cells, target, to.offsets + v * places, to.kept, past_caches);
            else
                NAME(write_cells)(places, cells, target + v * to.vector, to.kept, past_caches);
        }
    }
}

/* Of one input channel, whose taps are for some rows each: what several rows read is loaded once and, where vectors lie
   `across` lines, so is what several taps of a run do. Most loads cross cache lines, and took longer than the products:
   a depthwise layer, kernel 4, stride 2, 64 x 64, took 1.3 times as long. */
INLINE void NAME(shared_loads)(const int rows, const int vectors, const int across, const convt_tap_class *of,
                               const REAL *x, ptrdiff_t x_vector, VECTOR (*sums)[8])
{
    const REAL *w = of->w, *bias = of->bias;
    UNROLLED (r, rows)
        UNROLLED (v, vectors)
            sums[r][v] = BROADCAST(bias[r]);
    for (ptrdiff_t t = 0; t < of->taps;) {
        const REAL *line = x + of->tap_offset[t];
        const int run = across ? of->runs[t] : 1;
        VECTOR inputs[8 + CONVT_MOST_RUN - 1];
#define RUN(n)                                                                                                         \
    {                                                                                                                  \
        UNROLLED (v, vectors + (n) - 1)                                                                                \
            inputs[v] = LOAD(line + v * x_vector);                                                                     \
        UNROLLED (i, n) {                                                                                              \
            const int users = of->users[t + i];                                                                        \
            UNROLLED (r, rows)                                                                                         \
                if (__builtin_expect(users >> r & 1, 1))                                                               \
                    UNROLLED (v, vectors)                                                                              \
                        sums[r][v] = MULTIPLY_ADD(sums[r][v], BROADCAST(w[i * rows + r]), inputs[v + i]);              \
        }                                                                                                              \
        t += n;                                                                                                        \
        w += (n) * rows;                                                                                               \
    }
        if (run == CONVT_MOST_RUN)
            RUN(CONVT_MOST_RUN)
        else if (run == 2)
            RUN(2)
        else
            RUN(1)
#undef RUN
    }
}

/* A tile of `positions_out`: `rows` of one class of places or of each of two in turn, the first's sums in memory
   meanwhile if registers are too few. Its vectors lie x_vector apart in x, along a line or `across` lines. */
INLINE void NAME(tile_out)(const int rows, const int vectors, const int kind, const int places, const int across,
                           const convt_tap_class *classes, const convt_lines *lines, const REAL *x, ptrdiff_t x_vector,
                           const NAME(strip) strip, const NAME(target) to)
{
    VECTOR sums[2][8][8], waiting[8][8];
#define SUM(i, sums)                                                                                                   \
    NAME(positions_chains)(CHAINS && kind == CONVT_ONE_CLASS, rows, vectors, classes + i, lines->channels, x,          \
                           lines->x_channel, x_vector, 0, 0,                                                           \
                           COPIES && kind == CONVT_ONE_CLASS ? strip : (NAME(strip)){0}, sums)
    if (kind == CONVT_SHARED_LOADS)
        NAME(shared_loads)(rows, vectors, across, classes, x, x_vector, sums[0]);
    else
        SUM(0, sums[0]);
    if (kind == CONVT_TWO_CLASSES && 2 * rows * vectors > MOST_SUMS) {
        UNROLLED (r, rows)
            UNROLLED (v, vectors)
                waiting[r][v] = sums[0][r][v];
        /* Not in registers, or the compiler keeps sums of the second class in memory throughout its loops. */
        __asm__ volatile("" : : "r"(waiting) : "memory");
        SUM(1, sums[1]);
        UNROLLED (r, rows)
            UNROLLED (v, vectors)
                sums[0][r][v] = waiting[r][v];
    } else if (kind == CONVT_TWO_CLASSES)
        SUM(1, sums[1]);
#undef SUM
    NAME(write_tile)(kind == CONVT_TWO_CLASSES ? rows : rows / places, vectors, kind, places, sums, to);
}

/* Of one channel there are registers for the inputs of a run and a weight besides, and tiles divide lines evenly. */
#define SHARED_LOADS_SPARE(rows) ((OPERANDS - CONVT_MOST_RUN) / ((rows) + 1))
#define SHARED_LOADS_VECTORS(rows)                                                                                     \
    (SHARED_LOADS_SPARE(rows) > 8 ? 8 : SHARED_LOADS_SPARE(rows) < 2 ? 1 : SHARED_LOADS_SPARE(rows) / 2 * 2)
#define TILE_VECTORS(rows, kind, places)                                                                               \
    ((kind) == CONVT_SHARED_LOADS ? SHARED_LOADS_VECTORS(rows) : CONVT_OUT_VECTORS(MOST_SUMS, rows, kind, places))

/* The tiles of `positions_out`: their rows, places and kind. */
#define TILES                                                                                                          \
    TILE(1, 1, CONVT_ONE_CLASS)                                                                                        \
    TILE(2, 1, CONVT_ONE_CLASS)                                                                                        \
    TILE(3, 1, CONVT_ONE_CLASS)                                                                                        \
    TILE(4, 1, CONVT_ONE_CLASS)                                                                                        \
    TILE(5, 1, CONVT_ONE_CLASS)                                                                                        \
    TILE(6, 1, CONVT_ONE_CLASS)                                                                                        \
    TILE(7, 1, CONVT_ONE_CLASS)                                                                                        \
    TILE(8, 1, CONVT_ONE_CLASS)                                                                                        \
    TILE(2, 2, CONVT_ONE_CLASS)                                                                                        \
    TILE(4, 2, CONVT_ONE_CLASS)                                                                                        \
    TILE(6, 2, CONVT_ONE_CLASS)                                                                                        \
    TILE(8, 2, CONVT_ONE_CLASS)                                                                                        \
    TILE(3, 3, CONVT_ONE_CLASS)                                                                                        \
    TILE(6, 3, CONVT_ONE_CLASS)                                                                                        \
    TILE(4, 4, CONVT_ONE_CLASS)                                                                                        \
    TILE(8, 4, CONVT_ONE_CLASS)                                                                                        \
    TILE(6, 6, CONVT_ONE_CLASS)                                                                                        \
    TILE(8, 8, CONVT_ONE_CLASS)                                                                                        \
    TILE(1, 2, CONVT_TWO_CLASSES)                                                                                      \
    TILE(2, 2, CONVT_TWO_CLASSES)                                                                                      \
    TILE(3, 2, CONVT_TWO_CLASSES)                                                                                      \
    TILE(4, 2, CONVT_TWO_CLASSES)                                                                                      \
    TILE(5, 2, CONVT_TWO_CLASSES)                                                                                      \
    TILE(6, 2, CONVT_TWO_CLASSES)                                                                                      \
    TILE(7, 2, CONVT_TWO_CLASSES)                                                                                      \
    TILE(8, 2, CONVT_TWO_CLASSES)                                                                                      \
    TILE(1, 1, CONVT_SHARED_LOADS)                                                                                     \
    TILE(2, 1, CONVT_SHARED_LOADS)                                                                                     \
    TILE(3, 1, CONVT_SHARED_LOADS)                                                                                     \
    TILE(4, 1, CONVT_SHARED_LOADS)                                                                                     \
    TILE(2, 2, CONVT_SHARED_LOADS)                                                                                     \
    TILE(4, 2, CONVT_SHARED_LOADS)                                                                                     \
    TILE(3, 3, CONVT_SHARED_LOADS)                                                                                     \
    TILE(4, 4, CONVT_SHARED_LOADS)                                                                                     \
    TILE(8, 8, CONVT_SHARED_LOADS)

/* What of a strip a tile does whose inputs go so many elements into the copy, `vector` vectors on. */
INLINE NAME(strip)
    NAME(part_of_strip)(const convt_lines *lines, ptrdiff_t element, ptrdiff_t packed_vector, ptrdiff_t vector)
{
    return (NAME(strip)){
        lines->packed ? (REAL *)lines->packed + element : NULL,         lines->packed_channel, packed_vector,
        lines->soon ? lines->soon + vector * lines->soon_vector : NULL, lines->soon_channel,   lines->soon_second};
}

/* Vectors along a line, from number `vector` on and so many elements into the copy: wide tiles, then narrow ones; 2
   and 2 vectors rather than 3 and 1. Each of outputs goes to a place of its own if they are to be `apart`. */
#define SOME(n, v, e, of_kind, apart)                                                                                  \
    for (; vectors - done >= (v) && ((v) != 3 || vectors - done != 4); done += (v)) {                                  \
        ptrdiff_t offsets[8 * e];                                                                                      \
        to.offsets = NULL;                                                                                             \
        if (apart) {                                                                                                   \
            NAME(find_offsets)((v) * e, &to, offsets);                                                                 \
            to.offsets = offsets;                                                                                      \
        }                                                                                                              \
        to.vector = LANES * e; /* compiled in: 2 % of 16 channels */                                                   \
        NAME(tile_out)(n, v, of_kind, e, 0, classes, lines, x + done * LANES, LANES,                                   \
                       NAME(part_of_strip)(lines, first + done * LANES, LANES, vector + done), to);                    \
        if (!apart)                                                                                                    \
            to.begin += (v) * LANES * e;                                                                               \
    }
#define ALONG(n, e, of_kind, apart)                                                                                    \
    case 128 * of_kind + 16 * (e - 1) + n: {                                                                           \
        enum { WIDE = TILE_VECTORS(n, of_kind, e) };                                                                   \
        SOME(n, WIDE, e, of_kind, apart)                                                                               \
        SOME(n, WIDE > 2 ? 2 : 1, e, of_kind, apart)                                                                   \
        SOME(n, 1, e, of_kind, apart)                                                                                  \
    } break;

/* Of rows that make a line: not of 1 or 3 places a cell, which are no whole vectors if their cells are not. */
static void NAME(along_rows)(int rows, int places, const convt_tap_class *classes, const convt_lines *lines,
                             ptrdiff_t first, ptrdiff_t vector, ptrdiff_t vectors, const REAL *x, NAME(target) to)
{
    ptrdiff_t done = 0;
    switch (128 * CONVT_ONE_CLASS + 16 * (places - 1) + rows) {
        ALONG(2, 2, CONVT_ONE_CLASS, 1)
        ALONG(4, 2, CONVT_ONE_CLASS, 1)
        ALONG(6, 2, CONVT_ONE_CLASS, 1)
        ALONG(8, 2, CONVT_ONE_CLASS, 1)
        ALONG(4, 4, CONVT_ONE_CLASS, 1)
        ALONG(8, 4, CONVT_ONE_CLASS, 1)
    }
}

static void NAME(along_line)(int rows, int kind, int places, const convt_tap_class *classes, const convt_lines *lines,
                             ptrdiff_t first, ptrdiff_t vector, ptrdiff_t vectors, const REAL *x, NAME(target) to)
{
    ptrdiff_t done = 0;
    if (lines->row) {
        NAME(along_rows)(rows, places, classes, lines, first, vector, vectors, x, to);
        return;
    }
#define TILE(n, e, of_kind) ALONG(n, e, of_kind, 0)
    switch (128 * kind + 16 * (places - 1) + rows) {
        TILES
    }
#undef TILE
}
#undef ALONG
#undef SOME

/* A vector of each line from number `line` on, in tiles of all the vectors that `along_line` has at most or a `part` of
   them, rounded up, the last of which goes over some lines twice: float64, 64 images of 8 x 8, took 0.91 of the time it
   took rounded down. */
INLINE void NAME(across)(const int part, int rows, int kind, int places, const convt_tap_class *classes,
                         const convt_lines *lines, ptrdiff_t line, ptrdiff_t first, const REAL *x, NAME(target) to)
{
    const ptrdiff_t begin = to.begin;
    to.vector = lines->out_line;
#define TILE(n, e, of_kind)                                                                                            \
    case 128 * of_kind + 16 * (e - 1) + n: {                                                                           \
        const int wide = (TILE_VECTORS(n, of_kind, e) + part - 1) / part;                                              \
        for (; line < lines->count; line += wide) {                                                                    \
            const ptrdiff_t i = line + wide <= lines->count ? line : lines->count - wide;                              \
            to.begin = begin + i * lines->out_line;                                                                    \
            to.offsets = NULL;                                                                                         \
            NAME(tile_out)(n, wide, of_kind, e, 1, classes, lines, x + i * lines->x_line, lines->x_line,               \
                           NAME(part_of_strip)(lines, first + i * lines->packed_line, lines->packed_line, i), to);     \
        }                                                                                                              \
    } break;
    switch (128 * kind + 16 * (places - 1) + rows) {
        TILES
    }
#undef TILE
}

static void NAME(across_lines)(int rows, int kind, int places, const convt_tap_class *classes, const convt_lines *lines,
                               ptrdiff_t first, const REAL *x, NAME(target) to)
{
    NAME(across)(1, rows, kind, places, classes, lines, 0, first, x, to);
}

static void NAME(across_few_lines)(int rows, int kind, int places, const convt_tap_class *classes,
                                   const convt_lines *lines, ptrdiff_t line, ptrdiff_t first, const REAL *x,
                                   NAME(target) to)
{
    NAME(across)(2, rows, kind, places, classes, lines, line, first, x, to);
}

#undef TILES

/* Lines of cells into outputs of 1 to 4, 6 or 8 `places` a cell, the last of which may lack some. Row r of a class is
   place r % places of out[r / places] or, of two classes (up to 8 rows of each), row r of the first and of the second
   are the two places of out[r]. Where loads are shared there are 1 to 4 or 8, and up to 4 rows or as many as places.
   One pass, so that the stores go on behind the next tile's products. `stream`: past the caches, where out is aligned.

   The vectors of a tile lie along a long line, and across short ones: a 16 x 16 image of one channel took 1.8 times as
   long line by line. So they do across lines that have one vector more than a tile, which along them would be cut
   unevenly: 2 and 2 vectors of 4 took 4 % longer, and 3 of 52 cells and a part of one, of one channel, 1.4 times as
   long. Where loads are shared they lie across lines wherever they can. */
static void NAME(positions_out)(int rows, int kind, int places, const convt_tap_class *classes,
                                const convt_lines *lines, const REAL *x, void **out, int stream)
{
    const ptrdiff_t vector = LANES * places, length = lines->length, whole = length / vector;
    const ptrdiff_t cells = (length + places - 1) / places;
    const int rest = length % vector, wide = TILE_VECTORS(rows, kind, places);
    /* Past the caches whole cache lines should go, each at once. */
    const int parts = stream && whole && (rest || vector * sizeof(OUTPUT) % 64);
    NAME(target) to = {(OUTPUT *const *)out, 0, 0, 0, stream, lines->row, lines->row_left, lines->row_skip, NULL};
    ptrdiff_t line = 0;
    /* Half a tile of lines is better than one by one where these are short: 7 x 7 images took 1.6 times as long. */
    const int half = (wide + 1) / 2, least_lines = whole < 2 ? half : wide;
    const int suit = kind == CONVT_SHARED_LOADS || whole < wide || whole == wide + 1 || (whole == wide && rest);
    if (suit && lines->count >= least_lines && !parts && !lines->row) {
        convt_lines these = *lines;
        if (whole > wide && kind != CONVT_SHARED_LOADS) /* the others go along */
            these.count = lines->count / wide * wide;
        /* What whole tiles leave goes by halves of one, if it fits one or two of them make it and a tile: 16 lines in
           tiles of three, words of 64 and 128 channels, took 0.89 of the time. */
        const ptrdiff_t left = these.count % wide;
        ptrdiff_t few = 0;
        if (these.count < wide)
            few = these.count;
        else if (left && left <= half && kind != CONVT_SHARED_LOADS)
            few = left == 2 * half - wide && these.count > wide ? left + wide : left;
        to.stream = stream && lines->out_line * sizeof(OUTPUT) % 64 == 0;
        for (ptrdiff_t p = 0; p < cells; p += LANES) {
            const ptrdiff_t first = p + LANES <= cells || cells < LANES ? p : cells - LANES; /* some cells twice */
            to.begin = first * places;
            to.kept = length - to.begin < vector ? length - to.begin : 0;
            if (few < these.count) {
                convt_lines most = these;
                most.count -= few;
                NAME(across_lines)(rows, kind, places, classes, &most, first, x + first, to);
            }
            if (few)
                NAME(across_few_lines)(rows, kind, places, classes, &these, these.count - (few > half ? few : half),
                                       first, x + first, to);
        }
        line = these.count;
        x += line * lines->x_line;
    }
    for (; line < lines->count; line++) {
        const ptrdiff_t first = line * lines->packed_line;
        to.begin = line * lines->out_line;
        to.kept = 0;
        to.stream = stream;
        NAME(along_line)(rows, kind, places, classes, lines, first, line, whole, x, to);
        to.begin += whole * vector;
        if (to.row) {
            const ptrdiff_t before = to.row - to.left + whole * vector;
            to.begin += before / to.row * to.skip;
            to.left = to.row - before % to.row;
        }
        to.kept = rest;
        to.stream = 0;
        if (rest)
            NAME(along_line)(rows, kind, places, classes, lines, first + whole * LANES, line + whole, 1,
                             x + whole * LANES, to);
        x += lines->x_line;
    }
}

#undef VECTORS
#undef TILE_VECTORS
#undef SHARED_LOADS_VECTORS
#undef SHARED_LOADS_SPARE

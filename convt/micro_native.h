/* Lanes along columns of weights that are multiplied once, as they lie in memory: elements of REAL or, where
   LOAD_FLOAT16 is defined, of float16 or bfloat16, widened in registers. Included after micro.h and micro_half.h. */

/* Elements from column j on of weights of `precision` bits: 11 (float16), 8 (bfloat16) or those of REAL. */
INLINE VECTOR NAME(native_vector)(const int precision, const void *w, ptrdiff_t j)
{
#ifdef LOAD_FLOAT16
    if (precision < 24)
        return NAME(load_half)(precision == 8, (const uint16_t *)w + j);
#endif
    return LOAD((const REAL *)w + j);
}

static inline REAL NAME(native_element)(const int precision, const void *w, ptrdiff_t j)
{
    const uint16_t *halves = w;
    if (precision == 11)
        return (REAL)convt_widen_float16((convt_float16){halves[j]});
    if (precision == 8)
        return (REAL)convt_widen_bfloat16((convt_bfloat16){halves[j]});
    return ((const REAL *)w)[j];
}

/* out[i][j] += x[i][c] * w[c][j] for up to 8 channels, `row` bytes apart. To `fetch`, ask for what lies `ahead` bytes
   from these weights meanwhile. */
INLINE void NAME(native_rows)(const int precision, const int images, const int channels, const int fetch,
                              ptrdiff_t ahead, ptrdiff_t n, const REAL *x, ptrdiff_t x_step, const char *w,
                              ptrdiff_t row, REAL *out, ptrdiff_t out_step)
{
    const ptrdiff_t item = precision < 24 ? sizeof(uint16_t) : sizeof(REAL);
    ptrdiff_t j = 0;
    for (; j + LANES <= n; j += LANES) {
        VECTOR weights[8];
        UNROLLED (c, channels) {
            weights[c] = NAME(native_vector)(precision, w + c * row, j);
            if (fetch)
                __builtin_prefetch(w + c * row + j * item + ahead, 0, 2);
        }
        UNROLLED (i, images) {
            REAL *const sums = out + i * out_step + j;
            VECTOR sum = LOAD(sums);
            UNROLLED (c, channels)
                sum += x[i * x_step + c] * weights[c];
            STORE(sums, sum);
        }
    }
    for (; j < n; j++)
        for (int i = 0; i < images; i++)
            for (int c = 0; c < channels; c++)
                out[i * out_step + j] += x[i * x_step + c] * NAME(native_element)(precision, w + c * row, j);
}

/* 1 to 3 images, n columns, w_step elements from one channel's weights to the next's. Few long rows at a time: columns
   of a tile's width came from memory at a sixth of the speed. With fetching (131 MB took a tenth longer without) `rows`
   rows are read at once, the level's `native_rows`. Of four, the next kilobyte of each is fetched: 262 MB of doubles
   took 0.85, of floats 0.92, 131 MB of floats 1.0 of the time of fetching the next rows, as eight do (not measured
   since). Halves, which wait for their conversion, are as fast by four as by eight, and always fetched, the next rows:
   131 MB took 1.1 times as long by the kilobyte. */
static void NAME(native)(int rows, int fetch, int precision, int images, ptrdiff_t channels, ptrdiff_t n, const REAL *x,
                         ptrdiff_t x_step, const void *weights, ptrdiff_t w_step, REAL *out, ptrdiff_t out_step)
{
    const char *w = weights;
    const ptrdiff_t row = w_step * (precision < 24 ? sizeof(uint16_t) : sizeof(REAL));
    const ptrdiff_t ahead = precision < 24 ? 4 * row : rows == 8 ? 8 * row : 1024;
#define ROWS(rows, precision, fetch, images)                                                                           \
    {                                                                                                                  \
        ptrdiff_t c = 0;                                                                                               \
        for (; c + rows <= channels; c += rows)                                                                        \
            NAME(native_rows)(precision, images, rows, fetch, ahead, n, x + c, x_step, w + c * row, row, out,          \
                              out_step);                                                                               \
        for (; c < channels; c++)                                                                                      \
            NAME(native_rows)(precision, images, 1, fetch, ahead, n, x + c, x_step, w + c * row, row, out, out_step);  \
    }
    _Static_assert(CONVT_NATIVE_IMAGES == 3, "a case for each number of images");
#define IMAGES(rows, precision, fetch)                                                                                 \
    if (images == 1)                                                                                                   \
        ROWS(rows, precision, fetch, 1)                                                                                \
    else if (images == 2)                                                                                              \
        ROWS(rows, precision, fetch, 2)                                                                                \
    else                                                                                                               \
        ROWS(rows, precision, fetch, 3)
#ifdef LOAD_FLOAT16
    if (precision == 11)
        IMAGES(4, 11, 1)
    else if (precision == 8)
        IMAGES(4, 8, 1)
    else
#endif
        if (!fetch)
        IMAGES(4, 24, 0)
    else if (rows == 8)
        IMAGES(8, 24, 1)
    else
        IMAGES(4, 24, 1)
#undef ROWS
#undef IMAGES
}

/* One register tile of `native_tiles`; what lies `later`, unless 0, is fetched. */
INLINE void NAME(native_tile)(const int positions, const int vectors, ptrdiff_t channels, const REAL *x,
                              ptrdiff_t x_step, const REAL *w, ptrdiff_t w_step, ptrdiff_t later, REAL *out,
                              ptrdiff_t out_step)
{
    VECTOR sums[MOST_POSITIONS(2)][2];
    UNROLLED (p, positions)
        UNROLLED (v, vectors)
            sums[p][v] = LOAD(out + p * out_step + v * LANES);
    for (ptrdiff_t c = 0; c < channels; c++) {
        VECTOR weights[2];
        UNROLLED (v, vectors)
            weights[v] = LOAD(w + v * LANES);
        if (later)
            UNROLLED (v, vectors)
                __builtin_prefetch(w + later + v * LANES, 0, 2);
        UNROLLED (p, positions)
            UNROLLED (v, vectors)
                sums[p][v] += x[p * x_step + c] * weights[v];
        w += w_step;
    }
    UNROLLED (p, positions)
        UNROLLED (v, vectors)
            STORE(out + p * out_step + v * LANES, sums[p][v]);
}

/* What `native` computes, for any number of positions and whole vectors of columns, in register
   tiles. Of few channels: the weights of a tile should stay in cache for all positions. What lies `later` than these,
   unless 0, is fetched into the second-level cache meanwhile. */
static void NAME(native_tiles)(ptrdiff_t positions, ptrdiff_t channels, ptrdiff_t n, const REAL *x, ptrdiff_t x_step,
                               const REAL *w, ptrdiff_t w_step, ptrdiff_t later, REAL *out, ptrdiff_t out_step)
{
    const ptrdiff_t tiles = (positions + MOST_POSITIONS(2) - 1) / MOST_POSITIONS(2);
    for (ptrdiff_t j = 0; j < n; j += 2 * LANES)
        for (ptrdiff_t t = 0; t < tiles; t++) {
            const ptrdiff_t p = t * positions / tiles;
#define PART(some, v, later)                                                                                           \
    NAME(native_tile)(some, v, channels, x + p * x_step, x_step, w + j, w_step, later, out + p * out_step + j, out_step)
#define FETCH_TWO(some, two) PART(some, two, later)
#define TWO(some, two) PART(some, two, 0)
#define FETCH_ONE(some, two) PART(some, 1, later)
#define ONE(some, two) PART(some, 1, 0)
            const ptrdiff_t some = (t + 1) * positions / tiles - p; /* of one vector as few as of two */
            if (n - j > LANES && later && t == 0)
                EVERY_TILE(some, 2, FETCH_TWO)
            else if (n - j > LANES)
                EVERY_TILE(some, 2, TWO)
            else if (later && t == 0)
                EVERY_TILE(some, 2, FETCH_ONE)
            else
                EVERY_TILE(some, 2, ONE)
#undef PART
#undef FETCH_TWO
#undef TWO
#undef FETCH_ONE
#undef ONE
        }
}

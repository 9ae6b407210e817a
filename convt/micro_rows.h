/* What moves elements in memory: cells interleaved, rows copied, streamed, added and transposed. Included by micro.h
   before micro_positions.h, with what micro.h wants defined. */

/* LANES cells of up to 8 places from the i-th on, of which `kept` outputs are wanted, to `out`. */
INLINE void NAME(interleave_cells)(const int places, const REAL *const *rows, ptrdiff_t i, REAL *out, const int kept,
                                   int stream)
{
    VECTOR cells[8];
    UNROLLED (e, places)
        cells[e] = LOAD(rows[e] + i);
    NAME(interleave_registers)(places, cells);
    UNROLLED (e, places) {
        REAL *const at = out + e * LANES;
        if (kept <= e * LANES)
            continue;
        if (stream)
            STREAM(at, cells[e]);
        else if (kept < (e + 1) * LANES)
            STORE_FIRST(at, cells[e], kept - e * LANES);
        else
            STORE(at, cells[e]);
    }
}

/* The last `cells` of `n`, fewer than LANES, past the caches as those before them, behind which `out` is aligned. */
INLINE void NAME(stream_last_cells)(const int places, ptrdiff_t cells, ptrdiff_t n, const REAL *const *rows, REAL *out)
{
    REAL last[9 * LANES]; /* up to 8 places, and a vector beyond them that is read but not kept */
    const REAL *from = last + (LANES - cells) * places;
    REAL *to = out + (n - cells) * places;
    NAME(interleave_cells)(places, rows, n - LANES, last, places * LANES, 0);
    STORE(last + places * LANES, (VECTOR){0});
    ptrdiff_t left = cells * places;
    for (; left >= LANES; left -= LANES, from += LANES, to += LANES)
        STREAM(to, LOAD(from));
    if (left) {
        const VECTOR rest = LOAD(from);
        STORE_FIRST(to, rest, left);
    }
}

INLINE void NAME(interleave_vectors)(const int places, ptrdiff_t n, const REAL *const *rows, REAL *out, int stream)
{
    if (n < LANES) {
        NAME(interleave_cells)(places, rows, 0, out, n * places, 0);
        return;
    }
    /* Past the caches from the first aligned place on, if there is one. */
    ptrdiff_t i = 0;
    while (stream && i < LANES && !ON_VECTOR(out + i * places))
        i++;
    stream = stream && i < LANES;
    i = stream ? i : 0;
    if (i)
        NAME(interleave_cells)(places, rows, 0, out, i * places, 0);
    for (; i + LANES <= n; i += LANES)
        NAME(interleave_cells)(places, rows, i, out + i * places, places * LANES, stream);
    if (i < n && stream)
        NAME(stream_last_cells)(places, n - i, n, rows, out);
    else if (i < n) /* over a few cells once more */
        NAME(interleave_cells)(places, rows, n - LANES, out + (n - LANES) * places, places * LANES, 0);
}

/* A vector of places at least, as transposed squares, the last ones over some places and cells once more: kernel 32,
   stride 16, took 0.88 of the time. */
static void NAME(interleave_squares)(ptrdiff_t n, ptrdiff_t places, const REAL *const *rows, REAL *out, int stream)
{
    stream = stream && places % LANES == 0 && ON_VECTOR(out);
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        i = i < n - LANES || n < LANES ? i : n - LANES;
        for (ptrdiff_t e = 0; e < places; e += LANES) {
            VECTOR block[LANES];
            e = e < places - LANES ? e : places - LANES;
            UNROLLED (j, LANES)
                block[j] = LOAD(rows[e + j] + i);
            NAME(transpose_registers)(block);
            UNROLLED (j, LANES) {
                REAL *const at = out + (i + j) * places + e;
                if (j < n - i) {
                    if (stream)
                        STREAM(at, block[j]);
                    else
                        STORE(at, block[j]);
                }
            }
        }
    }
}

#if LANES >= 8
/* Other numbers of places, as cells of more whose last ones are written over by the next cell: kernel 5, stride 5, one
   channel a group, took 0.22 of the time. */
INLINE void NAME(interleave_padded)(const int padded, ptrdiff_t n, const ptrdiff_t places, const REAL *const *rows,
                                    REAL *out)
{
    REAL last[LANES * LANES];
    for (ptrdiff_t begin = 0; begin < n; begin += LANES) {
        const int whole = (n - begin - LANES) * places >= LANES - LANES / padded * places; /* which is written beyond */
        const ptrdiff_t i = n < LANES || begin < n - LANES ? begin : n - LANES, kept = n < LANES ? n : LANES;
        REAL *const to = whole ? out + i * places : last;
        VECTOR cells[LANES];
        UNROLLED (e, padded)
            cells[e] = LOAD(rows[e < places ? e : 0] + i);
        NAME(interleave_registers)(padded, cells);
        UNROLLED (e, padded) {
#if LANES > 8
            if (padded == 8 && places == 5)
                cells[e] = SHUFFLE(cells[e], cells[e], CLOSED_UP, 5);
            else if (padded == 8)
                cells[e] = SHUFFLE(cells[e], cells[e], CLOSED_UP, 7);
#endif
            STORE(to + e * (LANES / padded) * places, cells[e]);
        }
        if (!whole)
            memcpy(out + i * places, last, kept * places * sizeof(REAL));
    }
}
#endif

/* `n` cells of `places` outputs each: out[i*places + e] = rows[e][i]. `stream`: past the caches. Of a row at least a
   vector is read. */
static void NAME(interleave)(ptrdiff_t n, ptrdiff_t places, const REAL *const *rows, REAL *out, int stream)
{
#define PLACES(e)                                                                                                      \
    case e:                                                                                                            \
        NAME(interleave_vectors)(e, n, rows, out, stream);                                                             \
        break;
    switch (places) {
        PLACES_IN_REGISTERS(PLACES)
    default:
        if (places >= LANES)
            NAME(interleave_squares)(n, places, rows, out, stream);
#if LANES >= 8
        else if (places == 5)
            NAME(interleave_padded)(8, n, 5, rows, out);
        else if (places == 7)
            NAME(interleave_padded)(8, n, 7, rows, out);
#endif
#if LANES > 8
        else
            NAME(interleave_padded)(LANES, n, places, rows, out);
#endif
    }
#undef PLACES
}

INLINE void NAME(write_cells)(const int places, VECTOR *cells, REAL *at, int kept, int past_caches)
{
    NAME(interleave_registers)(places, cells);
    UNROLLED (e, places) {
        const int left = kept - e * LANES;
        if (past_caches)
            STREAM(at + e * LANES, cells[e]);
        else if (!kept)
            STORE(at + e * LANES, cells[e]);
        else if (left > 0)
            STORE_FIRST(at + e * LANES, cells[e], left < LANES ? left : LANES);
    }
}

/* The same, each vector of outputs to an offset of its own; `kept` are whole vectors. */
INLINE void NAME(write_cells_apart)(const int places, VECTOR *cells, REAL *at, const ptrdiff_t *offsets, int kept,
                                    int past_caches)
{
    NAME(interleave_registers)(places, cells);
    UNROLLED (e, places) {
        if (past_caches)
            STREAM(at + offsets[e], cells[e]);
        else if (!kept || kept > e * LANES)
            STORE(at + offsets[e], cells[e]);
    }
}

INLINE void NAME(transposed_block)(const REAL *const *rows, ptrdiff_t offset, const REAL *bias, VECTOR *block)
{
    UNROLLED (i, LANES)
        block[i] = LOAD(rows[i] + offset);
    if (bias)
        UNROLLED (i, LANES)
            block[i] += LOAD(bias + offset);
    NAME(transpose_registers)(block);
}

INLINE void NAME(write_vector)(REAL *out, VECTOR vector, int stream)
{
    if (stream)
        STREAM(out, vector);
    else
        STORE(out, vector);
}

/* Transposes in memory, from up to a cache line of rows, `blocks` times LANES, or CONVT_MOST_LINES of these:
   out[i*out_step + j] = rows[j][offset + i], plus bias[offset + i] unless that is NULL, for i below `kept` and LANES.
   `stream`: past the caches, where out is aligned; parts of a line streamed at different times would cost several times
   as much. */
static void NAME(transpose)(const REAL *const *rows, int blocks, ptrdiff_t offset, const REAL *bias, REAL *out,
                            ptrdiff_t out_step, int kept, int stream)
{
    enum { LINE = 64 / sizeof(REAL) / LANES, MOST = CONVT_MOST_LINES * LINE };
    VECTOR block[LINE][LANES];
    stream = stream && blocks % LINE == 0 && (uintptr_t)out % 64 == 0 && out_step % (LINE * LANES) == 0;
    if (blocks == MOST) {
        VECTOR lines[MOST][LANES]; /* in memory, unlike `block` */
        for (int b = 0; b < MOST; b++)
            NAME(transposed_block)(rows + b * LANES, offset, bias, lines[b]);
        for (int i = 0; i < LANES && i < kept; i++)
            UNROLLED (b, MOST)
                NAME(write_vector)(out + i * out_step + b * LANES, lines[b][i], stream);
        return;
    }
    UNROLLED (b, LINE)
        if (b < blocks)
            NAME(transposed_block)(rows + b * LANES, offset, bias, block[b]);
    UNROLLED (i, LANES)
        UNROLLED (b, LINE)
            if (b < blocks && i < kept)
                NAME(write_vector)(out + i * out_step + b * LANES, block[b][i], stream);
}

/* Lines of n elements, source_step bytes apart, zeros before and after each: target[line*target_step + ...]. What lies
   between lines stays as it is.

   A line of less than a vector is read and written as one where another line follows at once, which it reads and writes
   some of: 14 x 14 images took 1.25 times as long element by element, their zeros by calls of memset. */
static void NAME(copy_lines)(ptrdiff_t count, ptrdiff_t before, ptrdiff_t n, ptrdiff_t after, const char *source,
                             ptrdiff_t source_step, REAL *target, ptrdiff_t target_step)
{
    const VECTOR zeros = {0};
    const NAME(mask) kept = NAME(first_lanes)(n < LANES ? n : LANES);
    const int follow = target_step == before + n + after;
    const int zero_vectors = follow && before <= LANES && after <= LANES && LANES <= target_step;
    const int one_vector = follow && n > 0 && n + after <= LANES && before + LANES <= 2 * target_step &&
                           source_step >= (ptrdiff_t)((LANES - n) * sizeof(REAL));
    /* What the next box packs, where a long row goes on behind these: few outputs of many channels 0.93 to 0.98 (Zen
       4). Several rows took up to 1.1 times as long with it (Zen 5). */
    const ptrdiff_t ahead = count > 1 ? 0 : n * (ptrdiff_t)sizeof(REAL);
    for (ptrdiff_t line = 0; line < count; line++) {
        const int last = line + 1 == count;
        const REAL *from = (const REAL *)(source + line * source_step);
        REAL *to = target + line * target_step;
        if (before && zero_vectors)
            STORE(to, zeros);
        else
            for (ptrdiff_t i = 0; i < before; i++)
                to[i] = 0;
        to += before;
        if (one_vector && !last) {
            STORE(to, (VECTOR)((NAME(mask))LOAD(from) & kept));
            continue;
        }
        ptrdiff_t i = 0;
        for (; i + LANES <= n; i += LANES) {
            STORE(to + i, LOAD(from + i));
            if (ahead && i * sizeof(REAL) % 64 == 0)
                __builtin_prefetch((const char *)(from + i) + ahead, 0, 2);
        }
        if (n >= LANES && i < n)
            STORE(to + n - LANES, LOAD(from + n - LANES));
        else
            for (; i < n; i++)
                to[i] = from[i];
        if (after && zero_vectors && !last)
            STORE(to + n, zeros);
        else
            for (i = 0; i < after; i++)
                to[n + i] = 0;
    }
}

/* Elements of a cache line from number `first` up to `end`. The copy lets `line` stay in registers elsewhere. */
INLINE void NAME(copy_part)(const VECTOR *line, ptrdiff_t first, ptrdiff_t end, REAL *out)
{
    REAL elements[64 / sizeof(REAL)];
    UNROLLED (v, 64 / (int)sizeof(REAL) / LANES)
        STORE(elements + v * LANES, line[v]);
    memcpy(out + first, elements + first, (end - first) * sizeof(REAL));
}

/* Rows of n elements, behind each other in memory, past the caches but for what their first and last cache line lack:
   row q is the (q / places)th of place q % places, the rows of which lie `step` apart, places `place_step`. Up to a
   cache line is read before and behind a row. A line of several rows is put together vector by vector: read from where
   parts of it were stored, it would wait for all stores before them. Copied into order before, 37 x 37 images of 96
   channels, kernel 4, stride 4, took 1.05 times as long. */
static void NAME(stream_rows)(ptrdiff_t rows, ptrdiff_t n, ptrdiff_t places, const REAL *from, ptrdiff_t step,
                              ptrdiff_t place_step, REAL *out)
{
    enum { LINE = 64 / sizeof(REAL), VECTORS = LINE / LANES };
    const ptrdiff_t begin = (uintptr_t)out % 64 / sizeof(REAL);
    ptrdiff_t first = begin, filled = begin, row = 0, place = 0;
    VECTOR edge[VECTORS]; /* the line that is not whole yet */
    REAL *line = out - begin;
    UNROLLED (v, VECTORS)
        edge[v] = (VECTOR){0};
    for (ptrdiff_t q = 0; q < rows; q++) {
        const REAL *x = from + row * step + place * place_step, *const end = x + n;
        place++;
        if (place == places)
            place = 0, row++;
        if (filled) {
            UNROLLED (v, VECTORS) {
                const NAME(mask) kept = NAME(first_lanes)(filled - v * LANES);
                edge[v] = (VECTOR)(((NAME(mask))edge[v] & kept) | ((NAME(mask))LOAD(x - filled + v * LANES) & ~kept));
            }
            if (n < LINE - filled) {
                filled += n;
                continue;
            }
            if (first)
                NAME(copy_part)(edge, first, LINE, line);
            else
                UNROLLED (v, VECTORS)
                    STREAM(line + v * LANES, edge[v]);
            x += LINE - filled;
            line += LINE;
            first = 0;
        }
        for (; end - x >= LINE; x += LINE, line += LINE)
            UNROLLED (v, VECTORS)
                STREAM(line + v * LANES, LOAD(x + v * LANES));
        filled = end - x;
        UNROLLED (v, VECTORS)
            edge[v] = LOAD(x + v * LANES);
    }
    NAME(copy_part)(edge, first, filled, line);
}

/* Lines of n elements of each channel, filled up to whole vectors with zeros: target[c*target_channel +
   i*target_step + ...] for line i; the steps of the source are in bytes, and so many `ahead` is fetched. All channels
   in one call: of strips, which are short, one by one through `copy_lines` layers took up to 1.2 times as long.

   A line of less than a vector is read as one where the source goes on behind it: 48 channels of 176x15 to 3, kernel 2,
   stride 2, took 1.5 times as long element by element. */
static void NAME(filled_lines)(ptrdiff_t channels, ptrdiff_t source_channel, ptrdiff_t count, ptrdiff_t source_step,
                               ptrdiff_t n, const char *source, ptrdiff_t ahead, REAL *target, ptrdiff_t target_channel,
                               ptrdiff_t target_step)
{
    const ptrdiff_t whole = n / LANES * LANES, beyond = (LANES - n) * (ptrdiff_t)sizeof(REAL);
    const NAME(mask) kept = NAME(first_lanes)(n < LANES ? n : LANES);
    const int before_line = beyond > 0 && source_step >= beyond;
    const int before_channel = beyond > 0 && source_channel - (count - 1) * source_step >= beyond;
    for (ptrdiff_t c = 0; c < channels; c++)
        for (ptrdiff_t i = 0; i < count; i++) {
            const REAL *from = (const REAL *)(source + c * source_channel + i * source_step);
            REAL *to = target + c * target_channel + i * target_step;
            if (i + 1 < count ? before_line : before_channel && c + 1 < channels) {
                STORE(to, (VECTOR)((NAME(mask))LOAD(from) & kept));
                continue;
            }
            for (ptrdiff_t j = 0; j < whole; j += LANES) {
                STORE(to + j, LOAD(from + j));
                __builtin_prefetch((const char *)(from + j) + ahead);
            }
            if (whole < n)
                STORE(to + whole, (VECTOR){0});
            if (whole && whole < n) /* some twice: one by one 9 layers of few outputs took 1.06 times as long */
                STORE(to + n - LANES, LOAD(from + n - LANES));
            else
                for (ptrdiff_t j = whole; j < n; j++)
                    to[j] = from[j];
        }
}

/* One row of sums from rows of products that lie at different offsets: out[i] = bias + terms[0][i] + terms[1][i] ... */
static void NAME(accumulate)(ptrdiff_t n, ptrdiff_t taps, const REAL *const *terms, REAL bias, REAL *out)
{
    for (ptrdiff_t i = 0; i < n; i += 4 * LANES) {
        VECTOR sums[4];
        UNROLLED (v, 4)
            sums[v] = bias - (VECTOR){0};
        for (ptrdiff_t t = 0; t < taps; t++)
            UNROLLED (v, 4)
                sums[v] += LOAD(terms[t] + i + v * LANES);
        UNROLLED (v, 4)
            STORE(out + i + v * LANES, sums[v]);
    }
}

/* Elements added to others, `width` at each of n positions of each of some rows: target[i*target_row + p*target_step +
   j] += source[i*source_row + p*source_step + j]. Whole vectors are read, and written with what is beyond `width` as it
   was. */
static void NAME(add_rows)(ptrdiff_t rows, ptrdiff_t n, ptrdiff_t width, const REAL *source, ptrdiff_t source_row,
                           ptrdiff_t source_step, REAL *target, ptrdiff_t target_row, ptrdiff_t target_step)
{
    const ptrdiff_t whole = width / LANES * LANES;
    const NAME(mask) added = NAME(first_lanes)(width - whole);
    for (ptrdiff_t i = 0; i < rows; i++)
        for (ptrdiff_t p = 0; p < n; p++) {
            const REAL *const from = source + i * source_row + p * source_step;
            REAL *const to = target + i * target_row + p * target_step;
            for (ptrdiff_t j = 0; j < whole; j += LANES)
                STORE(to + j, LOAD(to + j) + LOAD(from + j));
            if (width - whole == 1)
                to[whole] += from[whole];
            else if (whole < width) {
                const NAME(mask) last = (NAME(mask))LOAD(to + whole);
                const NAME(mask) sum = (NAME(mask))((VECTOR)last + LOAD(from + whole));
                STORE(to + whole, (VECTOR)((sum & added) | (last & ~added)));
            }
        }
}

/* Rows of n sums of one channel, plus its bias: out[i*out_step + j] = sums[i*sums_step + j] + bias. Of a row whole
   vectors are read. */
static void NAME(biased_rows)(ptrdiff_t rows, ptrdiff_t n, const REAL *sums, ptrdiff_t sums_step, REAL bias, REAL *out,
                              ptrdiff_t out_step)
{
    const VECTOR biases = bias - (VECTOR){0};
    for (ptrdiff_t i = 0; i < rows; i++) {
        ptrdiff_t j = 0;
        for (; j + LANES <= n; j += LANES)
            STORE(out + j, LOAD(sums + j) + biases), __builtin_prefetch(sums + 8 * sums_step + j);
        if (j < n) {
            __builtin_prefetch(sums + 8 * sums_step + j);
            const VECTOR last = LOAD(sums + j) + biases;
            STORE_FIRST(out + j, last, n - j);
        }
        sums += sums_step;
        out += out_step;
    }
}

/* The transposition of LANES rows of n elements, one right behind the other. */
INLINE void NAME(transpose_short_rows)(const int n, const REAL *rows, REAL *const *out)
{
    VECTOR block[8], next[8];
    UNROLLED (i, n)
        block[i] = LOAD(rows + i * LANES);
    UNROLLED (stage, 3)
        if (1 << stage < n) {
            UNROLLED (i, n / 2) {
                next[i] = SHUFFLE(block[2 * i], block[2 * i + 1], EVERY_SECOND, 0);
                next[n / 2 + i] = SHUFFLE(block[2 * i], block[2 * i + 1], EVERY_SECOND, 1);
            }
            UNROLLED (i, n)
                block[i] = next[i];
        }
    UNROLLED (i, n)
        if (out[i])
            STORE(out[i], block[i]);
}

/* LANES rows, `step` from one to the next, transposed: the first n columns to where `out` says, if anywhere. A vector
   is read of each, unless they have 2, 4 or 8 elements, less than a vector, and lie one right behind the other (step =
   n): weights of 1024 to 512 channels, 2x2, 2.3 -> 1.5 ms. */
static void NAME(transpose_to)(const REAL *rows, ptrdiff_t step, int n, REAL *const *out)
{
    if (step == n && n < LANES)
        switch (n) {
        case 2:
            NAME(transpose_short_rows)(2, rows, out);
            return;
        case 4:
            NAME(transpose_short_rows)(4, rows, out);
            return;
        case 8:
            NAME(transpose_short_rows)(8, rows, out);
            return;
        }
    VECTOR block[LANES];
    UNROLLED (i, LANES)
        block[i] = LOAD(rows + i * step);
    NAME(transpose_registers)(block);
    UNROLLED (i, LANES)
        if (i < n && out[i])
            STORE(out[i], block[i]);
}

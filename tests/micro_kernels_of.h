/* The micro-kernels of a type, against their definitions. Included by micro_kernels.c, which defines REAL, TYPE (its
   name), NAME and KERNELS. */

static REAL NAME(x)[4096], NAME(w)[8192], NAME(bias)[64], NAME(zeros)[8], NAME(out)[18000] __attribute__((aligned(64)));

/* Output `row` of `rows` at place p, lanes along positions. */
static REAL NAME(sum)(const REAL *x, convt_tap_class of, int rows, int row, int p)
{
    const int channels = of.users ? 1 : CHANNELS;
    REAL sum = ((const REAL *)of.bias)[row];
    for (int t = 0; t < of.taps; t++)
        for (int c = 0; c < channels && !(of.users && !(of.users[t] >> row & 1)); c++)
            sum += x[of.tap_offset[t] + c * STEP + p] * ((const REAL *)of.w)[(t * channels + c) * rows + row];
    return sum;
}

/* `positions_out` into y[output][line]: how many elements are wrong, or written beside those. */
static int NAME(wrong_lines)(const KERNELS *k, int rows, const convt_tap_class *classes, int kind, int places,
                             int length, int count, int aligned, int stream, const REAL *x, REAL *y)
{
    const int out_line = aligned ? (length / 16 + 2) * 16 : length + 2;
    static REAL packed[TAPS * CHANNELS * 2000];
    const int width = (length + places - 1) / places;
    const int copies = kind == CONVT_ONE_CLASS && k->sizes.most_sums >= CONVT_MANY_SUMS && width % k->sizes.lanes == 0;
    convt_lines lines = {length, count, 45, out_line, CHANNELS, STEP};
    const int apart = kind == CONVT_ONE_CLASS && (places == 2 || places == 4);
    if (apart && count == 1 && length % k->sizes.lanes == 0) {
        lines.row = 2 * k->sizes.lanes;
        lines.row_left = k->sizes.lanes;
        lines.row_skip = aligned || stream ? 16 : 5;
    }
    const int outputs = kind == CONVT_TWO_CLASSES ? rows : rows / places;
    REAL *targets[8];
    int wrong = 0;
    for (int i = 0; i < 18000; i++)
        y[i] = 99;
    for (int i = 0; i < outputs; i++)
        targets[i] = y + 16 + i * 2000 + length % 2 * k->sizes.lanes;
    if (copies) {
        lines.packed = packed;
        lines.packed_line = width;
        lines.packed_channel = count * width;
        lines.soon = (const char *)x;
        lines.soon_second = 64 * (count % 2);
    }
    k->positions_out(rows, kind, places, classes, &lines, x, (void **)targets, stream);
    for (int i = 0; copies && i < TAPS * CHANNELS * count * width; i++) {
        const int p = i % width, line = i / width % count, c = i / width / count % CHANNELS;
        const ptrdiff_t at = classes->tap_offset[i / width / count / CHANNELS] + c * STEP + line * 45 + p;
        wrong += packed[i] != x[at];
        packed[i] = 99;
    }
    for (int i = 0; i < outputs; i++)
        for (int line = 0; line < count; line++)
            for (int p = 0; p < length; p++) {
                REAL *at = targets[i] + line * lines.out_line + p;
                if (lines.row)
                    at += (lines.row - lines.row_left + p) / lines.row * lines.row_skip;
                const int e = p % places, place = line * lines.x_line + p / places;
                wrong += *at != (kind == CONVT_TWO_CLASSES ? NAME(sum)(x, classes[e], rows, i, place)
                                                           : NAME(sum)(x, classes[0], rows, i * places + e, place));
                *at = 99;
            }
    for (int i = 0; i < 18000; i++)
        wrong += y[i] != 99;
    return wrong;
}

/* Sums of `channels`, of the taps from number `first` on and on top of `begun`: how many of [position][column] are
   wrong. */
static int NAME(wrong_channels)(int positions, int columns, int first, int taps, const convt_tap *at, int channels,
                                const REAL *x, const REAL *w, REAL begun, const REAL *out, int width)
{
    int wrong = 0;
    for (int i = 0; i < positions; i++)
        for (int j = 0; j < columns; j++) {
            REAL sum = begun;
            for (int t = first; t < taps; t++)
                for (int c = 0; c < channels; c++)
                    sum += x[at[t].offset + i * channels + c] * w[(t * channels + c) * width + j];
            wrong += sum != out[i * width + j];
        }
    return wrong;
}

/* Sums of several chains: parts of a tap, of a run of taps, whole taps, and all taps of some channels. */
static void NAME(test_chains)(const char *level, const KERNELS *k)
{
    enum { LONG = 1100, FAR = 160 };
    static REAL x[(LONG + 1) * FAR], w[3 * LONG * 64], out[24 * 64] __attribute__((aligned(64)));
    const int lanes = k->sizes.lanes;
    int wrong = 0;
    for (int i = 0; i < (LONG + 1) * FAR; i++)
        x[i] = rand() % 7 - 3;
    for (int i = 0; i < 3 * LONG * 64; i++)
        w[i] = rand() % 7 - 3;
    for (int v = k->sizes.narrowest; v <= k->sizes.widest; v++)
        for (int taps = 1; taps <= 3; taps++)
            for (int channels = 300; channels <= LONG; channels += 400) {
                const int width = (v ? v : 1) * lanes, columns = v ? width : lanes / 2;
                const int positions = k->sizes.most_sums / (v ? v : 1);
                convt_tap at[3];
                for (int t = 0; t < taps; t++)
                    at[t] = (convt_tap){(taps - 1 - t) * channels};
                k->channels(positions, v, taps, taps, at, channels, x, channels, w, w, 0, 0, out, width);
                wrong += NAME(wrong_channels)(positions, columns, 0, taps, at, channels, x, w, 0, out, width);
            }
    for (int rows = 1; rows <= 8; rows++)
        for (int channels = 300; channels <= LONG; channels += 400)
            for (int chain = 512; chain >= 1; chain /= 8) {
                const ptrdiff_t taps[2] = {5, 0};
                const convt_tap_class of = {2, chain, taps, w, w + 7};
                const convt_lines lines = {.length = lanes, .count = 1, .channels = channels, .x_channel = FAR};
                REAL sums[2][8][8 * 16], *to[8];
                k->positions(rows, lanes, &of, channels, x, FAR, 0, 0, sums[0][0], 8 * 16);
                for (int r = 0; r < rows; r++)
                    to[r] = sums[1][r];
                k->positions_out(rows, CONVT_ONE_CLASS, 1, &of, &lines, x, (void **)to, 0);
                for (int r = 0; r < rows; r++)
                    for (int i = 0; i < lanes; i++) {
                        REAL sum = w[7 + r];
                        for (int t = 0; t < 2; t++)
                            for (int c = 0; c < channels; c++)
                                sum += x[taps[t] + c * FAR + i] * w[(t * channels + c) * rows + r];
                        wrong += sum != sums[0][r][i] || sum != sums[1][r][i];
                    }
            }
    report(level, TYPE " chains", wrong);
}

static void NAME(test_channels)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const w = NAME(w), *const out = NAME(out);
    const ptrdiff_t taps[TAPS] = {0, 7};
    const int lanes = k->sizes.lanes;
    int wrong = 0;
    for (int v = k->sizes.narrowest; v <= k->sizes.widest; v++)
        for (int p = 1; p * (v ? v : 1) <= k->sizes.most_sums; p++) {
            const int width = (v ? v : 1) * lanes, columns = v ? width : lanes / 2;
            const convt_tap every[TAPS] = {{taps[0]}, {taps[1]}};
            k->channels(p, v, TAPS, 1, every, CHANNELS, x, CHANNELS, w, w, 0, 0, out, width);
            wrong += NAME(wrong_channels)(p, columns, 0, TAPS, every, CHANNELS, x, w, 0, out, width);
            const convt_tap second[TAPS] = {{CONVT_NO_TAP}, {taps[1]}};
            for (int i = 0; i < p * width; i++)
                out[i] = 7;
            k->channels(p, v, TAPS, 1, second, CHANNELS, x, CHANNELS, w, w, 0, 1, out, width);
            wrong += NAME(wrong_channels)(p, columns, 1, TAPS, second, CHANNELS, x, w, 7, out, width);
        }
    report(level, TYPE " channels", wrong);
}

static void NAME(test_groups)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const w = NAME(w), *const out = NAME(out);
    const ptrdiff_t taps[TAPS] = {0, 7};
    const int lanes = k->sizes.lanes;
    int wrong = 0;
    for (int p = 1; p <= k->sizes.most_sums; p++) {
        const convt_tap at[TAPS] = {{taps[0]}, {taps[1]}};
        k->groups(p, TAPS, at, x, CHANNELS, w, out, lanes);
        for (int i = 0; i < p; i++)
            for (int j = 0; j < lanes; j++) {
                REAL sum = 0;
                for (int t = 0; t < TAPS; t++)
                    sum += x[taps[t] + i * CHANNELS + j] * w[t * lanes + j];
                wrong += sum != out[i * lanes + j];
            }
    }
    report(level, TYPE " groups", wrong);
}

static void NAME(test_runs)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const w = NAME(w), *const out = NAME(out);
    const int lanes = k->sizes.lanes;
    int wrong = 0;
    for (int v = k->sizes.narrowest; v <= k->sizes.widest; v++)
        for (int p = 1; p * (v ? v : 1) <= k->sizes.most_sums; p++)
            for (int row = 2; row <= 7; row++) { /* two rows of so many taps, none of the first or all */
                const int width = (v ? v : 1) * lanes, columns = v ? width : lanes / 2;
                for (int first = 0; first <= row; first += row) {
                    convt_tap at[14];
                    for (int t = 0; t < row; t++) {
                        at[t] = (convt_tap){first ? CONVT_NO_TAP : (row - 1 - t) * CHANNELS};
                        at[row + t] = (convt_tap){11 + (row - 1 - t) * CHANNELS};
                    }
                    k->channels(p, v, 2 * row, row, at, CHANNELS, x, CHANNELS, w, w, 0, 0, out, width);
                    wrong += NAME(wrong_channels)(p, columns, first, 2 * row, at, CHANNELS, x, w, 0, out, width);
                }
            }
    report(level, TYPE " channels of runs", wrong);
}

static void NAME(test_zeros)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const w = NAME(w), *const out = NAME(out);
    const int lanes = k->sizes.lanes;
    int wrong = 0;
    for (int v = k->sizes.narrowest; v <= k->sizes.widest; v++)
        for (int p = 1; p * (v ? v : 1) <= k->sizes.most_sums; p++)
            for (int row = 1; row <= 5; row++) { /* one row of so many taps, in which it begins and ends */
                const int width = (v ? v : 1) * lanes, columns = v ? width : lanes / 2, end = p + row - 1;
                for (int zeros = 0; zeros < 9; zeros++) {
                    const int checked = p >= CONVT_CHECKED_POSITIONS;
                    const int before = checked ? zeros % 3 : 0, after = checked ? zeros / 3 : 0;
                    convt_tap at[5];
                    for (int t = 0; t < row; t++) {
                        const int place = row - 1 - t; /* of its first position */
                        at[t].offset = place * CHANNELS;
                        at[t].before = before > place ? before - place : 0;
                        at[t].after = after > t ? after - t : 0;
                    }
                    k->channels(p, v, row, row, at, CHANNELS, x, CHANNELS, w, w, 0, 0, out, width);
                    for (int i = 0; i < p; i++)
                        for (int j = 0; j < columns; j++) {
                            REAL sum = 0;
                            for (int t = 0; t < row; t++) {
                                const int place = i + row - 1 - t;
                                for (int c = 0; place >= before && place < end - after && c < CHANNELS; c++)
                                    sum += x[place * CHANNELS + c] * w[(t * CHANNELS + c) * width + j];
                            }
                            wrong += sum != out[i * width + j];
                        }
                }
            }
    report(level, TYPE " channels beside zeros", wrong);
}

static void NAME(test_native)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const w = NAME(w), *const out = NAME(out);
    const int lanes = k->sizes.lanes;
    int wrong = 0;
    for (int p = 1; 2 * p <= 3 * k->sizes.most_sums; p++)
        for (int many = 0; many < 10; many++) { /* channels: one or 20; a few images, or whole vectors in tiles */
            const int some = many % 2 ? 20 : 1, tiles = many >= 6, all = 3 * lanes + (tiles ? 0 : 3);
            const int rows = many / 2 == 1 ? 8 : 4, precision = sizeof(REAL) == 4 ? 24 : 53;
            const int x_row = some + 1, row = all + 2;
            if (!tiles && p > 3)
                continue;
            for (int i = 0; i < p * row; i++)
                out[i] = i % 5;
            if (tiles)
                k->native_tiles(p, some, all, x, x_row, w, row, many >= 8 ? -row : 0, out, row);
            else
                k->native(rows, many < 4, precision, p, some, all, x, x_row, w, row, out, row);
            for (int i = 0; i < p * row; i++) {
                REAL sum = i % 5;
                for (int c = 0; c < some && i % row < all; c++)
                    sum += x[i / row * x_row + c] * w[c * row + i % row];
                wrong += sum != out[i];
            }
        }
    report(level, TYPE " native, native_tiles", wrong);
}

static void NAME(test_positions)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const w = NAME(w), *const bias = NAME(bias), *const out = NAME(out);
    const ptrdiff_t taps[TAPS] = {0, 7};
    const convt_tap_class one = {TAPS, CHANNELS, taps, w, bias};
    const int lanes = k->sizes.lanes;
    int wrong = 0;
    for (int r = 1; r <= 8; r++)
        for (int many = 0; many < 5; many++) { /* the last two: as few vectors as are not rounded up */
            const int whole = (r <= 3 ? 8 : 6) * lanes, ahead = many ? STEP : 0, later = many % 2 * 2 * STEP;
            const int length = many > 2 ? whole : many ? 8 * lanes + 19 : LONGEST;
            for (int i = 0; i < r; i++)
                out[i * OUT + length] = 99;
            k->positions(r, length, &one, CHANNELS, x, STEP, ahead, later, out, OUT);
            for (int i = 0; i < r; i++) {
                for (int p = 0; p < length; p++)
                    wrong += NAME(sum)(x, one, r, i, p) != out[i * OUT + p];
                wrong += many && out[i * OUT + length] != 99; /* not beyond 8 vectors and more */
            }
            /* Without a bias they are added once to each sum, and to nothing else. */
            convt_tap_class more = {1, CHANNELS, taps + 1, w + 50, NULL};
            k->positions(r, length, &more, CHANNELS, x, STEP, ahead, later, out, OUT);
            more.bias = NAME(zeros);
            for (int i = 0; i < r; i++) {
                for (int p = 0; p < length; p++)
                    wrong += NAME(sum)(x, one, r, i, p) + NAME(sum)(x, more, r, i, p) != out[i * OUT + p];
                wrong += many && out[i * OUT + length] != 99;
            }
        }
    report(level, TYPE " positions", wrong);
}

static void NAME(test_positions_out)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const w = NAME(w), *const bias = NAME(bias), *const out = NAME(out);
    const ptrdiff_t taps[TAPS] = {0, 7};
    const convt_tap_class one = {TAPS, CHANNELS, taps, w, bias};
    /* Of one channel: three and two taps that lie a line apart, and a single one. */
    const ptrdiff_t shared_taps[6] = {1, 46, 91, 7, 52, 3};
    const uint8_t users[6] = {255, 85, 2, 161, 12, 24}, runs[6] = {3, 2, 1, 2, 1, 1};
    const convt_tap_class shared = {6, 1, shared_taps, w, bias, users, runs};
    int wrong = 0;
    for (int many = 0; many < 8; many++) { /* lines, aligned or not, past the caches or not */
        const int aligned = many / 2 % 2, stream = many % 2;
        for (int length = 1; length <= (many < 4 ? 140 : 220); length += many >= 4 || length > 70 ? 5 : 1) {
            const int count = many >= 4 ? 1 : length <= 80 ? length % 13 + 1 : 9;
            for (int places = 1; places <= 8; places += places < 4 ? 1 : 2)
                for (int r = places; r <= 8; r += places)
                    wrong +=
                        NAME(wrong_lines)(k, r, &one, CONVT_ONE_CLASS, places, length, count, aligned, stream, x, out);
            for (int places = 1; places <= 8; places += places < 4 ? 1 : 4)
                for (int r = places; r <= (places > 4 ? 8 : 4); r += places)
                    wrong += NAME(wrong_lines)(k, r, &shared, CONVT_SHARED_LOADS, places, length, count, aligned,
                                               stream, x, out);
            for (int r = 1; r <= 8; r++) {
                const convt_tap_class two[2] = {{TAPS, CHANNELS, taps, w, bias},
                                                {1, CHANNELS, taps + 1, w + 50, bias + 7}};
                wrong += NAME(wrong_lines)(k, r, two, CONVT_TWO_CLASSES, 2, length, count, aligned, stream, x, out);
            }
        }
    }
    k->drain();
    report(level, TYPE " positions_out", wrong);
}

static void NAME(test_transpose)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const bias = NAME(bias), *const out = NAME(out);
    const int lanes = k->sizes.lanes;
    int wrong = 0;
    const REAL *rows[64];
    for (int i = 0; i < 64; i++)
        rows[i] = x + 31 * i;
    const int line = 64 / (int)sizeof(REAL) / lanes;
    for (int blocks = 1; blocks <= CONVT_MOST_LINES * line; blocks += blocks < line ? 1 : 3 * line)
        for (int both = 0; both < 4; both++) { /* with a bias or without, past the caches or not */
            const int stream = both / 2, added = both % 2;
            for (int kept = 1; kept <= lanes + 1; kept++) { /* all of them, if more than there are */
                for (int i = 0; i < lanes * 64; i++)
                    out[i] = 7;
                k->transpose(rows, blocks, 3, added ? bias : NULL, out, 64, kept, stream);
                for (int i = 0; i < lanes; i++)
                    for (int j = 0; j < blocks * lanes; j++)
                        wrong += out[i * 64 + j] != (i < kept ? rows[j][3 + i] + (added ? bias[3 + i] : 0) : 7);
            }
        }
    report(level, TYPE " transpose", wrong);
}

static void NAME(test_transpose_to)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const out = NAME(out);
    const int lanes = k->sizes.lanes;
    int wrong = 0;
    REAL *targets[16];
    for (int way = 0; way < 6 * lanes; way++) { /* from the end on, all but one of the first three */
        const int m = way / 6 + 1, left = way / 2 % 3, step = way % 2 ? m : 31;
        for (int i = 0; i < lanes; i++) {
            targets[i] = i == left ? NULL : out + (lanes - i) * 21;
            for (int j = 0; j < lanes; j++)
                out[(lanes - i) * 21 + j] = 99;
        }
        k->transpose_to(x, step, m, targets);
        for (int i = 0; i < lanes; i++)
            for (int j = 0; j < lanes; j++)
                wrong += out[(lanes - i) * 21 + j] != (i < m && i != left ? x[j * step + i] : 99);
    }
    report(level, TYPE " transpose_to", wrong);
}

static void NAME(test_interleave)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const out = NAME(out);
    const REAL *rows[64];
    int wrong = 0;
    for (int i = 0; i < 64; i++)
        rows[i] = x + 31 * i;
    for (int places = 1; places <= 20; places++)
        for (int stream = 0; stream < 2; stream++)
            for (int s = 0; s < 6; s++) { /* some cells lie before a vector's place, for any number of places */
                const int shift = "\0\1\2\4\10\14"[s];
                for (int m = 1; m <= 2 * LONGEST; m++) {
                    for (int i = 0; i <= shift + m * places; i++)
                        out[i] = 99;
                    k->interleave(m, places, rows, out + shift, stream);
                    for (int i = 0; i < shift; i++)
                        wrong += out[i] != 99;
                    for (int i = 0; i < m; i++)
                        for (int e = 0; e < places; e++)
                            wrong += out[shift + i * places + e] != rows[e][i];
                    wrong += out[shift + m * places] != 99;
                }
            }
    k->drain();
    report(level, TYPE " interleave", wrong);
}

static void NAME(test_accumulate)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const out = NAME(out);
    const REAL *rows[64];
    int wrong = 0;
    for (int i = 0; i < 64; i++)
        rows[i] = x + 31 * i;
    for (int n = 1; n <= 150; n++)
        for (int taps = 0; taps <= 9; taps++) {
            k->accumulate(n, taps, rows, 5, out);
            for (int i = 0; i < n; i++) {
                REAL sum = 5;
                for (int t = 0; t < taps; t++)
                    sum += rows[t][i];
                wrong += out[i] != sum;
            }
        }
    report(level, TYPE " accumulate", wrong);
}

static void NAME(test_add_rows)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const out = NAME(out);
    const int lanes = k->sizes.lanes;
    int wrong = 0;
    for (int m = 1; m <= 2 * lanes + 1; m++) { /* two rows of three positions, nothing beyond their widths */
        for (int i = 0; i < OUT; i++)
            out[i] = i;
        k->add_rows(2, 3, m, x, STEP, 40, out, 3 * 50, 50);
        for (int i = 0; i < OUT; i++) {
            const int row = i / 150, p = i / 50 % 3, at = i % 50;
            wrong += out[i] != i + (row < 2 && at < m ? x[row * STEP + p * 40 + at] : 0);
        }
    }
    report(level, TYPE " add_rows", wrong);
}

static void NAME(test_biased_rows)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const out = NAME(out);
    int wrong = 0;
    for (int m = 1; m <= LONGEST; m++) {
        for (int i = 0; i < OUT; i++)
            out[i] = 7;
        k->biased_rows(3, m, x, STEP, 5, out, m + 1);
        for (int i = 0; i < OUT; i++) {
            const int row = i / (m + 1), at = i % (m + 1);
            wrong += out[i] != (row < 3 && at < m ? x[row * STEP + at] + 5 : 7);
        }
    }
    report(level, TYPE " biased_rows", wrong);
}

static void NAME(test_copy_lines)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const out = NAME(out);
    int wrong = 0;
    for (int m = 1; m <= LONGEST; m++) /* shorter and longer than a vector, apart and one behind the other */
        for (int step = m; step <= STEP; step += STEP - m)
            for (int zeros = 0; zeros < 8; zeros++) {
                const int before = zeros % 2, width = before + m + zeros / 2 % 2 * 2, apart = zeros / 4 * 3;
                for (int i = 0; i < OUT; i++)
                    out[i] = 7;
                k->copy_lines(3, before, m, width - before - m, (const char *)x, step * sizeof(REAL), out,
                              width + apart);
                for (int i = 0; i < OUT; i++) { /* nothing between the lines and beyond the last one */
                    const int line = i / (width + apart), at = i % (width + apart) - before;
                    const REAL within = at < 0 || at >= m ? 0 : x[line % 3 * step + at];
                    wrong += out[i] != (line < 3 && at < width - before ? within : 7);
                }
            }
    report(level, TYPE " copy_lines", wrong);
}

static void NAME(test_filled_lines)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const out = NAME(out);
    const int lanes = k->sizes.lanes;
    int wrong = 0;
    for (int m = 1; m <= 2 * lanes + 1; m++) { /* lines of whole vectors and not */
        const int filled = (m + lanes - 1) / lanes * lanes;
        for (int i = 0; i < OUT; i++)
            out[i] = 7;
        k->filled_lines(2, STEP * sizeof(REAL), 3, 5 * sizeof(REAL), m, (const char *)x, 64, out, filled, 2 * filled);
        for (int i = 0; i < OUT; i++) {
            const int at = i % filled, c = i / filled % 2, line = i / filled / 2;
            wrong += out[i] != (i >= 6 * filled ? 7 : at < m ? x[c * STEP + line * 5 + at] : 0);
        }
    }
    report(level, TYPE " filled_lines", wrong);
}

static void NAME(test_stream_rows)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x), *const out = NAME(out);
    int wrong = 0;
    for (int m = 1; m <= 2 * LONGEST; m++) /* rows within a cache line and of several, which begin anywhere in one */
        for (int shift = 1; shift <= 16; shift++)
            for (int places = 1; places <= 3; places++) {
                for (int i = 0; i < OUT; i++)
                    out[i] = 7;
                k->stream_rows(6, m, places, x + 16, m + 5, 4 * STEP, out + shift);
                k->drain();
                for (int i = 0; i < OUT; i++) {
                    const int at = i - shift, q = at / m;
                    wrong += out[i] !=
                             (at < 0 || q >= 6 ? 7 : x[16 + q / places * (m + 5) + q % places * 4 * STEP + at % m]);
                }
            }
    report(level, TYPE " stream_rows", wrong);
}

static void NAME(test_all_finite)(const char *level, const KERNELS *k)
{
    REAL *const x = NAME(x);
    int wrong = !k->all_finite(x, 100);
    for (int i = 0; i < 100; i++) {
        const REAL kept = x[i];
        x[i] = i % 2 ? (REAL)1e308 * 10 : (REAL)0 / (x[i] - x[i]);
        wrong += k->all_finite(x, 100) != 0;
        x[i] = kept;
    }
    report(level, TYPE " all_finite", wrong);
}

static void NAME(test)(const char *level, const KERNELS *k)
{
    for (int i = 0; i < 8192; i++) {
        NAME(x)[i / 2] = rand() % 7 - 3;
        NAME(w)[i] = rand() % 7 - 3;
    }
    for (int i = 0; i < 64; i++)
        NAME(bias)[i] = rand() % 7 - 3;
    NAME(test_channels)(level, k);
    NAME(test_groups)(level, k);
    NAME(test_runs)(level, k);
    NAME(test_zeros)(level, k);
    NAME(test_native)(level, k);
    NAME(test_positions)(level, k);
    NAME(test_positions_out)(level, k);
    NAME(test_transpose)(level, k);
    NAME(test_transpose_to)(level, k);
    NAME(test_interleave)(level, k);
    NAME(test_accumulate)(level, k);
    NAME(test_add_rows)(level, k);
    NAME(test_biased_rows)(level, k);
    NAME(test_copy_lines)(level, k);
    NAME(test_filled_lines)(level, k);
    NAME(test_stream_rows)(level, k);
    NAME(test_all_finite)(level, k);
    NAME(test_chains)(level, k);
}

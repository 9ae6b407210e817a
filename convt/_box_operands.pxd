"""What is read and written, and in which box; for the modules that pack, multiply and store boxes."""

cimport numpy as cnp
from libc.stdint cimport int64_t, uint16_t, uint32_t

from convt._box_table cimport BOX, CELLS, OUTPUT, PLACES, BoxTable
from convt._elements cimport BFLOAT16, DType, precision_of, read, real_t, write
from convt._levels cimport MAX_AXES, kernels_for


cdef struct Operands:
    DType dtype
    Py_ssize_t item  # bytes of a stored element
    bint plain  # stored in the type that sums are made in
    bint stream  # y is so large that its stores should pass the caches
    bint many_lines  # of a channel of y are written together, where sums lie along channels
    bint fetch  # so large, too, that tiles of pieces ask early for the cache lines that they write parts of
    bint in_place  # x can be multiplied where it lies, if there is enough of it behind what is needed
    bint in_strips  # x is packed strip by strip, for one pass
    bint joined_rows  # for one pass, several rows of cells are one line, as they follow each other
    bint one_pass  # the table allows to write sums as outputs at once, and y's rows are contiguous
    # One pass, but through some lines of sums or, of words, of outputs: halves other than words, joined rows that are
    # not whole vectors, streamed rows that are not whole cache lines.
    bint in_lines
    uint32_t least, most  # magnitudes of x that products of pieces keep, as the bits of floats
    const char *x
    const char *x_end  # of its memory
    const char *w  # as given, where weights are read while a box is computed
    const char *w_end
    char *y
    const cnp.npy_intp *x_strides
    const cnp.npy_intp *y_strides


# Where a box begins and how many cells it has, per axis: the same box of some groups.
cdef struct Box:
    int64_t group
    int64_t groups  # that are computed together, from that one on
    int64_t begin[MAX_AXES]
    int64_t size[MAX_AXES]
    int64_t shared  # places on axis 1 that the box before had too: their input or its products are kept


cdef inline Py_ssize_t array_axis(Py_ssize_t a) noexcept nogil:
    """The axis of x and y that axis a of a box is: channels are their second."""
    return a + 1 if a else 0


cdef inline void read_line(
    BoxTable table, const Operands *operands, const char *source, Py_ssize_t step, Py_ssize_t n, Py_ssize_t ahead,
    real_t *line,
) noexcept nogil:
    """`read` with the level's own conversions where the elements are consecutive halves. Of these, what lies so many
    bytes `ahead` is fetched."""
    if real_t is float and not operands.plain and step == sizeof(uint16_t):
        table.halves.widen(operands.dtype == BFLOAT16, <const uint16_t *> source, n, ahead, line)
    else:
        read(operands.dtype, source, step, n, line)


cdef inline void write_line(
    BoxTable table, const Operands *operands, const real_t *line, Py_ssize_t n, char *target, Py_ssize_t step
) noexcept nogil:
    """`write` likewise."""
    if real_t is float and not operands.plain and step == sizeof(uint16_t):
        table.halves.narrow(operands.dtype == BFLOAT16, line, n, <uint16_t *> target)
    else:
        write(operands.dtype, line, n, target, step)


cdef inline void write_outputs(
    BoxTable table, const Operands *operands, const real_t *sums, Py_ssize_t n, char *y
) noexcept nogil:
    """Consecutive outputs: as halves, or past the caches, where they should go so, up to lines that are not whole."""
    if operands.plain:
        kernels_for(table.level, sums).interleave(n, 1, &sums, <real_t *> y, operands.stream)
    elif real_t is float:
        table.halves.narrow(operands.dtype == BFLOAT16, sums, n, <uint16_t *> y)


cdef inline Py_ssize_t cells_of(const Box *box, Py_ssize_t axes) noexcept nogil:
    """Cells of a box on its first so many axes."""
    cdef Py_ssize_t a, cells = 1
    for a in range(axes):
        cells *= box.size[a]
    return cells


cdef inline Py_ssize_t count_runs(BoxTable table, const Box *box, Py_ssize_t *length) noexcept nogil:
    """The runs of a box; `length` becomes the positions of each."""
    cdef Py_ssize_t a, runs = 1
    length[0] = box.size[0] if table.image_runs else 1
    for a in range(table.image_runs, table.n_axes):
        if a < table.run_axis:
            runs *= box.size[a]
        else:
            length[0] += (box.size[a] - 1) * table.steps[a]
    return runs


cdef inline Py_ssize_t run_begin(BoxTable table, const Box *box, Py_ssize_t run) noexcept nogil:
    """The first place of a run in the packed input."""
    cdef Py_ssize_t a, base = 0
    for a in range(table.run_axis - 1, table.image_runs - 1, -1):
        base += run % box.size[a] * table.steps[a]
        run //= box.size[a]
    return base


cdef inline void find_row(BoxTable table, const Box *box, Py_ssize_t row, int64_t *idx) noexcept nogil:
    """The cell of a box that its row number `row` begins with, on every axis but the last."""
    cdef Py_ssize_t a
    for a in range(table.n_axes - 2, -1, -1):
        idx[a] = row % box.size[a]
        row //= box.size[a]


cdef inline bint rows_follow(BoxTable table, const Operands *operands) noexcept nogil:
    """Whether boxes have whole rows of outputs, and these follow each other in memory: they can be stored as one."""
    cdef Py_ssize_t last = table.n_axes - 1
    if table.axes[last, BOX] < table.axes[last, CELLS]:
        return False
    return operands.y_strides[array_axis(last - 1)] == table.axes[last, OUTPUT] * operands.y_strides[last + 1]


cdef inline void next_row(BoxTable table, const Box *box, int64_t *idx) noexcept nogil:
    """From the row that `find_row` found to the next, without divisions."""
    cdef Py_ssize_t a
    for a in range(table.n_axes - 2, -1, -1):
        idx[a] += 1
        if idx[a] < box.size[a]:
            break
        idx[a] = 0


cdef inline void find_place(BoxTable table, Py_ssize_t outer, int64_t *place) noexcept nogil:
    """Number `outer` of the rows of outputs of a cell: its place on every axis but the last."""
    cdef Py_ssize_t a
    for a in range(table.n_axes - 2, -1, -1):
        place[a] = outer % table.axes[a, PLACES]
        outer //= table.axes[a, PLACES]


cdef inline char *row_at(
    BoxTable table, const Operands *operands, const Box *box, const int64_t *idx, const int64_t *place,
    Py_ssize_t channel,
) noexcept nogil:
    """Where a row of y begins: that of a place, on every axis but the last, of a row of cells; NULL beyond y."""
    cdef Py_ssize_t a
    cdef int64_t o
    cdef char *y = operands.y + channel * operands.y_strides[1]
    for a in range(table.n_axes - 1):
        o = (box.begin[a] + idx[a]) * table.axes[a, PLACES] + place[a]
        if o >= table.axes[a, OUTPUT]:
            return NULL
        y += o * operands.y_strides[array_axis(a)]
    return y


cdef inline char *row_of_outputs(
    BoxTable table, const Operands *operands, const Box *box, const int64_t *idx, Py_ssize_t outer, Py_ssize_t channel
) noexcept nogil:
    """`row_at` the place of a number."""
    cdef int64_t place[MAX_AXES]
    find_place(table, outer, place)
    return row_at(table, operands, box, idx, place, channel)


cdef inline Py_ssize_t output_item(BoxTable table) noexcept nogil:
    """Bytes of an element that `positions_out` writes."""
    return sizeof(uint16_t) if table.words else table.item


cdef inline int precision_in_place(const Operands *operands, Py_ssize_t step) noexcept nogil:
    """Bits of precision of elements that tile registers can be filled from, or written to, where they lie; 0 if they
    must be copied as floats."""
    if step != <Py_ssize_t> (sizeof(float) if operands.plain else sizeof(uint16_t)):
        return 0
    return precision_of(operands.dtype)

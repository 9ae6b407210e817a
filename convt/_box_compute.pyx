"""The vectorised levels: boxes of cells, multiplied by micro-kernels.

`convt.tiling` explains cells, classes, boxes and runs. A task is a chain of boxes, mostly of one, some groups, mostly
one, and a range of output channels. For each box of a group, or of some that are small:

1. pack the box's input, zeros around it, so that every cell of a run has its taps at the same offsets (`_box_input`);
   taps for which a whole run reads only zeros are left out, and the zeros at both ends if it is one row. Runs of
   images need no zeros. What few tiles read is multiplied where it lies; cells of one input are packed strip by strip
   in step 2, and columns first along positions portion by portion;
2. for each block of channels, whose input is packed now where each is a group, sum up the products in a scratch that
   stays in cache (`_box_along_channels`, `_box_along_positions`);
3. write the block's output rows once, places interleaved, rounded to the storage type (`_box_output`).

Where a row of outputs takes its places from one class or two, 2 and 3 are one (`_box_one_pass`). By rows of cells, of
which no taps are left out, they take turns, two tiles of positions at a time.

Lanes lie along output channels or groups of one (input packed position by position, sums transposed on their way out),
or along positions (input packed channel by channel, by two channels of bfloat16, or strip by strip) where output
channels are few or rows fill vectors. The order of a sum depends on neither boxes nor threads.
"""

cimport numpy as cnp
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint64_t

from convt._box_along_channels cimport sum_along_channels
from convt._box_along_positions cimport sum_along_positions
from convt._box_input cimport pack_input, read_in_place
from convt._box_one_pass cimport (
    BlockOutputs, list_rows, multiply_and_store, multiply_tile_rows, multiply_tiles_and_store,
)
from convt._box_operands cimport Box, Operands, array_axis, rows_follow
from convt._box_output cimport store
from convt._box_table cimport (
    BOX, CELLS, INPUT, ORIGIN, OUTPUT, REACH, BoxTable, Scratch, columns_gain_in_place,
)
from convt._elements cimport FLOAT32, FLOAT64, dtype_of, real_t
from convt._levels cimport CACHE_LINE, LONG_ROW, PAGE, SET_STEP, tile_rows_t
from convt._machine cimport begin_floating, end_floating, is_raised, raise_flag

from convt._memory import WORKSPACES

cnp.import_array()

cdef enum:
    # Where there are tiles, results of one piece of so many bytes pass the caches if their cells have one tap and
    # several outputs in a row: 0.957 and 0.977 of the time, 0.77 to 1.11 (41 layers on a Xeon with AMX, twice). Two
    # pieces 0.993, one place a cell 1.2, by rows of cells 1.05 (7 layers).
    PLACES_STREAM_BYTES = 1 << 21


cdef bint run_box(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t first_block, Py_ssize_t end_block,
    const real_t *weights, const real_t *bias, char *memory, BlockOutputs *outputs,
) noexcept nogil:
    """Some blocks of channels of a box. Returns whether its operands cannot be multiplied so."""
    cdef Py_ssize_t block, channel
    cdef Scratch scratch
    cdef bint refused = False
    cdef tile_rows_t rows
    cdef Box groups
    cdef bint packed = not (operands.in_strips or table.along_groups)
    table.lay_out(<size_t> memory, &scratch)
    cdef real_t *input = <real_t *> scratch.input
    if packed and not table.in_portions and not read_in_place(table, operands, box) and pack_input(
        table, operands, box, input, <real_t *> scratch.square
    ):
        return True
    if table.pieces:
        table.level.tiles.configure(table.tile_height)
        if operands.one_pass:
            list_rows(table, operands, box, <char **> scratch.sums, &rows)
    weights += box.group * table.group_weights
    bias += box.group * table.group_biases
    for block in range(first_block, end_block):
        channel = box.group * table.group_outputs + block * table.block
        if table.along_groups:
            groups = box[0]
            groups.group, groups.groups = channel, table.block_width(block)
            pack_input(table, operands, &groups, input, <real_t *> scratch.square)
        if real_t is float and table.by_rows:
            multiply_tile_rows(table, operands, box, channel, block, input, weights, bias)
        elif real_t is float and operands.one_pass and table.pieces:
            multiply_tiles_and_store(table, operands, box, channel, block, input, weights, bias, &rows)
        elif operands.one_pass:
            multiply_and_store(
                table, operands, box, channel, block, input, packed, weights, bias, <real_t *> scratch.sums, outputs
            )
            packed = True
        else:
            if table.along_channels:
                refused = sum_along_channels(table, operands, box, block, weights, &scratch)
            else:
                sum_along_positions(table, operands, box, block, weights, bias, &scratch)
            if refused:
                break
            store(table, operands, box, channel, block, bias, &scratch)
    if table.pieces:
        table.level.tiles.release()
    if operands.stream:
        table.level.f32.drain()
    return refused


cdef bint run_parts(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t first_block, Py_ssize_t end_block,
    const real_t *weights, const real_t *bias, char *scratch, BlockOutputs *outputs,
) noexcept nogil:
    """`run_box`, but apart from the last image, plane and row of a box what can be multiplied in place without them; of
    columns first, from its last image."""
    cdef Box part
    cdef Py_ssize_t a = 0
    if operands.in_place and not read_in_place(table, operands, box):
        part = box[0]
        while a < table.n_axes - 2 and box.size[a] == 1 and not table.columns_first:
            a += 1
        part.size[a] -= 1
        if part.size[a] and read_in_place(table, operands, &part):
            if run_box(table, operands, &part, first_block, end_block, weights, bias, scratch, outputs):
                return True
            part.begin[a] += part.size[a]
            part.size[a] = 1
            return run_parts(table, operands, &part, first_block, end_block, weights, bias, scratch, outputs)
    return run_box(table, operands, box, first_block, end_block, weights, bias, scratch, outputs)


# `convt.shares.Tasks`.
cdef struct Tasks:
    Py_ssize_t total
    int threads
    Py_ssize_t groups
    Py_ssize_t splits
    Py_ssize_t together


cdef bint run_task(
    BoxTable table, const Operands *operands, const real_t *weights, const real_t *bias, const Tasks *tasks,
    Py_ssize_t task, char *scratch,
) noexcept nogil:
    """A chain of boxes of some groups, and one part of a group's blocks of channels, as `part_widths` of convt.shares
    counts them; parts are the fastest index.

    Returns whether operands of a box cannot be multiplied so: some of its outputs are not written then.
    """
    cdef Py_ssize_t splits = tasks.splits, groups = tasks.groups, part = task % splits
    cdef Py_ssize_t rest = task // splits % table.chains
    cdef Py_ssize_t first_group = task // splits // table.chains * groups, group
    cdef Py_ssize_t first_block = part * table.blocks // splits, end_block = (part + 1) * table.blocks // splits
    cdef Py_ssize_t a, size, boxes
    cdef int64_t begin, end
    cdef Box box
    cdef BlockOutputs outputs
    outputs.block = -1
    for a in range(table.n_axes - 1, -1, -1):
        size = table.axes[a, BOX] * (table.chain if a == 1 else 1)
        boxes = (table.axes[a, CELLS] + size - 1) // size
        box.begin[a] = rest % boxes * size
        box.size[a] = min(table.axes[a, BOX], table.axes[a, CELLS] - box.begin[a])
        rest //= boxes
    begin = box.begin[1]
    end = min(table.axes[1, CELLS], begin + table.chain * table.axes[1, BOX])
    groups = min(groups, table.group - first_group)
    for group from 0 <= group < groups by table.groups_together:
        box.group, box.groups = first_group + group, min(table.groups_together, groups - group)
        box.begin[1], box.shared = begin, 0
        while box.begin[1] < end:
            box.size[1] = min(table.axes[1, BOX], end - box.begin[1])
            if run_parts(table, operands, &box, first_block, end_block, weights, bias, scratch, &outputs):
                return True
            box.begin[1] += table.axes[1, BOX]
            box.shared = table.axes[1, REACH] - table.axes[1, ORIGIN]
    return False


cdef bint run_tasks(
    BoxTable table, const Operands *operands, const real_t[::1] weights, const real_t[::1] bias, const Tasks *tasks,
    char *scratch, Py_ssize_t scratch_step,
) noexcept:
    """Returns whether a task refused its operands; none is begun after that."""
    cdef Py_ssize_t task
    cdef int refused = 0
    cdef uint64_t found
    for task in prange(
        tasks.total, nogil=True, schedule="dynamic", chunksize=tasks.together, num_threads=tasks.threads
    ):
        if is_raised(&refused):
            continue
        found = begin_floating()
        if run_task(table, operands, &weights[0], &bias[0], tasks, task, scratch + threadid() * scratch_step):
            raise_flag(&refused)
        end_floating(found)
    return refused


cdef bint gains_in_place(BoxTable table, const Operands *operands) noexcept nogil:
    """Whether boxes are multiplied where x lies, if its strides and their size allow it.

    Cells are where one tile of a place has all columns. More tiles want a copy, as channels that lie a power of two
    apart meet in few sets of the caches: up to 1.8 times.
    """
    cdef Py_ssize_t a, columns = table.columns(table.products, 0, 0)
    if table.pieces or table.along_channels:
        return False
    if table.columns_first:
        return columns_gain_in_place(columns, table.most_rows, table.most_sums, operands.x_strides[1])
    for a in range(1, table.n_axes):
        if table.axes[a, ORIGIN] or table.axes[a, REACH] or table.axes[a, CELLS] > table.axes[a, INPUT]:
            return False
    return operands.one_pass and table.blocks == 1 and table.classes.n == 1 and table.tile_width(columns) == columns


cdef void choose_loads(BoxTable table, Operands *operands, cnp.ndarray x):
    """How x is read: packed, box by box or strip by strip, or where it lies."""
    cdef Py_ssize_t a, last_input = 0
    cdef bint plain_rows = operands.plain and x.strides[x.ndim - 1] == x.itemsize
    operands.in_strips = table.strips and operands.one_pass and plain_rows
    operands.in_place = plain_rows and gains_in_place(table, operands) and operands.x_strides[1] >= x.itemsize
    for a in range(x.ndim):
        operands.in_place &= operands.x_strides[a] >= 0
        last_input += operands.x_strides[a] * (x.shape[a] - 1)
    operands.x_end = operands.x + (last_input + <Py_ssize_t> x.itemsize)


cdef bint rows_begin_at(const Operands *operands, cnp.ndarray y, Py_ssize_t unit):
    """Whether all rows of y begin at multiples of so many bytes."""
    cdef Py_ssize_t a
    cdef bint aligned = <size_t> operands.y % unit == 0
    for a in range(y.ndim - 1):
        aligned &= y.shape[a] == 1 or y.strides[a] % unit == 0
    return aligned


cdef bint can_join_rows(BoxTable table, const Operands *operands, cnp.ndarray y):
    """Whether several rows of cells can be multiplied as one line: they follow each other in x or as they are packed.

    The outputs of words may be copied as floats: in y rows must follow each other, and begin where floats do.
    """
    cdef Py_ssize_t last = table.n_axes - 1
    if not (table.joins_rows and operands.one_pass):
        return False
    if operands.in_strips or operands.in_place:
        return (
            operands.x_strides[array_axis(last - 1)] == table.axes[last, INPUT] * operands.x_strides[array_axis(last)]
        )
    if not table.words:
        return operands.plain
    return rows_begin_at(operands, y, sizeof(float)) and rows_follow(table, operands)


cdef void choose_stores(BoxTable table, Operands *operands, cnp.ndarray x, cnp.ndarray y):
    """How outputs are written to y: past the caches or not, by lines of sums or not, and of joined rows or not."""
    cdef Py_ssize_t row_bytes = y.shape[y.ndim - 1] * y.itemsize
    cdef bint vectors_out = operands.one_pass and not table.pieces, apart
    cdef Py_ssize_t stream_bytes = table.stream_bytes
    cdef bint shared_lines = not rows_begin_at(operands, y, CACHE_LINE)
    # A row whose ends share cache lines with its neighbours' is streamed only where it is long; rows that are stored as
    # one count as one, along channels or in lines.
    if (vectors_out or table.along_channels and not table.by_rows) and rows_follow(table, operands):
        row_bytes *= table.axes[table.n_axes - 2, OUTPUT]
    if table.along_channels and y.shape[1] > 1 and y.strides[1] == y.itemsize:  # the channels of a place are a row
        row_bytes = y.shape[1] * y.itemsize
    operands.fetch = y.nbytes >= table.level.fetch_bytes
    if operands.one_pass and table.pieces == 1 and table.unit > 1 and table.inner_places > 1:
        stream_bytes = min(stream_bytes, PLACES_STREAM_BYTES)
    operands.stream = (operands.plain or table.guarded) and y.nbytes >= stream_bytes
    operands.stream &= row_bytes % CACHE_LINE == 0 or row_bytes >= LONG_ROW
    operands.many_lines = table.sets_wait and operands.plain and y.strides[1] % SET_STEP == 0
    operands.joined_rows = can_join_rows(table, operands, y)
    apart = operands.joined_rows and table.rows_are_vectors
    if table.words:  # of whose outputs there are lines only so; LANES of them fill half a cache line
        apart = apart and (not operands.stream or rows_begin_at(operands, y, CACHE_LINE // 2))
        operands.in_lines = operands.joined_rows and not apart
        operands.stream &= operands.joined_rows or not shared_lines
    else:
        if vectors_out and operands.plain and shared_lines and not operands.joined_rows:
            operands.stream &= x.nbytes + y.nbytes >= table.lines_stream_bytes
        operands.in_lines = vectors_out and (not operands.plain or operands.stream and shared_lines)
        operands.in_lines |= operands.joined_rows and not apart


def run(
    cnp.ndarray x not None,
    cnp.ndarray y not None,
    weights,
    bias,
    magnitudes,
    BoxTable table not None,
    str dtype not None,
    tasks not None,
):
    """Compute y, every element of it.

    Returns whether that was possible: tile registers refuse magnitudes that they would lose, panels of
    vectors weights or products that are not finite. y is undefined otherwise.

    Parameters
    ----------
    x, y : ndarray
        ``(N, C, *I)`` and ``(N, M, *O)``, aligned, native byte order, any strides; `y` overlaps nothing, has elements.
    weights, bias : ndarray
        As `pack` makes them for `table`; both stay in use during the call.
    magnitudes : (int, int)
        Likewise.
    table : BoxTable
    dtype : {"float16", "bfloat16", "float32", "float64"}
        What the bytes of `x` and `y` are.
    tasks : convt.shares.Tasks
    """
    cdef Operands operands
    cdef Tasks dealt
    dealt.total, dealt.threads, dealt.groups = tasks.total, tasks.threads, tasks.groups
    dealt.splits, dealt.together = tasks.splits, tasks.together
    cdef Py_ssize_t step = (table.workspace + PAGE - 1) // PAGE * PAGE
    # Allocated here, so that a MemoryError comes before anything is written.
    cdef cnp.ndarray scratch = WORKSPACES.take(dealt.threads * step + CACHE_LINE)
    cdef char *aligned_scratch = cnp.PyArray_BYTES(scratch)
    aligned_scratch += CACHE_LINE - <size_t> aligned_scratch % CACHE_LINE
    operands.dtype = dtype_of(dtype)
    operands.plain = operands.dtype == FLOAT32 or operands.dtype == FLOAT64
    operands.item = cnp.PyArray_ITEMSIZE(y)
    operands.least, operands.most = magnitudes
    operands.x = cnp.PyArray_BYTES(x)
    operands.y = cnp.PyArray_BYTES(y)
    if table.in_panels:
        operands.w = cnp.PyArray_BYTES(weights)
        operands.w_end = operands.w + cnp.PyArray_NBYTES(weights)
        weights = bias  # read by nobody: these may be halves, which no kernel takes as packed ones
    operands.x_strides = cnp.PyArray_STRIDES(x)
    operands.y_strides = cnp.PyArray_STRIDES(y)
    operands.one_pass = table.one_pass and y.strides[y.ndim - 1] == y.itemsize
    choose_loads(table, &operands, x)
    choose_stores(table, &operands, x, y)
    if table.double:
        return not run_tasks[double](table, &operands, weights, bias, &dealt, aligned_scratch, step)
    return not run_tasks[float](table, &operands, weights, bias, &dealt, aligned_scratch, step)

"""Phases of rows, in plain loops: the generic level, and what other levels have no better way for.

Output index ``o`` of an axis belongs to the phase ``(o + pad) % stride``; every tap ``k`` whose
``k*dilation`` leaves the same residue adds ``X[q - back] * W[k]``, with ``q = (o + pad) // stride`` and
``back = k*dilation // stride``. So a phase is a stride-1 correlation with its own list of taps: no zeros are
inserted, no columns are built, and each output is summed in one place and written once.

An output row is cut into strips of at most ``ROW_STRIP * stride`` elements. A task is one image, one tile of
output channels and a band of strips; ``prange`` deals the tasks out. A strip sums one phase of one tile at a
time in a scratch that stays in the first-level cache. The order of a sum depends on nothing but the layer, so the
bits do not depend on the number of threads.

float32 and float64 are summed in double, float16 and bfloat16 in float: the baseline of x86-64 has no FMA,
and a float chain without it would round each product as well; the product of two floats is exact in double.
"""

cimport numpy as cnp
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint64_t

from convt._elements cimport DType, dtype_of, read, real_t, write
from convt._levels cimport CACHE_LINE, ROW_STRIP
from convt._machine cimport begin_floating, end_floating

import numpy as np

from convt._memory import WORKSPACES
from convt.arrays import empty_aligned

cnp.import_array()

cdef enum:
    INPUT, KERNEL, STRIDE, DILATION, PAD, OUTPUT  # columns of PhaseTable.axes

cdef struct RowOperands:
    DType dtype
    Py_ssize_t spatial
    const char *x
    char *y
    const cnp.npy_intp *x_strides
    const cnp.npy_intp *y_strides


# A kernel position on the outer axes that reaches the current output row, and the input row it reads.
cdef struct OuterTap:
    Py_ssize_t kernel_index
    Py_ssize_t x_offset


# Outputs [begin, end) of one row, for one tile of channels.
cdef struct Strip:
    int64_t begin
    int64_t end
    const OuterTap *outer
    Py_ssize_t n_outer
    const char *x  # the group's first channel of the image
    char *y  # the row's first element, of the tile's first channel
    Py_ssize_t tile
    Py_ssize_t channels  # of the tile, that exist


cdef class PhaseTable:
    """A geometry and the phases of its innermost axis, as the loops read them.

    Parameters
    ----------
    geometry : convt.geometry.Geometry
    phases : convt.phases.Phases
        Of the innermost axis.
    """

    cdef int64_t[:, ::1] axes
    cdef int64_t[::1] residue
    cdef int64_t[::1] first_tap
    cdef int64_t[::1] tap
    cdef int64_t[::1] back
    cdef Py_ssize_t group, group_inputs, group_outputs
    cdef Py_ssize_t n_phases, rows, strips_per_row, outer_kernel

    def __init__(self, geometry, phases):
        cdef Py_ssize_t a
        self.axes = np.array(geometry.axes, dtype=np.int64)
        self.group = geometry.group
        self.group_inputs = geometry.group_inputs
        self.group_outputs = geometry.group_outputs
        self.n_phases = phases.residue.size
        self.residue, self.first_tap, self.tap, self.back = phases
        self.rows = self.outer_kernel = 1
        for a in range(self.axes.shape[0] - 1):
            self.rows *= self.axes[a, OUTPUT]
            self.outer_kernel *= self.axes[a, KERNEL]
        a = self.axes.shape[0] - 1
        # Divide before multiplying: a stride near 2**63 must not overflow.
        self.strips_per_row = (self.axes[a, OUTPUT] - 1) // self.axes[a, STRIDE] // ROW_STRIP + 1

    @property
    def strips(self):
        """Strips of one image and one channel tile: what bands are made of."""
        return self.rows * self.strips_per_row

    def workspace(self, tile):
        """Scratch bytes per thread for channel tiles of `tile`, whatever the size of the image."""
        return (tile + 1) * ROW_STRIP * sizeof(double) + self.outer_kernel * sizeof(OuterTap)


cdef inline void fill(
    DType dtype, real_t value, Py_ssize_t n, char *target, Py_ssize_t stride
) noexcept nogil:
    """Store `value` `n` times: outputs that no tap reaches."""
    cdef Py_ssize_t i
    for i in range(n):
        write(dtype, &value, 1, target + i * stride, stride)


cdef inline void multiply_add(
    const real_t *x, Py_ssize_t n, const real_t *weights, Py_ssize_t tile, real_t *sums
) noexcept nogil:
    """sums[j][:n] += weights[j] * x[:n] for the `tile` channels, whose rows are ROW_STRIP apart."""
    cdef Py_ssize_t j, i
    cdef real_t weight
    cdef real_t *row
    for j in range(tile):
        weight = weights[j]
        row = sums + j * ROW_STRIP
        for i in range(n):
            row[i] += weight * x[i]


cdef inline int64_t ceil_div(int64_t a, int64_t b) noexcept nogil:
    """ceil(a / b) for b > 0; C's division cuts towards zero."""
    return a // b + (a % b > 0)


cdef inline int64_t input_of(PhaseTable table, Py_ssize_t axis, int64_t output, int64_t k) noexcept nogil:
    """The input that meets an output of an axis by kernel position k; -1 for none."""
    cdef int64_t distance = output + table.axes[axis, PAD] - k * table.axes[axis, DILATION]
    cdef int64_t place = distance // table.axes[axis, STRIDE]
    if distance < 0 or place * table.axes[axis, STRIDE] != distance or place >= table.axes[axis, INPUT]:
        return -1
    return place


cdef Py_ssize_t list_outer_taps(
    PhaseTable table, const RowOperands *operands, Py_ssize_t row, OuterTap *taps, Py_ssize_t *y_offset
) noexcept nogil:
    """The outer kernel positions that reach output row `row`, and where the row lies in y: axis by axis, those of the
    axes behind with every one of an axis.

    Returns the number of taps; they come in kernel order.
    """
    cdef Py_ssize_t a, i, k, o, found, nth, offset, kernel, step = 1, n = 1
    y_offset[0] = 0
    taps[0].kernel_index = taps[0].x_offset = 0
    for a in range(operands.spatial - 2, -1, -1):
        o = row % table.axes[a, OUTPUT]
        row //= table.axes[a, OUTPUT]
        y_offset[0] += o * operands.y_strides[2 + a]
        found = 0
        for k in range(table.axes[a, KERNEL]):
            found += input_of(table, a, o, k) >= 0
        # From the last position on: each round reads the n taps of the axes behind, which the first one's, that comes
        # last, takes the place of.
        nth = found
        for k in range(table.axes[a, KERNEL] - 1, -1, -1):
            if nth and input_of(table, a, o, k) >= 0:
                nth -= 1
                offset, kernel = input_of(table, a, o, k) * operands.x_strides[2 + a], k * step
                for i in range(n):
                    taps[nth * n + i].kernel_index = taps[i].kernel_index + kernel
                    taps[nth * n + i].x_offset = taps[i].x_offset + offset
        step *= table.axes[a, KERNEL]
        n *= found
    return n


cdef inline Py_ssize_t first_from(PhaseTable table, Py_ssize_t phase, int64_t back) noexcept nogil:
    """The first tap of a phase that reads at least so far back, or the end of its taps."""
    cdef Py_ssize_t begin = table.first_tap[phase], end = table.first_tap[phase + 1], middle
    while begin < end:
        middle = (begin + end) // 2
        if table.back[middle] < back:
            begin = middle + 1
        else:
            end = middle
    return begin


cdef void sum_phase(
    PhaseTable table, const RowOperands *operands, const Strip *strip, Py_ssize_t phase, int64_t q_begin, int64_t q_end,
    const real_t *weights, real_t *sums,
) noexcept nogil:
    """Add every term of outputs [q_begin, q_end) of one phase of a strip's row to `sums[tile][ROW_STRIP]`.

    `weights` are the tile's ``[outer kernel, channel, kernel, tile]``.
    """
    cdef Py_ssize_t inner = operands.spatial - 1
    cdef Py_ssize_t kernel = table.axes[inner, KERNEL]
    cdef Py_ssize_t x_step = operands.x_strides[2 + inner]
    # Of a long kernel few taps reach a strip: looking at all of 1.6 million for each of 6250 strips took 4.8 s.
    cdef Py_ssize_t first_entry = first_from(table, phase, q_begin - table.axes[inner, INPUT] + 1)
    cdef Py_ssize_t end_entry = first_from(table, phase, q_end)
    cdef Py_ssize_t t, c, entry, tile = strip.tile
    cdef int64_t begin, end
    cdef const OuterTap *outer = strip.outer
    cdef const char *channel
    cdef const real_t *channel_weights
    cdef real_t *line = sums + tile * ROW_STRIP  # one input row, widened
    for t in range(strip.n_outer):
        for c in range(table.group_inputs):
            channel = strip.x + outer[t].x_offset + c * operands.x_strides[1]
            channel_weights = weights + (outer[t].kernel_index * table.group_inputs + c) * kernel * tile
            for entry in range(first_entry, end_entry):
                begin = max(q_begin, table.back[entry])
                end = min(q_end, table.axes[inner, INPUT] + table.back[entry])
                read(operands.dtype, channel + (begin - table.back[entry]) * x_step, x_step, end - begin, line)
                multiply_add(
                    line, end - begin, channel_weights + table.tap[entry] * tile, tile, sums + (begin - q_begin)
                )


cdef void compute_strip(
    PhaseTable table, const RowOperands *operands, const Strip *strip, const real_t *weights, const real_t *bias,
    real_t *sums,
) noexcept nogil:
    """The outputs of a strip."""
    cdef Py_ssize_t inner = operands.spatial - 1
    cdef int64_t stride = table.axes[inner, STRIDE]
    cdef int64_t pad = table.axes[inner, PAD]
    cdef Py_ssize_t y_step = operands.y_strides[2 + inner]
    # Between outputs of a phase; one that is alone has no next one, however large the stride.
    cdef Py_ssize_t phase_step = min(stride, table.axes[inner, OUTPUT]) * y_step
    cdef Py_ssize_t phase, j, i
    cdef int64_t begin = strip.begin, end = strip.end, q_begin, q_end, o, o_end, gap_begin, gap_end
    for phase in range(table.n_phases):
        q_begin = ceil_div(begin + pad - table.residue[phase], stride)
        q_end = ceil_div(end + pad - table.residue[phase], stride)
        if q_begin >= q_end:
            continue
        for j in range(strip.tile):
            for i in range(q_end - q_begin):
                sums[j * ROW_STRIP + i] = bias[j]
        sum_phase(table, operands, strip, phase, q_begin, q_end, weights, sums)
        o = q_begin * stride + table.residue[phase] - pad
        for j in range(strip.channels):
            write(
                operands.dtype, sums + j * ROW_STRIP, q_end - q_begin,
                strip.y + j * operands.y_strides[1] + o * y_step, phase_step,
            )
    # Residues between those of the phases have no taps: bias alone.
    for phase in range(table.n_phases + 1):
        gap_begin = table.residue[phase - 1] + 1 if phase > 0 else 0
        gap_end = table.residue[phase] if phase < table.n_phases else stride
        if gap_begin >= gap_end:
            continue
        for q_begin in range((begin + pad) // stride, (end - 1 + pad) // stride + 1):
            o = max(begin, q_begin * stride + gap_begin - pad)
            o_end = min(end, q_begin * stride + gap_end - pad)
            for j in range(strip.channels):
                fill(operands.dtype, bias[j], o_end - o, strip.y + j * operands.y_strides[1] + o * y_step, y_step)


cdef void run_task(
    PhaseTable table,
    const RowOperands *operands,
    const real_t[:, :, :, :, :, ::1] weights,
    const real_t[:, :, ::1] bias,
    Py_ssize_t bands,
    Py_ssize_t task,
    char *scratch,
) noexcept nogil:
    """One band of strips of one channel tile of one group of one image; bands are the fastest index."""
    cdef Py_ssize_t tiles = weights.shape[1], tile = weights.shape[5]
    cdef Py_ssize_t band = task % bands
    cdef Py_ssize_t t = task // bands % tiles
    cdef Py_ssize_t g = task // bands // tiles % table.group
    cdef Py_ssize_t image = task // bands // tiles // table.group
    cdef int64_t output = table.axes[operands.spatial - 1, OUTPUT]
    cdef int64_t stride = table.axes[operands.spatial - 1, STRIDE]
    cdef Py_ssize_t strips = table.rows * table.strips_per_row
    cdef Py_ssize_t n, of_row, row_offset
    cdef Strip strip
    cdef OuterTap *outer = <OuterTap *> scratch
    cdef real_t *sums = <real_t *> (outer + table.outer_kernel)
    cdef const real_t *tile_weights = &weights[g, t, 0, 0, 0, 0] if table.group_inputs else NULL
    strip.x = (
        operands.x + image * operands.x_strides[0] + g * table.group_inputs * operands.x_strides[1]
    )
    cdef char *y = (
        operands.y + image * operands.y_strides[0]
        + (g * table.group_outputs + t * tile) * operands.y_strides[1]
    )
    strip.tile, strip.channels = tile, min(tile, table.group_outputs - t * tile)
    strip.outer = outer
    for n in range(band * strips // bands, (band + 1) * strips // bands):
        strip.n_outer = list_outer_taps(table, operands, n // table.strips_per_row, outer, &row_offset)
        strip.y = y + row_offset
        of_row = n % table.strips_per_row
        strip.begin = of_row * ROW_STRIP * stride
        strip.end = output if of_row == table.strips_per_row - 1 else (of_row + 1) * ROW_STRIP * stride
        compute_strip(table, operands, &strip, tile_weights, &bias[g, t, 0], sums)


cdef void run_tasks(
    PhaseTable table,
    const RowOperands *operands,
    const real_t[:, :, :, :, :, ::1] weights,
    const real_t[:, :, ::1] bias,
    Py_ssize_t bands,
    Py_ssize_t tasks,
    char[:, ::1] scratch,
) noexcept:
    cdef Py_ssize_t task
    cdef uint64_t found
    for task in prange(tasks, nogil=True, schedule="dynamic", num_threads=scratch.shape[0]):
        found = begin_floating()
        run_task(table, operands, weights, bias, bands, task, &scratch[threadid(), 0])
        end_floating(found)


def run(
    cnp.ndarray x not None,
    cnp.ndarray y not None,
    weights,
    bias,
    PhaseTable table not None,
    str dtype not None,
    Py_ssize_t bands,
    Py_ssize_t n_threads,
):
    """Compute y, every element of it.

    Parameters
    ----------
    x, y : ndarray
        ``(N, C, *I)`` and ``(N, M, *O)``, aligned, native byte order, any strides; `y` overlaps nothing, has elements.
    weights : ndarray of float64 (float32 for halves)
        ``(group, tiles, outer kernel, C/group, inner kernel, tile)``, as `convt.row_weights.pack_tiles` makes it.
    bias : ndarray of the weights' dtype
        ``(group, tiles, tile)``.
    table : PhaseTable
    dtype : {"float16", "bfloat16", "float32", "float64"}
        What the bytes of `x` and `y` are.
    bands : int
        Parts that the strips of one image and tile are dealt out in.
    n_threads : int
    """
    cdef RowOperands operands
    cdef Py_ssize_t tasks = y.shape[0] * weights.shape[0] * weights.shape[1] * bands
    cdef Py_ssize_t lines = -(-table.workspace(weights.shape[5]) // CACHE_LINE)
    # Allocated here, so that a MemoryError comes before anything is written. Rows of whole cache lines.
    cdef char[:, ::1] scratch = empty_aligned((n_threads, lines * CACHE_LINE), np.dtype("c"), WORKSPACES, 0)
    operands.dtype = dtype_of(dtype)
    operands.spatial = x.ndim - 2
    operands.x = cnp.PyArray_BYTES(x)
    operands.y = cnp.PyArray_BYTES(y)
    operands.x_strides = cnp.PyArray_STRIDES(x)
    operands.y_strides = cnp.PyArray_STRIDES(y)
    if weights.dtype == np.float64:
        run_tasks[double](table, &operands, weights, bias, bands, tasks, scratch)
    else:
        run_tasks[float](table, &operands, weights, bias, bands, tasks, scratch)

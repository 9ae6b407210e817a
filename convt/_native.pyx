"""Images of one input position: a matrix product with the weights as they are, each read once.

``(C, M/group * prod(K))`` already is the right operand, and every product is the only term of one output.
Chains of them end where those of packed weights do.
"""

cimport numpy as cnp
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t, uint16_t, uint64_t
from libc.string cimport memcpy, memset

from convt._elements cimport BFLOAT16, DType, FLOAT64, dtype_of, precision_of, real_t, write
from convt._levels cimport CACHE_LINE, CHAIN, NATIVE_IMAGES, READS_AHEAD, convt_level, find_level, kernels_for
from convt._machine cimport begin_floating, end_floating

import numpy as np

cnp.import_array()

cdef enum:
    SHORT = 2048  # columns whose sums, those of a chain, stay in the first-level cache
    LONG = 8192  # of weights read only once: 131 MB take 0.95 of the time, 262 MB 0.84 to 0.94
    WHOLE = 64  # columns that make whole vectors and lines
    # Images whose weights a processor that reads ahead fetches best by itself: of one, 1 to 262 MB took 0.65 to 1.0 of
    # the time, of two 0.75 to 1.13, 0.93 on average, of three 1.0 to 1.1, by AVX2 1.4 (Zen 5).
    FEW_IMAGES = 2


cdef struct NativeOperands:
    const convt_level *level
    DType dtype
    bint fetch  # weights early
    int precision  # bits of what is stored
    const char *w
    char *y
    Py_ssize_t item  # bytes of an element of both
    Py_ssize_t w_group, y_image, y_group  # bytes from one to the next
    Py_ssize_t columns  # of a group
    Py_ssize_t outputs  # of a channel
    bint in_order  # columns are outputs, as they come


def strip_size(columns, images, parts):
    """Columns of a group that are one task: about `parts` of them a group, but none much shorter than SHORT."""
    longest = LONG if images <= NATIVE_IMAGES else SHORT
    return min(columns, longest, max(SHORT, -(-columns // (parts * WHOLE)) * WHOLE))


def workspace(images, channels, strip, sum_bytes):
    """Scratch bytes per thread, whole cache lines, where a sum takes `sum_bytes`: of several chains one is summed
    apart."""
    size = min(images, NATIVE_IMAGES) * strip * (2 if channels > CHAIN else 1) * sum_bytes
    return -(-size // CACHE_LINE) * CACHE_LINE


cdef void store(
    const NativeOperands *operands, real_t *sums, int64_t begin, int64_t n, const real_t *bias,
    const int64_t[::1] output_of, char *y,
) noexcept nogil:
    """Columns [begin, begin + n) of one image and group: places `output_of` each kernel position, -1 for none."""
    cdef int64_t kernel = output_of.shape[0], j = 0, m = begin // kernel, k = begin % kernel, end, i, place, some
    while j < n:
        end = min(n, j + kernel - k)
        for i in range(j, end):
            sums[i] += bias[m]
        if not operands.in_order:
            i = 0
            while i < end - j:
                place, some = output_of[k + i], 1
                while place >= 0 and i + some < end - j and output_of[k + i + some] == place + some:
                    some += 1
                if place >= 0:
                    write(
                        operands.dtype, sums + j + i, some, y + (m * operands.outputs + place) * operands.item,
                        operands.item,
                    )
                i += some
        j = end
        m += 1
        k = 0
    if not operands.in_order:
        return
    y += begin * operands.item
    if operands.item == sizeof(uint16_t):
        operands.level.halves.narrow(operands.dtype == BFLOAT16, <const float *> sums, n, <uint16_t *> y)
    else:
        memcpy(y, sums, n * sizeof(real_t))


cdef void run_strip(
    const NativeOperands *operands, const real_t[:, :, ::1] x, const real_t[:, ::1] bias, const int64_t[::1] output_of,
    int64_t g, int64_t begin, int64_t width, real_t *sums,
) noexcept nogil:
    """`width` columns of group g from `begin` on; `sums` has `width` of up to NATIVE_IMAGES images, for two chains."""
    cdef int64_t channels = x.shape[2], image, i, first, some
    cdef const char *w = operands.w + g * operands.w_group + begin * operands.item
    cdef char *y = operands.y + g * operands.y_group
    cdef int images
    cdef real_t *chain
    for image from 0 <= image < x.shape[1] by NATIVE_IMAGES:
        images = min(NATIVE_IMAGES, x.shape[1] - image)
        memset(sums, 0, images * width * sizeof(real_t))
        for first from 0 <= first < channels by CHAIN:
            some = min(CHAIN, channels - first)
            chain = sums
            if first:
                chain += images * width
                memset(chain, 0, images * width * sizeof(real_t))
            kernels_for(operands.level, chain).native(
                operands.level.native_rows, operands.fetch, operands.precision, images, some, width,
                &x[g, image, first], channels, w + first * operands.columns * operands.item, operands.columns, chain,
                width,
            )
            if first:
                for i in range(images * width):
                    sums[i] += chain[i]
        for i in range(images):
            store(
                operands, sums + i * width, begin, width, &bias[g, 0], output_of, y + (image + i) * operands.y_image
            )


cdef void run_tasks(
    const NativeOperands *operands, const real_t[:, :, ::1] x, const real_t[:, ::1] bias, const int64_t[::1] output_of,
    int64_t strip, real_t[:, ::1] sums,
) noexcept:
    cdef int64_t task, columns = operands.columns, strips = (columns + strip - 1) // strip
    cdef uint64_t found
    for task in prange(x.shape[0] * strips, nogil=True, schedule="dynamic", num_threads=sums.shape[0]):
        found = begin_floating()
        run_strip(
            operands, x, bias, output_of, task // strips, task % strips * strip,
            min(strip, columns - task % strips * strip), &sums[threadid(), 0],
        )
        end_floating(found)


def outputs_of_bias(const real_t[:, ::1] bias, y_dtype, str dtype not None):
    """``(group, M/group)`` outputs that no kernel position reaches, of `dtype`, NumPy's `y_dtype`: with the bits of
    any other output."""
    cdef cnp.ndarray outputs = np.empty((bias.shape[0], bias.shape[1]), y_dtype)
    cdef DType kind = dtype_of(dtype)
    cdef char *target = cnp.PyArray_BYTES(outputs)
    cdef Py_ssize_t n = bias.shape[0] * bias.shape[1], item = outputs.itemsize
    if n:
        write(kind, &bias[0, 0], n, target, item)
    return outputs


def run(
    x, cnp.ndarray w not None, bias, output_of, bint in_order, cnp.ndarray y not None, sums, int64_t strip,
    str isa not None, str dtype not None,
):
    """Write every output that a kernel position reaches.

    Parameters
    ----------
    x : ndarray
        ``(group, N, C/group)``, in the type of the sums: float64 for that dtype, else float32.
    w : ndarray
        ``(group, C/group, M/group * prod(K))``, of `dtype`, contiguous.
    bias : ndarray
        ``(group, M/group)``, as `x`.
    output_of : ndarray of int64
        ``(prod(K),)``, the output that each kernel position reaches, or -1.
    in_order : bool
        Whether kernel position i reaches output i, and these are all.
    y : ndarray
        ``(N, group, M/group, prod(O))``, of `dtype`, contiguous.
    sums : ndarray
        ``(threads, workspace elements)``, scratch, as `x`.
    strip : int
        Columns of a group that are one task.
    isa : str
    dtype : {"float16", "bfloat16", "float32", "float64"}
    """
    cdef NativeOperands operands
    operands.level = find_level(isa)
    operands.dtype = dtype_of(dtype)
    operands.fetch = not READS_AHEAD or x.shape[1] > FEW_IMAGES
    operands.precision = precision_of(operands.dtype)
    operands.w, operands.y = cnp.PyArray_BYTES(w), cnp.PyArray_BYTES(y)
    operands.item = w.itemsize
    operands.w_group, operands.y_image, operands.y_group = w.strides[0], y.strides[0], y.strides[1]
    operands.columns, operands.outputs = w.shape[2], y.shape[3]
    operands.in_order = in_order
    if operands.dtype == FLOAT64:
        run_tasks[double](&operands, x, bias, output_of, strip, sums)
    else:
        run_tasks[float](&operands, x, bias, output_of, strip, sums)

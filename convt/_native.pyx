# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Images of one input position: a matrix product with the weights as they are, each read once.

``(C, M/group * prod(K))`` already is the right operand, and every product is the only term of one output.
"""

cimport numpy as cnp
from cython.parallel cimport prange, threadid
from libc.stdint cimport int64_t
from libc.string cimport memset

from convt._levels cimport convt_level, find_level, real_t

cnp.import_array()

cdef enum:
    IMAGES = 3  # whose sums are made together
    SHORT = 2048  # columns whose sums stay in the first-level cache
    LONG = 8192  # of weights read only once: 131 MB take 0.95 of the time, 262 MB 0.84 to 0.94
    WHOLE = 64  # columns that make whole vectors and lines


def strip_size(columns, images, parts):
    """Columns of a group that are one task: about `parts` of them a group, but none much shorter than SHORT."""
    longest = LONG if images <= IMAGES else SHORT
    return min(columns, longest, max(SHORT, -(-columns // (parts * WHOLE)) * WHOLE))


def workspace(images, strip, itemsize):
    """Scratch bytes per thread."""
    return min(images, IMAGES) * strip * itemsize


cdef void store(
    const real_t *sums, int64_t begin, int64_t n, const real_t *bias, const int64_t *output_of, int64_t kernel,
    int64_t outputs, real_t *y,
) noexcept nogil:
    """Columns [begin, begin + n) of one image and group: places `output_of` each kernel position, -1 for none."""
    cdef int64_t j, m = begin // kernel, k = begin % kernel
    for j in range(n):
        if output_of[k] >= 0:
            y[m * outputs + output_of[k]] = sums[j] + bias[m]
        k += 1
        if k == kernel:
            k = 0
            m += 1


cdef void run_strip(
    const convt_level *level, const real_t[:, :, ::1] x, const real_t[:, :, ::1] w, const real_t[:, ::1] bias,
    const int64_t[::1] output_of, real_t[:, :, :, ::1] y, int64_t g, int64_t begin, int64_t width, real_t *sums,
) noexcept nogil:
    """`width` columns of group g from `begin` on; `sums` has `width` of up to IMAGES images."""
    cdef int64_t channels = w.shape[1], image, i
    cdef int images
    for image from 0 <= image < x.shape[1] by IMAGES:
        images = min(IMAGES, x.shape[1] - image)
        memset(sums, 0, images * width * sizeof(real_t))
        if real_t is float:
            level.f32.native(
                images, channels, width, &x[g, image, 0], channels, &w[g, 0, begin], w.shape[2], sums, width
            )
        else:
            level.f64.native(
                images, channels, width, &x[g, image, 0], channels, &w[g, 0, begin], w.shape[2], sums, width
            )
        for i in range(images):
            store(
                sums + i * width, begin, width, &bias[g, 0], &output_of[0], output_of.shape[0], y.shape[3],
                &y[image + i, g, 0, 0],
            )


cdef void run_tasks(
    const convt_level *level, const real_t[:, :, ::1] x, const real_t[:, :, ::1] w, const real_t[:, ::1] bias,
    const int64_t[::1] output_of, real_t[:, :, :, ::1] y, int64_t strip, real_t[:, ::1] sums,
) noexcept nogil:
    cdef int64_t task, columns = w.shape[2], strips = (columns + strip - 1) // strip
    for task in prange(w.shape[0] * strips, schedule="dynamic", num_threads=sums.shape[0]):
        run_strip(
            level, x, w, bias, output_of, y, task // strips, task % strips * strip,
            min(strip, columns - task % strips * strip), &sums[threadid(), 0],
        )


def run(x, w, bias, output_of, y, sums, int64_t strip, str isa not None):
    """Write every output that a kernel position reaches.

    Parameters
    ----------
    x : ndarray
        ``(group, N, C/group)``; float32 or float64, as all but `output_of`.
    w : ndarray
        ``(group, C/group, M/group * prod(K))``.
    bias : ndarray
        ``(group, M/group)``.
    output_of : ndarray of int64
        ``(prod(K),)``, the output that each kernel position reaches, or -1.
    y : ndarray
        ``(N, group, M/group, prod(O))``.
    sums : ndarray
        ``(threads, workspace elements)``, scratch.
    strip : int
        Columns of a group that are one task.
    isa : str
    """
    cdef const convt_level *level = find_level(isa)
    if x.itemsize == sizeof(float):
        run_tasks[float](level, x, w, bias, output_of, y, strip, sums)
    else:
        run_tasks[double](level, x, w, bias, output_of, y, strip, sums)

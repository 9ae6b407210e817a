"""Elements in memory, of any dtype and step, to and from the types that sums are made in."""

from libc.stdint cimport uint32_t

cdef extern from "half.h" nogil:
    float value_of "convt_float_from_bits" (uint32_t bits)
    uint32_t bits_of "convt_bits_from_float" (float value)
    ctypedef struct float16_t "convt_float16":
        pass
    ctypedef struct bfloat16_t "convt_bfloat16":
        pass
    float widen_float16 "convt_widen_float16"(float16_t half)
    float widen_bfloat16 "convt_widen_bfloat16"(bfloat16_t half)
    float16_t narrow_float16 "convt_narrow_float16"(float value)
    bfloat16_t narrow_bfloat16 "convt_narrow_bfloat16"(float value)

ctypedef fused storage_t:
    float16_t
    bfloat16_t
    float
    double

ctypedef fused real_t:  # that sums are made in
    float
    double


cdef enum DType:
    FLOAT16, BFLOAT16, FLOAT32, FLOAT64


cdef inline DType dtype_of(str name):
    if name == "float16":
        return FLOAT16
    if name == "bfloat16":
        return BFLOAT16
    return FLOAT32 if name == "float32" else FLOAT64


cdef inline int precision_of(DType dtype) noexcept nogil:
    """Bits of a significand."""
    return 24 if dtype == FLOAT32 else 8 if dtype == BFLOAT16 else 11 if dtype == FLOAT16 else 53


cdef inline real_t widen(const storage_t *element, real_t kind) noexcept nogil:
    # The type of `kind` is what counts.
    if storage_t is float16_t:
        return widen_float16(element[0])
    elif storage_t is bfloat16_t:
        return widen_bfloat16(element[0])
    else:
        return <real_t> element[0]


cdef inline void narrow(real_t value, storage_t *element) noexcept nogil:
    if storage_t is float16_t:
        element[0] = narrow_float16(<float> value)
    elif storage_t is bfloat16_t:
        element[0] = narrow_bfloat16(<float> value)
    else:
        element[0] = <storage_t> value


cdef inline void read_row(
    const storage_t *source, Py_ssize_t stride, Py_ssize_t n, real_t *row
) noexcept nogil:
    cdef Py_ssize_t i
    if stride == sizeof(storage_t):  # apart, because this one vectorises
        for i in range(n):
            row[i] = widen(source + i, <real_t> 0)
    else:
        for i in range(n):
            row[i] = widen(<const storage_t *> (<const char *> source + i * stride), <real_t> 0)


cdef inline void write_row(
    const real_t *row, Py_ssize_t n, storage_t *target, Py_ssize_t stride
) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        narrow(row[i], <storage_t *> (<char *> target + i * stride))


cdef inline void read(
    DType dtype, const char *source, Py_ssize_t stride, Py_ssize_t n, real_t *row
) noexcept nogil:
    """Widen `n` elements, `stride` bytes apart, into `row`."""
    if dtype == FLOAT32:
        read_row(<const float *> source, stride, n, row)
    elif dtype == FLOAT64:
        read_row(<const double *> source, stride, n, row)
    elif dtype == FLOAT16:
        read_row(<const float16_t *> source, stride, n, row)
    else:
        read_row(<const bfloat16_t *> source, stride, n, row)


cdef inline void write(
    DType dtype, const real_t *row, Py_ssize_t n, char *target, Py_ssize_t stride
) noexcept nogil:
    """Round `n` sums once and store them, `stride` bytes apart."""
    if dtype == FLOAT32:
        write_row(row, n, <float *> target, stride)
    elif dtype == FLOAT64:
        write_row(row, n, <double *> target, stride)
    elif dtype == FLOAT16:
        write_row(row, n, <float16_t *> target, stride)
    else:
        write_row(row, n, <bfloat16_t *> target, stride)

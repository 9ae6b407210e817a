from libc.stdint cimport int64_t

from convt._box_operands cimport Box, Operands, array_axis
from convt._box_table cimport INPUT, ORIGIN, PITCH, REACH, SLACK, BoxTable
from convt._levels cimport real_t


# The part of a packed box's axis that holds input: [begin, end) of its places, `pitch` of them; `first` is the input
# index of place 0.
cdef struct Inside:
    int64_t first
    Py_ssize_t pitch
    Py_ssize_t begin
    Py_ssize_t end


cdef inline Inside part_inside(BoxTable table, const Box *box, Py_ssize_t a) noexcept nogil:
    cdef Inside part
    cdef int64_t shared = box.shared if a == 1 else 0
    part.pitch = table.axes[a, PITCH] - shared
    part.first = box.begin[a] + table.axes[a, ORIGIN] + shared
    part.begin = min(max(0, -part.first), part.pitch)
    part.end = min(table.axes[a, INPUT], box.begin[a] + box.size[a] + table.axes[a, REACH]) - part.first
    part.end = max(part.begin, min(part.end, part.pitch))
    return part


cdef inline const char *first_input(BoxTable table, const Operands *operands, const Box *box) noexcept nogil:
    """The input of a box's first cell, of the first channel of its group."""
    cdef const char *x = operands.x + box.group * table.in_channels * operands.x_strides[1]
    cdef Py_ssize_t a
    for a in range(table.n_axes):
        x += box.begin[a] * operands.x_strides[array_axis(a)]
    return x


cdef inline bint read_in_place(BoxTable table, const Operands *operands, const Box *box) noexcept nogil:
    """Whether a box is multiplied where x lies. Rows of columns first must fill a tile, then nothing beyond them is
    read; of cells, the memory of x must hold the whole last vector."""
    cdef const char *x
    cdef Inside part
    cdef Py_ssize_t a, last = table.n_axes - 1
    if not operands.in_place:
        return False
    if table.columns_first:
        part = part_inside(table, box, 1)
        return part.end - part.begin >= SLACK * table.lanes
    x = first_input(table, operands, box) + (table.in_channels - 1) * operands.x_strides[1]
    for a in range(last):
        x += (box.size[a] - 1) * operands.x_strides[array_axis(a)]
    x += (box.size[last] + table.lanes - 1) // table.lanes * table.lanes * operands.x_strides[last + 1]
    return x <= operands.x_end


cdef bint pack_input(
    BoxTable table, const Operands *operands, const Box *box, real_t *target, real_t *square
) noexcept nogil

from libc.stdint cimport int64_t

from convt._box_operands cimport Box, Operands, array_axis
from convt._box_table cimport INPUT, ORIGIN, PITCH, REACH, BoxTable
from convt._elements cimport real_t


# The part of a packed box's axis that holds input: [begin, end) of its places, `pitch` of them; `first` is the input
# index of place 0. Of the batch, a box packs the images that it has, fewer than others or not.
cdef struct Inside:
    int64_t first
    Py_ssize_t pitch
    Py_ssize_t begin
    Py_ssize_t end


cdef inline Inside part_inside(BoxTable table, const Box *box, Py_ssize_t a) noexcept nogil:
    cdef Inside part
    cdef int64_t shared = box.shared if a == 1 else 0
    part.pitch = table.axes[a, PITCH] - shared if a else box.size[0]
    part.first = box.begin[a] + table.axes[a, ORIGIN] + shared
    part.begin = min(max(0, -part.first), part.pitch)
    part.end = min(table.axes[a, INPUT], box.begin[a] + box.size[a] + table.axes[a, REACH]) - part.first
    part.end = max(part.begin, min(part.end, part.pitch))
    return part


cdef inline const char *first_input(BoxTable table, const Operands *operands, const Box *box) noexcept nogil:
    """The input of a box's first cell, of the first channel of its first group."""
    cdef const char *x = operands.x + box.group * table.place_channels * operands.x_strides[1]
    cdef Py_ssize_t a
    for a in range(table.n_axes):
        x += box.begin[a] * operands.x_strides[array_axis(a)]
    return x


# What a plane, of the last two axes, of a packed box holds of the input: `n_rows` rows of `n` places, the first one at
# x, row_step bytes apart. It begins at place number `place` of the box.
cdef struct Plane:
    Inside rows
    Inside columns
    Py_ssize_t n_rows
    Py_ssize_t n
    const char *x
    Py_ssize_t row_step
    Py_ssize_t place


cdef inline Py_ssize_t count_planes(BoxTable table, const Box *box, bint images=False) noexcept nogil:
    """Planes of a box or, where `images_are_rows`, its images as planes of one row."""
    cdef Py_ssize_t planes = 1, a
    if images:
        return box.size[0]
    for a in range(table.n_axes - 2):
        planes *= part_inside(table, box, a).pitch
    return planes


cdef inline Py_ssize_t plane_places(BoxTable table, const Box *box) noexcept nogil:
    """Of each plane of a box."""
    cdef Py_ssize_t last = table.n_axes - 1
    return part_inside(table, box, last - 1).pitch * part_inside(table, box, last).pitch


cdef inline bint images_are_rows(BoxTable table, const Operands *operands, const Box *box) noexcept nogil:
    """Whether what a box holds of an image lies in x as it is packed, without zeros in between."""
    cdef Py_ssize_t a, step = operands.x_strides[table.n_axes]
    cdef Inside part
    for a in range(table.n_axes - 1, 1, -1):
        part = part_inside(table, box, a)
        step *= part.pitch
        if part.first or part.end != table.axes[a, INPUT] or part.pitch != part.end:
            return False
        if operands.x_strides[array_axis(a - 1)] != step:
            return False
    return True


cdef inline Plane nth_image(BoxTable table, const Operands *operands, const Box *box, Py_ssize_t n) noexcept nogil:
    """One of the images of a box as a plane of one row."""
    cdef Inside part = part_inside(table, box, 1)
    cdef Plane plane
    plane.rows.first, plane.rows.pitch, plane.rows.begin, plane.rows.end = 0, 1, 0, 1
    plane.columns.first, plane.columns.pitch = part.first * table.steps[1], part.pitch * table.steps[1]
    plane.columns.begin, plane.columns.end = part.begin * table.steps[1], part.end * table.steps[1]
    plane.n_rows, plane.n = 1, plane.columns.end - plane.columns.begin
    plane.x = operands.x + box.group * table.place_channels * operands.x_strides[1]
    plane.x += (box.begin[0] + n) * operands.x_strides[0] + (part.first + part.begin) * operands.x_strides[2]
    plane.row_step = plane.n * operands.x_strides[table.n_axes]
    plane.place = n * table.steps[0]
    return plane


cdef inline Plane nth_plane(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t n, bint images=False
) noexcept nogil:
    """One of those that `count_planes` counts, of the first channel of the box's first group."""
    cdef Py_ssize_t last = table.n_axes - 1, a
    cdef int64_t place
    cdef Inside part
    cdef Plane plane
    if images:
        return nth_image(table, operands, box, n)
    plane.rows, plane.columns = part_inside(table, box, last - 1), part_inside(table, box, last)
    plane.row_step = operands.x_strides[array_axis(last - 1)]
    plane.place = 0
    plane.x = operands.x + box.group * table.place_channels * operands.x_strides[1]
    for a in range(last - 2, -1, -1):
        part = part_inside(table, box, a)
        place = n % part.pitch
        n //= part.pitch
        if place < part.begin or place >= part.end:
            plane.rows.end = plane.rows.begin  # nothing but zeros
        plane.x += (part.first + place) * operands.x_strides[array_axis(a)]
        plane.place += place * table.steps[a]
    plane.x += (plane.rows.first + plane.rows.begin) * plane.row_step
    plane.x += (plane.columns.first + plane.columns.begin) * operands.x_strides[last + 1]
    plane.n_rows, plane.n = plane.rows.end - plane.rows.begin, plane.columns.end - plane.columns.begin
    return plane


cdef inline bint read_in_place(BoxTable table, const Operands *operands, const Box *box) noexcept nogil:
    """Whether a box is multiplied where x lies. The memory of x must hold what is read: of columns first, whose images
    or planes must be one row each, and no shorter than `least_line`, a whole tile; of cells, the whole last vector,
    wherever in it joined rows end."""
    cdef const char *x
    cdef Plane plane
    cdef bint images
    cdef Py_ssize_t a, n, length, last = table.n_axes - 1, cells = box.size[last] + table.lanes - 1
    if not operands.in_place:
        return False
    if table.columns_first:
        images = images_are_rows(table, operands, box)
        n = count_planes(table, box, images) - 1
        plane = nth_plane(table, operands, box, n, images)
        while n and not plane.n_rows:  # beyond the input
            n -= 1
            plane = nth_plane(table, operands, box, n, images)
        if plane.row_step != plane.n * operands.x_strides[last + 1]:
            return False
        length = plane.n_rows * plane.n
        x = plane.x + (table.place_channels - 1) * operands.x_strides[1]
        x += max(length, table.widest_tile) * operands.x_strides[last + 1]
        return length >= table.least_line and x <= operands.x_end
    x = first_input(table, operands, box) + (box.groups * table.place_channels - 1) * operands.x_strides[1]
    for a in range(last):
        x += (box.size[a] - 1) * operands.x_strides[array_axis(a)]
    if not operands.joined_rows:
        cells -= cells % table.lanes
    x += cells * operands.x_strides[last + 1]
    return x <= operands.x_end


cdef void pack_portion(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t begin, Py_ssize_t size, real_t *target
) noexcept nogil


cdef bint pack_input(
    BoxTable table, const Operands *operands, const Box *box, real_t *target, real_t *square
) noexcept nogil

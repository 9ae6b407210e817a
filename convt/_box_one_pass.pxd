from libc.stdint cimport int64_t

from convt._box_operands cimport Box, Operands
from convt._box_table cimport MOST_OUTPUT_TILES, BoxTable
from convt._elements cimport real_t
from convt._levels cimport MAX_AXES, MAX_OUTER, MAX_ROWS, tap_class_t, tile_rows_t

# A register tile of one class or of two that is written as outputs.
cdef struct OutputTile:
    Py_ssize_t rows  # of sums of each class
    tap_class_t classes[2]
    Py_ssize_t targets
    Py_ssize_t outer[MAX_ROWS]  # the row of outputs of a cell that each target lies in
    Py_ssize_t channel[MAX_ROWS]  # and its channel, counted from the block's first
    void *target[MAX_ROWS]  # where the outputs of a line go


# What the boxes of a block of channels have in common, kept from one to the next while the block is the same.
cdef struct BlockOutputs:
    Py_ssize_t block  # -1: none yet
    const char *weights  # of the group
    const char *bias
    int64_t place_of_outer[MAX_OUTER][MAX_AXES]  # of each row of outputs of a cell
    Py_ssize_t n_tiles
    OutputTile tiles[MOST_OUTPUT_TILES]


cdef void multiply_and_store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    real_t *input, bint packed, const real_t *weights, const real_t *bias, real_t *spare, BlockOutputs *outputs,
) noexcept nogil

cdef void list_rows(
    BoxTable table, const Operands *operands, const Box *box, char **first, tile_rows_t *rows
) noexcept nogil

cdef void multiply_tiles_and_store(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const float *input, const float *weights, const float *bias, tile_rows_t *rows,
) noexcept nogil


cdef void multiply_tile_rows(
    BoxTable table, const Operands *operands, const Box *box, Py_ssize_t channel, Py_ssize_t block,
    const float *input, const float *weights, const float *bias,
) noexcept nogil

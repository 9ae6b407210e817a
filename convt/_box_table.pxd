"""Tables of a box layout and of the level's kernels, for the modules that pack weights and compute boxes."""

from libc.stdint cimport int64_t, uint8_t

from convt._levels cimport MAX_OUTER, convt_level, halves_t, tap_class_t, tap_t

cdef enum:
    MAX_LANES = 16
    MAX_VECTORS = 4  # of a tile with lanes along channels
    # Of weights that are used once, at most, at a time, where columns are first: a quarter of a second-level cache, or
    # half of one of 512 KB where registers are few: 33 MB took 0.82 of the time of twice as much.
    PANEL_BYTES = 1 << 19
    FEW_REGISTERS_PANEL_BYTES = 1 << 18
    GIVEN_CHANNELS = 64  # most that are multiplied as given, at once; 32 for many positions: 1.03 to 1.1 times as long
    PORTION_BYTES = 1 << 19  # of packed input, of half a second-level cache
    # Vectors of positions, about: a multiple of the widths of most tiles of `positions`, and no less than the widest.
    CHUNK = 12
    CHUNK_VECTORS = 192  # of packed input, for few channels
    WHOLE_LINES_ROWS = 6  # of a tile of four vectors
    SLICE_BYTES = 1 << 19  # of a tile's weights, that stay in the second-level cache beside what they multiply
    # Of a slice, where a tile of tile registers has SLICE_BYTES: nine layers of 1024 and more channels took 0.73 to
    # 1.01 of the time, 0.90 on average. Of float32, slices of twice the size took 1.03 to 1.2, slices of tiles of 384
    # KB 0.85 to 1.2 times.
    PIECES_SLICE_BYTES = 3 << 15
    # Of packed input in a first-level cache of 48 KB, beside weights and outputs. Three times as much: 1.04 times as
    # long (7 layers of 64 to 256 channels), half as much: 1.01.
    NEAR_BYTES = 1 << 15
    # Of packed input of groups that are computed together: half a first-level cache of 32 KB.
    GROUPS_BYTES = 1 << 14
    TURNED_CHANNELS = 33  # of 32, as they would share few sets of the first-level cache otherwise
    MOST_OUTPUT_TILES = 2 * MAX_OUTER  # of a block in one pass: as places, or as columns of several channels

cdef enum:
    INPUT, PLACES, OUTPUT, CELLS, BOX, ORIGIN, REACH, PITCH  # columns of BoxTable.axes: the fields of tiling.BoxAxis

cpdef bint columns_gain_in_place(
    Py_ssize_t columns, Py_ssize_t rows, Py_ssize_t sums, Py_ssize_t channel_bytes
) noexcept nogil


cdef class ClassList:
    cdef Py_ssize_t n
    cdef int64_t[::1] first_tap, first_place, first_kernel
    cdef int64_t[::1] kernel_index  # [place][tap]
    cdef Py_ssize_t[::1] tap_offset  # from a cell's place in the packed input
    cdef int64_t[:, ::1] whole_taps  # as rows of `tap_t`, zeros not counted
    cdef int64_t[:, ::1] shifts  # [tap][spatial axis]
    cdef int64_t[::1] chain  # channels that a chain of sums is of, with all their taps, lanes along positions
    cdef int64_t[::1] row_taps  # of a class, neighbours in a row of the input

    cdef Py_ssize_t taps(self, Py_ssize_t i) noexcept nogil
    cdef const tap_t *as_taps(self, Py_ssize_t i) noexcept nogil
    cdef Py_ssize_t places(self, Py_ssize_t i) noexcept nogil


# What a thread computes a box in; elements are of the type that sums are made in.
cdef struct Scratch:
    void *input
    void *panel  # of weights that are used once, packed or widened
    void *products
    void *sums
    void *square  # MAX_LANES x MAX_LANES elements
    const void **rows  # one for each place, or tap of a class
    Py_ssize_t *steps  # one for each place
    tap_t *run_taps  # one for each tap of a class
    tap_t *tile_taps  # likewise


cdef class BoxTable:
    cdef const convt_level *level
    cdef const halves_t *halves  # conversions of what is stored
    cdef Py_ssize_t stream_bytes  # results of so many pass the caches
    cdef Py_ssize_t lines_stream_bytes  # rows that share cache lines only if x and y have so many
    cdef bint sets_wait  # of the first-level cache, for each store to them
    cdef Py_ssize_t item  # bytes of a sum
    cdef int64_t[:, ::1] axes
    cdef int64_t[::1] steps
    cdef Py_ssize_t n_axes, run_axis, chain, chains, input_elements
    cdef bint along_places  # columns of one channel each, of places that follow each other in many of y
    cdef bint image_runs  # runs go along axis 0, and over all the others loops
    cdef bint row_runs  # a run is a row of cells, at whose ends tiles of positions leave out zeros
    cdef Py_ssize_t place_step  # elements from a place to the next of its row, with lanes along channels
    cdef Py_ssize_t group, group_outputs, block, blocks
    cdef Py_ssize_t tap_channels, place_channels  # of a tap and, fewer where taps are merged, of a place of the input
    # Of merged taps, [tap][kernel position], the kernel positions that they are made of, -1 for none; or None.
    cdef readonly object merged_kernel
    # Pieces of elements for tiles of channels lie [place][32 channels][piece][32] or, for merged taps, in planes
    # [piece][place][channel]: elements from one piece, and from 32 channels, to the next.
    cdef Py_ssize_t planes, piece_step, chunk_step
    cdef Py_ssize_t beyond  # places that merged taps multiply by zeros behind the last one
    cdef Py_ssize_t input_chunks  # of input channels that pieces are multiplied of at once, the last filled or not
    cdef Py_ssize_t half_tile  # columns, lanes along channels, up to which half vectors of them are multiplied
    cdef Py_ssize_t lanes, most_sums, whole_tile, x_step, depth, places, inner_places
    cdef Py_ssize_t product_step  # columns first along positions: from one column's products to the next one's
    cdef Py_ssize_t gap  # places from one position of a tile to the next, with lanes along channels; as `Cells.gap`
    cdef Py_ssize_t list_size  # of a list of places or of a class's taps
    cdef int pieces  # of an element in tiles
    # Tiles are of one row of cells; `pair_taps` are rows of `shared_tap_t`, those of the pairs of tiles that make a row
    # of outputs: [first_pair_tap[row * pairs of a row + pair]].
    cdef readonly bint by_rows
    cdef int tile_height  # positions of a tile register
    cdef int64_t[::1] first_pair_tap
    cdef int64_t[:, ::1] pair_taps
    cdef bint words  # lanes along positions, of words of two channels
    cdef bint guarded  # pieces or words: operands are of limited magnitude
    cdef Py_ssize_t channel_pairs  # of input, which products of pieces are made of
    cdef Py_ssize_t packed_pairs  # the same as they are packed, to whole registers
    cdef Py_ssize_t unit  # positions that tiles are made of whole ones of, with lanes along channels
    # Input channels that all taps of a tile are multiplied by before the next ones. It is part of the order of
    # summation, so that nothing it follows from may depend on threads.
    cdef readonly Py_ssize_t slice
    cdef bint along_channels, double, columns_first
    cdef bint along_groups  # along channels, each of which is a group of its own: a block reads as many as it writes
    cdef bint in_panels  # weights are read as they were given; where columns are first, [channel][kernel position]
    cdef Py_ssize_t panel  # columns of weights that are multiplied at once where these are first
    # Most elements of a block's packed weights in panels, and while it is packed by transpositions of its weights of a
    # channel, widened, or two joined to words, and of those of a tile register, lanes along outputs.
    cdef Py_ssize_t block_weights, wide_size, turned_size
    cdef readonly bint one_pass  # sums in registers are written as outputs, where rows of these are contiguous
    cdef int kind  # what a tile consists of then: of two classes, the even and the odd outputs of a row
    cdef Py_ssize_t tile_classes  # 1 or 2
    # In one pass only: of one input channel, classes of whole rows of places, some taps of which are not for all of
    # them; `users` has of a class's tap a bit for each row of a tile, `runs` is as `convt.shared_loads.runs_of_lines`.
    cdef readonly bint shares_loads
    cdef uint8_t[::1] users, runs
    cdef readonly Py_ssize_t groups_together  # packed, then multiplied: where outputs go is found once for all of them
    cdef Py_ssize_t most_rows  # of a tile with lanes along positions
    cdef Py_ssize_t together  # which its rows are a multiple of, where the columns are
    cdef bint in_portions  # columns first along positions: input is packed portion by portion, as it is multiplied
    cdef Py_ssize_t portion  # its places: whole rows, or a part of one
    # Columns first along positions: positions of the widest tile, which a line of fewer is read beyond, and of the
    # shortest line that is multiplied in place.
    cdef Py_ssize_t widest_tile, least_line
    cdef Py_ssize_t joined_step  # `product_step` before rows are set apart
    cdef Py_ssize_t chunk_vectors  # of positions that are multiplied in one pass before the next
    cdef Py_ssize_t one_pass_vectors  # of a whole tile in one pass, or more where loads are shared
    cdef readonly Py_ssize_t strip_vectors  # of positions, that all tiles of a block multiply in turn: a strip
    cdef readonly bint strips  # input is packed strip by strip
    cdef readonly bint joins_rows  # several rows of cells are multiplied as one line, where x and y allow it
    cdef bint rows_are_vectors  # where rows may be joined: those of outputs are whole vectors
    cdef readonly bint leaves_out_taps  # in one pass: those of rows at the border that lie beyond the input
    cdef Py_ssize_t border_lines  # that are multiplied together there
    cdef int64_t[::1] class_of_place, index_of_place, place_of_index  # [first place of a class + index]
    cdef ClassList classes
    cdef ClassList products  # the classes, unless columns_first makes one product of all kernel positions
    cdef int64_t[::1] kept  # places of each kernel position whose products the next box of a chain adds up too
    cdef int64_t[:, ::1] weight_offset, bias_offset  # [block][product], in elements of one group
    cdef int64_t[:, ::1] sums_before  # [block][class], of a position those of the classes before, and in the end of all
    cdef Py_ssize_t group_weights, group_biases, kernel
    cdef Py_ssize_t positions  # of a full box's sums, and, lanes along positions, from one column to the next
    cdef Py_ssize_t input_size, sums_size, products_size, panel_size  # elements of scratch
    cdef readonly size_t workspace  # bytes of scratch per thread

    cdef set_work(self, work)
    cdef set_layout(self, layout)
    cdef set_steps(self)
    cdef set_slices(self, layout)
    cdef set_one_pass(self, one_pass, layout)
    cdef list_classes(self, classes, layout)
    cdef list_pairs(self, classes, origin, steps)
    cdef set_portions(self)
    cdef list_offsets(self)
    cdef size_scratch(self, bint halves)
    cdef size_t lay_out(self, size_t memory, Scratch *scratch) noexcept nogil
    cdef Py_ssize_t block_width(self, Py_ssize_t block) noexcept nogil
    cdef Py_ssize_t columns(self, ClassList classes, Py_ssize_t block, Py_ssize_t i) noexcept nogil
    cdef void set_tap_class(
        self, ClassList classes, Py_ssize_t block, Py_ssize_t i, Py_ssize_t done, const void *weights,
        const void *bias, tap_class_t *of,
    ) noexcept nogil
    cdef Py_ssize_t tile_width(self, Py_ssize_t left) noexcept nogil
    cdef Py_ssize_t whole_tiles(self, Py_ssize_t vectors) noexcept nogil
    cdef Py_ssize_t tile_positions(self, Py_ssize_t width) noexcept nogil
    cdef Py_ssize_t padded(self, Py_ssize_t n) noexcept nogil
    cdef Py_ssize_t sums_step(self, Py_ssize_t n) noexcept nogil
    cdef Py_ssize_t odd_vectors(self, Py_ssize_t n, Py_ssize_t more) noexcept nogil
    cdef Py_ssize_t slack(self) noexcept nogil
    cdef count_output_tiles(self)
    cdef void size_strips(self)
    cdef Py_ssize_t more_positions(self) noexcept nogil
    cdef Py_ssize_t count_input(self)
    cdef Py_ssize_t count_sums(self)
    cdef Py_ssize_t count_products(self)
    cdef Py_ssize_t count_panel(self)

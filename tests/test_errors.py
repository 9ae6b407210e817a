"""Bad input: the exception, and that its message names the argument. Nothing here may crash or pass."""

import ml_dtypes
import numpy as np
import pytest

import convt
from convt import planner

X = np.ones((2, 4, 5, 6), np.float32)
W = np.ones((4, 3, 3, 3), np.float32)
B = np.ones(3, np.float32)
X1 = np.ones((1, 4, 5), np.float32)


class Broken:
    def __array__(self, *args, **kwargs):
        return np.array(["no numbers"])


class Unwilling:
    def __array__(self, *args, **kwargs):
        raise RuntimeError("no")


class Unreadable(list):
    """Integers that raise errors of their own."""

    def __iter__(self):
        raise RuntimeError("unreadable")

    def __index__(self):
        raise RuntimeError("unreadable")


class Peculiar(Unreadable):
    """The same, whose dtype cannot be read."""

    @property
    def dtype(self):
        raise RuntimeError("peculiar")


class Large:
    def __array__(self, *args, **kwargs):
        raise MemoryError


class BecomesAnArray:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


def with_nan_mask():
    return np.ma.MaskedArray(X, mask=X > 5)


READ_ONLY = np.ones((2, 3, 7, 8), np.float32)
READ_ONLY.flags.writeable = False

ONNX = [
    # name, exception, part of the message, arguments
    ("x is a list of strings", TypeError, "x:", {"x": ["a"]}),
    ("x is None", TypeError, "x:", {"x": None}),
    ("x is ragged", ValueError, "x:", {"x": [[1.0], [1.0, 2.0]]}),
    ("x is int32", TypeError, "x:", {"x": X.astype(np.int32)}),
    ("x is bool", TypeError, "x:", {"x": X > 0}),
    ("x is complex", TypeError, "x:", {"x": X.astype(complex)}),
    ("x is long double", TypeError, "x:", {"x": X.astype(np.longdouble)}),
    ("x is an eight-bit float", TypeError, "x:", {"x": X.astype(ml_dtypes.float8_e4m3)}),
    ("x converts to strings", TypeError, "x:", {"x": Broken()}),
    ("x cannot be converted", TypeError, "x:", {"x": Unwilling()}),
    ("x is masked", TypeError, "x:", {"x": with_nan_mask()}),
    ("x has one dimension too few", ValueError, "x:", {"x": X[0]}),
    ("x has one dimension too many", ValueError, "x:", {"x": X[None]}),
    ("x has other channels", ValueError, "x:", {"x": X[:, :3]}),
    ("x has another dtype than w", TypeError, "x:", {"x": X.astype(np.float64)}),
    ("w is int64", TypeError, "w:", {"w": W.astype(np.int64)}),
    ("w has two dimensions", ValueError, "w:", {"w": W[..., 0, 0]}),
    ("w has an empty kernel", ValueError, "w:", {"w": W[..., :0]}),
    ("w is masked", TypeError, "w:", {"w": np.ma.MaskedArray(W)}),
    ("x becomes a masked array", TypeError, "x:", {"x": BecomesAnArray(with_nan_mask())}),
    ("b is too long", ValueError, "b:", {"b": np.ones(4, np.float32)}),
    ("b is a scalar", ValueError, "b:", {"b": np.float32(1)}),
    ("b has two dimensions", ValueError, "b:", {"b": np.ones((3, 1), np.float32)}),
    ("b has another dtype", TypeError, "b:", {"b": np.ones(3)}),
    ("b is too short for the groups", ValueError, "b:", {"b": B, "group": 2}),
    ("group is zero", ValueError, "group:", {"group": 0}),
    ("group is negative", ValueError, "group:", {"group": -1}),
    ("group does not divide the channels", ValueError, "group:", {"group": 3}),
    ("group is a float", TypeError, "group:", {"group": 2.0}),
    ("group is a boolean", TypeError, "group:", {"group": True}),
    ("group is None", TypeError, "group:", {"group": None}),
    ("strides are too few", ValueError, "strides:", {"strides": [2]}),
    ("strides are too many", ValueError, "strides:", {"strides": [2, 2, 2]}),
    ("strides are no sequence", TypeError, "strides:", {"strides": 2}),
    ("a stride is zero", ValueError, "strides[1]:", {"strides": [1, 0]}),
    ("a stride is negative", ValueError, "strides[0]:", {"strides": [-1, 1]}),
    ("a stride is a float", TypeError, "strides[0]:", {"strides": [2.0, 2]}),
    ("a stride is a boolean", TypeError, "strides[1]:", {"strides": [2, True]}),
    ("a stride is a NumPy boolean", TypeError, "strides[0]:", {"strides": [np.True_, 1]}),
    ("strides are a float array", TypeError, "strides[0]:", {"strides": np.array([2.0, 2.0])}),
    ("strides are a string", TypeError, "strides:", {"strides": "22"}),
    ("strides are a class of arrays", TypeError, "strides:", {"strides": np.ndarray}),
    ("strides are times", TypeError, "strides:", {"strides": np.array([2, 2], "m8[ns]")}),
    ("strides cannot be read", TypeError, "strides:", {"strides": Unreadable([2, 2])}),
    ("strides have no readable dtype", TypeError, "strides:", {"strides": Peculiar([2, 2])}),
    ("a stride cannot be read", TypeError, "strides[1]:", {"strides": [2, Unreadable()]}),
    ("strides are a mapping", TypeError, "strides:", {"strides": {0: 1, 1: 1}}),
    ("a stride exceeds int64", ValueError, "strides[0]:", {"strides": [2**63, 1]}),
    ("the sizes overflow int64", ValueError, f"stride {2**62}", {"strides": [2**62, 1]}),
    ("the output overflows int64", ValueError, "x, strides: ", {"strides": [2**50, 2**20]}),
    ("dilations overflow int64", ValueError, "x, dilations: ", {"dilations": [2**62, 2**62]}),
    ("groups overflow int64", ValueError, "x, group: ", {"x": X[:, :0], "w": W[:0], "b": None, "group": 2**62}),
    ("the output just overflows int64", ValueError, "output_shape: ", {"output_shape": [1, 2**60 - 1]}),
    ("dilations are too few", ValueError, "dilations:", {"dilations": [1]}),
    ("a dilation is zero", ValueError, "dilations[0]:", {"dilations": [0, 1]}),
    ("a dilation is a float", TypeError, "dilations[1]:", {"dilations": [1, 1.5]}),
    ("pads are one per axis", ValueError, "pads:", {"pads": [1, 1]}),
    ("a pad is negative", ValueError, "pads[3]:", {"pads": [0, 0, 0, -1]}),
    ("a pad is a float", TypeError, "pads[0]:", {"pads": [0.5, 0, 0, 0]}),
    ("pads leave nothing", ValueError, "pads:", {"pads": [4, 0, 3, 0]}),
    ("pads are shown in all", ValueError, "pads of 7 in all", {"pads": [4, 0, 3, 0]}),
    ("pads with SAME_UPPER", ValueError, "pads:", {"pads": [1, 1, 1, 1], "auto_pad": "SAME_UPPER"}),
    ("pads with SAME_LOWER", ValueError, "pads:", {"pads": [0, 0, 0, 1], "auto_pad": "SAME_LOWER"}),
    ("pads with VALID", ValueError, "pads:", {"pads": [1, 1, 1, 1], "auto_pad": "VALID"}),
    ("auto_pad is unknown", ValueError, "auto_pad:", {"auto_pad": "SAME"}),
    ("auto_pad is OpenVINO's", ValueError, "auto_pad:", {"auto_pad": "explicit"}),
    ("auto_pad is in lower case", ValueError, "auto_pad:", {"auto_pad": "same_upper"}),
    ("auto_pad is None", TypeError, "auto_pad:", {"auto_pad": None}),
    ("kernel_shape is not that of w", ValueError, "kernel_shape:", {"kernel_shape": [3, 2]}),
    ("kernel_shape is too short", ValueError, "kernel_shape:", {"kernel_shape": [3]}),
    ("kernel_shape is a float", TypeError, "kernel_shape[0]:", {"kernel_shape": [3.0, 3]}),
    (
        "output_padding reaches stride and dilation",
        ValueError,
        "output_padding[0]:",
        {"output_padding": [1, 0]},
    ),
    (
        "output_padding reaches the larger of both",
        ValueError,
        "output_padding[1]:",
        {"output_padding": [0, 3], "strides": [2, 2], "dilations": [1, 3]},
    ),
    ("output_padding is negative", ValueError, "output_padding[0]:", {"output_padding": [-1, 0]}),
    ("output_padding is too short", ValueError, "output_padding:", {"output_padding": [0]}),
    ("output_shape is too short", ValueError, "output_shape:", {"output_shape": [7]}),
    ("output_shape is one too long", ValueError, "output_shape:", {"output_shape": [3, 7, 8]}),
    ("output_shape has another batch", ValueError, "output_shape:", {"output_shape": [1, 3, 7, 8]}),
    ("output_shape has other channels", ValueError, "output_shape:", {"output_shape": [2, 4, 7, 8]}),
    ("output_shape has a zero", ValueError, "output_shape[1]:", {"output_shape": [7, 0]}),
    ("a long output_shape has a zero", ValueError, "output_shape[2]:", {"output_shape": [2, 3, 0, 8]}),
    ("output_shape is negative", ValueError, "output_shape[0]:", {"output_shape": [-7, 8]}),
    ("output_shape is a float", TypeError, "output_shape[0]:", {"output_shape": [7.0, 8]}),
    ("opset is zero", ValueError, "opset:", {"opset": 0}),
    ("opset is from the future", ValueError, "opset:", {"opset": 1000}),
    ("opset is a string", TypeError, "opset:", {"opset": "22"}),
    ("opset is a float", TypeError, "opset:", {"opset": 11.0}),
    ("n_threads is zero", ValueError, "n_threads:", {"n_threads": 0}),
    ("n_threads is negative", ValueError, "n_threads:", {"n_threads": -1}),
    ("n_threads is a float", TypeError, "n_threads:", {"n_threads": 2.0}),
    ("n_threads is a boolean", TypeError, "n_threads:", {"n_threads": True}),
    ("n_threads is a string", TypeError, "n_threads:", {"n_threads": "2"}),
    ("precision is unknown", ValueError, "precision:", {"precision": "low"}),
    ("precision is None", TypeError, "precision:", {"precision": None}),
    ("out is a list", TypeError, "out:", {"out": []}),
    ("out has another dtype", TypeError, "out:", {"out": np.empty((2, 3, 7, 8))}),
    ("out has another shape", ValueError, "out:", {"out": np.empty((2, 3, 7, 7), np.float32)}),
    ("out is read-only", ValueError, "out:", {"out": READ_ONLY}),
    ("out is masked", TypeError, "out:", {"out": np.ma.MaskedArray(np.empty((2, 3, 7, 8), np.float32))}),
    (
        "out meets itself",
        ValueError,
        "out:",
        {"out": np.lib.stride_tricks.as_strided(np.empty(99, np.float32), (2, 3, 7, 8), (0, 4, 4, 4))},
    ),
    ("pads_begin is OpenVINO's", TypeError, "pads_begin", {"pads_begin": [1, 1]}),
    ("compat is OpenVINO's", TypeError, "compat", {"compat": "spec"}),
    ("an attribute is misspelt", TypeError, "stride", {"stride": [1, 1]}),
]


@pytest.mark.parametrize(("error", "names", "mistake"), [row[1:] for row in ONNX], ids=[row[0] for row in ONNX])
def test_onnx_mistake(error, names, mistake):
    arguments = {"x": X, "w": W, **mistake}
    with pytest.raises(error) as caught:
        convt.conv_transpose(arguments.pop("x"), arguments.pop("w"), arguments.pop("b", None), **arguments)
    assert type(caught.value) is error
    assert names in str(caught.value)


NOT_FOR_A_LAYER = {"x", "out"}


@pytest.mark.parametrize(
    ("error", "names", "mistake"),
    [row[1:] for row in ONNX if NOT_FOR_A_LAYER.isdisjoint(row[3])],
    ids=[row[0] for row in ONNX if NOT_FOR_A_LAYER.isdisjoint(row[3])],
)
def test_layer_refuses_the_same_mistakes(error, names, mistake):
    arguments = {"w": W, **mistake}
    with pytest.raises(error) as caught:
        convt.ConvTranspose(arguments.pop("w"), arguments.pop("b", None), **arguments)(X)
    assert names in str(caught.value)


OPENVINO = [
    ("strides are missing", TypeError, "strides", {"strides": ...}),
    ("dilations are missing", TypeError, "dilations", {"dilations": ...}),
    ("pads_begin are missing", TypeError, "pads_begin", {"pads_begin": ...}),
    ("pads_end are missing", TypeError, "pads_end", {"pads_end": ...}),
    ("strides are None", TypeError, "strides:", {"strides": None}),
    ("a stride is zero", ValueError, "strides[0]:", {"strides": [0, 1]}),
    ("a dilation is zero", ValueError, "dilations[1]:", {"dilations": [1, 0]}),
    ("pads_begin are too few", ValueError, "pads_begin:", {"pads_begin": [1]}),
    ("pads_end are begin and end", ValueError, "pads_end:", {"pads_end": [1, 1, 1, 1]}),
    ("a pad is negative", ValueError, "pads_begin[0]:", {"pads_begin": [-1, 0]}),
    ("a pad is a float", TypeError, "pads_end[0]:", {"pads_end": [1.0, 0]}),
    ("pads leave nothing", ValueError, "pads_begin, pads_end:", {"pads_begin": [9, 0]}),
    ("auto_pad is ONNX's", ValueError, "auto_pad:", {"auto_pad": "SAME_UPPER"}),
    ("auto_pad is ONNX's default", ValueError, "auto_pad:", {"auto_pad": "NOTSET"}),
    ("auto_pad is None", TypeError, "auto_pad:", {"auto_pad": None}),
    ("output_padding is negative", ValueError, "output_padding[1]:", {"output_padding": [0, -1]}),
    ("output_shape has batch and channels", ValueError, "output_shape:", {"output_shape": [2, 3, 7, 8]}),
    ("output_shape has a zero", ValueError, "output_shape[0]:", {"output_shape": [0, 8]}),
    ("output_shape is a float array", TypeError, "output_shape[0]:", {"output_shape": np.array([7.0, 8.0])}),
    ("compat is unknown", ValueError, "compat:", {"compat": "openvino"}),
    ("compat is None", TypeError, "compat:", {"compat": None}),
    ("data has other channels", ValueError, "data:", {"data": X[:, :3]}),
    ("data has one dimension too few", ValueError, "data:", {"data": X[0]}),
    ("data is int32", TypeError, "data:", {"data": X.astype(np.int32)}),
    ("filter has another dtype", TypeError, "data:", {"filter": W.astype(np.float64)}),
    ("filter has two dimensions", ValueError, "filter:", {"filter": W[..., 0, 0]}),
    ("the output overflows int64", ValueError, "output_shape: ", {"output_shape": [2**40, 2**40]}),
    (
        "output_padding overflows int64",
        ValueError,
        f"output_padding {2**63 - 1}",
        {"output_padding": [2**63 - 1, 0]},
    ),
    ("output_padding overflows the output", ValueError, "data, output_padding: ", {"output_padding": [2**62, 1]}),
    ("group is ONNX's", TypeError, "group", {"group": 2}),
    ("opset is ONNX's", TypeError, "opset", {"opset": 22}),
    ("pads are ONNX's", TypeError, "pads", {"pads": [1, 1, 1, 1]}),
]


def openvino_arguments(mistake):
    arguments = {"strides": [1, 1], "dilations": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0], **mistake}
    arguments = {name: value for name, value in arguments.items() if value is not ...}
    return arguments.pop("data", X), arguments.pop("filter", W), arguments


@pytest.mark.parametrize(
    ("error", "names", "mistake"), [row[1:] for row in OPENVINO], ids=[row[0] for row in OPENVINO]
)
def test_openvino_mistake(error, names, mistake):
    data, filter, arguments = openvino_arguments(mistake)
    with pytest.raises(error) as caught:
        convt.convolution_backprop_data(data, filter, **arguments)
    assert type(caught.value) is error
    assert names in str(caught.value)


@pytest.mark.parametrize(
    ("error", "names", "mistake"), [row[1:] for row in OPENVINO], ids=[row[0] for row in OPENVINO]
)
def test_openvino_group_mistake(error, names, mistake):
    data, filter, arguments = openvino_arguments(mistake)
    with pytest.raises(error) as caught:
        convt.group_convolution_backprop_data(data, filter[None], **arguments)
    assert names in str(caught.value)


@pytest.mark.parametrize(
    "filter", [W, W[None][:0], W[None][..., :0]], ids=["without the group axis", "no groups", "an empty kernel"]
)
def test_openvino_group_filter(filter):
    data, _, arguments = openvino_arguments({})
    if filter is W:  # read as (group 4, C_in/group 3, C_out/group 3, one spatial axis)
        arguments = {name: value[:1] for name, value in arguments.items()}
    with pytest.raises(ValueError, match=r"^(data|filter):"):
        convt.group_convolution_backprop_data(data, filter, **arguments)


FUNCTIONAL = [
    ("input has no batch and no channels", ValueError, "input:", {"input": X1[0, 0]}),
    ("input has two dimensions too many", ValueError, "input:", {"input": X[..., None]}),
    ("input is int32", TypeError, "input:", {"input": X1.astype(np.int32)}),
    ("input without a batch has other channels", ValueError, "got shape (3, 5)", {"input": X1[0, :3]}),
    ("weight is two-dimensional", ValueError, "weight:", {"weight": W}),
    ("bias is too long", ValueError, "bias:", {"bias": np.ones(4, np.float32)}),
    ("stride is zero", ValueError, "stride[0]:", {"stride": 0}),
    ("stride is a float", TypeError, "stride[0]:", {"stride": 2.0}),
    ("stride is for two axes", ValueError, "stride:", {"stride": (1, 1)}),
    ("padding is negative", ValueError, "padding[0]:", {"padding": -1}),
    ("padding is a string", TypeError, "padding:", {"padding": "same"}),
    ("padding leaves nothing", ValueError, "padding:", {"padding": 9}),
    ("output_padding reaches the stride", ValueError, "output_padding[0]:", {"output_padding": 1}),
    ("groups do not divide", ValueError, "groups:", {"groups": 3}),
    ("dilation is a boolean", TypeError, "dilation[0]:", {"dilation": True}),
]


@pytest.mark.parametrize(
    ("error", "names", "mistake"), [row[1:] for row in FUNCTIONAL], ids=[row[0] for row in FUNCTIONAL]
)
def test_functional_mistake_has_pytorchs_names(error, names, mistake):
    arguments = {"input": X1, "weight": W[..., 0], **mistake}
    with pytest.raises(error) as caught:
        convt.functional.conv_transpose1d(**arguments)
    assert names in str(caught.value)


@pytest.mark.parametrize("opset", [1, 11, 21])
def test_bfloat16_comes_with_opset_22(opset):
    x, w = (a.astype(ml_dtypes.bfloat16) for a in (X, W))
    with pytest.raises(TypeError, match=r"w: .*bfloat16"):
        convt.conv_transpose(x, w, opset=opset)


def test_out_overlapping_an_input_is_refused():
    buffer = np.zeros(200, np.float32)
    x, w = buffer[:10].reshape(1, 1, 10), buffer[20:23].reshape(1, 1, 3)
    b = buffer[30:31]
    for name, begin in (("x", 5), ("w", 15), ("b", 24)):
        with pytest.raises(ValueError, match=rf"out: .* {name}"):
            convt.conv_transpose(x, w, b, out=buffer[begin : begin + 12].reshape(1, 1, 12))
    assert not buffer.any()


def test_memory_that_cannot_be_had_is_named():
    with pytest.raises(MemoryError, match=r"33554432, 1048576\), dtype float32"):
        convt.conv_transpose(X, W, output_shape=[2**25, 2**20])


def test_a_result_that_cannot_be_had_is_named_before_a_plan_is_made(monkeypatch):
    monkeypatch.setattr(planner, "make_plan", None)
    with pytest.raises(MemoryError, match=r"^expected memory for"):
        convt.conv_transpose(X[:, :1, :1, :1], np.broadcast_to(np.float32(1), (1, 1, 1, 2**50)))


@pytest.mark.parametrize("opset", [0, 29])
def test_both_ends_of_the_opsets_are_named(opset):
    with pytest.raises(ValueError, match=f"^opset: expected an integer from 1 to 28, got {opset}$"):
        convt.conv_transpose(X, W, opset=opset)


def test_the_auto_pad_that_leaves_no_output_is_named():
    with pytest.raises(ValueError, match=r"^x, auto_pad: expected an output of at least 1 along spatial axis 1"):
        convt.conv_transpose(X[..., :0], W, auto_pad="SAME_UPPER")


def test_memory_that_a_conversion_cannot_have():
    with pytest.raises(MemoryError):
        convt.conv_transpose(Large(), W)


@pytest.mark.parametrize(
    "mistake",
    [
        {"strides": [10**5000, 1]},
        {"group": 10**5000},
        {"strides": np.ones(10**6, int)},
        {"x": [[1.0] * 10**6, [1.0]]},
        {"x": [[[[0.1] * 20] * 20] * 20] * 20 + [1]},
        {"auto_pad": "x" * 10**6},
    ],
    ids=["huge number", "huge group", "a million numbers", "a million ragged", "nested and ragged", "a long text"],
)
def test_messages_stay_short(mistake):
    arguments = {"x": X, "w": W, **mistake}
    with pytest.raises(ValueError, match=f"^{next(iter(mistake))}") as caught:
        convt.conv_transpose(arguments.pop("x"), arguments.pop("w"), **arguments)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize(
    ("error", "names", "mistake"),
    [
        (TypeError, "x:", {"x": X.astype(complex)}),
        (TypeError, "w:", {"w": [["a"]]}),
        (ValueError, "b:", {"b": np.ones(1)}),
        (ValueError, "x:", {"x": [[1.0], [1.0, 2.0]]}),
        (TypeError, "dtype:", {"dtype": "U5"}),
        (TypeError, "dtype:", {"dtype": np.int8}),
        (TypeError, "dtype:", {"dtype": []}),
        (TypeError, "dtype:", {"dtype": "f4,;"}),
    ],
)
def test_reference_mistake(error, names, mistake):
    arguments = {"x": X, "w": W, **mistake}
    with pytest.raises(error, match=f"^{names}"):
        convt.reference.conv_transpose(**arguments)


@pytest.mark.parametrize("argument", [{"group": 1}, {"names": {}}])
def test_reference_has_the_operators_arguments_alone(argument):
    with pytest.raises(TypeError, match=next(iter(argument))):
        convt.reference.convolution_backprop_data(X, W, **openvino_arguments(argument)[2])


def test_messages_on_large_dtypes_stay_short():
    fields = np.zeros((1, 4, 5, 5), [(f"field{i}", "f4") for i in range(1000)])
    for name, arguments in (("x", {"x": fields, "w": W}), ("out", {"x": X, "w": W, "out": fields})):
        with pytest.raises(TypeError, match=f"^{name}: expected (a )?dtype") as caught:
            convt.conv_transpose(**arguments)
        assert len(str(caught.value)) < 400


def test_messages_on_long_errors_stay_short():
    class Verbose:
        def __array__(self, *args, **kwargs):
            raise RuntimeError("x" * 10**6)

    with pytest.raises(TypeError, match=r"^x: expected an array") as caught:
        convt.conv_transpose(Verbose(), W)
    assert len(str(caught.value)) < 400


def test_messages_on_many_axes_stay_short():
    with pytest.raises(ValueError, match=r"^x_shape") as caught:
        convt.output_shape((1, 1) + (2,) * 1000, (1, 1) + (1,) * 1000)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("arguments", [("x_shape", (None, W.shape)), ("w_shape", (X.shape, 7))])
def test_output_shape_names_its_own_arguments(arguments):
    name, shapes = arguments
    with pytest.raises(TypeError, match=f"^{name}:"):
        convt.output_shape(*shapes)


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5", "9" * 5000], ids=lambda value: value[:9])
def test_environment_threads(monkeypatch, value):
    monkeypatch.setenv("CONVT_NUM_THREADS", value)
    with pytest.raises(ValueError, match="CONVT_NUM_THREADS: "):
        convt.conv_transpose(X, W)


@pytest.mark.parametrize("value", ["sse9", "GENERIC", " "])
def test_environment_isa_lists_what_is_there(monkeypatch, value):
    monkeypatch.setenv("CONVT_ISA", value)
    with pytest.raises(ValueError, match=r"CONVT_ISA: .*generic"):
        convt.conv_transpose(X, W)


@pytest.mark.parametrize("name", ["CONVT_ISA", "CONVT_NUM_THREADS"])
def test_an_empty_environment_variable_is_none(monkeypatch, name):
    monkeypatch.setenv(name, "")
    expected = convt.conv_transpose(X, W)
    monkeypatch.delenv(name)
    np.testing.assert_array_equal(convt.conv_transpose(X, W), expected)


@pytest.mark.parametrize("method", ["output_shape", "explain"])
@pytest.mark.parametrize("shape", [(1, 4), (1, 3, 5, 5)])
def test_shapes_are_named_as_the_argument_is(method, shape):
    layer = convt.ConvTranspose(W)
    with pytest.raises(ValueError, match=r"^x_shape[,:]"):
        getattr(layer, method)(shape)

"""ONNX's own tests of ConvTranspose, from the installed onnx package."""

import warnings
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

import convt

pytestmark = pytest.mark.usefixtures("each_isa")

CONVERTED = (
    "pytorch-converted/test_ConvTranspose2d",
    "pytorch-converted/test_ConvTranspose2d_no_bias",
    "pytorch-operator/test_operator_convtranspose",
)


class ConvTranspose(OpRun):
    """convt in place of onnx's own implementation, for whatever graph the node stands in."""

    opset = 22

    def _run(self, X, W, B=None, **attributes):
        given = {name: value for name, value in attributes.items() if value is not None}
        return (convt.conv_transpose(X, W, B, opset=self.opset, **given),)


def evaluate(model, inputs):
    opset = next(entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx"))
    operator = type("ConvTranspose", (ConvTranspose,), {"opset": opset})
    stored = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in stored]
    return ReferenceEvaluator(model, new_ops=[operator]).run(None, dict(zip(names, inputs, strict=True)))


def node_cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other operators' cases overflow and divide by zero on purpose
        from onnx.backend.test.case.node import collect_testcases

        return collect_testcases("ConvTranspose")


@pytest.fixture(scope="module")
def cases():
    return {case.name: case for case in node_cases()}


NAMES = [  # as of onnx 1.17 to 1.23
    "test_convtranspose",
    "test_convtranspose_1d",
    "test_convtranspose_3d",
    "test_convtranspose_output_shape",
    "test_convtranspose_pad",
    "test_convtranspose_kernel_shape",
    "test_convtranspose_pads",
    "test_convtranspose_dilations",
    "test_convtranspose_autopad_same",
    "test_convtranspose_group_2",
    "test_convtranspose_group_2_image_3",
]


def check_node_case(case):
    for inputs, outputs in case.data_sets:
        results = evaluate(case.model, inputs)
        for result, wanted in zip(results, outputs, strict=True):
            np.testing.assert_array_equal(result, wanted, strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_node_case(name, cases):
    check_node_case(cases[name])


def test_node_cases_of_newer_versions(cases):
    for name in sorted(set(cases) - set(NAMES)):
        check_node_case(cases[name])


def load(path):
    return numpy_helper.to_array(onnx.load_tensor(path))


@pytest.mark.parametrize("name", CONVERTED)
def test_converted_case(name):
    folder = Path(onnx.backend.test.__file__).parent / "data" / name
    model = onnx.load(folder / "model.onnx")
    data_sets = sorted(folder.glob("test_data_set_*"))
    assert data_sets
    for data_set in data_sets:
        inputs = [load(data_set / f"input_{i}.pb") for i in range(len(list(data_set.glob("input_*.pb"))))]
        results = evaluate(model, inputs)
        for i, result in enumerate(results):
            wanted = load(data_set / f"output_{i}.pb")
            np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-6, strict=True)

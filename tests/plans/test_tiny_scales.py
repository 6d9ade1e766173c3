"""Weights and inputs near the ends of float32: each shipped target's plan passes the check, or is refused."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import planner
from planner.errors import Conflict
from planner.target.load import target_ids


def made(weights, inputs):
    """A Gemm and a Relu, with weights and calibrated inputs of these sizes."""
    rng = np.random.default_rng(0)
    arrays = {
        "w": (rng.normal(size=(8, 4)) * weights).astype(np.float32),
        "b": np.full(4, weights * inputs, np.float32),
    }
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["y"]), helper.make_node("Relu", ["y"], ["z"])]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 4])],
        [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    file = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    model = planner.load_model(file.SerializeToString())
    samples = [{"x": (rng.normal(size=(2, 8)) * inputs).astype(np.float32)} for _ in range(2)]
    return planner.annotate(model, stats=planner.calibrate(model, samples))


@pytest.mark.parametrize("weights", [1e-44, 1e-40, 1e-37, 1e-30, 1e30])
@pytest.mark.parametrize("inputs", [1.0, 1e-20, 1e-39, 1e7])
def test_plans_of_tiny_numbers_pass_the_check(weights, inputs):
    """No scale is below the least normal float32; the losses and rows that the check finds know it."""
    model = made(weights, inputs)
    for target in target_ids():
        try:
            plan = planner.plan(model, target)
        except Conflict:
            continue
        planner.check(plan, model, target)

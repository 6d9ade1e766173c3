"""NaN and infinite weights: the kernel is float, and its reason and a warning say what the numbers are."""

from dataclasses import replace

import numpy as np
import pytest

from planner import load_model, load_target, plan
from planner.formats.onnx.write import Node, write_model
from planner.ir.types.qtypes import Calibrated


def conv(weights) -> bytes:
    nodes = [Node("Conv", ("x", "w", "b"), ("y",), "conv")]
    ports = {"inputs": [("x", "f32", (1, 3, 8, 8))], "outputs": [("y", "f32", (1, 4, 6, 6))]}
    return write_model(name="g", nodes=nodes, constants=weights, **ports)


def planned(name, number, target):
    weights = {"w": np.ones((4, 3, 3, 3), np.float32), "b": np.ones(4, np.float32)}
    weights[name].reshape(-1)[2] = number
    graph = load_model(conv(weights))
    values = {
        key: replace(value, facts=(Calibrated((-2.0,), (2.0,)),)) if key in "xy" else value
        for key, value in graph.values.items()
    }
    return plan(replace(graph, values=values), load_target(target))


@pytest.mark.parametrize(("name", "number"), [("w", np.nan), ("w", np.inf), ("b", -np.inf)])
def test_a_kernel_in_float_says_what_its_weights_are(name, number):
    found = planned(name, number, "onnxruntime-cpu")
    nan = int(np.isnan(number))
    reason = f"constant {name!r} has {nan} NaN and {1 - nan} infinite numbers, which no integer stands for"
    assert found.kernels["conv"].reason == reason
    assert found.warnings == (f"'conv' runs in float: {reason}",)


def test_a_kernel_that_takes_its_bias_in_float_warns():
    found = planned("b", np.nan, "tensorrt-int8")
    assert found.kernels["conv"].row is not None
    odd = "constant 'b' has 1 NaN and 0 infinite numbers, which no integer stands for"
    assert found.warnings == (f"'conv' takes it in float: {odd}",)

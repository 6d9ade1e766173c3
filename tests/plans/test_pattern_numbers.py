"""Numbers in a pattern are no ports: plans with such kernels are checked, saved, exported and run."""

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import planner

TARGET = """
apiVersion: planner/v1
kind: Target
id: numbers
version: 1.0.0
types: {a8: {storage: i8}}
defaults: {port: a8, requantize: float32_even}
fusions:
  - {kernel: gelu, pattern: "Mul(Mul(x, Add(Erf(Div(x, 1.4142135)), 1)), 0.5)"}
  - {kernel: scaled, pattern: "Mul(x, g)", where: {g: constant}}
kernels:
  - {kernel: gelu, in: {x: a8}, out: {y: a8}, rules: [{fixed_scale: {port: y, scale: 1/16}}]}
  - {kernel: scaled, in: {x: a8, g: a8}, out: {y: a8}}
"""


def gelu_model():
    nodes = [
        helper.make_node("Mul", ["x", "g"], ["h"]),
        helper.make_node("Div", ["h", "root"], ["a"]),
        helper.make_node("Erf", ["a"], ["b"]),
        helper.make_node("Add", ["b", "one"], ["c"]),
        helper.make_node("Mul", ["h", "c"], ["d"]),
        helper.make_node("Mul", ["d", "half"], ["y"]),
    ]
    numbers = {"root": 2**0.5, "one": 1.0, "half": 0.5, "g": [1.5, 0.5, 1.0, 2.0]}
    weights = [numpy_helper.from_array(np.array(n, np.float32), name) for name, n in numbers.items()]
    sides = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 4]) for name in "xy"]
    graph = helper.make_graph(nodes, "gelu", sides[:1], sides[1:], weights)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()


@pytest.fixture(scope="module")
def made():
    model = planner.load_model(gelu_model())
    drawn = np.random.default_rng(2).normal(size=(4, 2, 4)).astype(np.float32)
    samples = [{"x": x} for x in drawn]
    model = planner.annotate(model, stats=planner.calibrate(model, samples))
    target = planner.load_target(TARGET)
    return model, target, planner.plan(model, target), samples


def test_the_plan_is_checked_and_read_back(made):
    model, target, plan, _ = made
    assert sorted(kernel.kernel for kernel in plan.kernels.values()) == ["gelu", "scaled"]
    planner.check(plan, model, target)
    planner.check(planner.plan_from_json(plan.to_json()), model, target)


@pytest.mark.parametrize("form", ["onnx-qdq", "onnx-qoperator"])
def test_the_file_computes_what_the_plan_does(made, form):
    model, _, plan, samples = made
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(planner.export(model, plan, form), options)
    arithmetic = {"onnx-qdq": "float32_qdq", "onnx-qoperator": "float32_even"}[form]
    for sample in samples:
        wanted = planner.evaluate(model, plan, sample, arithmetic=arithmetic).outputs["y"]
        assert np.array_equal(session.run(None, sample)[0], wanted)


def test_a_constant_of_several_numbers_is_a_port(made):
    """Only what a pattern can say may be missing: the factors of `scaled` are four numbers."""
    model, target, plan, _ = made
    regions = [
        replace(region, inputs=region.inputs[:1]) if region.kernel == "scaled" else region
        for region in plan.graph.regions
    ]
    forged = replace(plan, graph=replace(plan.graph, regions=tuple(regions)))
    with pytest.raises(planner.PlanInvalid, match="'g' is no port of it"):
        planner.check(forged, model, target)

"""Local functions of ONNX files as kernels: `function:DOMAIN.NAME`."""

import numpy as np
import pytest
from onnx import parser

import planner
from planner.errors import ModelError
from planner.target.load import load_target

MODEL = """
<ir_version: 10, opset_import: ["" : 21, "my" : 1]>
g (float[1,4] x) => (float[1,4] y) <float[4,4] w = {1,0,0.5,0,0,1,0,0.25,0.5,0,1,0,0,0.75,0,1}> {
  a = my.Block(x, w)  b = Relu(a)  c = my.Block(b, w)  y = my.Outer(c, w) }
<domain: "my", opset_import: ["" : 21, "my" : 1]>
Block (x, w) => (z) { h = MatMul(x, w)  e = Erf(h)  z = Mul(h, e) }
<domain: "my", opset_import: ["" : 21, "my" : 1]>
Outer (x, w) => (z) { h = my.Block(x, w)  z = Sigmoid(h) }
"""
TARGET = """
apiVersion: planner/v1
kind: Target
id: blocks
version: 1.0.0
title: A device with a kernel for a function
mode: fixed
types: {a8: {storage: i8}, w8: {storage: i8, symmetric: true}}
defaults: {port: a8}
fusions:
  - {kernel: block, pattern: "function:my.Block"}
kernels:
  - {kernel: block, in: {x: a8, w: w8}, out: {y: a8}}
  - {kernel: Relu, in: {x: a8}, out: {y: a8}, rules: [{same_scale: [x, y]}]}
"""


def planned(text: str = TARGET):
    model = planner.load_model(parser.parse_model(MODEL).SerializeToString())
    random = np.random.default_rng(3)
    samples = [{"x": random.normal(size=(1, 4)).astype(np.float32)} for _ in range(16)]
    model = planner.annotate(model, stats=planner.calibrate(model, samples))
    target = load_target(text)
    plan = planner.plan(model, target)
    planner.check(plan, model, target)
    return model, plan, samples


def test_every_call_is_a_kernel():
    """Calls in functions too; what is no call of it is as before."""
    _, plan, _ = planned()
    found = [(k.name, k.kernel, [p.value for p in k.inputs]) for k in plan.kernels_in_order]
    assert found == [
        ("Block_0", "block", ["x", "w"]),
        ("Relu_3", "Relu", ["a"]),
        ("Block_2", "block", ["b", "w"]),
        ("Outer_3/Block_0", "block", ["c", "w"]),
        ("Sigmoid_10", "Sigmoid", ["h__3"]),
    ]
    assert [len(region.ops) for region in plan.graph.regions] == [3, 1, 3, 3, 1]


def test_the_outermost_function_wins():
    _, plan, _ = planned(TARGET.replace("my.Block", "my.Outer"))
    assert [(k.name, k.kernel) for k in plan.kernels_in_order if k.row][-1] == ("Outer_3", "block")


def test_a_target_without_the_pattern_sees_the_ops():
    _, plan, _ = planned(TARGET.replace("function:my.Block", "MatMul(x, w)"))
    assert [k.kernel for k in plan.kernels_in_order].count("block") == 3
    assert plan.kernels["Erf_1"].row is None


@pytest.mark.parametrize("form", ["onnx-qdq", "onnx-qoperator"])
def test_what_is_written_runs(form):
    model, plan, samples = planned()
    quality = planner.compare(model, planner.export(model, plan, form), samples)
    assert quality.outputs["y"].sqnr > 30


def test_the_plan_says_which_places_share_a_body():
    _, plan, _ = planned()
    places = {body.places for body in plan.bodies["my.Block"]}
    assert {place for group in places for place in group} == {"Block_0", "Block_2", "Outer_3/Block_0"}


def test_recursion_is_refused():
    text = MODEL.replace("Block (x, w) => (z) { h = MatMul(x, w)", "Block (x, w) => (z) { h = my.Outer(x, w)")
    with pytest.raises(ModelError, match=r"function my\.Block runs itself"):
        planner.load_model(parser.parse_model(text).SerializeToString())

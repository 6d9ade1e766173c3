"""Loops and branches: a planned model runs in onnxruntime as in the interpreter, to the last bit.

Models in ONNX's text form; three targets, three formats. A branch is taken both ways, loops end early, scans
run backwards, bodies stand in bodies.
"""

import numpy as np
import onnxruntime
import pytest

import planner
from planner.errors import UnsupportedExport
from planner.formats.onnx.sessions import open_session
from planner.formats.onnx.write import write_graph
from tests.formats import bodies as texts
from tests.formats.bodies import written

# A scan that reads a value of the model around it, and stacks its results last, from the end.
CAPTURED = """
g (float[2] s0, float[3,2] xs, float[2] v) => (float[2] sN, float[2,3] ys) <float[2] k = {1.0,-2.0}> {
  u = Mul(v, k)
  sN, ys = Scan <num_scan_inputs = 1, scan_output_axes = [-1], scan_output_directions = [1],
    body = b (float[2] s, float[2] x) => (float[2] s1, float[2] y) {
      p = Mul(x, u)  s1 = Add(s, p)  y = Relu(s1) }> (s0, xs) }"""

MODELS = {
    "scan": (texts.SCAN, {"s0": (2,), "xs": (5, 2)}),
    "loop": (texts.UNKNOWN, {"x": (3, 3)}),
    "branch": (texts.BRANCH, {"x": (4,)}),
    "scan_that_captures": (CAPTURED, {"s0": (2,), "xs": (3, 2), "v": (2,)}),
    "branch_in_a_loop": (texts.BOTH, {"x": (4,)}),
}
ARITHMETIC = {"onnx-qdq": "float32_qdq", "onnx-qoperator": "float32_even", "onnx-integer": None}
TARGETS = ("onnxruntime-cpu", "litert-int8", "teaching-npu")


def prepared(name: str):
    text, shapes = MODELS[name]
    return (written(text), *texts.prepared(text, shapes, 24))


def ran(data: bytes, sample) -> dict[str, np.ndarray]:
    session: onnxruntime.InferenceSession = open_session(data)
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(None, sample), strict=True))


@pytest.mark.parametrize("name", MODELS)
def test_a_model_is_written_again_as_it_was(name):
    data, model, samples = prepared(name)
    for sample in samples:
        wanted, got = ran(data, sample), ran(write_graph(model), sample)
        assert wanted.keys() == got.keys()
        assert all(np.array_equal(got[key], wanted[key]) for key in wanted)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_every_value_in_a_body_has_a_range(name, target):
    _, model, _ = prepared(name)
    plan = planner.plan(model, target)
    assert not any(kernel.reason == "no range" for kernel in plan.kernels_in_order)
    planner.check(plan, model, planner.load_target(target))


@pytest.mark.parametrize("form", ARITHMETIC)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_onnxruntime_computes_what_the_interpreter_does(name, target, form):
    _, model, samples = prepared(name)
    plan = planner.plan(model, target)
    data = planner.export(model, plan, form)
    for sample in samples[:12]:
        got, wanted = ran(data, sample), planner.evaluate(model, plan, sample, arithmetic=ARITHMETIC[form])
        assert got.keys() == wanted.outputs.keys()
        assert all(np.array_equal(got[key], wanted.outputs[key]) for key in got)


@pytest.mark.parametrize("name", MODELS)
def test_accuracy(name):
    _, model, samples = prepared(name)
    plan = planner.plan(model, "onnxruntime-cpu")
    quality = planner.compare(model, planner.export(model, plan, "onnx-qdq"), samples)
    assert min(output.sqnr for output in quality.outputs.values()) > 20


@pytest.mark.parametrize("form", ["qonnx", "finn", "hls4ml", "onnx-matmulnbits"])
def test_a_format_without_bodies_says_so(form):
    _, model, _ = prepared("branch")
    with pytest.raises(UnsupportedExport, match=r"If_\d.*onnx-qdq"):
        planner.export(model, planner.plan(model, "onnxruntime-cpu"), form)

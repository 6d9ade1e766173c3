"""Max and Min with a number are activations: Relu or Clip, of the same numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import planner
from planner.formats.onnx.read import read_onnx
from tests.formats.onnx.reader.runs import assert_same_numbers, model, op_types, read_same

NUMBERS = (
    "float z = {0}, float[1,1] a = {-0.4}, float[1] b = {0.75}, float[1,1,1] deep = {0.5}, "
    "float[2] many = {0,1}"
)
SPELLED = {
    "relu": ("y = Max(z, x)", ["Relu"]),
    "lower bound": ("y = Max(x, a)", ["Clip"]),
    "upper bound": ("y = Min(b, x)", ["Clip"]),
    "both": ("m = Max(x, a) y = Min(m, b)", ["Clip"]),
    "both, from above": ("m = Min(x, b) y = Max(m, z)", ["Clip"]),
    # Max(Min(x, -0.4), 0.75) is 0.75 everywhere; a Clip gives -0.4.
    "relu6": ("r = Relu(x) y = Min(r, b)", ["Clip"]),
    "crossed": ("m = Min(x, a) y = Max(m, b)", ["Clip", "Clip"]),
    "one bound twice": ("m = Max(x, a) y = Max(m, z)", ["Clip", "Relu"]),
    "read twice": ("m = Max(x, a) n = Min(m, b) y = Add(m, n)", ["Clip", "Clip", "Add"]),
    "two values": ("m = Neg(x) y = Max(x, m)", ["Neg", "Max"]),
    "three operands": ("y = Max(x, a, b)", ["Max"]),
    "numbers": ("y = Max(x, many)", ["Max"]),
    "more axes than the value": ("m = Max(x, deep) y = Squeeze(m)", ["Max", "Squeeze"]),
}


@pytest.mark.parametrize("case", SPELLED)
def test_a_bound_is_an_activation(case):
    body, left = SPELLED[case]
    graph = read_same(model(f"g (float[3,2] x) => (float[3,2] y) <{NUMBERS}> {{ {body} }}"))
    assert op_types(graph) == left


@given(
    st.lists(
        st.tuples(st.sampled_from(("Max", "Min")), st.integers(-3, 3), st.booleans()), min_size=1, max_size=6
    )
)
def test_chains_of_bounds_compute_the_same(steps):
    bounds = ", ".join(f"float c{i} = {{{bound}}}" for i, (_, bound, _) in enumerate(steps))
    names = ["x", *(f"v{i}" for i in range(len(steps) - 1)), "y"]
    body = " ".join(
        f"{names[i + 1]} = {op}({f'c{i}, {names[i]}' if swapped else f'{names[i]}, c{i}'})"
        for i, (op, _, swapped) in enumerate(steps)
    )
    source = model(f"g (float[4,4] x) => (float[4,4] y) <{bounds}> {{ {body} }}")
    graph = read_onnx(source)
    assert_same_numbers(source, graph)
    assert not {"Max", "Min"} & set(op_types(graph))


def test_integers_and_not_a_number_stay():
    integers = read_onnx(model("g (int64[3] x) => (int64[3] y) <int64 z = {0}> { y = Max(x, z) }"))
    assert op_types(integers) == ["Max"]
    unknown = read_onnx(
        model("g (float[3] x) => (float[3] y) <float z = {0}> { n = Div(z, z) y = Max(x, n) }")
    )
    assert op_types(unknown) == ["Max"]


def test_a_leaky_relu_with_a_floor_is_one_kernel():
    """The wake words of openwakeword bound each LeakyRelu from below: QLinearLeakyRelu does both."""
    source = model(
        "g (float[1,4] x) => (float[1,4] y) <float a = {-0.4}> { l = LeakyRelu<alpha=0.2>(x) y = Max(l, a) }"
    )
    graph = planner.load_model(source)
    feeds = [{"x": np.linspace(-4, 4, 4, dtype=np.float32)[None]}]
    plan = planner.plan(planner.annotate(graph, stats=planner.calibrate(graph, feeds)), "onnxruntime-cpu")
    assert [(kernel.kernel, kernel.row is not None) for kernel in plan.kernels_in_order] == [
        ("LeakyRelu", True)
    ]

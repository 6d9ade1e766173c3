"""Scalar factors: absorbed by constants, else a Mul by a constant; the model computes the same."""

import numpy as np
import pytest

import planner
from planner.factors.absorb import absorb_factors
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.write import write_graph
from tests.formats.onnx.reader.runs import assert_same_numbers, model, op_types, outputs, random_feeds

W = "float[4,4] w = {1,-2,3,0.5, 2,1,0,-1, 0.25,3,1,2, -1,1,2,4}"
V = "float[4,4] v = {2,-1,1,0.5, 1,1,3,-1, 0.5,1,-1,2, -2,1,1,3}"
B = "float[4] b = {1,-2,0.5,3}"
K = "float k = {8}"
CONV = "float[2,3,1,1] w = {1,2,3,4,5,6}"
IMAGE = "float[1,3,1,1] m = {0.4,0.5,0.6}, float[1,3,1,1] s = {0.2,0.25,0.3}, float f = {255}"
HEADS = "int64[4] n = {1,2,2,2}"
GELU = "float r = {1.4142135}, float o = {1}, float h = {0.5}"
SWISH = "float l = {0}, float o = {3}, float h = {6}"
CASES = {
    # Back: to a weight, its bias, through views and what keeps the sign.
    "quotient of a product": (
        f"g (float[1,4] x) => (float[1,4] y) <{W}, {K}> {{ a = MatMul(x, w) y = Div(a, k) }}",
        ["MatMul"],
    ),
    "behind a bias": (
        (
            f"g (float[1,2,4] x) => (float[1,2,4] y) <{W}, {B}, {K}> "
            "{ a = MatMul(x, w) c = Add(b, a) d = Transpose <perm=[0,1,2]> (c) y = Mul(k, d) }"
        ),
        ["MatMul", "Add", "Transpose"],
    ),
    "attention": (
        (
            f"g (float[1,2,4] x) => (float[1,2,2,2] y) <{W}, {V}, {B}, {K}, {HEADS}> "
            "{ a = MatMul(x, w) c = Add(a, b) q = Reshape(c, n) d = MatMul(x, v) e = Reshape(d, n) "
            "l = Transpose <perm=[0,1,3,2]> (e) s = MatMul(q, l) t = Div(s, k) y = Softmax(t) }"
        ),
        ["MatMul", "Add", "Reshape", "MatMul", "Reshape", "Transpose", "MatMul", "Softmax"],
    ),
    "behind a relu": (
        (
            f"g (float[1,4] x) => (float[1,4] y) <{W}, {B}, {K}> "
            "{ a = Gemm(x, w, b) r = Relu(a) y = Div(r, k) }"
        ),
        ["Gemm", "Relu"],
    ),
    "negated behind a relu": (
        f"g (float[1,4] x) => (float[1,4] y) <{W}, {B}> {{ a = Gemm(x, w, b) r = Relu(a) y = Neg(r) }}",
        ["Gemm", "Relu", "Neg"],
    ),
    "negated": (f"g (float[1,4] x) => (float[1,4] y) <{W}> {{ a = MatMul(x, w) y = Neg(a) }}", ["MatMul"]),
    "of a norm": (
        (
            f"g (float[1,4] x) => (float[1,4] y) <{B}, float[4] c = {{1,2,3,4}}, {K}> "
            "{ a = LayerNormalization <axis=-1> (x, c, b) y = Mul(a, k) }"
        ),
        ["LayerNormalization"],
    ),
    "of two sums": (
        (
            f"g (float[1,4] x) => (float[1,4] y) <{W}, {V}, {K}> "
            "{ a = MatMul(x, w) c = MatMul(x, v) d = Sub(a, c) y = Div(d, k) }"
        ),
        ["MatMul", "MatMul", "Sub"],
    ),
    "of an embedding": (
        f"g (int64[2] x) => (float[2,4] y) <{W}, {K}> {{ a = Gather(w, x) y = Mul(a, k) }}",
        ["Gather"],
    ),
    "two in a row": (
        (
            f"g (float[1,4] x) => (float[1,4] y) <{W}, {K}> "
            "{ t = Tanh(x) a = Div(t, k) c = Mul(a, k) y = Sigmoid(c) }"
        ),
        ["Tanh", "Mul", "Sigmoid"],
    ),
    # Forward: to the weights that read it.
    "picture": (
        (
            f"g (float[1,3,2,2] x) => (float[1,2,2,2] y) <{CONV}, {IMAGE}> "
            "{ a = Div(x, f) c = Sub(a, m) d = Div(c, s) y = Conv(d, w) }"
        ),
        ["Sub", "Conv"],
    ),
    "bytes": (
        (
            f"g (uint8[1,3,2,2] x) => (float[1,2,2,2] y) <{CONV}, {IMAGE}> "
            "{ a = Cast <to=1> (x) c = Div(a, f) y = Conv(c, w) }"
        ),
        ["Cast", "Conv"],
    ),
    "read by two products": (
        (
            f"g (float[1,4] x) => (float[1,4] y, float[1,4] z) <{W}, {V}, {K}> "
            "{ a = Div(x, k) y = MatMul(a, w) z = MatMul(a, v) }"
        ),
        ["MatMul", "MatMul"],
    ),
    "vector in front of a product": (
        f"g (float[1,2,4] x) => (float[1,2,4] y) <{W}, {B}> {{ t = Tanh(x) a = Mul(t, b) y = MatMul(a, w) }}",
        ["Tanh", "MatMul"],
    ),
    "vector in front of a turned product": (
        f"g (float[1,4] x) => (float[1,4] y) <{W}, {B}> {{ a = Mul(x, b) y = Gemm <transB=1> (a, w) }}",
        ["Gemm"],
    ),
    # Where it cannot go, it is a product with a constant.
    "read by others, too": (
        (
            f"g (float[1,4] x) => (float[1,4] y) <{W}, {K}> "
            "{ a = MatMul(x, w) t = Sigmoid(a) c = Div(a, k) y = Mul(c, t) }"
        ),
        ["MatMul", "Sigmoid", "Mul", "Mul"],
    ),
    "an output in front": (
        f"g (float[1,4] x) => (float[1,4] a, float[1,4] y) <{W}, {K}> {{ a = MatMul(x, w) y = Div(a, k) }}",
        ["MatMul", "Mul"],
    ),
    "between functions": (
        f"g (float[1,4] x) => (float[1,4] y) <{K}> {{ a = Sigmoid(x) c = Div(a, k) y = Tanh(c) }}",
        ["Sigmoid", "Mul", "Tanh"],
    ),
    "division by nothing": (
        "g (float[1,4] x) => (float[1,4] y) <float k = {0}> { a = Exp(x) y = Div(a, k) }",
        ["Exp", "Div"],
    ),
    "division of a number": (
        f"g (float[1,4] x) => (float[1,4] y) <{K}> {{ a = Exp(x) y = Div(k, a) }}",
        ["Exp", "Div"],
    ),
    # A block that is spelled out stays as it is, whatever reads it.
    "gelu": (
        (
            f"g (float[1,4] x) => (float[1,4] y) <{W}, {V}, {GELU}> "
            "{ i = MatMul(x, w) a = Div(i, r) c = Erf(a) d = Add(c, o) "
            "e = Mul(i, d) f = Mul(e, h) y = MatMul(f, v) }"
        ),
        ["MatMul", "Div", "Erf", "Add", "Mul", "Mul", "MatMul"],  # onnxruntime knows a Gelu by its quotient
    ),
    "hard swish": (
        (
            f"g (float[1,4] x) => (float[1,4] y) <{W}, {V}, {SWISH}> "
            "{ i = MatMul(x, w) a = Add(i, o) c = Clip(a, l, h) d = Mul(i, c) "
            "e = Div(d, h) y = MatMul(e, v) }"
        ),
        ["MatMul", "Add", "Clip", "Mul", "Mul", "MatMul"],
    ),
}


def absorbed(source, feeds=None):
    """The model with its factors absorbed, which computes the same."""
    graph = absorb_factors(read_onnx(source))
    assert_same_numbers(source, graph, feeds)
    again = absorb_factors(graph)
    assert (again.ops, again.values, again.scaled) == (graph.ops, graph.values, graph.scaled)
    return graph


@pytest.mark.parametrize("name", CASES)
def test_a_factor(name):
    text, left = CASES[name]
    feeds = {"x": np.arange(12, dtype=np.uint8).reshape(1, 3, 2, 2)} if name == "bytes" else None
    assert op_types(absorbed(model(text), feeds)) == left


def test_powers_of_two_change_no_bit():
    text, _ = CASES["attention"]
    source = model(text)
    feeds = random_feeds(source)
    wanted, got = outputs(source, feeds), outputs(write_graph(absorb_factors(read_onnx(source))), feeds)
    np.testing.assert_array_equal(got["y"], wanted["y"])


def test_what_happened_is_noted_and_explained():
    graph = read_onnx(model(CASES["attention"][0]))
    feeds = [{"x": np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 2, 4)}]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, feeds))
    (note,) = ready.notes
    assert note == "Mul 'Div_7' is no kernel: its factor is part of 'w', 'b'"
    assert ready.scaled["q"] == ("q/scaled", 0.125)
    assert "q/scaled" in ready.values
    assert "q" not in ready.values
    plan = planner.plan(ready, "litert-int8")
    assert planner.explain(plan, "Div_7") == f"{note}."


@pytest.mark.parametrize(("size", "left"), [(4, ["MatMul", "MatMul"]), (96, ["MatMul", "MatMul", "Mul"])])
def test_a_shared_weight_is_copied_only_where_it_is_small(size, left):
    """A large one that others read, too, stays one: the factor stays a kernel."""
    shape = f"float[1,2,{size}]"
    numbers = ",".join(str(i % 7 - 3) for i in range(size * size))
    text = (
        f"g ({shape} x) => ({shape} y, {shape} z) <float k = {{8}}, float[{size},{size}] w = {{{numbers}}}> "
        "{ a = MatMul(x, w) y = Div(a, k) z = MatMul(y, w) }"
    )
    assert sorted(op_types(absorbed(model(text)))) == left


@pytest.mark.parametrize(("number", "dtype"), [(1, "float"), (10, "float16"), (11, "double")])
def test_other_floats(number, dtype):
    """A reciprocal that float16 has to round would be another number than the quotient."""
    text = (
        f"g ({dtype}[1,4] x) => ({dtype}[1,4] y) <float i = {{8}}, float j = {{3}}> "
        f"{{ k = Cast <to={number}> (i) o = Cast <to={number}> (j) "
        "a = Exp(x) c = Div(a, k) d = Tanh(c) y = Div(d, o) }"
    )
    source = model(text)
    graph = absorb_factors(read_onnx(source))
    assert op_types(graph) == ["Exp", "Mul", "Tanh", "Div" if dtype == "float16" else "Mul"]
    feeds = random_feeds(source)
    np.testing.assert_allclose(*(outputs(it, feeds)["y"] for it in (source, write_graph(graph))), rtol=1e-6)


def test_a_weight_that_float16_would_cut_short_keeps_its_numbers():
    """1e-4 / 255 has 3 digits less there: the factor stays a quotient."""
    text = (
        "g (float16[1,4] x) => (float16[1,4] y) <float f = {255}, float[4,4] i = {"
        + ",".join(["0.0001"] * 16)
        + "}> { w = Cast <to=10> (i) k = Cast <to=10> (f) a = MatMul(x, w) c = Relu(a) y = Div(c, k) }"
    )
    assert op_types(absorb_factors(read_onnx(model(text)))) == ["MatMul", "Relu", "Div"]

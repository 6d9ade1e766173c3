"""Groups of ops: chains of linear ops, name scopes, patterns with numbers, and coarse kernels made finer."""

import dataclasses

import numpy as np
import pytest

from planner.checker.check import check
from planner.fusion.fuse import fuse, regions_of
from planner.fusion.legalize import legalize_planned
from planner.ir.types.qtypes import AnyType, NoneType, storage, uniform
from planner.ir.validity import validate
from planner.pipeline import plan as plan_model
from planner.target.load import load_target
from planner.target.modeltext import read_model_text
from planner.target.records import Fusion
from tests.fusion.small import graph_of, target_of

CHAIN = Fusion("linear", ("linear_chain",))
CONV = Fusion("conv", ("Relu?(Conv(x, w))",), {"w": "constant"})


def kernels(graph):
    return [(r.name, r.kernel, r.inputs, r.outputs, len(r.ops)) for r in validate(graph).regions]


@pytest.mark.parametrize(
    ("text", "outputs", "expected"),
    [
        pytest.param(
            "a = Relu(x)\nb = Conv(a, W)\nc = Mul(S, b)\nd = Add(c, B)\ny = Relu(d)",
            ["y"],
            [
                ("a_op", "Relu", ("x",), ("a",), 1),
                ("b_op", "linear", ("a", "W", "S", "B"), ("d",), 3),
                ("y_op", "Relu", ("d",), ("y",), 1),
            ],
            id="between_two_nonlinear_ops",
        ),
        pytest.param(
            "b = Conv(x, W)\nc = Mul(b, S)\ny = Relu(c)\nz = Tanh(b)",
            ["y", "z"],
            [("b_op", "Conv", ("x", "W"), ("b",), 1), ("c_op", "Mul", ("b", "S"), ("c",), 1)],
            id="a_value_read_twice_ends_it",
        ),
        pytest.param(
            "b = Div(S, x)\nc = Mul(b, S)\nd = Mul(c, c)",
            ["d"],
            [("b_op", "Div", ("S", "x"), ("b",), 1), ("c_op", "Mul", ("b", "S"), ("c",), 1)],
            id="a_quotient_by_data_and_a_square_are_not_linear",
        ),
    ],
)
def test_linear_chain(text, outputs, expected):
    fused = fuse(graph_of(text, outputs=outputs), target_of(CHAIN))
    assert kernels(fused)[: len(expected)] == expected


def test_the_bigger_of_chain_and_pattern_wins():
    graph = graph_of(
        "b = Conv(x, W)\nc = Relu(b)\nd = Conv(c, W)\ne = Mul(d, S)\nf = Add(e, B)\ny = Relu(f)",
        outputs=["y"],
    )
    fused = fuse(graph, target_of(CONV, CHAIN))
    assert [(r.name, r.kernel) for r in fused.regions] == [
        ("b_op", "conv"),
        ("d_op", "linear"),
        ("y_op", "Relu"),
    ]


def scoped(*names):
    """X -> a -> b -> c -> y and a -> y: the ops are named as given."""
    graph = graph_of("a = Tanh(x)\nb = Exp(a)\nc = Tanh(b)\ny = Add(c, a)", outputs=["y"])
    ops = [dataclasses.replace(op, name=name) for op, name in zip(graph.ops, names, strict=True)]
    return dataclasses.replace(graph, ops=tuple(ops))


def test_a_scope_is_a_kernel_of_several_results():
    graph = scoped("net/l0/a", "net/l0/b", "net/l1/c", "net/l1/y")
    fused = fuse(graph, target_of(Fusion("layer", ("scope:net/l*",))))
    assert kernels(fused) == [
        ("net/l0", "layer", ("x",), ("a", "b"), 2),
        ("net/l1", "layer", ("b", "a"), ("y",), 2),
    ]


def test_a_scope_that_something_runs_in_the_middle_of_is_no_kernel():
    fused = fuse(scoped("s/a", "other", "s/c", "s/y"), target_of(Fusion("layer", ("scope:s",))))
    assert [r.kernel for r in fused.regions] == ["Tanh", "Exp", "Tanh", "Add"]


def test_a_scope_stands_in_its_place_when_another_kernel_needs_its_first_result():
    fused = fuse(scoped("s/a", "s/b", "other", "y"), target_of(Fusion("layer", ("scope:s",))))
    assert [r.name for r in fused.regions] == ["s", "other", "y"]


GELU = Fusion("gelu", ("Mul(Mul(x, Add(Erf(Div(x, 1.4142135)), 1)), 0.5)",))


@pytest.mark.parametrize(("half", "kernel"), [(0.5, "gelu"), (0.6, "Mul")])
def test_numbers_in_a_pattern_are_constants_of_that_value(half, kernel):
    graph = graph_of(
        "a = Div(x, R)\nb = Erf(a)\nc = Add(b, I)\nd = Mul(x, c)\ny = Mul(d, H)",
        outputs=["y"],
        constants={"R": np.float16(2**0.5), "I": [1.0, 1.0], "H": half},
    )
    fused = fuse(graph, target_of(GELU))
    assert fused.regions[-1].kernel == kernel
    if kernel == "gelu":
        assert kernels(fused) == [("a_op", "gelu", ("x",), ("y",), 5)]


COARSE = """
apiVersion: planner/v1
kind: Target
id: coarse
version: 1.0.0
types: {a8: {storage: i8}, w8: {storage: i8, range: [-127, 127], symmetric: true}}
fusions:
  - {kernel: block, pattern: "scope:block*"}
  - {kernel: dense, pattern: "Relu?(MatMul(x, w))", where: {w: constant}}
legalize:
  - {kernel: block, into: [dense]}
kernels:
  - {kernel: dense, in: {x: a8, w: w8}, out: {y: a8}}
  - kernel: Softmax
    in: {x: a8}
    out: {y: a8}
    rules: [{fixed_scale: {port: y, scale: 1/256, zero_point: -128}}]
"""
MODEL = """
w = constant : f32[8,8] {-0.5, 0.5}
block0/a = MatMul(x, w) : f32[1,8] {-2, 2}
block0/b = Relu(block0/a) : f32[1,8] {0, 2}
block0/y = Softmax(block0/b) : f32[1,8] {0, 1}
"""


def test_a_coarse_kernel_becomes_those_it_is_made_of():
    target = load_target(COARSE)
    plan = plan_model(read_model_text(MODEL, "m"), target)
    check(plan, None, target)
    assert [(k.name, k.kernel, k.reason) for k in plan.kernels_in_order] == [
        ("block0/a", "dense", None),
        ("block0/y", "Softmax", None),
    ]


def test_without_its_table_a_coarse_kernel_is_fused_again_without_its_pattern():
    text = COARSE.replace("legalize:\n  - {kernel: block, into: [dense]}\n", "")
    plan = plan_model(read_model_text(MODEL, "m"), load_target(text))
    check(plan, None, load_target(text))
    assert [(k.name, k.kernel, k.reason) for k in plan.kernels_in_order] == [
        ("block0/a", "dense", None),
        ("block0/y", "Softmax", None),
    ]
    apart = [(step.port, step.type, step.source) for step in plan.steps if step.rule == "apart"]
    why = "coarse has no row for kernel 'block'"
    assert apart == [("block0/a", "block", why), ("block0/y", "block", why)]


def test_a_coarse_kernel_of_which_no_part_has_a_row_stays_whole():
    text = COARSE.replace("legalize:\n  - {kernel: block, into: [dense]}\n", "")
    text = text.replace("kernel: dense, in", "kernel: other, in").replace(
        "kernel: Softmax\n", "kernel: Other\n"
    )
    (kernel,) = plan_model(read_model_text(MODEL, "m"), load_target(text)).kernels_in_order
    assert (kernel.kernel, kernel.row) == ("block", None)


def test_facts_on_ports_of_a_coarse_region_stand_on_the_finer_ones():
    graph = fuse(read_model_text(MODEL, "m"), target_of(Fusion("block", ("scope:block*",))))
    (block,) = graph.regions
    wide, fixed = AnyType(storage("i8")), uniform(storage("i8"), 1 / 256, -128)
    block = dataclasses.replace(block, input_facts=((wide,), ()), output_facts=((fixed,),))
    finer = fuse(dataclasses.replace(graph, regions=(block,)), load_target(COARSE))
    assert [(r.name, r.input_facts, r.output_facts) for r in finer.regions] == [
        ("block0/a", ((wide,), ()), ()),
        ("block0/y", (), ((fixed,),)),
    ]


def test_a_planned_region_is_split_with_its_ports_pinned():
    whole = load_target(COARSE + "  - {kernel: block, in: {x: a8, w: w8}, out: {y: a8}}\n")
    graph = fuse(read_model_text(MODEL, "m"), whole)
    plan = plan_model(graph, whole)
    assert [k.kernel for k in plan.kernels_in_order] == ["block"]
    port = plan.kernels["block0"]
    finer = legalize_planned(plan, graph, load_target(COARSE), regions_of)
    first, last = finer.regions
    assert (first.input_facts[0], last.output_facts[0]) == ((port.inputs[0].type,), (port.outputs[0].type,))
    again = plan_model(finer, load_target(COARSE))
    assert again.kernels["block0/a"].inputs[0].type == port.inputs[0].type
    floats = dataclasses.replace(
        plan,
        kernels_in_order=(
            dataclasses.replace(port, outputs=(dataclasses.replace(port.outputs[0], type=None),)),
        ),
    )
    assert legalize_planned(floats, graph, load_target(COARSE), regions_of).regions[-1].output_facts == (
        (NoneType(),),
    )

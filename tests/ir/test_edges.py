"""Rescales in a text that is read as a model: edges again where both ends say them, else kernels, told of."""

from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.module import read_mlir, write_mlir
from planner.ir.edges import RESCALE, with_edges
from planner.ir.graph import Constant, Graph, Op, Region, Value
from planner.ir.types.qtypes import FloatType, NoneType, Uniform, storage, uniform

FINE, COARSE, WIDE = (
    uniform(storage(name), scale, 0)
    for name, scale in (("i8", 0.0078125), ("i8", 0.0625), ("i16", 0.0078125))
)
CHANNELS = Uniform(storage("i8"), (0.5, 0.25), (0, 0), "f32", 1)
FLOAT = NoneType()
TYPES = {
    "fine": FINE,
    "coarse": COARSE,
    "wide": WIDE,
    "channels": CHANNELS,
    "float": FLOAT,
    "bf16": FloatType("bf16"),
}


def kernel(text):
    """`name: kernel x@type -> y@type`; a type is what a fact of the port itself says."""
    name, _, rest = text.partition(": ")
    kind, _, ports = rest.partition(" ")
    sides = [side.split() for side in ports.split(" -> ")]
    names = [tuple(port.partition("@")[0] for port in side) for side in sides]
    facts = [
        tuple((TYPES[port.partition("@")[2]],) if "@" in port else () for port in side) for side in sides
    ]
    ops = () if kind == RESCALE else (Op(f"{name}_op", kind, *names),)
    return Region(name, kind, *names, ops, input_facts=facts[0], output_facts=facts[1])


def model(*kernels, outputs="y", pins=(), constants=()):
    regions = tuple(map(kernel, kernels))
    names = dict.fromkeys(["x", *constants, *(name for one in regions for name in one.outputs)])
    pinned = dict(pins)
    values = {
        name: Value(name, (1, 2), "f32", tuple(TYPES[n] for n in pinned.get(name, "").split()))
        for name in names
    }
    known = {name: Constant(np.ones((1, 2), np.float32)) for name in constants}
    return Graph("m", values, (), ("x",), tuple(outputs.split()), known, regions)


def read_back(graph):
    """As the readers of both text forms give it."""
    found = read_mlir(write_mlir(graph))
    assert write_annotated(read_annotated(write_annotated(graph))) == write_annotated(found)
    assert write_mlir(read_mlir(write_mlir(found))) == write_mlir(found)
    return found


READS = "b: Tanh r@coarse -> y"
EDGES = {
    "requantize": (("a: Relu x -> v@fine", "s: qplan.rescale v@fine -> r@coarse", READS), {}),
    "two readers of one rescale": (
        ("a: Relu x -> v@fine", "s: qplan.rescale v@fine -> r@coarse", READS, "c: Tanh r@coarse -> z"),
        {"outputs": "y z"},
    ),
    "one value in three types": (
        (
            "a: Relu x -> v@fine",
            "s: qplan.rescale v@fine -> r@coarse",
            "t: qplan.rescale v@fine -> q@wide",
            "b: Add r@coarse q@wide -> y",
            "c: Tanh v@fine -> z",
        ),
        {"outputs": "y z"},
    ),
    "quantize where the model begins": (("s: qplan.rescale x -> r@coarse", READS), {}),
    "dequantize into a float kernel": (
        ("a: Relu x -> v@fine", "s: qplan.rescale v@fine -> r", "b: Tanh r@float -> y"),
        {},
    ),
    "dequantize where the model ends": (("a: Relu x -> v@fine", "s: qplan.rescale v@fine -> y"), {}),
    "to a pin and on from it": (
        (
            "a: Relu x -> v@fine",
            "p: qplan.rescale v@fine -> q@wide",
            "s: qplan.rescale q@wide -> r@coarse",
            READS,
            "c: Tanh q@wide -> z",
        ),
        {"pins": {"v": "wide"}, "outputs": "y z"},
    ),
    "to a pin where the model ends": (
        ("a: Relu x -> v@fine", "p: qplan.rescale v@fine -> y@wide"),
        {"pins": {"v": "wide"}},
    ),
    "to a float value between two kernels": (
        ("a: Relu x -> v@fine", "p: qplan.rescale v@fine -> q", "s: qplan.rescale q -> r@coarse", READS),
        {"pins": {"v": "float"}},
    ),
    "into slices": (
        ("a: Relu x -> v@fine", "s: qplan.rescale v@fine -> r@channels", "b: Tanh r@channels -> y"),
        {},
    ),
    "from a float that is not the tensor's own": (
        ("a: Relu x -> v@bf16", "s: qplan.rescale v@bf16 -> r@coarse", READS),
        {},
    ),
    "from a pinned value": (
        ("a: Relu x -> v", "s: qplan.rescale v -> r@coarse", READS),
        {"pins": {"v": "fine"}},
    ),
    "nobody reads it": (("a: Relu x -> y", "s: qplan.rescale y -> r@coarse"), {}),
}


@pytest.mark.parametrize("name", EDGES)
def test_what_both_ends_say_is_an_edge(name):
    kernels, more = EDGES[name]
    found = read_back(model(*kernels, **more))
    assert [region.name for region in found.regions] == [k[0] for k in kernels if RESCALE not in k]
    for region in found.regions:
        assert set(region.inputs) <= {"x", "v"}
        assert [op.inputs for op in region.ops] == [region.inputs]
    assert set(found.values) <= {"x", "v", "y", "z"}
    assert found.notes == ()


FIRST = "a: Relu x -> v@fine"
RESCALED = "s: qplan.rescale v@fine -> r@coarse"
KERNELS = {
    "a reader that is free": (
        (FIRST, RESCALED, "b: Tanh r -> y"),
        {},
        "b.in[0] may take another type than !quant.uniform<i8:f32, 0.0625>",
    ),
    "a reader of another type": (
        (FIRST, RESCALED, "b: Tanh r@wide -> y"),
        {},
        "b.in[0] is !quant.uniform<i16:f32, 0.0078125>, not !quant.uniform<i8:f32, 0.0625>",
    ),
    "the model ends on it": (
        (FIRST, "s: qplan.rescale v@fine -> y@coarse"),
        {},
        "@model.in[0] is float, not !quant.uniform<i8:f32, 0.0625>",
    ),
    "a kernel before it that is free": (
        ("a: Relu x -> v", RESCALED, READS),
        {},
        "'v' may be of another type than !quant.uniform<i8:f32, 0.0078125>, which it starts from",
    ),
    "three behind each other": (
        (FIRST, "p: qplan.rescale v@fine -> q@wide", "s: qplan.rescale q@wide -> r@coarse", READS),
        {},
        "2 of them stand behind each other in front of b.in[0]",
    ),
    "past the pin": (
        (FIRST, RESCALED, READS),
        {"pins": {"v": "wide"}},
        "'v' has the fixed type !quant.uniform<i16:f32, 0.0078125>, which b.in[0] would start from",
    ),
    "a result with constraints": (
        (FIRST, RESCALED, READS),
        {"pins": {"r": "wide"}},
        "'r' has constraints of its own",
    ),
    "a constant": (
        ("s: qplan.rescale c -> r@coarse", READS),
        {"constants": ("c",)},
        "'c' is a constant, which nothing rescales while the model runs",
    ),
}


@pytest.mark.parametrize("name", KERNELS)
def test_what_no_plan_says_stays_a_kernel_and_is_told(name):
    kernels, more, problem = KERNELS[name]
    found = read_back(model(*kernels, **more))
    shown = [k[0] for k in kernels if RESCALE in k]
    assert [region.name for region in found.regions] == [k[0] for k in kernels]
    assert found.notes == tuple(f"rescale {n!r} stays a kernel in float: {problem}" for n in shown)
    plan = planner.plan(found, "litert-int8")
    assert [plan.kernels[n].reason for n in shown] == [problem for _ in shown]


def test_numbers_of_a_rescale_that_stays_are_the_same():
    """Between casts: what it reads is on its first type, what it gives on its second."""
    graph = model(FIRST, RESCALED, "b: Tanh r -> y", pins={"v": "fine"})
    graph = with_edges(
        replace(graph, values={n: replace(v, shape=(1, 300)) for n, v in graph.values.items()})
    )
    sample = {"x": np.linspace(-2, 2, 300, dtype=np.float32).reshape(1, 300)}
    found = planner.evaluate(graph, planner.plan(graph, "litert-int8"), sample).reals
    read = np.clip(np.rint(np.maximum(sample["x"], 0) / np.float32(0.0078125)), -128, 127) * np.float32(
        0.0078125
    )
    np.testing.assert_array_equal(found["r"], np.rint(read / np.float32(0.0625)) * np.float32(0.0625))


def test_rescales_inside_a_body():
    """There the borders say nothing: an edge only between kernels that say their types."""
    inside = model(FIRST, RESCALED, READS)
    at_the_end = model(FIRST, "s: qplan.rescale v@fine -> y")
    for body, left in ((inside, ["a", "b"]), (at_the_end, ["a", "s"])):
        found = with_edges(replace(model("k: Relu x -> y"), functions={"f": body}))
        assert [region.name for region in found.functions["f"].regions] == left
        assert bool(found.notes) == ("s" in left)


def test_an_op_that_no_kernel_runs_may_take_any_type():
    """So the rescales of what it reads stay kernels."""
    graph = model(FIRST, RESCALED, "t: qplan.rescale v@fine -> q@wide", "b: Tanh q@wide -> y")
    values = {**graph.values, "z": Value("z", (1, 2))}
    loose = replace(graph, values=values, ops=(Op("o", "Relu", ("r",), ("z",)),), outputs=("y", "z"))
    found = with_edges(loose)
    why = "o.in[0] may take another type than !quant.uniform<i8:f32, 0.0625>"
    assert found.notes == tuple(f"rescale {name!r} stays a kernel in float: {why}" for name in "st")
    assert with_edges(replace(loose, ops=(Op("o", "Relu", ("x",), ("z",)),))).notes == ()


def test_a_model_without_rescales_is_itself():
    graph = model("k: Relu x -> y")
    assert with_edges(graph) is graph

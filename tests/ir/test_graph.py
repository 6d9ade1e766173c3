"""Graphs: how they show themselves, what their digests tell apart, and their modules."""

from dataclasses import replace

import numpy as np
import pytest

from planner.ir.graph import (
    Constant,
    Graph,
    Op,
    Opaque,
    Region,
    Value,
    model_digest,
    modules_of_steps,
    scaled_to_json,
    source_digest,
    structure_digest,
)
from planner.ir.structure import Call, Scope
from planner.ir.types.typetext import parse_type
from planner.ir.types.wanted import Wanted

VALUES = {name: Value(name, (2, 3), "f32") for name in ("x", "w", "a", "y")}
OPS = (Op("mul", "Mul", ("x", "w"), ("a",), {"alpha": 1}), Op("neg", "Neg", ("a",), ("y",)))


def constant(array):
    array.setflags(write=False)
    return Constant(array)


WEIGHT = constant(np.arange(6, dtype=np.float32).reshape(2, 3))
GRAPH = Graph("m", VALUES, OPS, ("x",), ("y",), {"w": WEIGHT}, opsets={"": 21})


def with_value(**changed):
    return replace(GRAPH, values={**VALUES, "a": replace(VALUES["a"], **changed)})


def with_op(**changed):
    return replace(GRAPH, ops=(replace(OPS[0], **changed), OPS[1]))


REGION = Region("k", "mul", ("x", "w"), ("a",), ops=(OPS[0],))
IN_REGION = replace(GRAPH, regions=(REGION,), ops=OPS[1:])
STRUCTURES = {
    "plain": GRAPH,
    "another name": replace(GRAPH, name="n"),
    "another opset": replace(GRAPH, opsets={"": 20}),
    "another output": replace(GRAPH, outputs=("a",)),
    "another input": replace(GRAPH, inputs=("x", "w"), constants={}),
    "another shape": with_value(shape=(3, 2)),
    "another element": with_value(dtype="f16"),
    "a fact": with_value(facts=(parse_type("!quant.any<i8>"),)),
    "another fact": with_value(facts=(parse_type("!quant.any<i4>"),)),
    "sizes seen": with_value(shape=("n", 3), seen=(2, 3)),
    "other sizes seen": with_value(shape=("n", 3), seen=(4, 3)),
    "sizes that vary": with_value(shape=("n", 3), seen=(2, 3), varies=(0,)),
    "another operator": with_op(type="Div"),
    "operands turned": with_op(inputs=("w", "x")),
    "another attribute": with_op(attributes={"alpha": 2}),
    "an array": with_op(attributes={"alpha": np.arange(3)}),
    "another array": with_op(attributes={"alpha": np.arange(1, 4)}),
    "another element type": with_op(attributes={"alpha": np.arange(3.0)}),
    "a text": with_op(attributes={"alpha": Opaque("graph", b"a")}),
    "another text": with_op(attributes={"alpha": Opaque("graph", b"b")}),
    "a capture": with_op(captures=("x",)),
    "a region": IN_REGION,
    "another kernel": replace(IN_REGION, regions=(replace(REGION, kernel="mulmul"),)),
    "more trips": replace(IN_REGION, regions=(replace(REGION, trip_count=2),)),
    "an attribute of a region": replace(IN_REGION, regions=(replace(REGION, attributes={"Mul.alpha": 1}),)),
    "a request": replace(GRAPH, wanted={"mul": Wanted()}),
    "a cache": replace(GRAPH, caches=(("x", "y"),)),
    "a function": replace(GRAPH, functions={"f": replace(GRAPH, name="f")}),
    "another function": replace(GRAPH, functions={"f": replace(GRAPH, name="f", outputs=("a",))}),
    "a call": replace(with_op(structure=Call("f")), functions={"f": replace(GRAPH, name="f")}),
    "a scope": replace(GRAPH, scopes={"w": Scope("call", "mul", "Call", "f")}),
    "another scope": replace(GRAPH, scopes={"w": Scope("loop", "mul", "Loop", "f")}),
    "a scope with trips": replace(GRAPH, scopes={"w": Scope("loop", "mul", "Loop", "f", trips=2)}),
    "a scope that ran": replace(GRAPH, scopes={"w": Scope("loop", "mul", "Loop", "f", trips=2, ran=3)}),
}


def test_digests_tell_structures_apart():
    """And graphs alike are alike, though their parts are other objects."""
    digests = {name: structure_digest(graph) for name, graph in STRUCTURES.items()}
    alike = {digest: name for name, digest in digests.items()}
    assert sorted(alike.values()) == sorted(digests)
    assert all(digest.startswith("sha256:") and len(digest) == 71 for digest in alike)
    assert digests == {name: structure_digest(replace(graph)) for name, graph in STRUCTURES.items()}
    assert len({model_digest(graph) for graph in STRUCTURES.values()}) == len(STRUCTURES)


@pytest.mark.parametrize(
    "array",
    [
        np.arange(1, 7, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=np.float64).reshape(2, 3),
        np.array([["a", "b"]], object),
        np.array([["a"], ["b"]], object),
        np.broadcast_to(np.float32(1), (2, 3)),
        np.broadcast_to(np.float32(2), (2, 3)),
    ],
)
def test_numbers_are_part_of_a_models_digest_alone(array):
    other = replace(GRAPH, constants={"w": Constant(array)})
    assert structure_digest(other) == structure_digest(GRAPH)
    assert model_digest(other) != model_digest(GRAPH)
    assert model_digest(other) == model_digest(replace(GRAPH, constants={"w": Constant(array)}))
    in_function = replace(GRAPH, functions={"f": other})
    assert model_digest(in_function) != model_digest(replace(GRAPH, functions={"f": GRAPH}))


def test_ranges_of_constants_count_where_there_are_no_numbers():
    given = [Constant(None, -1.0, 1.0), Constant(None, -1.0, 2.0), Constant(None, -2.0, 1.0)]
    assert len({model_digest(replace(GRAPH, constants={"w": one})) for one in given}) == 3


def test_a_text_that_is_written_back_is_part_of_the_source():
    assert source_digest(GRAPH) == model_digest(GRAPH)
    texts = [replace(GRAPH, module=text) for text in ("// a", "// b")]
    assert {model_digest(graph) for graph in texts} == {model_digest(GRAPH)}
    assert len({source_digest(graph) for graph in (GRAPH, *texts)}) == 3


def test_a_graph_shows_its_ports_and_counts():
    assert repr(GRAPH) == "<Graph 'm': 4 values, 2 ops, inputs ('x',), outputs ('y',)>"
    text = replace(IN_REGION, values={**VALUES, "x": Value("x", None, "f32")})._repr_html_()
    assert "Model m: 4 values, 2 ops" in text
    for cell in ("input", "output", "?", "2 x 3", "Mul", "Neg"):
        assert f">{cell}</td>" in text
    alone = replace(GRAPH, regions=(Region("k", "conv", ("x",), ("y",)),), ops=())
    assert "Model m: 4 values, 1 ops" in alone._repr_html_()
    assert ">conv</td>" in alone._repr_html_()


def test_a_kernel_is_of_the_module_of_its_name_or_of_its_first_op_that_has_one():
    modules = {"mul": "net.a", "neg": "net.b"}
    assert modules_of_steps(replace(GRAPH, modules=modules)) == modules
    assert modules_of_steps(replace(IN_REGION, modules=modules)) == {"k": "net.a", "neg": "net.b"}
    assert modules_of_steps(replace(IN_REGION, modules={"k": "net.c", "mul": "net.a"})) == {"k": "net.c"}
    assert modules_of_steps(GRAPH) == {}


def test_factors_are_written_with_null_for_a_vector():
    assert scaled_to_json({"x": ("x/scaled", 2.0), "y": ("z", float("nan"))}) == [
        ["x", "x/scaled", 2.0],
        ["y", "z", None],
    ]

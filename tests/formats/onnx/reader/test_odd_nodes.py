"""onnx's own node tests with attributes, sizes and operands changed: read, or refused in one line.

A change that ends the process in onnx or onnxruntime fails this file as a whole.
"""

import random
from collections import Counter
from functools import cache

import onnx
import pytest
from onnx import TensorProto, helper

from planner.errors import PlannerError
from planner.formats.onnx.read import read_onnx, read_written
from tests.formats.onnx.reader.runs import every_node_case

NUMBERS = (0, -1, -2, 3, 7, 1000, 1 << 31, 1 << 62, -(1 << 63))
LARGEST = 20_000
COUNTS = [600, pytest.param(50_000, marks=pytest.mark.soak)]


@cache
def cases() -> tuple[onnx.ModelProto, ...]:
    every = [case.model for case in every_node_case()]
    return tuple(model for model in every if model is not None and model.ByteSize() < LARGEST)


def changed(chance: random.Random) -> bytes:
    model = onnx.ModelProto.FromString(chance.choice(cases()).SerializeToString())
    for _ in range(chance.choice((1, 1, 2))):
        chance.choice(CHANGES)(chance, model.graph)
    return model.SerializeToString()


def _attribute(chance, graph):
    attributes = chance.choice(graph.node).attribute
    if not attributes:
        return
    one = chance.choice(attributes)
    if one.type == onnx.AttributeProto.INT:
        one.i = chance.choice(NUMBERS)
    elif one.ints:
        one.ints[chance.randrange(len(one.ints))] = chance.choice(NUMBERS)
    else:
        attributes.remove(one)


def _fresh(chance, graph):
    """An attribute that the operator has and the file leaves out."""
    node = chance.choice(graph.node)
    if not onnx.defs.has(node.op_type, node.domain):
        return
    known = onnx.defs.get_schema(node.op_type, node.domain).attributes
    names = sorted(set(known) - {item.name for item in node.attribute})
    if names:
        number = chance.choice(NUMBERS)
        value = number if "INTS" not in str(known[names[0]].type) else [number] * chance.randrange(1, 5)
        node.attribute.append(helper.make_attribute(chance.choice(names), value))


def _size(chance, graph):
    ports = [info.type.tensor_type.shape.dim for info in graph.input]
    dims = chance.choice(ports) if ports else []
    if dims:
        dims[chance.randrange(len(dims))].dim_value = chance.choice((0, 1, 7, 1 << 40, -1))


def _operand(chance, graph):
    inputs = chance.choice(graph.node).input
    if inputs and chance.random() < 0.5:
        del inputs[-1]
    elif inputs:
        inputs[chance.randrange(len(inputs))] = chance.choice(("", inputs[0]))


def _constant(chance, graph):
    """An input of integers becomes a constant of one number."""
    for info in graph.input:
        kind, shape = info.type.tensor_type.elem_type, [d.dim_value for d in info.type.tensor_type.shape.dim]
        if kind in (TensorProto.INT64, TensorProto.INT32) and len(shape) < 3 and max(shape, default=1) < 99:
            if min(shape, default=1) < 0:
                return
            limit = 63 if kind == TensorProto.INT64 else 31
            number = max(-(1 << limit), min(chance.choice(NUMBERS), (1 << limit) - 1))
            size = 1
            for dim in shape:
                size *= dim
            graph.initializer.append(helper.make_tensor(info.name, kind, shape, [number] * size))
            return


CHANGES = (_attribute, _attribute, _fresh, _size, _operand, _constant)


@pytest.mark.parametrize("count", COUNTS)
def test_an_odd_node_is_refused_or_read(count, record_property):
    ended = Counter()
    for seed in range(count):
        data = changed(random.Random(seed))  # noqa: S311 - to be repeated, not to be secret
        try:
            read_written(data)
            read_onnx(data)
            ended["read"] += 1
        except PlannerError as error:
            ended["refused" if "\n" not in str(error) else str(error)] += 1
        except Exception as error:
            raise AssertionError(f"seed {seed}: {type(error).__name__}") from error
    record_property("ended", str(dict(ended)))
    assert set(ended) == {"read", "refused"}
    assert min(ended.values()) > count // 10


def lone(kind, inputs, outputs, domain="", opset=21, **attributes):
    """A file of one node on floats, `i` whole numbers."""
    ports = [
        [
            helper.make_tensor_value_info(n, TensorProto.INT64 if n == "i" else TensorProto.FLOAT, shape)
            for n, shape in side
        ]
        for side in (inputs, outputs)
    ]
    names = [[name for name, _ in side] for side in (inputs, outputs)]
    node = helper.make_node(kind, names[0] or [""], names[1], kind.lower(), domain=domain, **attributes)
    graph = helper.make_graph([node], "g", *ports)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("ai.onnx.ml", 4)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


FOUND = {
    "labels of nothing": (
        lone("LabelEncoder", [], [("y", [5])], "ai.onnx.ml", keys_strings=["a"], values_floats=[1.0]),
        "LabelEncoder at 'labelencoder': its operand 'X' is left out, and onnxruntime needs it",
    ),
    "batches from behind": (
        lone("GatherND", [("x", [2, 2]), ("i", [2, 1])], [("y", [2])], batch_dims=-2),
        "GatherND at 'gathernd': its attribute 'batch_dims' is -2",
    ),
    "a mean of nothing": (
        lone("MeanVarianceNormalization", [], [("y", [3])], opset=13),
        "meanvariancenormalization",
    ),
}
"""Files by which longer runs ended the process in onnx's inference, or in an IndexError; what is said now."""


@pytest.mark.parametrize("name", FOUND)
def test_what_longer_runs_found(name):
    data, said = FOUND[name]
    with pytest.raises(PlannerError) as caught:
        read_written(data)
    assert said in str(caught.value)


def test_heads_of_no_numbers():
    """1 over the root of 0; the op stays whole."""
    shapes = [("q", [2, 4, 1]), ("k", [2, 6, 3]), ("v", [2, 6, 3])]
    data = lone("Attention", shapes, [("y", [2, 4, 3])], opset=23, q_num_heads=3, kv_num_heads=3)
    try:
        assert any(op.type == "Attention" for op in read_onnx(data).ops)
    except PlannerError as error:
        assert "attention" in str(error)  # noqa: PT017 - either is an answer

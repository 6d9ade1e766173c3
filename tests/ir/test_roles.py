"""Roles: which operands are ports, and which ops only move data."""

import pytest

from planner.ir.roles import is_movement, port_inputs, port_outputs
from tests.fusion.small import graph_of

INTEGERS = {"i": "i64", "j": "i64", "p": "bool"}


@pytest.mark.parametrize(
    ("line", "ports"),
    [
        ("y = Conv(x, W, B)", ("x", "W", "B")),
        ("y = Gemm(x, W)", ("x", "W")),
        ("y = BatchNormalization(x, S, B, M, V)", ("x", "S", "B", "M", "V")),
        ("y = Clip(x, LO, HI)", ("x",)),
        ("y = Resize(x, R, S)", ("x",)),
        ("y = Resize(x, , S)", ("x",)),
        ("y = Pad(x, i, V)", ("x",)),
        ("y = Gather(x, i)", ("x",)),
        ("y = Where(p, x, z)", ("x", "z")),
        ("y = Dropout(x, R, p)", ("x",)),
        ("y = OneHot(i, j, V)", ()),
        ("y = Range(A, B, C)", ()),
        ("y = Shape(x)", ()),
        ("y = LSTM(x, W, R, , , h, c)", ("x", "W", "R", "", "h", "c")),
        ("y = LSTM(x, W, R, B)", ("x", "W", "R", "B")),
        ("y = GRU(x, W, R, , i)", ("x", "W", "R")),
    ],
)
def test_port_inputs(line, ports):
    graph = graph_of(line, outputs=["y"], dtypes=INTEGERS)
    assert port_inputs(graph.ops[0], graph) == ports


def test_captures_follow_the_operands():
    graph = graph_of(
        "a = Tanh(x)\ny = Loop(i, p, a)", outputs=["y"], dtypes=INTEGERS, captures={"y_op": ("i", "x", "a")}
    )
    assert port_inputs(graph.ops[1], graph) == ("a", "x")


def test_port_outputs_are_float():
    graph = graph_of("y, i = TopK(x, j)", outputs=["y", "i"], dtypes=INTEGERS)
    assert port_outputs(graph.ops[0], graph) == ("y",)


@pytest.mark.parametrize(
    ("line", "moves"),
    [
        ("y = Reshape(x, i)", True),
        ("y = Concat(x, z) axis=1", True),
        ("y = MaxPool(x)", True),
        ("y = Relu(x)", True),
        ("y = Resize(x, , S) mode='nearest'", True),
        ("y = Resize(x, , S)", True),  # nearest is ONNX's default
        ("y = Resize(x, , S) mode='linear'", False),
        ("y = Resize(x, R, S) mode='nearest' coordinate_transformation_mode='tf_crop_and_resize'", False),
        ("y = Pad(x, i)", True),
        ("y = Pad(x, i, ZERO)", True),
        ("y = Pad(x, i, ONE)", False),
        ("y = Pad(x, i, v)", False),
        ("y = Pad(x, i, v) mode='reflect'", True),
        ("y = ScatterND(x, i, z)", True),
        ("y = ScatterND(x, i, z) reduction='add'", False),
        ("y = AveragePool(x)", False),
        ("y = Add(x, z)", False),
        ("y = my.ops::Reshape(x)", False),
    ],
)
def test_is_mover(line, moves):
    graph = graph_of(line, outputs=["y"], dtypes=INTEGERS, constants={"ZERO": 0.0, "ONE": 1.0})
    assert is_movement(graph.ops[0], graph) is moves


def test_without_a_graph_a_pad_value_is_unknown():
    graph = graph_of("y = Pad(x, i, ZERO)", outputs=["y"], dtypes=INTEGERS)
    assert not is_movement(graph.ops[0])

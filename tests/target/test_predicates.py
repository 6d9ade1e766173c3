"""Predicates of `where` and `when`: what holds, and the words where one does not."""

import numpy as np
import pytest

from planner.errors import TargetError
from planner.ir.graph import Op
from planner.target.predicates import failing
from tests.fusion.small import graph_of

GRAPH = graph_of(
    """c = Conv(x, W, B) group=8 kernel_shape=(3,3)
    y = Clip(c, LO, HI)
    z = Clip(c, lo)
    r = ReduceMean(c, AXES)""",
    outputs=["y", "z", "r"],
    shapes={"x": (1, 8, 4, "w"), "W": (8, 1, 3, 3), "B": (8,)},
    constants={"LO": 0.0, "HI": 6.0, "AXES": [2, 3]},
)
CONV, CLIP, OPEN_CLIP, MEAN = GRAPH.ops
PORTS = {"x": "x", "w": "W", "b": "B", "none": "", "xs": ("x", "W")}


BITS = {"x": (8,), "w": (4,), "b": (0,), "none": (), "xs": (8, 0)}


def problem(key, wanted, ops=(CONV, CLIP), attributes=None, bits=lambda port: iter(BITS[port])):
    return failing({key: wanted}, ports=PORTS, ops=ops, attributes=attributes or {}, graph=GRAPH, bits=bits)


@pytest.mark.parametrize(
    ("key", "wanted", "expected"),
    [
        ("Conv.group", 8, None),
        ("Conv.group", 1, "Conv.group is 8, must be 1"),
        ("Conv.group", (1, 8), None),
        ("Conv.group", [1, 2], "Conv.group is 8, must be [1, 2]"),
        ("Conv.group", "== x.shape[1]", None),
        ("Conv.group", "== w.shape[1]", "Conv.group is 8, must be == w.shape[1] (1)"),
        (
            "Conv.group",
            "== x.shape[3]",
            "Conv.group is 8, must be == x.shape[3], where x.shape[3] is not fixed ('w')",
        ),
        ("Conv.group", ">= 2", None),
        ("Conv.group", "< 2", "Conv.group is 8, must be < 2"),
        ("Conv.group", "!= 1", None),
        ("Conv.kernel_shape", 3, None),
        ("Conv.kernel_shape", (3, 3), None),
        ("Conv.kernel_shape", ((1, 1), (3, 3)), None),
        ("Conv.kernel_shape", [[1, 1], [5, 5]], "Conv.kernel_shape is [3, 3], must be [1, 1] or [5, 5]"),
        ("Conv.dilations", 1, None),
        ("Conv.dilations", 2, "Conv.dilations is 1, must be 2"),
        ("Conv.auto_pad", "NOTSET", None),
        ("Conv.gruop", 1, "Conv.gruop is absent, must be 1"),
        ("Gemm.transA", 1, None),  # no Gemm here: nothing to ask
        ("Clip.min", 0, None),
        ("Clip.range", ((0, 6), (-1, 1)), None),
        ("Clip.range", [[0, 1]], "Clip.range is [0.0, 6.0], must be [0, 1]"),
        ("w", "constant", None),
        ("x", "constant", "x ('x') is not a constant"),
        ("x", "dynamic", None),
        ("w", "dynamic", "w ('W') is a constant"),
        ("none", "constant", None),
        ("none", "absent", None),
        ("none", "present", "none is absent"),
        ("b", "absent", "b is present ('B')"),
        ("xs", "constant", "xs ('x') is not a constant"),
        ("x.rank", 4, None),
        ("x.rank", [2, 3], "x.rank is 4, must be [2, 3]"),
        ("none.rank", 4, None),
        ("xs.rank", 4, None),
        ("x.shape[1]", 8, None),
        ("x.shape[-3]", ">= 16", "x.shape[-3] is 8, must be >= 16"),
        ("x.shape[3]", 4, "x.shape[3] is not fixed ('w'), must be 4"),
        ("x.shape[4]", 4, "x.shape[4] is not there ('x' has rank 4), must be 4"),
        ("x.dtype", "f32", None),
        ("min_bits", {"x": 9}, None),
        ("x.bits", 8, None),
        ("x.bits", "!= 8", "port x: facts ask for 8 bits, must be != 8"),
        ("xs.bits", "> 0", "port xs: facts ask for no bits, must be > 0"),
        ("none.bits", 4, None),
        ("holds", "x.bits > w.bits", None),
        ("Conv.group", "1..8", None),
        ("Conv.group", "9..16", "Conv.group is 8, must be 9..16"),
        ("Conv.group", "2..4 or 8", None),
        ("Conv.group", "> 2 and % 4 == 0", None),
        ("Conv.group", "not 8", "Conv.group is 8, must be not 8"),
        ("Conv.group", ["9..16", "% 3 == 2"], None),
        ("Conv.group", [1, "9..16"], "Conv.group is 8, must be [1, '9..16']"),
        ("Conv.group", "<= ceil(w.shape[0] / 3) * 3", None),
        ("Conv.kernel_shape", "<= 3", None),
        ("Conv.kernel_shape", "< 3", "Conv.kernel_shape is [3, 3], must be < 3"),
        ("Conv.kernel_shape", "1..2 or 3", None),
        ("Conv.kernel_shape[-1]", 3, None),
        (
            "Conv.kernel_shape[2]",
            3,
            "Conv.kernel_shape[2] is not there (it is [3, 3]), must be 3",
        ),
        ("Conv.strides", "<= 4", None),  # 1 along every axis, as ONNX has it
        ("Conv.strides[1]", 1, None),
        ("Conv.strides", ((1, 1), (2, 2)), None),
        ("Conv.auto_pad", "!= VALID", None),
        (
            "Conv.auto_pad",
            "< 4",
            "Conv.auto_pad is NOTSET, must be < 4, where it is the text 'NOTSET', which has no order",
        ),
        ("x.elements", "<= 1", "x.elements is not fixed ('x'), must be <= 1"),
        ("w.elements", 72, None),
        ("xs.count", 2, None),
        ("none.count", 0, None),
        ("holds", "x.shape[1] % 8 == 0", None),
        ("holds", "x.shape[1] % 3 == 0", "requires x.shape[1] (8) % 3 == 0"),
        ("holds", ["x.rank == 4", "16 <= x.shape[1] <= 64"], "requires 16 <= x.shape[1] (8) <= 64"),
        ("holds", "x.shape[3] == 4 or x.rank == 4", None),
        ("holds", "not x.shape[3] == 4", "requires not x.shape[3] == 4, where x.shape[3] is not fixed ('w')"),
        ("holds", "(x.rank + 1) * 2 == 10 and not (w.rank == 3 or w.rank == 5)", None),
        ("holds", "Gemm.transA == 7", None),  # no Gemm here
        ("holds", "not Gemm.transA == 1", None),
        ("holds", "Gemm.transA == 7 or x.rank == 3", "requires Gemm.transA == 7 or x.rank (4) == 3"),
        (
            "holds",
            "Conv.group / (x.rank - 4) == 1",
            "requires Conv.group (8) / (x.rank (4) - 4) == 1, where Conv.group is 8 / 0: division by zero",
        ),
        ("holds", "Conv.kernel_shape * Conv.dilations <= 3", None),
        ("holds", "Conv.auto_pad == 'NOTSET'", None),
        ("holds", "none.rank == 7", None),
    ],
)
def test_failing(key, wanted, expected):
    assert problem(key, wanted) == expected


def test_the_first_that_fails_is_told():
    asked = {"w": "constant", "Conv.group": 2, "x.rank": 3}
    assert (
        failing(asked, ports=PORTS, ops=(CONV,), attributes={}, graph=GRAPH) == "Conv.group is 8, must be 2"
    )


def test_bounds_are_operands():
    assert problem("Clip.range", [[0, 6]], (OPEN_CLIP,)) == (
        "Clip.range is not a constant ('lo'), must be [0, 6]"
    )
    assert problem("Clip.max", "<= 6", (Op("c", "Clip", ("c",), ("y",)),)) == "Clip.max is inf, must be <= 6"
    assert problem("Clip.min", 0, (OPEN_CLIP,)) == "Clip.min is not a constant ('lo'), must be 0"
    assert problem("ReduceMean.axes", [[2, 3]], (MEAN,)) is None
    assert problem("ReduceMean.axes", [[1]], (MEAN,)) == "ReduceMean.axes is [2.0, 3.0], must be [1]"


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, None),
        ({"group": 1}, None),
        ({"group": 2}, "Conv.group is 2, must be 1"),
        ({"Conv.group": 2}, "Conv.group is 2, must be 1"),
    ],
)
def test_a_kernel_without_ops_is_asked_itself(attributes, expected):
    assert problem("Conv.group", 1, (), attributes) == expected


def test_a_kernel_shape_left_out_is_that_of_the_weights():
    op = Op("c", "Conv", ("x", "W", "B"), ("c",), {})
    assert problem("Conv.kernel_shape", "<= 3", (op,)) is None
    assert problem("Conv.kernel_shape", 5, (op,)) == "Conv.kernel_shape is [3, 3], must be 5"


def test_attributes_of_any_spelling():
    op = Op("p", "Pad", ("x",), ("y",), {"mode": b"edge", "pads": np.array([0, 1])})
    assert problem("Pad.mode", "edge", (op,)) is None
    assert problem("Pad.pads", [[0, 1]], (op,)) is None


@pytest.mark.parametrize(
    ("key", "wanted", "message"),
    [
        ("v", "constant", "unknown predicate 'v' (ports here are x, w, b, none, xs)"),
        ("w", "const", "predicate w: 'const' is none of constant, dynamic, present, absent"),
        ("v.rank", 4, "predicate 'v.rank' names no port (ports here are x, w, b, none, xs)"),
        (
            "x.size",
            4,
            "unknown predicate 'x.size' (a port has rank, shape[AXIS], dtype, elements, bits and count)",
        ),
        (
            "Conv.a-b",
            1,
            "unknown predicate 'Conv.a-b' (write PORT, PORT.rank, PORT.shape[AXIS] or OP.ATTRIBUTE)",
        ),
        (
            "Conv.group",
            "=2",
            "predicate Conv.group: column 1: expected one of ==, !=, <=, >=, <, >, found '=2' in '=2'",
        ),
        ("holds", 3, "predicate holds: 3 is no condition (write 'x.shape[1] % 8 == 0')"),
        (
            "holds",
            "x.rank",
            (
                "predicate holds: column 7: expected a comparison (==, !=, <=, >=, <, >, in 1..8), "
                "found the end in 'x.rank'"
            ),
        ),
        ("holds", "v.rank == 1", "predicate 'v.rank' names no port (ports here are x, w, b, none, xs)"),
        ("Conv.group", "< many", "predicate Conv.group: '<' compares a number with the text 'many'"),
    ],
)
def test_refused(key, wanted, message):
    with pytest.raises(TargetError) as refusal:
        problem(key, wanted)
    assert str(refusal.value) == message


def test_a_fusion_knows_no_bits():
    with pytest.raises(TargetError, match=r"'x\.bits' tests bits, which only a row's `when` knows"):
        problem("x.bits", 8, bits=None)

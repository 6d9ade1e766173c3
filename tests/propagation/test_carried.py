"""What movers make of slices: the types of their results, or none where operands do not go together."""

import pytest

from planner.ir.graph import Graph, Op, Value
from planner.ir.types.axis_transport import moved_types
from planner.ir.types.typetext import parse_type

GRAPH = Graph("g", {name: Value(name, (1, 2, 4)) for name in "ab"}, (), ("a", "b"), ("y",))


@pytest.mark.parametrize(
    ("a", "b", "made"),
    [
        ("i8:f32:1, {0.5:1,0.25:2}", "i8:f32:1, {0.5:1,0.25:2}", "i8:f32:1, {0.5:1,0.25:2}"),
        ("i8:f32:1, {0.5,0.25}", "i8:f32:1, {0.5,0.125}", None),
        ("i4:f32:2, {0.5,0.5,0.5,0.5}", "u8:f32:2, {0.5:128,0.5:128,0.5:128,0.5:128}", None),
    ],
)
def test_a_concat_of_slices(a, b, made):
    op = Op("cat", "Concat", ("a", "b"), ("y",), {"axis": 2})
    types = {name: parse_type(f"!quant.uniform<{text}>") for name, text in (("a", a), ("b", b))}
    found = moved_types(op, types, GRAPH)
    assert found == (None if made is None else {"y": parse_type(f"!quant.uniform<{made}>")})

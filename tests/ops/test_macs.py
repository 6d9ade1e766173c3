"""Multiply-accumulates: of each operator that has them, counted by hand."""

import pytest

from planner.ir.graph import Graph, Op, Value
from planner.ops import OPERATORS

# Operator, shapes of its operands and of its result, attributes, products in all and in one result.
CASES = [
    ("Conv", [(2, 4, 5, 5), (6, 2, 3, 1)], (2, 6, 3, 5), {"group": 2}, 2 * 6 * 3 * 5 * 6, 6),
    ("ConvTranspose", [(2, 4, 5, 5), (4, 3, 2, 1)], (2, 6, 6, 5), {"group": 2}, 2 * 4 * 5 * 5 * 6, 6),
    ("MatMul", [(3, 2, 7), (7, 5)], (3, 2, 5), {}, 3 * 2 * 5 * 7, 7),
    ("MatMul", [(7,), (7, 5)], (5,), {}, 35, 7),
    ("Gemm", [(2, 7), (7, 5)], (2, 5), {}, 70, 7),
    ("Gemm", [(7, 2), (7, 5)], (2, 5), {"transA": 1}, 70, 7),
    ("Gemm", [(2, 7), (5, 7)], (2, 5), {"transB": 1}, 70, 7),
    ("Einsum", [(2, 3, 4), (4, 5)], (2, 3, 5), {"equation": "bij, jk -> bik"}, 2 * 3 * 4 * 5, 4),
    ("Einsum", [(2, 3), (3, 2)], (), {"equation": "ij,ji->"}, 6, 6),
    ("Einsum", [(2, 3), (2, 3)], (2, 3), {"equation": "ij,ij"}, 6, 1),
    ("LSTM", [(7, 2, 3), (1, 20, 3), (1, 20, 5)], (7, 1, 2, 5), {}, 7 * 2 * 20 * 8, 8),
    ("GRU", [(7, 2, 3), (2, 15, 3), (2, 15, 5)], (7, 2, 2, 5), {}, 7 * 2 * 2 * 15 * 8, 8),
    ("RNN", [(7, 2, 3), (1, 5, 3), (1, 5, 5)], (7, 1, 2, 5), {}, 7 * 2 * 5 * 8, 8),
]


@pytest.mark.parametrize("case", CASES)
def test_products_are_counted(case):
    kind, shapes, result, attributes, macs, depth = case
    names = [f"x{i}" for i in range(len(shapes))]
    sizes = {**dict(zip(names, shapes, strict=True)), "y": result}
    op = Op("op", kind, tuple(names), ("y",), attributes)
    graph = Graph("m", {name: Value(name, shape, "f32") for name, shape in sizes.items()}, (op,), (), ())
    found = OPERATORS[kind].macs(op, graph)
    assert (found.macs, found.depth) == (macs, depth)
    assert (found.a, found.w) == ("x0", "x1")


def test_every_operator_with_products_is_counted():
    assert {kind for kind, *_ in CASES} == {kind for kind, one in OPERATORS.items() if one.macs is not None}

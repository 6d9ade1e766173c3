"""The terms of every operator that has them: their exact sum is the result in reals."""

from fractions import Fraction

import numpy as np
import pytest

from planner.interpreter.calls import terms_of
from planner.interpreter.kernels.pooling import window_sums
from planner.ir.graph import Op
from planner.ops import OPERATORS
from planner.ops.operands import Operands
from tests.formats.plans import i8
from tests.interpreter.one_op import run_op

X, OTHER, Y = i8(0.25, 3), i8(2.0, -7), i8(0.75, -5)
AXES, TWO = np.asarray([-1, 1]), np.asarray(2, np.float32)
CASES = [
    ("Add", (X, OTHER), {}, None),
    ("AveragePool", (X,), {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 2, 0]}, None),
    ("AveragePool", (X,), {"kernel_shape": [3, 2], "pads": [1, 1, 2, 0], "count_include_pad": 1}, None),
    ("AveragePool", (X,), {"kernel_shape": [3, 2], "strides": [3, 2], "ceil_mode": 1}, None),
    ("GlobalAveragePool", (X,), {}, None),
    ("Mul", (X, OTHER), {}, None),
    ("Pow", (X, None), {}, TWO),
    ("ReduceMean", (X,), {}, None),
    ("ReduceMean", (X, None), {"keepdims": 0}, AXES),
    ("ReduceSum", (X, None), {}, AXES),
    ("Sub", (X, OTHER), {}, None),
]


@pytest.mark.parametrize(("kind", "kinds", "attributes", "constant"), CASES, ids=str)
def test_sum_of_terms_is_the_result(kind, kinds, attributes, constant):
    shape, rng = (2, 3, 5, 4), np.random.default_rng(1)
    integers = [rng.integers(-128, 128, shape) - side.zero_point for side in kinds if side is not None]
    names = ("a", "b")[: len(kinds)]
    op = Op("op", kind, names, ("y",), attributes)
    terms = terms_of(Operands(op, lambda _: shape, {"b": constant}.get), kinds, Y)
    total = sum(_exact(term, integers) * ratio for term, ratio in terms) * Fraction(Y.scale)
    reals = [side * kind.scale for side, kind in zip(integers, kinds, strict=False)]
    feeds = {name: side.astype(np.float32) for name, side in zip(names, reals, strict=False)}
    feeds |= {} if constant is None else {"b": constant}
    expected = run_op(kind, feeds, result=np.float32, attributes=attributes)
    assert np.shape(total) == expected.shape
    np.testing.assert_allclose(np.asarray(total, np.float64), expected, rtol=1e-6, atol=1e-4)


def test_no_terms():
    """Of a float operand, and of a power that is no square."""
    for kind, kinds, constant in (
        ("Add", (X, None), None),
        ("Pow", (X, None), TWO + 1),
        ("Pow", (X, X), None),
    ):
        op = Op("op", kind, ("a", "b"), ("y",), {})
        assert terms_of(Operands(op, lambda _: (2, 3), {"b": constant}.get), kinds, Y) is None


def test_every_operator_is_tried():
    assert {kind for kind, *_ in CASES} == {one.name for one in OPERATORS.values() if one.terms is not None}


def _exact(term, integers):
    found = np.prod([integers[i] for i in term.factors], axis=0)
    if term.windows is not None:
        found = window_sums(found, term.windows)
    elif term.axes:
        found = found.sum(term.axes, keepdims=term.keeps_axes)
    assert term.count >= 1
    return found.astype(object) * term.sign


@pytest.mark.parametrize("kind", ["AveragePool", "GlobalAveragePool", "ReduceMean"])
def test_no_terms_of_open_sizes(kind):
    op = Op("op", kind, ("a",), ("y",), {"kernel_shape": [2, 2]} if kind == "AveragePool" else {})
    rule = OPERATORS[kind].terms
    assert rule(Operands(op, lambda _: (1, 2, "H", 4), lambda _: None)) is None
    assert rule(Operands(op, lambda _: None, lambda _: None)) is None

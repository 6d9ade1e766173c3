"""Quotients become products, and numbers stand second; what a type would round twice stays."""

import numpy as np
import pytest

from planner.factors.plain import plain_factors
from planner.ir.graph import Op
from tests.calibration.graphs import graph_of

SHAPE = (2, 3)


def spelled(op_type, inputs, **constants):
    """The op that one op becomes, and the constants of its graph."""
    arrays = {name: np.asarray(array, np.float32) for name, array in constants.items()}
    op = Op("o", op_type, inputs, ("y",))
    graph = plain_factors(graph_of((op,), {"x": SHAPE}, constants=arrays, shapes={"y": SHAPE}))
    return graph.ops[0], graph.constants


@pytest.mark.parametrize(
    ("array", "inputs"),
    [(2.0, ("x", "c")), ([2.0], ("x", "c")), ([[2.0]], ("x", "c")), ([2.0, 3.0, 4.0], ("c", "x"))],
    ids=["a number", "in a vector", "in a matrix", "a vector"],
)
def test_a_number_stands_behind_what_it_multiplies(array, inputs):
    op, _ = spelled("Mul", ("c", "x"), c=array)
    assert (op.type, op.inputs) == ("Mul", inputs)


def test_of_two_numbers_none_moves():
    op, _ = spelled("Mul", ("a", "b"), a=2.0, b=3.0)
    assert op.inputs == ("a", "b")


@pytest.mark.parametrize("array", [8.0, 3.0, [1.0, 3.0, -7.0]])
def test_a_quotient_is_a_product_with_reciprocals(array):
    op, constants = spelled("Div", ("x", "c"), c=array)
    assert (op.type, op.inputs) == ("Mul", ("x", "c/reciprocal"))
    np.testing.assert_array_equal(constants["c/reciprocal"].array, 1 / np.asarray(array, np.float32))


@pytest.mark.parametrize("array", [0.0, [1.0, 0.0, 2.0], np.inf, [np.nan, 1.0, 1.0], 1e-40, 1e39])
def test_what_has_no_reciprocal_divides(array):
    """Zero, what is not finite, and what is so small or large that float32 has no such reciprocal."""
    with np.errstate(over="ignore"):
        op, _ = spelled("Div", ("x", "c"), c=array)
    assert op.type == "Div"


@pytest.mark.parametrize(
    ("dtype", "number", "becomes"),
    [("f32", 3.0, "Mul"), ("f64", 3.0, "Mul"), ("f16", 3.0, "Div"), ("f16", 4.0, "Mul"), ("i64", 4.0, "Div")],
)
def test_a_rounded_reciprocal_is_for_fine_types(dtype, number, becomes):
    op = Op("o", "Div", ("x", "c"), ("y",))
    graph = graph_of((op,), {"x": (SHAPE, dtype)}, constants={"c": np.asarray(number, np.float32)})
    assert plain_factors(graph).ops[0].type == becomes


def test_a_computed_divisor_divides():
    assert spelled("Div", ("x", "x"))[0].type == "Div"
    assert spelled("Div", ("c", "x"), c=2.0)[0].inputs == ("c", "x")


def test_a_quotient_that_an_erf_reads_stays():
    ops = (Op("o", "Div", ("x", "c"), ("h",)), Op("e", "Erf", ("h",), ("y",)))
    graph = graph_of(ops, {"x": SHAPE}, constants={"c": np.asarray(2.0, np.float32)}, shapes={"h": SHAPE})
    assert plain_factors(graph) is graph

"""Narrower scales: of each slice the one that trying all finds; pinned, and the numbers left as they were."""

import numpy as np
import pytest

import planner
from planner.constants.quantize import dequantize_array, quantize_array
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.weight_conditioning import narrow
from planner.weight_conditioning.condition import condition
from planner.weight_conditioning.layers import as_rows
from planner.weight_conditioning.narrow import SHARES, clipped, narrowed
from planner.weight_conditioning.rounding import given_slices
from tests.calibration.graphs import graph_of
from tests.weight_conditioning.nets import normal

KINDS = {"MatMul": (Op("m", "MatMul", ("x", "w"), ("y",)), (44, 6))} | {
    "Gemm": (Op("m", "Gemm", ("x", "w"), ("y",), {"transB": 1}), (6, 44))
}


def net(kind="MatMul"):
    op, shape = KINDS[kind]
    return graph_of((op,), {"x": (2, 44)}, constants={"w": normal(*shape)})


def stored_error(weight, kind):
    back = dequantize_array(quantize_array(weight, kind), kind)
    return (back.astype(np.float64) - weight) ** 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grid", ["2", "3", "4", "4x16", "3x32"])
def test_what_is_pinned_loses_least(kind, grid):
    """Of each slice: the very share of its range that trying all of them finds."""
    graph = net(kind)
    done = condition(graph, f"clip:{grid}").model
    op, weight = done.ops[0], graph.constants["w"].array
    (pin,) = done.values["w"].facts
    assert np.array_equal(done.constants["w"].array, weight)
    bits, _, block = grid.partition("x")
    own = given_slices(graph, int(bits), int(block or 0))["m"]
    tried = np.stack(
        [
            np.bincount(
                own.of.reshape(-1),
                as_rows(op, stored_error(weight, own.rescaled(own.scales * share).kind)).reshape(-1),
            )
            for share in SHARES
        ]
    )
    found = np.bincount(own.of.reshape(-1), as_rows(op, stored_error(weight, pin)).reshape(-1))
    np.testing.assert_allclose(found, tried.min(axis=0), rtol=1e-5)
    assert found.sum() < tried[0].sum()


def test_zero_points_stay():
    weight = np.abs(normal(44, 6)) + 0.5
    weight[0] = -3
    graph = graph_of((KINDS["MatMul"][0],), {"x": (2, 44)}, constants={"w": weight})
    stats = planner.calibrate(graph, [{"x": normal(2, 44)}])
    plain = planner.annotate(graph, stats=stats, kernels={"*": {"in": ["f32", "u3"]}})
    before = planner.plan(plain, "llm-w4").kernels["m"].inputs[1].type
    done = condition(plain, "clip", target="llm-w4")
    after = planner.plan(done.model, "llm-w4").kernels["m"].inputs[1].type
    assert after.zero_points == before.zero_points != (0,) * len(before.zero_points)
    assert all(new <= old for new, old in zip(after.scales, before.scales, strict=True))
    assert stored_error(weight, after).sum() < stored_error(weight, before).sum()
    assert done.changes[0].values == ("w",)


def test_pieces_change_nothing(monkeypatch):
    graph = net()
    own, rows = given_slices(graph, 3, 16)["m"], as_rows(graph.ops[0], graph.constants["w"].array)
    whole = narrowed(rows, own)
    monkeypatch.setattr(narrow, "PIECE", 50)
    assert np.array_equal(narrowed(rows, own), whole)


def test_left_alone():
    """Eight bits, powers of two, and weights that have a type."""
    graph = net()
    assert not clipped(graph, given_slices(graph, 8, 16))[1]
    own = given_slices(graph, 4, 16)["m"]
    powers = own.rescaled(np.exp2(np.ceil(np.log2(own.scales))))
    assert not clipped(graph, {"m": powers})[1]
    pinned = condition(graph, "clip:4x16").model
    assert not condition(pinned, "clip:2x16").changes[0].values


def test_a_plan_stores_what_was_pinned():
    graph = net()
    model = condition(graph, "clip", target="llm-w4").model
    (pin,) = model.values["w"].facts
    assert isinstance(pin, Uniform)
    assert pin.storage.bits == 4
    plan = planner.plan(model, "llm-w4")
    planner.check(plan, model)
    assert plan.kernels["m"].inputs[1].type == pin

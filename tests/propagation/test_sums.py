"""Bits of sums: what the planner counts, the checker counts again, and real integers never exceed."""

from dataclasses import replace

import numpy as np
import pytest

from planner.checker.check import check
from planner.constants.quantize import quantize_array
from planner.errors import PlanInvalid
from planner.ir.graph import Op, model_digest
from planner.propagation.propagate import propagate
from tests.propagation.small import graph_of, target_of

ROW = "- {{kernel: mul, in: {{x: {x}, w: {w}, b?: b32}}, out: {{y: a8}}{more}}}"
U8, BLOCKS = "{storage: u8}", "{storage: i4, granularity: block, block_size: [4], symmetric: true}"
RULE = ", rules: [{multiplier_accumulator_scale: {port: b, of: [x, w]}}]"
DRAWN = np.random.default_rng(5).normal(size=(8, 3)).astype(np.float32)


def planned(w, *, op="MatMul", x="a8", row_w="n8", more="", bias=None, shape=(2, 8)):
    values = {"x": "[-1, 0.9]", "w": w, "y": "[-9, 9]"}
    names = "x w"
    if bias is not None:
        values, names = {**values, "b": np.asarray(bias, np.float32)}, "x w b"
    graph = graph_of(values, [("k", "mul", names, "y")], outputs="y", shapes={"x": shape, "w": (8, 3)})
    ops = (Op("k_op", op, tuple(names.split()), ("y",)),)
    graph = replace(graph, regions=(replace(graph.regions[0], ops=ops),))
    target = target_of(ROW.format(x=x, w=row_w, more=more))
    return graph, propagate(graph, target, model=model_digest(graph))


def worst(x, sums):
    """Bits of the widest sum, if the input is as far from its zero point as its storage goes."""
    low, high = x.slice_ranges[0]
    reach = max(x.zero_point - low, high - x.zero_point)
    return int(np.max(sums) * reach).bit_length() + 1


@pytest.mark.parametrize("x", ["a8", U8, "n8"])
def test_two_activations(x):
    """Eight products of all that both can hold: 8 x 127 x 128, or less where the input is narrow."""
    graph, plan = planned("[-1, 1]", x=x)
    kernel = plan.kernels["k"]
    assert kernel.accumulator_bits == worst(kernel.inputs[0].type, [8 * 127])
    check(plan, graph)


def test_a_bias_on_the_products_of_two_activations():
    graph, plan = planned("[-1, 1]", op="Gemm", more=RULE, bias=[0, 900, -1])
    x, w, b = (port.type for port in plan.kernels["k"].inputs)
    widest = 8 * 127 * max(-128 - x.zero_point, 127 - x.zero_point, key=abs)
    assert plan.kernels["k"].accumulator_bits == int(abs(widest) + round(900 / b.scale)).bit_length() + 1
    assert b.scale == pytest.approx(x.scale * w.scale)
    check(plan, graph)


@pytest.mark.parametrize("x", ["a8", U8])
def test_weights_with_zero_points(x):
    graph, plan = planned(DRAWN + 1, x=x, row_w=U8)
    kind = plan.kernels["k"].inputs[1].type
    stored = quantize_array(DRAWN + 1, kind).astype(np.int64) - kind.zero_point
    assert kind.zero_point
    assert plan.kernels["k"].accumulator_bits == worst(
        plan.kernels["k"].inputs[0].type, np.abs(stored).sum(axis=0)
    )
    check(plan, graph)


def test_a_block_is_a_sum():
    graph, plan = planned(DRAWN, row_w=BLOCKS)
    kind = plan.kernels["k"].inputs[1].type
    stored = np.abs(quantize_array(DRAWN, kind).astype(np.int64))
    assert kind.grid == (2, 3)
    sums = stored.reshape(2, 4, 3).sum(axis=1)
    assert plan.kernels["k"].accumulator_bits == worst(plan.kernels["k"].inputs[0].type, sums)
    check(plan, graph)


@pytest.mark.parametrize(("w", "row_w"), [("[-1, 1]", "n8"), (DRAWN, BLOCKS), (DRAWN + 1, U8)])
def test_what_does_not_fit_leaves_the_row(w, row_w):
    bits = planned(w, row_w=row_w)[1].kernels["k"].accumulator_bits
    graph, plan = planned(w, row_w=row_w, more=f", accumulator: i{bits}")
    check(plan, graph)
    reason = planned(w, row_w=row_w, more=f", accumulator: i{bits - 1}")[1].kernels["k"].reason
    assert f"its sums need {bits} bits" in reason
    assert reason.endswith(f"the accumulator has i{bits - 1}")
    narrow = replace(plan, kernels_in_order=(replace(plan.kernels["k"], accumulator_bits=bits - 1),))
    with pytest.raises(PlanInvalid, match=f"said to need {bits - 1} bits; accepted: {bits} bits"):
        check(narrow, graph)


def test_a_kernel_around_which_all_is_settled():
    """Inside a chain of free scales nothing is searched, and the sums count all the same."""
    values = {"a": "[-1, 1]", "h": "[-1, 1]", "w": "[-3, 3]", "y": "[-9, 9]", "z": "[-9, 9]"}
    kernels = [
        ("k1", "one", "a", "h"),
        ("k2", "one", "a", "w"),
        ("k", "mul", "h w", "y"),
        ("k3", "one", "y", "z"),
    ]
    shapes = {"a": (8, 8), "h": (8, 8), "w": (8, 8)}
    graph = graph_of(values, kernels, outputs="z", moves={"k": "MatMul"}, shapes=shapes)
    one = "- {kernel: one, in: {x: a8}, out: {y: a8}}\n"
    plan = propagate(graph, target_of(one + ROW.format(x="a8", w="a8", more="")), model=model_digest(graph))
    bits = (8 * 128 * 128).bit_length() + 1
    assert plan.kernels["k"].accumulator_bits == bits
    check(plan, graph)
    narrow = target_of(one + ROW.format(x="a8", w="a8", more=f", accumulator: i{bits - 1}"))
    reason = propagate(graph, narrow).kernels["k"].reason
    assert reason.endswith(f"its sums need {bits} bits, the accumulator has i{bits - 1}")


def test_sizes_that_are_not_known_are_not_counted():
    values = {"x": "[-1, 1]", "w": "[-1, 1]", "y": "[-9, 9]"}
    graph = graph_of(values, [("k", "mul", "x w", "y")], outputs="y", shapes={"x": (2, 8), "w": ("n", 3)})
    ops = (Op("k_op", "MatMul", ("x", "w"), ("y",)),)
    graph = replace(graph, regions=(replace(graph.regions[0], ops=ops),))
    target = target_of(ROW.format(x="a8", w="n8", more=""))
    plan = propagate(graph, target, model=model_digest(graph))
    assert plan.kernels["k"].accumulator_bits is None
    check(plan, graph)

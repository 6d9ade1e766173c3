"""Ranges observed of constants: they come before the numbers' own (default < content < calibrated)."""

from dataclasses import replace

import numpy as np
import pytest

from planner.checker.check import check
from planner.errors import PlanInvalid
from planner.ir.graph import Op, model_digest
from planner.ir.types.typetext import parse_type
from planner.plans.explain import explain
from planner.propagation.propagate import propagate
from tests.plans.planned import forged
from tests.propagation.small import graph_of, target_of

ROWS = target_of(
    """
- {kernel: fc, in: {x: a8, w: n8}, out: {y: a8}}
- {kernel: wide, in: {x: a8, w: a8}, out: {y: a8}}
- {kernel: conv, in: {x: a8, w: w8}, out: {y: a8}, axis: {w: 0}}
- {kernel: blocks, in: {x: a8, w: B8}, out: {y: a8}}
""".replace("B8", "{storage: i8, range: [-127, 127], granularity: block, block_size: [2], symmetric: true}")
)
W = np.array([[1.0, -8.0], [0.5, 0.25]], np.float32)


def planned(kernel, fact):
    made = graph_of(
        {"x": "!quant.uniform<i8:f32, 0.0078125>", "w": W, "y": "[-4, 4]"},
        [("k", kernel, "x w", "y")],
        outputs="y",
        shapes={"x": (2, 2), "y": (2, 2)},
    )
    op = Op("k_op", "Gemm", ("x", "w"), ("y",), {"transB": 1})
    values = {**made.values, "w": replace(made.values["w"], facts=(parse_type(fact),) if fact else ())}
    made = replace(made, values=values, regions=(replace(made.regions[0], ops=(op,)),))
    plan = propagate(made, ROWS, model=model_digest(made))
    check(plan, made, ROWS)
    return made, plan


@pytest.mark.parametrize(
    ("kernel", "fact", "scales", "zero_point"),
    [
        ("fc", "", [8 / 127], 0),
        ("fc", "f32<-2.0:2.0>", [2 / 127], 0),
        ("fc", "f32<-16.0:2.0>", [16 / 127], 0),
        ("wide", "f32<-2.0:0.55>", [2.55 / 255], 72),
        ("fc", "f32:0, {-2.0:2.0, -1.0:1.0}", [2 / 127], 0),
        ("conv", "f32<-2.0:2.0>", [2 / 127, 0.5 / 127], 0),  # of the whole: a slice keeps what it is within
        ("conv", "f32<-16.0:16.0>", [8 / 127, 0.5 / 127], 0),
        ("conv", "f32:0, {-2.0:2.0, -1.0:1.0}", [2 / 127, 1 / 127], 0),  # of each slice
        ("conv", "f32:1, {-2.0:2.0, -1.0:1.0}", [2 / 127, 0.5 / 127], 0),  # of others
        ("blocks", "f32<-2.0:2.0>", [2 / 127, 0.5 / 127], 0),
    ],
)
def test_the_type_holds_what_was_observed(kernel, fact, scales, zero_point):
    _, plan = planned(kernel, fact and f"!quant.calibrated<{fact}>")
    kind = plan.kernels["k"].inputs[1].type
    assert kind.scales == pytest.approx(scales, rel=1e-6)
    assert set(kind.zero_points) == {zero_point}


def test_sums_are_of_the_numbers_that_are_left():
    """8 is stored as 127: 64 and 127 times 128, and one bit for the sign."""
    _, plan = planned("fc", "!quant.calibrated<f32<-2.0:2.0>>")
    assert plan.kernels["k"].accumulator_bits == (128 * (64 + 127)).bit_length() + 1


def test_the_plan_says_where_the_type_comes_from():
    _, plan = planned("fc", "!quant.calibrated<f32<-2.0:2.0>>")
    assert "k.in[1] holds constants: the type comes from the range observed" in explain(plan, "k.in[1]")


@pytest.mark.parametrize("scale", [8 / 127, 1 / 127])
def test_the_checker_reads_it_too(scale):
    graph, plan = planned("fc", "!quant.calibrated<f32<-2.0:2.0>>")
    wrong = parse_type(f"!quant.uniform<i8<-127:127>:f32, {scale:.12f}>")
    with pytest.raises(PlanInvalid) as caught:
        check(forged(plan, {"k.in[1]": wrong}), graph, ROWS)
    assert caught.value.port == "k.in[1]"

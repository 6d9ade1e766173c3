"""Retargeting between all shipped targets: never fewer quantized kernels than planning from scratch."""

from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import planner
from planner.errors import Conflict
from planner.formats.annotated.document import annotated_from_data
from planner.plans.plan import Plan
from planner.target.modeltext import read_model_text
from tests.api.documents import chain

TARGETS = planner.target_ids()
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


def quantized(plan: Plan) -> int:
    return sum(kernel.row is not None for kernel in plan.kernels_in_order)


@cache
def digits():
    model = planner.load_model(DIGITS / "digits.onnx")
    return planner.annotate(model, stats=planner.calibrate(model, DIGITS / "calibration.npz"))


@cache
def planned(target: str) -> Plan:
    return planner.plan(digits(), target)


PAIRS = [(one, TARGETS[(i + 5) % len(TARGETS)]) for i, one in enumerate(TARGETS)]
EVERY = [pytest.param(a, b, marks=pytest.mark.soak) for a in TARGETS for b in TARGETS if (a, b) not in PAIRS]


@pytest.mark.parametrize(("source", "target"), [*PAIRS, *EVERY])
def test_no_kernel_is_left_in_float(source, target):
    """Kernel names of two targets need not agree: ops are fused anew, and the plan is that from scratch."""
    moved, scratch = planner.retarget(planned(source), target), planned(target)
    assert quantized(moved) >= quantized(scratch)
    assert (moved.cost, moved.warnings) == (scratch.cost, scratch.warnings)
    planner.check(moved, digits(), planner.load_target(target))


ONE = ("Relu", "Sigmoid", "Softmax", "Tanh", "Neg", "HardSigmoid")
TWO = ("Add", "Mul", "Sub", "Max")


@st.composite
def op_texts(draw):
    """Small graphs of ops as text: chains and joins of one shape, each value with a range."""
    lines, names = [], ["in0", "in1"]
    for i in range(draw(st.integers(1, 6))):
        many = draw(st.booleans())
        operands = [draw(st.sampled_from(names)) for _ in range(1 + many)]
        lo, hi = draw(st.sampled_from([(-1, 1), (0, 6), (-4, 4), (0, 1)]))
        op = draw(st.sampled_from(TWO if many else ONE))
        lines.append(f"v{i} = {op}({', '.join(operands)}) : f32[1,8] {{{lo}, {hi}}}")
        names.append(f"v{i}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("budget", [10, pytest.param(1500, marks=pytest.mark.soak)])
def test_random_graphs_lose_no_quantized_kernel(budget):
    """Any two targets, any small graph, and the plan passes the check; there and back is there again."""

    @settings(max_examples=budget, deadline=None)
    @given(op_texts(), st.sampled_from(TARGETS), st.sampled_from(TARGETS))
    def law(text, source, other):
        model = read_model_text(text, "m")
        try:
            before, scratch = planner.plan(model, source), planner.plan(model, other)
        except Conflict:
            return
        moved = planner.retarget(before, other)
        assert quantized(moved) >= quantized(scratch)
        planner.check(moved, model, planner.load_target(other))
        assert planner.retarget(moved, source).to_json() == before.to_json()

    law()


def test_kernels_without_ops_stay_and_are_named():
    """An annotated model says nothing of what its kernels are made of."""
    model = annotated_from_data(chain(5))
    moved = planner.retarget(planner.plan(model, "litert-int8"), "onnxruntime-cpu")
    assert [kernel.name for kernel in moved.kernels_in_order] == [f"k{i}" for i in range(5)]
    said = "kernels of the annotated model are unknown to onnxruntime-cpu and fall back to float: k"
    assert [said in warning for warning in moved.warnings].count(True) == 1
    planner.check(moved, model, planner.load_target("onnxruntime-cpu"))

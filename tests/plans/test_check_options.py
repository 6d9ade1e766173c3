"""`check` takes what `plan` gives under any options, in memory and read back from either text."""

import random

import pytest

import planner
from planner.errors import Conflict, PlannerError
from planner.ir.graph import model_digest
from planner.plans.read_mlir import plan_from_mlir
from planner.propagation.propagate import propagate
from planner.target.load import load_target
from tests.conftest import ROOT
from tests.plans.randommodels import random_model
from tests.propagation.graphs import EVERY_RULE, TARGET, random_graph

SHIPPED = ("litert-int8", "onnxruntime-cpu", "qnn-htp", "teaching-npu", "tensorrt-int8", "tosa-int8")
OPTIONS = {
    "max_bits_lost": (0, 0.25, 0.5, 1.0, 2.5, None),
    "max_clip": (0, 0.01, 0.05, 0.5),
    "free_bits": (0, 0.5, 1, 3),
    "bit_price": (0, 0.1, 2.0, 8),
    "requantize": (0, 0.1, 1, 5, 100),
    "quantize": (0, 1, 3.7, 100),
    "dequantize": (0, 0.1, 1, 100),
    "zero_point": (0, 0.25, 2),
    "widen": (0, 0.5, 2),
    "narrow": (0, 0.5),
    "clamp": (0, 0.1, 3),
    "wanted_db": (0, 20, 60),
    "strategy": ("minimal", "rfc"),
    "best_effort": (True, False),
    "bias_pins": ("error", "derive"),
}


def accepted(plan, model, target):
    """Check a plan as it is, and as its texts give it back."""
    planner.check(plan, model, target)
    planner.check(planner.plan_from_json(plan.to_json()), model, target)
    planner.check(plan_from_mlir(plan.to_mlir()), model, target)


def tried(seed):
    """Plan one random model with random options; whether there is a plan."""
    draw = random.Random(seed)  # noqa: S311
    options = {name: draw.choice(values) for name, values in OPTIONS.items() if draw.random() < 0.35}
    try:
        if seed % 4 == 0:
            model, target = random_graph(seed, 3 + seed % 6, facts=0.2), draw.choice((TARGET, EVERY_RULE))
            plan = propagate(model, target, model=model_digest(model), **options)
        else:
            model, target = random_model(seed, 3 + seed % 9, facts=0.2), load_target(draw.choice(SHIPPED))
            plan = planner.plan(model, target, **options)
    except Conflict:
        return False
    try:
        accepted(plan, model, target)
    except PlannerError as error:
        pytest.fail(f"seed {seed}, {target.id}, {options}: {error}")
    return True


def test_a_plan_under_any_options_is_accepted():
    """Costs, limits, strategies and policies."""
    assert sum(map(tried, range(40))) > 20


@pytest.mark.soak
def test_a_plan_under_any_options_is_accepted_at_length():
    """The same, more of them."""
    assert sum(map(tried, range(40, 1500))) > 800


@pytest.mark.parametrize("most", [0.25, 0.5, 1.0, 1.5])
@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu", "qnn-htp", "teaching-npu"])
def test_a_limit_of_lost_bits_that_binds_is_obeyed(target, most):
    """Labels that lose more than it are cheaper, and no evidence against a plan."""
    folder = ROOT / "examples" / "digits"
    model = planner.load_model(folder / "digits.onnx")
    ready = planner.annotate(model, stats=planner.calibrate(model, folder / "calibration.npz"))
    plan = planner.plan(ready, target, max_bits_lost=most, requantize=100.0, quantize=100.0, dequantize=100.0)
    accepted(plan, ready, target)

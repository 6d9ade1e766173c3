"""What a shipped target plans, its first format writes, and the file loads."""

import numpy as np
import onnxruntime
import pytest

import planner
from planner.errors import Conflict
from planner.ir.types.qtypes import storage, uniform
from tests.formats.plans import model, op, run
from tests.plans.randommodels import random_model

PAIRS = ("ethos-u55", "litert-int8", "onnxruntime-cpu", "qnn-htp", "teaching-npu", "tensorrt-int8")
"""Targets whose first format is onnx-qdq; those of programs and FPGAs refuse what their page lists."""


@pytest.mark.parametrize("target", PAIRS)
@pytest.mark.parametrize("width", [1, 2, 3, 4, 7, 8, 9, 12, 16])
def test_a_pin_of_any_width_on_a_residual_is_written(target, width):
    """Rows of movers take any storage, so such a pin is kept."""
    ops = [op("Identity", "x", "i"), op("Add", "i x", "y")]
    pin = uniform(storage(f"i{width}"), 0.25, 0)
    graph = model(
        ops,
        inputs={"x": (4, 6)},
        outputs={"y": (4, 6)},
        constants={},
        facts={"i": (pin,)},
        shapes={"i": (4, 6)},
    )
    x = np.random.default_rng(width).normal(size=(4, 6)).astype(np.float32)
    graph = planner.annotate(graph, stats=planner.calibrate(graph, [{"x": x}]))
    plan = planner.plan(graph, target)
    wanted = planner.evaluate(graph, plan, {"x": x}, arithmetic="float32_qdq").outputs["y"]
    np.testing.assert_array_equal(run(planner.export(graph, plan, "onnx-qdq"), {"x": x})[0], wanted)


@pytest.mark.parametrize(
    "seed", [*range(25), *(pytest.param(n, marks=pytest.mark.soak) for n in range(25, 400))]
)
def test_random_models_are_written(seed):
    graph = random_model(seed, 3 + seed % 10, facts=(0.0, 0.1, 0.3)[seed % 3])
    for target in PAIRS:
        try:
            plan = planner.plan(graph, target)
        except Conflict:
            continue
        data = planner.export(graph, plan, "onnx-qdq")
        onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])

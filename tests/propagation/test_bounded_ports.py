"""Plans for random rows whose ports bound their scales and fix their zero points, beside random pins.

What the planner makes, the checker takes: each plan is checked against its target.
"""

from collections import Counter

import numpy as np
import pytest

import planner
from planner.errors import PlannerError
from planner.ir.types.qtypes import storage, uniform
from tests.formats.plans import model, op

ROWS = {
    "Relu": "{{kernel: Relu, in: {{x: {0}}}, out: {{y: {1}}}, rules: [{{free_scale: [x, y]}}]}}",
    "MaxPool": "{{kernel: MaxPool, in: {{x: {0}}}, out: {{y: {1}}}, rules: [{{free_scale: [x, y]}}]}}",
    "Add": "{{kernel: Add, in: {{a: {0}, b: {1}}}, out: {{y: {2}}}, rules: [{{free_scale: [a, b, y]}}]}}",
    "dense": "{{kernel: dense, in: {{x: {0}, w: {1}}}, out: {{y: {2}}}, "
    "rules: [{{multiplier_scale: {{out: y, of: [x, w]}}}}]}}",
}
HEAD = """
apiVersion: planner/v1
kind: Target
id: random
version: 1.0.0
title: Random rows
mode: codegen
types:
  d: {storage: i8, zero_point: 0}
defaults: {port: d, on_no_kernel: float, requantize: exact_even}
fusions:
  - {kernel: dense, pattern: "MatMul(x, w)", where: {w: constant, w.rank: 2}}
kernels:
"""
SCALES = (0.6, 0.5, 0.25, 0.125, 0.1, 0.0625, 0.03, 0.01, 0.0078125, 0.007)


def port(rng):
    keys = [f"storage: {rng.choice(['i8', 'i8', 'i8', 'i16', 'u8', chr(34) + '*' + chr(34)])}"]
    signs = rng.random()
    keys += [f"zero_point: {rng.choice([0, 3])}"] if signs < 0.3 else []
    keys += ["symmetric: true"] if 0.3 < signs < 0.5 and "u8" not in keys[0] else []
    keys += ["power_of_two: true"] if rng.random() < 0.35 else []
    keys += [f"scale_min: {rng.choice([0.1, 0.01, 0.0078125])}"] if rng.random() < 0.25 else []
    keys += [f"scale_max: {rng.choice([0.5, 0.25, 0.1])}"] if rng.random() < 0.25 else []
    return "{" + ", ".join(keys) + "}"


def pin(rng, *, constant):
    zero = 0 if constant else int(rng.choice([0, 0, 3]))
    store = storage(str(rng.choice(["i8", "i8", "u8", "i16", "i4"])))
    return (uniform(store, float(np.float32(rng.choice(SCALES))), zero),)


def drawn(seed):
    """A target of two to four rows, and a model with pins on about half of its values."""
    rng = np.random.default_rng(seed)
    kernels = rng.choice(["Relu", "Add", "Add", "MaxPool", "dense"], size=rng.integers(2, 5))
    rows = "".join(f"  - {ROWS[kernel].format(port(rng), port(rng), port(rng))}\n" for kernel in kernels)
    constants = {"w": rng.normal(size=(4, 4)) * 0.3, "k": rng.normal(size=(1, 1, 2, 4))}
    graph = model(
        [
            op("Relu", "x", "r"),
            op("MatMul", "r w", "m"),
            op("Add", "m x", "s"),
            op("Add", "s k", "u"),
            op("MaxPool", "u", "y", kernel_shape=(1, 1)),
        ],
        inputs={"x": (1, 1, 2, 4)},
        outputs={"y": (1, 1, 2, 4)},
        constants={name: numbers.astype(np.float32) for name, numbers in constants.items()},
        facts={name: pin(rng, constant=name in constants) for name in "xrwmskuy" if rng.random() < 0.5},
    )
    return HEAD + rows, graph


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_plans_for_random_bounds_are_taken_by_the_checker(first):
    samples = [{"x": np.linspace(-2, 2, 8, dtype=np.float32).reshape(1, 1, 2, 4)}]
    told = Counter()
    for seed in range(first, first + 50):
        text, graph = drawn(seed)
        try:
            target = planner.load_target(text)
            annotated = planner.annotate(graph, stats=planner.calibrate(graph, samples))
            plan = planner.plan(annotated, target)
        except PlannerError as error:  # bounds that contradict each other, or the numbers of a weight
            told[type(error).__name__] += 1
            continue
        planner.check(plan, annotated, target)
        told["rows"] += any(kernel.row for kernel in plan.kernels.values())
    assert told["rows"] > 20, told

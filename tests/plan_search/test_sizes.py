"""Bytes of weights in a search: a goal of their own, and what decides between options that work alike."""

import numpy as np
import pytest

import planner
from planner.plan_search.options import weight_bytes
from tests.exporters.plans import model, op

RNG = np.random.default_rng(7)
TABLE = RNG.normal(size=(800, 32)).astype(np.float32)
PLANS = "onnxruntime-cpu"


def embedder():
    """A table that a float op reads, and products behind it."""
    constants = {
        "t": TABLE,
        "v": RNG.normal(size=(32, 64)).astype(np.float32) / 6,
        "w": RNG.normal(size=(64, 16)).astype(np.float32) / 8,
    }
    ops = [
        op("Gather", "t i", "e"),
        op("Sin", "e", "s"),
        op("MatMul", "s v", "a"),
        op("Relu", "a", "r"),
        op("MatMul", "r w", "y"),
    ]
    graph = model(
        ops,
        inputs={"i": (2, 8)},
        outputs={"y": (2, 8, 16)},
        constants=constants,
        dtypes={"i": "i64"},
        shapes={"e": (2, 8, 32), "s": (2, 8, 32), "a": (2, 8, 64), "r": (2, 8, 64)},
    )
    samples = [{"i": RNG.integers(0, 800, (2, 8))} for _ in range(4)]
    return planner.annotate(graph, stats=planner.calibrate(graph, samples)), samples


def test_bytes_of_weights_are_those_of_the_file():
    ready, _ = embedder()
    for kernels in ({}, {"*": "float"}):
        asked = planner.annotate(ready, kernels=kernels)
        plan = planner.plan(asked, PLANS)
        size, file = weight_bytes(plan), len(planner.export(asked, plan, "onnx-qdq"))
        assert size < file < size + 4000


def test_a_search_keeps_tables_in_bytes_while_that_is_good_enough():
    ready, samples = embedder()
    found = planner.search(ready, PLANS, samples, goal="sqnr=35", trials=12)
    assert found.met
    assert found.best.sqnr < 60
    assert found.best.size < TABLE.nbytes * 0.6
    finer = planner.search(ready, PLANS, samples, goal="sqnr=70", trials=12)
    assert finer.met
    assert finer.best.size > TABLE.nbytes


@pytest.mark.parametrize(("goal", "is_met"), [("size=45kB", True), ("size=1kB", False)])
def test_a_size_buys_the_best_it_can(goal, is_met):
    ready, samples = embedder()
    found = planner.search(ready, PLANS, samples, goal=goal, trials=14)
    bound = float(goal.removeprefix("size=").removesuffix("kB")) * 1000
    assert found.met == is_met
    fit = [trial for trial in found.trials if trial.size <= bound]
    if is_met:
        assert found.best in fit
        assert found.best.sqnr == max(trial.sqnr for trial in fit)
        assert found.best.sqnr > found.trials[0].sqnr
    else:
        assert found.best.size == min(trial.size for trial in found.trials)

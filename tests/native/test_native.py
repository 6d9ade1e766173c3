"""Native formats in their own engines, at every magnitude: a few models, thirty minutes in `make soak`."""

import time

import pytest

from tests.native.campaign import drawn
from tests.native.engines import ENGINES, Findings, compare
from tests.native.models import OPERATORS, Case, made

SOAK_SECONDS = 450
BATCH = 100


@pytest.mark.parametrize("engine", ENGINES)
def test_a_few_models(engine, tmp_path):
    cases = [drawn((0, i), engine) for i in range(12)]
    findings = Findings()
    compare(engine, tmp_path, cases, findings)
    assert findings.beyond(engine) == []
    assert findings.counts[f"{engine}: run"]


@pytest.mark.soak
@pytest.mark.parametrize("engine", ENGINES)
def test_many_models(engine, tmp_path, record_property):
    """A quarter of half an hour for each engine."""
    findings, end, number = Findings(), time.monotonic() + SOAK_SECONDS, 0
    while time.monotonic() < end:
        folder = tmp_path / str(number)
        folder.mkdir()
        compare(engine, folder, [drawn((1, number, i), engine) for i in range(BATCH)], findings)
        number += 1
    for name, count in findings.counts.items():
        record_property(name, count)
    record_property("off by a step", len(findings.differing))
    assert findings.beyond(engine) == []


# What LiteRT's kernels computed otherwise than `evaluate`, or not at all, before rows had limits for it.
ONCE = (
    Case("Greater", -2.0, seed=1),
    Case("Equal", -3.0, seed=2),
    Case("Less-constant", 3.0, seed=3),
    Case("ReduceSum", 0.0, seed=4),
    Case("ReduceSum-flat", 2.0, signs="skewed", rank=3, seed=5),
    Case("ReduceSum", -1.0, bits=16, seed=6),
    Case("Softmax", -6.5, seed=7),
    Case("LogSoftmax", -6.5, seed=8),
    Case("Softmax", 5.7, bits=16, rank=3, seed=316892281),
    Case("HardSwish", 5.9, signs="negative", rank=3, seed=9),
    Case("Exp", 3.2, signs="skewed", bits=16, rank=2, seed=10),
    Case("LSTM", 4.0, 1.0, signs="negative", seed=11),
)


@pytest.mark.parametrize("engine", ["litert-optimized", "litert-reference"])
def test_limits_of_the_runtime(engine, tmp_path):
    findings = Findings()
    compare(engine, tmp_path, ONCE, findings)
    assert findings.beyond(engine) == []
    assert findings.refused == []


HALF = (
    *("Abs", "Add", "Conv", "Elu", "Exp", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "MaxPool", "Mul"),
    *("Neg", "ReduceMean", "ReduceSum-flat", "Sigmoid", "Softplus", "Tanh", "Where"),
)


@pytest.mark.parametrize(
    ("dtype", "operators"), [("f16", HALF), ("f64", ("Abs", "Exp", "Neg", "ReduceMean"))]
)
def test_models_in_other_floats(dtype, operators, tmp_path):
    """Between stored integers all is float32, whatever the model's floats are."""
    findings = Findings()
    cases = [Case(name, 0.0, seed=i, dtype=dtype) for i, name in enumerate(operators)]
    compare("tosa", tmp_path, cases, findings)
    assert findings.beyond("tosa") == []
    assert findings.refused == []


def test_every_operator_makes_a_model():
    assert all(made(Case(name, 0.0)) for name in OPERATORS)

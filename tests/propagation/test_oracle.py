"""`minimal` against the oracle that tries every labelling."""

import os

import pytest

from planner.plans.plan import Plan
from planner.propagation.propagate import propagate
from planner.propagation.solver import solve
from tests.propagation.graphs import TARGET, limit_tables, random_graph
from tests.propagation.oracle import Oracle, TooBig, Unclear

COUNT = int(os.environ.get("QPLAN_ORACLE", "200"))
SOAK = 2000


def rescales(plan: Plan) -> int:
    return sum(rescale.kind not in ("quantize", "dequantize") for rescale in plan.rescales)


@pytest.mark.parametrize("count", [COUNT, pytest.param(SOAK, marks=pytest.mark.soak)])
@pytest.mark.parametrize("way", ["eliminated", "in large tables", "searched"])
def test_minimal_is_the_least_of_all_labellings(monkeypatch, way, count):
    """Price and number of rescales; whether classes are eliminated or a linear program is searched around."""
    if way == "in large tables":
        monkeypatch.setattr(solve, "SMALL", solve.LARGE)
    elif way == "searched":
        limit_tables(monkeypatch, 0)
    compared = proven = 0
    for seed in range(count):
        graph = random_graph(seed, 2 + seed % 5, facts=0.2)
        try:
            least = Oracle(graph, TARGET).least()[:2]
        except (TooBig, Unclear):
            continue
        plan = propagate(graph, TARGET)
        assert (plan.cost * 1024, rescales(plan)) == least, f"seed {seed}"
        compared += 1
        proven += plan.optimal
    assert compared >= 0.9 * count
    assert proven >= 0.99 * compared

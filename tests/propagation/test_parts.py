"""Units that are too large for one program: a bound from their parts, and how near the price comes to it."""

import pytest

from benchmarks.topologies import SHAPES
from planner.checker.check import check
from planner.ir.graph import model_digest
from planner.propagation.propagate import propagate
from planner.propagation.solver import components, solve
from planner.target.load import load_target
from tests.propagation.graphs import TARGET, limit_tables, random_graph

LITERT = load_target("litert-int8")
SEEDS = range(30)
NEAR = {"recurrent": 1.1, "dense-blocks": 1.0, "lattice": 1.0, "shuffle": 1.05, "pools": 1.05}
"""How many times the bound a plan may cost. A cell's program is too hard, so its bound comes from parts."""


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 10])
def test_parts_cost_no_more_than_the_whole(monkeypatch, size):
    graphs = [random_graph(seed, 15 + seed, facts=0.15) for seed in SEEDS]
    exact = [propagate(graph, TARGET) for graph in graphs]
    limit_tables(monkeypatch, 0)
    for name in ("PROGRAM", "PROGRAM_LABELS", "TWO_PARTS"):
        monkeypatch.setattr(solve, name, 0)
    monkeypatch.setattr(components, "PART", size)
    bounds = [propagate(graph, TARGET).bound for graph in graphs]
    assert all(bound <= plan.cost for bound, plan in zip(bounds, exact, strict=True))
    monkeypatch.setattr(solve, "_bound_of_parts", lambda *_: 0)
    assert sum(bounds) > 1.2 * sum(propagate(graph, TARGET).bound for graph in graphs)


@pytest.mark.slow
@pytest.mark.parametrize("regions", [600, pytest.param(3000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("shape", NEAR)
def test_the_price_is_near_its_bound(shape, regions):
    graph = SHAPES[shape](regions)
    plan = propagate(graph, LITERT, model=model_digest(graph))
    check(plan, graph, LITERT)
    assert plan.cost <= NEAR[shape] * plan.bound

"""Units that are too large for one program: a bound from blocks, and how near the price comes to it."""

from itertools import pairwise

import pytest

from benchmarks.topologies import SHAPES
from planner.checker.check import check
from planner.ir.graph import model_digest
from planner.propagation.propagate import propagate
from planner.propagation.solver import linear_program, solve
from planner.propagation.solver.linear_program import relax
from planner.target.load import load_target
from tests.propagation.graphs import TARGET, limit_tables, random_graph

LITERT = load_target("litert-int8")
SEEDS = range(30)
NEAR = {"recurrent": 1.05, "dense-blocks": 1.0, "lattice": 1.0, "shuffle": 1.05, "pools": 1.05}
"""How many times the bound a plan may cost."""


@pytest.fixture
def in_blocks(monkeypatch):
    """Every unit that is searched is relaxed in blocks of a few classes, and no bound is near enough."""
    limit_tables(monkeypatch, 0)
    monkeypatch.setattr(solve, "WHOLE", 0)
    monkeypatch.setattr(solve, "NEAR", 0.0)
    bounds = []

    def kept(unit, offered, cost_model):
        for relaxed in relax_in_blocks(unit, offered, cost_model):
            bounds.append((unit, offered, cost_model, relaxed.bound))
            yield relaxed

    relax_in_blocks = linear_program.relax_in_blocks
    monkeypatch.setattr(solve, "relax_in_blocks", kept)
    return bounds


@pytest.mark.slow
@pytest.mark.parametrize("size", [3, 10])
def test_blocks_bound_the_least_price(monkeypatch, in_blocks, size):
    """No more than one program of all rows does, and each sweep at least as much as the one before."""
    graphs = [random_graph(seed, 15 + seed, facts=0.15) for seed in SEEDS]
    monkeypatch.setattr(linear_program, "BLOCK", size)
    plans = [propagate(graph, TARGET) for graph in graphs]
    assert all(plan.bound <= plan.cost for plan in plans)
    met = [(*found, relax(*found[:3], 1.0).bound) for found in in_blocks]
    assert all(bound <= whole for *_, bound, whole in met)
    assert all(after[3] >= before[3] for before, after in pairwise(met) if after[0] is before[0])
    assert sum(bound for *_, bound, _ in met) > 0.9 * sum(whole for *_, whole in met)


@pytest.mark.slow
@pytest.mark.parametrize("regions", [600, pytest.param(3000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("shape", NEAR)
def test_the_price_is_near_its_bound(shape, regions):
    graph = SHAPES[shape](regions)
    plan = propagate(graph, LITERT, model=model_digest(graph))
    check(plan, graph, LITERT)
    assert plan.cost <= NEAR[shape] * plan.bound

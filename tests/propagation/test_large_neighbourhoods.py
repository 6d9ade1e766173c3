"""Some dozens of classes labelled at once: what a part costs, nothing gets dearer, and it is worth it."""

import math
from random import Random

import pytest

from benchmarks.genomes import graph_of, read_genome
from planner.checker.check import check
from planner.ir.graph import model_digest
from planner.propagation.propagate import propagate
from planner.propagation.solver import large_neighbourhoods, linear_program, solve
from planner.propagation.solver.price import price_of_labels
from planner.target.load import load_target
from tests.propagation.graphs import TARGET, limit_tables, random_graph

LITERT = load_target("litert-int8")
HARD = "8 out 43: Max half1 back8, add half3 near40"
"""Nearly each class may take any label, and values are read far away: branch and bound took 85 s of 400."""


@pytest.fixture
def in_parts(monkeypatch):
    """No unit is small enough for an exact answer, no program leads a search, and parts are a few classes."""
    monkeypatch.setattr(solve, "relax", lambda *_: None)
    limit_tables(monkeypatch, 0)
    monkeypatch.setattr(linear_program, "MILP_VARIABLES", 60)
    monkeypatch.setattr(large_neighbourhoods, "TOGETHER", 5)


@pytest.fixture
def relabelled(monkeypatch):
    """What was asked to be labelled anew, and the answer."""
    met = []

    def kept(unit, offered, cost_model, start, order):
        labels = relabel(unit, offered, cost_model, start, order)
        met.append((unit, offered, cost_model, start, labels))
        return labels

    relabel = large_neighbourhoods.relabel
    monkeypatch.setattr(solve, "relabel", kept)
    return met


@pytest.mark.usefixtures("in_parts")
def test_nothing_gets_dearer(relabelled):
    for seed in range(12):
        propagate(random_graph(seed, 30 + seed, facts=0.15), TARGET)
    assert relabelled
    better = 0
    for unit, offered, cost_model, start, labels in relabelled:
        before, after = (price_of_labels(unit, one, cost_model) for one in (start, labels))
        assert after <= before
        better += after < before
        assert all(labels[c] in (*offered[c], start[c]) for c in unit.classes)
    assert better


@pytest.mark.usefixtures("in_parts")
def test_a_part_costs_what_the_whole_does_less_what_stays(relabelled):
    """Two labellings that differ in a few classes differ by as much in their part: rescales, losses, ways."""
    for seed in range(12):
        propagate(random_graph(seed, 40, facts=0.15), TARGET)
    chance, compared = Random(0), 0  # noqa: S311 - no secret
    for unit, offered, cost_model, start, _ in relabelled:
        labels = {c: start[c] for c in unit.classes}
        state = large_neighbourhoods._State(unit, labels, cost_model.single_consumer)
        for _ in range(10):
            members = chance.sample(unit.classes, min(4, len(unit.classes)))
            part = state.part({c: offered[c] for c in members})
            other = state.labels | {c: chance.choice(offered[c]) for c in members}
            whole = [price_of_labels(unit, one, cost_model) for one in (state.labels, other)]
            parts = [price_of_labels(part, one, cost_model) for one in (state.labels, other)]
            assert [b - a for a, b in zip(*whole, strict=True)] == [
                b - a for a, b in zip(*parts, strict=True)
            ]
            compared += whole[0] != whole[1]
            # Levels follow what is kept.
            state.keep({c: other[c] for c in members})
    assert compared > 50


def test_a_graph_that_branch_and_bound_is_too_slow_for_is_planned_in_parts(monkeypatch):
    asked = []

    def counted(cost, at_least, equal, branching=None, **limits):
        answer = least(cost, at_least, equal, branching, **limits)
        asked.append((len(cost), branching is not None, answer.iterations))
        return answer

    least = linear_program.least
    monkeypatch.setattr(linear_program, "least", counted)
    graph = graph_of(read_genome(HARD), 400)
    plan = propagate(graph, LITERT, model=model_digest(graph))
    check(plan, graph, LITERT)
    assert plan.cost < 130_000  # 160,492 where a program of few labels leads
    assert all(columns <= linear_program.MILP_VARIABLES for columns, whole, _ in asked if whole)
    most = max(
        linear_program.ITERATIONS, *(math.ceil(linear_program.HARD * columns) for columns, _, _ in asked)
    )
    assert all(iterations <= most for _, whole, iterations in asked if not whole)

"""Phases of a plan: each is frozen and has what the one before has; one place builds the network."""

import ast
from dataclasses import FrozenInstanceError, fields
from itertools import pairwise
from pathlib import Path

import pytest

import planner
from planner.propagation.decide import DEMOTIONS, type_ports
from planner.propagation.network.ports import Network, Ranged
from planner.propagation.parameters.typed import Typed, Typing
from planner.propagation.selection.rows import choose_rows
from planner.propagation.solver.classes import Classed
from tests.propagation.graphs import TARGET, random_graph
from tests.propagation.small import chosen

PHASES = (Network, Ranged, Classed, Typing, Typed)


def test_a_phase_adds_to_the_one_before():
    for before, after in pairwise(PHASES):
        assert {one.name for one in fields(before)} < {one.name for one in fields(after)}


@pytest.mark.parametrize("seed", range(8))
def test_what_is_settled_stays(seed):
    """No demotion finds anything in a network that was settled, and nothing in it can be set."""
    graph = random_graph(seed, 40, facts=0.1)
    typed = type_ports(chosen(graph, TARGET, choose_rows(graph, graph.regions, TARGET)))
    assert [one.name for one in DEMOTIONS if one.find(typed)] == []
    with pytest.raises(FrozenInstanceError):
        typed.visits = 0


def test_one_place_builds_the_network():
    calls = [
        path.name
        for path in (Path(planner.__file__).parent / "propagation").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "build_network"
    ]
    assert calls == ["value_ranges.py"]

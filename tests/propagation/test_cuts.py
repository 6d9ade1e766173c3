"""Cuts: where the least cut proves a labelling the least, a search finds no other."""

from collections import Counter

import pytest

from planner.propagation import solve
from planner.propagation.cuts import least_cut
from planner.propagation.propagate import propagate
from tests.propagation.graphs import TARGET, random_graph, seeded
from tests.propagation.test_laws import port_types

COSTS = {"quantize": (0.5, 1.0, 2.0), "dequantize": (0.3, 1.0, 2.0), "bit_price": (0.5, 2.0)}


@pytest.mark.parametrize("size", [3, 6, 12, 40])
def test_what_a_cut_proves_is_what_a_search_finds(monkeypatch, size):
    """Every label, too: of equal prices both take the same."""
    proven = Counter[bool]()

    def asked(*given):
        found = least_cut(*given)
        proven[found is not None] += 1
        return found

    for seed in range(100):
        graph, random = random_graph(seed, size), seeded(seed)
        costs = {name: random.choice(prices) for name, prices in COSTS.items()} if seed % 2 else {}
        before = proven[True]
        monkeypatch.setattr(solve, "least_cut", asked)
        plan = propagate(graph, TARGET, **costs)
        if proven[True] > before:
            monkeypatch.setattr(solve, "least_cut", lambda *_: None)
            other = propagate(graph, TARGET, **costs)
            assert _told(plan) == _told(other), seed
    assert min(proven[True], proven[False]) > 3


def _told(plan):
    return plan.cost, plan.bound, plan.optimal, port_types(plan)

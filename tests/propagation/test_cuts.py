"""Cuts: where the least cut proves a labelling the least, a search finds no other."""

from collections import Counter

from planner.propagation.propagate import propagate
from planner.propagation.solver import solve
from planner.propagation.solver.cuts import worth_a_look
from tests.propagation.graphs import TARGET, random_graph, seeded
from tests.propagation.test_laws import port_types

SIZES = (3, 6, 12, 40)
COSTS = {"quantize": (0.5, 1.0, 2.0), "dequantize": (0.3, 1.0, 2.0), "bit_price": (0.5, 2.0)}


def test_what_cuts_leave_out_no_search_takes(monkeypatch):
    """Every label stays, too: of equal prices the same is taken, whether a cut proves all of it or some."""
    said = Counter[str]()

    def asked(unit, classes, cost_model):
        offered = worth_a_look(unit, classes, cost_model)
        every = {c: classes[c].labels for c in unit.classes}
        whole = all(len(labels) == 1 for labels in offered.values())
        said["nothing" if offered == every else "all" if whole else "some"] += 1
        return offered

    for seed in range(300):
        graph, random = random_graph(seed, SIZES[seed % len(SIZES)]), seeded(seed)
        costs = {name: random.choice(prices) for name, prices in COSTS.items()} if seed % 3 else {}
        before = said["all"] + said["some"]
        monkeypatch.setattr(solve, "worth_a_look", asked)
        plan = propagate(graph, TARGET, **costs)
        if said["all"] + said["some"] > before:
            monkeypatch.setattr(solve, "worth_a_look", _everything)
            assert _told(plan) == _told(propagate(graph, TARGET, **costs)), seed
    assert min(said[what] for what in ("nothing", "some", "all")) > 0


def _everything(unit, classes, cost_model):
    del cost_model
    return {c: list(classes[c].labels) for c in unit.classes}


def _told(plan):
    return plan.cost, plan.bound, plan.optimal, port_types(plan)

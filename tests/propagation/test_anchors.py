"""Anchors: where they prove that one label for all is the least, a search finds no other."""

from collections import Counter
from dataclasses import replace
from random import Random

from benchmarks.topologies import Draft
from planner.ir.graph import Graph, Value
from planner.ir.qtypes import Calibrated
from planner.propagation import anchors, solve
from planner.propagation.propagate import propagate
from planner.target.load import load_target
from tests.propagation.graphs import seeded
from tests.propagation.test_laws import port_types

TARGET = load_target("litert-int8")
GRAPHS = 400
COSTS = {
    "bit_price": (0.5, 1.0, 2.0, 4.0),
    "free_bits": (0.0, 0.25, 0.5),
    "requantize": (0.5, 1.0, 2.0),
    "quantize": (0.5, 1.0, 2.0),
    "dequantize": (0.3, 1.0, 2.0),
}


def blocks(random: Random) -> Graph:
    """One or two blocks of layers that concatenate some of those before them; kernels in float among them."""
    draft = Draft()
    draft.random = random
    x = draft.first
    for _ in range(random.randint(1, 2)):
        known = [x]
        for _ in range(random.randint(1, 4)):
            read = random.sample(known, random.randint(1, len(known)))
            y = draft.kernel("Concat", *read) if len(read) > 1 else read[0]
            y = draft.kernel("Reshape", y) if random.random() < 0.3 else y
            y = draft.conv(y)
            y = draft.kernel(random.choice(("Gelu", "Softmax")), y) if random.random() < 0.3 else y
            known.append(y)
        x = draft.kernel("MaxPool", draft.conv(draft.kernel("Concat", *known)))
    graph = draft.graph("blocks")
    return replace(graph, values={name: _varied(value, random) for name, value in graph.values.items()})


def _varied(value: Value, random: Random) -> Value:
    """The same with another range and another number of elements, at times."""
    if not value.facts or random.random() < 0.5:
        return value
    (fact,) = value.facts
    assert isinstance(fact, Calibrated)
    wider = Calibrated((fact.los[0] * random.choice((1, 1, 3)),), (fact.his[0] * random.choice((1, 3)),))
    return replace(value, facts=(wider,), shape=(random.choice((1, 1, 4)), *value.shape[1:]))


def test_what_anchors_prove_is_what_a_search_finds(monkeypatch):
    """Asked wherever one label is not free, at many prices: a change is said to cost next to nothing."""
    said = Counter[bool]()

    def judged(*given):
        proven = anchors.is_anchored(*given)
        said[proven] += 1
        return proven

    change = solve._least_change
    monkeypatch.setattr(solve, "_least_change", lambda *given: min(1, change(*given)))
    for seed in range(GRAPHS):
        random = seeded(seed)
        graph = blocks(random)
        costs = {name: random.choice(prices) for name, prices in COSTS.items()} if seed % 3 else {}
        monkeypatch.setattr(solve, "is_anchored", judged)
        before = said[True]
        plan = propagate(graph, TARGET, **costs)
        if said[True] > before:
            monkeypatch.setattr(solve, "is_anchored", lambda *_: False)
            other = propagate(graph, TARGET, **costs)
            assert (plan.cost, port_types(plan)) == (other.cost, port_types(other)), seed
    assert said[True] > 3
    assert said[False] > 3

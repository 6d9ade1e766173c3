"""The alternatives in the log: priced by what they change, as pricing the whole unit anew would have it."""

import math
from collections.abc import Iterator

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.errors import PlannerError
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import parse_type
from planner.plans.explain import explain
from planner.plans.read_json import plan_from_json
from planner.propagation.decide import type_ports
from planner.propagation.parameters.typed import Typed
from planner.propagation.propagate import propagate
from planner.propagation.result.alternatives import Alternatives
from planner.propagation.selection.rows import choose_rows
from planner.propagation.solver.components import Unit
from planner.propagation.solver.price import CostModel, price_of_labels
from planner.target.ports.labels import UNIT, Label, label_of
from tests.propagation.graphs import TARGET, random_graph
from tests.propagation.small import chosen, graph_of, target_of

ROWS = """
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}
- {kernel: concat, in: {xs*: a8}, out: {y: a8}, rules: [{same_scale: [xs, y]}]}
"""


def region(unit: Unit, labels: dict[int, Label | None], c: int) -> set[int]:
    """A class and all that edges lead to without a change of label."""
    found, before = {c}, set[int]()
    while found != before:
        before = set(found)
        for edge in unit.edges:
            made = edge.definition[0] if edge.definition is not None else -1
            alike = {g for g in edge.groups() if made >= 0 and labels[g] == labels[made]}
            found |= alike if alike & found else set()
    return found


def alternatives(outcome: Typed) -> Iterator[tuple[Unit, dict[int, Label | None], int, str, float, str]]:
    """Each with its unit and its class."""
    every = Alternatives(outcome)
    for unit in outcome.labelled.units:
        labels = dict(outcome.labelled.solutions[unit.classes[0]].labels)
        for c in unit.classes:
            entry = outcome.labelled.classes[c]
            for other in every.of(entry, entry.ports[0]):
                yield unit, labels, c, other.label, other.cost, other.why


@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=25)
@given(st.integers(0, 1 << 20), st.sampled_from((0.0, 0.1)))
def test_a_price_is_that_of_the_unit_labelled_so(seed: int, facts: float) -> None:
    """And none of what the solver proved least is beaten by one."""
    graph = random_graph(seed, 20, facts=facts)
    try:
        outcome = type_ports(chosen(graph, TARGET, choose_rows(graph, graph.regions, TARGET)))
    except PlannerError:
        return
    cost_model = CostModel(TARGET.costs, TARGET.rescale_single_consumer, TARGET.rescale_allowed)
    for unit, labels, c, text, cost, why in alternatives(outcome):
        solution = outcome.labelled.solutions[c]
        kind = None if text == "float" or text.startswith("scale ") else parse_type(text)
        if math.isinf(cost) or text.startswith("scale "):
            continue
        label = label_of(kind) if isinstance(kind, Uniform) else None
        members = region(unit, labels, c) if why.startswith("with all") else {c}
        anew = price_of_labels(unit, {**labels, **dict.fromkeys(members, label)}, cost_model)[0]
        assert cost == anew / UNIT
        assert solution.bound < solution.price or cost >= solution.price / UNIT


def test_a_rescale_says_what_sharing_would_have_cost_and_for_whom() -> None:
    """The example of ARCHITECTURE.md: `conv4` would read data 2 bits coarser."""
    graph = graph_of(
        {"x": "[-1, 1]", "a": "[-1, 1]", "b": "[-4, 4]", "c": "", "y": "[-1, 1]", "z": "[-1, 1]"},
        [
            ("k1", "add", "x x", "a"),
            ("k2", "add", "x x", "b"),
            ("cat", "concat", "a b", "c"),
            ("k3", "add", "c c", "y"),
            ("k4", "add", "a a", "z"),
        ],
        outputs="y z",
        moves={"cat": "Concat"},
    )
    plan = propagate(graph, target_of(ROWS))
    told = explain(plan, "a#0")
    assert (
        "not !quant.uniform<i8:f32, 0.0313725508749485:-1>: that would cost 24 (with all that share its "
        "type, 20 more: consumers of 'a' lose up to 2.00 bits more, which costs 24 more; rescales cost 4 "
        "less)"
    ) in told
    assert "k1.out[0] takes the type of the range it has to hold, -1 to 1" in told
    assert "cat.in[0] takes the type of the range it has to hold, -4 to 4" in told
    assert "not !quant.uniform<i8:f32, 0.007843137718737125:-1>: that cuts off 74.9% of its range" in told
    assert plan_from_json(plan.to_json()).to_json() == plan.to_json()

"""The plan laws of docs/specification.md, section 5, section 5, on random annotated graphs of up to 60
kernels.
"""

import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from planner.checker.check import check
from planner.ir.graph import Graph, Region, Value
from planner.ir.types.qtypes import NoneType, Uniform
from planner.plans.plan import Plan
from planner.plans.records import Port, Rescale
from planner.plans.write_json import plan_to_json
from planner.propagation.propagate import propagate
from tests.propagation.graphs import EVERY_RULE, TARGET, random_graph, renamed, seeded
from tests.propagation.oracle import Oracle, Unclear, label_of


@st.composite
def graphs(draw, most=60):
    """A seed and a size: hypothesis shrinks the size, which is what makes a counterexample readable."""
    n_kernels, seed = draw(st.integers(1, most)), draw(st.integers(0, 1 << 20))
    return random_graph(seed, n_kernels, facts=draw(st.sampled_from((0.0, 0.1, 0.3))))


@st.composite
def graphs_of_every_rule(draw, most=60):
    """As `graphs`, with derived scales, functions and multipliers too, which the oracle does not read."""
    n_kernels, seed = draw(st.integers(1, most)), draw(st.integers(0, 1 << 20))
    return random_graph(seed, n_kernels, facts=draw(st.sampled_from((0.0, 0.1, 0.3))), every_rule=True)


def port_types(plan: Plan) -> dict[str, tuple[object, ...]]:
    return {
        kernel.name: (kernel.row, *(port.type for port in (*kernel.inputs, *kernel.outputs)))
        for kernel in plan.kernels_in_order
    }


def shuffled(graph: Graph, random: Random) -> list[Region]:
    """The regions in another topological order."""
    waiting, known, order = list(graph.regions), {*graph.inputs, *graph.constants}, []
    while waiting:
        ready = [region for region in waiting if known.issuperset(region.inputs)]
        order.append(random.choice(ready))
        waiting.remove(order[-1])
        known.update(order[-1].outputs)
    return order


@given(graphs_of_every_rule())
def test_same_input_same_plan(graph):
    assert plan_to_json(propagate(graph, EVERY_RULE)) == plan_to_json(propagate(graph, EVERY_RULE))


def test_hash_seeds_change_nothing():
    """Whole plans of 30 graphs, as bytes, from two processes with other hash seeds."""
    code = (
        "import hashlib\n"
        "from planner.propagation.propagate import propagate\n"
        "from planner.plans.write_json import plan_to_json\n"
        "from tests.propagation.graphs import EVERY_RULE, TARGET, random_graph\n"
        "for s in range(30):\n"
        "    text = plan_to_json(propagate(random_graph(s, s), TARGET))\n"
        "    print(hashlib.sha256(text.encode()).hexdigest())\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert len(runs[0].splitlines()) == 30


@given(graphs_of_every_rule(), st.integers(0, 1 << 20))
def test_names_and_listing_order_change_nothing(graph, seed):
    random = seeded(seed)
    values = [f"n{random.randrange(1 << 30)}_{i}" for i in range(len(graph.values))]
    kernels = [f"r{random.randrange(1 << 30)}_{i}" for i in range(len(graph.regions))]
    other = renamed(graph, values, kernels)
    order = list(other.values)
    random.shuffle(order)
    other = replace(
        other,
        regions=tuple(shuffled(other, random)),
        values={name: other.values[name] for name in order},
    )
    mine, theirs = propagate(graph, EVERY_RULE), propagate(other, EVERY_RULE)
    assert (mine.cost, mine.bound, mine.optimal) == (theirs.cost, theirs.bound, theirs.optimal)
    back = dict(zip(kernels, (region.name for region in graph.regions), strict=True))
    assert port_types(mine) == {back[name]: types for name, types in port_types(theirs).items()}


@settings(suppress_health_check=[HealthCheck.filter_too_much])
@given(graphs_of_every_rule())
def test_minimal_costs_no_more_than_the_rfc_order(graph):
    greedy = propagate(graph, EVERY_RULE, strategy="rfc")
    assume(all(value.clip <= TARGET.costs.max_clip for value in greedy.values.values()))
    assume(all(_holds(graph, port) for kernel in greedy.kernels_in_order for port in kernel.inputs))
    assert propagate(graph, EVERY_RULE).cost <= greedy.cost


@pytest.mark.parametrize(
    ("seed", "kernels", "facts"), [(5686, 18, 0.1), (6076, 12, 0.1), (6119, 19, 0.3), (2086, 20, 0.4)]
)
def test_derived_scales_do_not_make_minimal_dearer_than_the_rfc_order(seed, kernels, facts):
    """Here what rules derive from the cheapest labels of one round makes the next one dear."""
    graph = random_graph(seed, kernels, facts=facts, every_rule=True)
    plan = propagate(graph, EVERY_RULE)
    assert plan.bound <= plan.cost <= propagate(graph, EVERY_RULE, strategy="rfc").cost
    check(plan)


def _holds(graph: Graph, port: Port) -> bool:
    """Whether a constant is not cut: the plan's values do not list that."""
    constant, kind = graph.constants.get(port.value), port.type
    if constant is None or not isinstance(kind, Uniform):
        return True
    lo, hi = min(constant.array.min(), 0.0), max(constant.array.max(), 0.0)
    half = max(kind.scales) / 2
    cut = max(kind.lo - half - lo, 0.0) + max(hi - kind.hi - half, 0.0)
    return cut <= TARGET.costs.max_clip * (hi - lo)


@given(graphs_of_every_rule(30), graphs_of_every_rule(30))
def test_disjoint_graphs_plan_independently(first, second):
    second = renamed(
        second, [f"other_{name}" for name in second.values], [f"other_{r.name}" for r in second.regions]
    )
    both = replace(
        first,
        values={**first.values, **second.values},
        constants={**first.constants, **second.constants},
        inputs=first.inputs + second.inputs,
        outputs=first.outputs + second.outputs,
        regions=first.regions + second.regions,
    )
    plans = [propagate(graph, EVERY_RULE) for graph in (first, second, both)]
    assert port_types(plans[2]) == port_types(plans[0]) | port_types(plans[1])
    assert plans[2].cost == plans[0].cost + plans[1].cost


@given(graphs_of_every_rule(), st.sampled_from(["minimal", "rfc"]))
def test_every_step_rests_on_earlier_ones(graph, strategy):
    plan = propagate(graph, EVERY_RULE, strategy=strategy)
    check(plan)
    assert [step.n for step in plan.steps] == list(range(len(plan.steps)))
    assert all(number < step.n for step in plan.steps for number in step.because)
    decided = [value.decided_by for value in plan.values.values() if value.decided_by is not None]
    assert all(0 <= number < len(plan.steps) for number in decided)


@given(graphs(), st.sampled_from(["minimal", "rfc"]))
def test_the_cost_is_the_price_of_the_final_types(graph, strategy):
    """Rescales and losses counted anew from the port types alone; and the bound is below it."""
    plan = propagate(graph, TARGET, strategy=strategy)
    try:
        oracle = Oracle(graph, TARGET)
    except Unclear:
        assume(False)
    labels = {}
    for c, (kernel, group, _) in enumerate(oracle.classes):
        side, i = group[0]
        planned = plan.kernels[kernel.name]
        kind = (planned.inputs if side == "in" else planned.outputs)[i].type
        labels[c] = None if kind is None else label_of(kind)
    price, count, _ = oracle.price(labels)
    assert plan.cost * 1024 == price
    casts = Counter(rescale.kind in ("quantize", "dequantize") for rescale in plan.rescales)
    assert casts[False] == count
    assert plan.bound <= plan.cost
    assert not plan.optimal or plan.bound == plan.cost


@given(graphs_of_every_rule(), st.sampled_from(["minimal", "rfc"]))
def test_planning_a_planned_graph_again_changes_nothing(graph, strategy):
    """Each port pinned to its type, float ones to stay float: the same types, the same rescales."""
    plan = propagate(graph, EVERY_RULE, strategy=strategy)
    again = propagate(_settled(graph, plan), EVERY_RULE)
    assert port_types(again) == port_types(plan)
    assert again.rescales == plan.rescales


def _settled(graph: Graph, plan: Plan) -> Graph:
    regions = []
    for region in graph.regions:
        kernel = plan.kernels.get(region.name)
        if kernel is None:
            continue
        sides = [
            tuple((port.type or NoneType(),) for port in side) for side in (kernel.inputs, kernel.outputs)
        ]
        regions.append(replace(region, input_facts=sides[0], output_facts=sides[1]))
    return replace(graph, regions=tuple(regions))


@given(st.integers(0, 1 << 20))
def test_marking_both_ends_alike_removes_a_rescale(seed):
    """Any rescale between kernels free to take the type: mark the port that defines it, and its uses."""
    graph = random_graph(seed, 12, facts=0.3)
    plan = propagate(graph, TARGET)
    for rescale in plan.rescales:
        if _between_free_ports(plan, rescale):
            again = propagate(_marked(graph, rescale), TARGET)
            uses = set(rescale.consumers)
            assert not [r for r in again.rescales if r.value == rescale.value and set(r.consumers) & uses]
            served = {kernel.name for kernel in plan.kernels_in_order if kernel.row}
            # A mover may go float where that has become cheaper; no row is lost.
            lost = [again.kernels[name].reason for name in sorted(served) if not again.kernels[name].row]
            assert set(lost) <= {"moves data between float ops"}


def _marked(graph: Graph, rescale: Rescale) -> Graph:
    regions = []
    for region in graph.regions:
        uses = [
            (rescale.to_type,) if (region.name, i) in rescale.consumers else ()
            for i in range(len(region.inputs))
        ]
        outs = [(rescale.to_type,) if name == rescale.value else () for name in region.outputs]
        regions.append(replace(region, input_facts=tuple(uses), output_facts=tuple(outs)))
    return replace(graph, regions=tuple(regions))


def _between_free_ports(plan: Plan, rescale: Rescale) -> bool:
    wanted, made = rescale.to_type, rescale.from_type
    maker = next((k for k in plan.kernels_in_order if rescale.value in [p.value for p in k.outputs]), None)
    pinned = any(isinstance(fact, Uniform) for fact in plan.graph.values[rescale.value].facts)
    if maker is None or pinned or not (isinstance(wanted, Uniform) and isinstance(made, Uniform)):
        return False
    takes_any = {maker.kernel} <= {"add", "add_u8", "conv", "concat_u8", "pool", "view", "relu"}
    return takes_any and made.storage == wanted.storage and "@model" not in dict(rescale.consumers)


@given(graphs(), st.sampled_from(["minimal", "rfc"]))
def test_kernels_are_visited_a_bounded_number_of_times(graph, strategy):
    """At most four times as often as there are regions and ports (issue: the worklist's bound)."""
    plan = propagate(graph, TARGET, strategy=strategy)
    ports = sum(len(kernel.inputs) + len(kernel.outputs) for kernel in plan.kernels_in_order)
    assert plan.visits <= 4 * (len(plan.kernels_in_order) + ports)


def test_a_chain_without_any_range_is_visited_twice_over():
    """Each kernel lacks a range because the one before it does; one pass sees them all."""
    names = [f"v{i}" for i in range(402)]
    regions = tuple(Region(f"k{i}", "asin", (names[i],), (names[i + 1],)) for i in range(401))
    values = {name: Value(name, (4,)) for name in names}
    graph = Graph("chain", values, (), (names[0],), (names[-1],), {}, regions)
    plan = propagate(graph, TARGET)
    assert plan.visits <= 4 * (401 + 802)

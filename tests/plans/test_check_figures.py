"""The checker recomputes what a plan says in numbers: clips, bits lost, the price, and that it is optimal."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.checker.check import check
from planner.checker.figures import optimal
from planner.checker.figures.losses import NEAR, follow, follow_again
from planner.errors import Conflict, PlanInvalid, RuleError
from planner.ir.graph import Graph, model_digest
from planner.ir.types.qtypes import Uniform, full_range, round_scale
from planner.ir.types.storages import Storage
from planner.plans.plan import Plan
from planner.plans.read_json import plan_from_json
from planner.plans.records import ValuePlan
from planner.plans.write_json import plan_to_json
from planner.propagation.propagate import propagate
from planner.target.records import Target
from tests.formats.plans import op
from tests.plans.planned import case, digits
from tests.propagation.graphs import EVERY_RULE, TARGET, random_graph
from tests.propagation.oracle import clip, label_of
from tests.propagation.oracle_reading import Reading, Unclear
from tests.propagation.small import graph_of, target_of
from tests.propagation.test_needed import MASK, attention
from tests.propagation.test_needed import planned as checked


def any_pin(random: np.random.Generator) -> Uniform:
    """A type of 2 to 32 bits, of any sign, range, scale and zero point."""
    bits, signed = int(random.integers(2, 33)), bool(random.integers(2))
    low, high = full_range(bits, signed=signed)
    if random.integers(4) == 0:
        low += 1
    scale = round_scale(float(2.0 ** random.uniform(-20, 4)), "f32")
    zero = int(random.integers(low, high + 1)) if random.integers(2) else min(max(0, low), high)
    return Uniform(Storage(bits, signed, low, high), (scale,), (zero,))


@st.composite
def pinned_graphs(draw):
    """Random nets in which some values have pins that no row stores."""
    seed, kernels = draw(st.integers(0, 1 << 20)), draw(st.integers(1, 14))
    graph = random_graph(seed, kernels, facts=draw(st.sampled_from((0.0, 0.1))))
    random = np.random.default_rng(seed)
    values = dict(graph.values)
    for name, value in values.items():
        free = not any(isinstance(fact, Uniform) for fact in value.facts)
        if name not in graph.constants and free and random.random() < 0.3:
            values[name] = replace(value, facts=(*value.facts, any_pin(random)))
    return replace(graph, values=values)


def planned(graph: Graph, target: Target, **options: object) -> Plan | None:
    try:
        return propagate(graph, target, model=model_digest(graph), **options)
    except (Conflict, RuleError):
        return None


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
@given(pinned_graphs())
def test_nothing_clips_without_a_word(strategy, graph):
    """By the oracle's ranges: no port cuts off more than `max_clip` but with a warning that names it."""
    plan = planned(graph, TARGET, strategy=strategy)
    try:
        reading = Reading(graph, TARGET) if plan is not None else None
    except Unclear:
        return
    if plan is None or reading is None:
        return
    check(plan, graph, TARGET)
    told = {warning.split()[0] for warning in plan.warnings if " clips " in warning}
    for kernel in plan.kernels_in_order:
        for side, ports in (("in", kernel.inputs), ("out", kernel.outputs)):
            for i, port in enumerate(ports):
                extent = reading.required.get((kernel.name, side, i))
                if port.value in graph.constants or extent is None or port.type is None:
                    continue
                share = clip(extent, label_of(port.type), port.type.storage)
                assert share <= TARGET.costs.max_clip or port.address in told, port.address


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
@given(st.integers(0, 1 << 20), st.integers(1, 20), st.sampled_from((0.0, 0.1, 0.4)))
def test_the_figures_of_random_nets_are_confirmed(strategy, seed, kernels, facts):
    graph = random_graph(seed, kernels, facts=facts, every_rule=True)
    plan = planned(graph, EVERY_RULE, strategy=strategy)
    if plan is not None:
        check(plan, graph, EVERY_RULE)
        check(plan_from_json(plan_to_json(plan)), graph, EVERY_RULE)


FORGED: dict[str, Callable[[ValuePlan], ValuePlan]] = {
    "clips more": lambda v: replace(v, clip=v.clip + 0.004),
    "clips nothing": lambda v: replace(v, clip=0.0),
    "loses more": lambda v: replace(v, bits_lost=v.bits_lost + 1 / 1024),
    "loses nothing": lambda v: replace(v, bits_lost=0.0),
}


def refused(plan: Plan, graph: Graph, target: Target, text: str) -> bool:
    try:
        check(plan, graph, target)
    except PlanInvalid as error:
        return text in error.message
    return False


@pytest.mark.parametrize("name", FORGED)
@given(st.integers(0, 1 << 20), st.integers(1, 12))
def test_a_forged_figure_of_a_value_is_refused(name, seed, kernels):
    """Of data that passed a mover in float its bits are known from below only, so those are left out."""
    graph = random_graph(seed, kernels, facts=0.2)
    plan = planned(graph, TARGET, strategy="rfc")
    if plan is None or ("loses" in name and any(kernel.row is None for kernel in plan.kernels_in_order)):
        return
    for value, figures in plan.values.items():
        made = FORGED[name](figures)
        # Less than the checker's own rounding is no forgery.
        differs = abs(made.clip - figures.clip) > NEAR or made.bits_lost != figures.bits_lost
        if differs and made.clip <= 1:
            forged = replace(plan, values={**plan.values, value: made})
            assert refused(forged, graph, TARGET, "is listed as "), value


@pytest.mark.parametrize("factor", [0.0, 0.5, 0.999, 1.001, 2.0])
@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu"])
def test_a_forged_cost_is_refused(target, factor):
    """No bits are paid for here, so the cost is that of the rescales."""
    known = case(target)
    cost = known.plan.cost * factor
    forged = replace(known.plan, cost=cost, bound=cost)
    assert refused(forged, known.model, known.target, f"costs {cost!r}; accepted: 458.0 for its rescales")


def test_optimal_is_what_cost_and_bound_say():
    known = case("litert-int8")
    assert known.plan.optimal
    for forged in (replace(known.plan, optimal=False), replace(known.plan, bound=known.plan.cost - 1)):
        assert refused(forged, known.model, known.target, "contradict each other")


def test_a_trial_follows_data_as_from_its_start(monkeypatch):
    """Where the types of a class are others, the uses that it does not reach lose what they did."""
    tried = []

    def both(retyped, known):
        tried.append(follow_again(retyped, known))
        assert tried[-1].losses == follow(retyped).losses
        return tried[-1]

    monkeypatch.setattr(optimal, "follow_again", both)
    for seed in range(30):
        graph = random_graph(seed, 12)
        check(propagate(graph, TARGET, model=model_digest(graph)), graph, TARGET)
    assert len({tuple(one.losses) for one in tried}) > 50


def test_a_dearer_plan_is_not_optimal():
    """The greedy order rescales twice on tensorrt-int8 where one label would do."""
    known = case("tensorrt-int8")
    greedy = propagate(known.plan.fused, known.target, strategy="rfc", model=model_digest(digits()))
    assert greedy.cost > known.plan.cost
    check(greedy, known.model, known.target)
    forged = replace(greedy, bound=greedy.cost, optimal=True)
    assert refused(forged, known.model, known.target, "would save 1024 of a cost said to be optimal, 1866.0")


@pytest.mark.parametrize(("seed", "kernels", "saved"), [(1, 6, 427.6), (7, 4, 11.55), (152, 9, 4.476)])
def test_classes_that_share_a_label_are_tried_together(monkeypatch, seed, kernels, saved):
    """One alone saves nothing here: its rescale would only stand on the other side of it."""
    graph = random_graph(seed, kernels)
    greedy = propagate(graph, TARGET, strategy="rfc", model=model_digest(graph))
    forged = replace(greedy, bound=greedy.cost, optimal=True)
    assert refused(forged, graph, TARGET, f"would save {saved}")
    monkeypatch.setattr(optimal, "_sharing", lambda *_: iter(()))
    check(forged, graph, TARGET)


WIDE = target_of("""
- {kernel: wide, in: {x: a16}, out: {y: a16}}
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}
""")


def test_max_clip_binds_whatever_is_told():
    """The greedy order's plan, said to be the other: its warning does not excuse what a label would hold."""
    graph = graph_of(
        {"x": "[-1, 1]", "a": "[-1, 1]", "y": "[-2, 2]"},
        [("k1", "wide", "x", "a"), ("k2", "add", "a a", "y")],
        outputs="y",
    )
    plan = propagate(graph, WIDE, strategy="rfc", model=model_digest(graph))
    check(plan, graph, WIDE)
    forged = replace(plan, options={**plan.options, "strategy": "minimal"})
    assert refused(forged, graph, WIDE, "99.61% of its range is cut off")
    silent = replace(plan, warnings=())
    assert refused(silent, graph, WIDE, "accepted: at most 1.00%, or a warning that says how much")


def test_bits_lost_through_a_mover_are_those_of_its_coarsest_scale():
    """A concat shares the coarser range: 2 bits for who reads the finer one behind it."""
    rows = target_of("""
- {kernel: conv, in: {x: a8}, out: {y: a8}}
- {kernel: cat, in: {xs*: a8}, out: {y: a8}, rules: [{same_scale: [xs, y]}]}
""")
    graph = graph_of(
        {"x": "[-1, 1]", "a": "[-1, 1]", "b": "[-4, 4]", "c": "[-4, 4]", "y": "[-1, 1]"},
        [
            ("k1", "conv", "x", "a"),
            ("k2", "conv", "x", "b"),
            ("k3", "cat", "a b", "c"),
            ("k4", "conv", "a", "y"),
        ],
        outputs="c y",
        moves={"k3": "Concat"},
    )
    dear = {"requantize": 1000.0, "quantize": 1000.0, "dequantize": 1000.0}
    plan = propagate(graph, rows, model=model_digest(graph), **dear)
    check(plan, graph)
    assert plan.values["a"].bits_lost == pytest.approx(2.0, abs=1 / 512)
    forged = {**plan.values, "a": replace(plan.values["a"], bits_lost=0.0)}
    assert refused(replace(plan, values=forged), graph, rows, "accepted: 2.0")
    cost = sum(rescale.cost for rescale in plan.rescales) + 4 * 2.0 * 1.5
    assert plan.cost == pytest.approx(cost, abs=0.01)
    assert refused(replace(plan, cost=cost + 0.1, bound=cost + 0.1), graph, rows, "accepted: ")


@pytest.mark.parametrize(("seed", "kernels", "facts"), [(60828, 15, 0.1)])
def test_what_moved_in_float_disproves_nothing(seed, kernels, facts):
    """A class would lose less here than what no plan avoids that stores its data, so none is saved."""
    graph = random_graph(seed, kernels, facts=facts)
    plan = planned(graph, TARGET)
    assert plan.optimal
    check(plan, graph, TARGET)


@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu"])
@pytest.mark.parametrize("far", [np.finfo(np.float32).min, -np.inf, -200.0, 0.0])
def test_masks_of_any_depth_are_accepted(far, target):
    """Statistics of a masked sum leave infinities out, and so do the figures that are checked."""
    masked = attention(
        op("Add", "scores mask", "sum"), mask=np.where(MASK < 0, np.float32(far), np.float32(0))
    )
    plan, _, _ = checked(masked, target)
    assert all(kernel.row is not None for kernel in plan.kernels_in_order)

"""Suggestions remove the rescale they are for, and say what that costs."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import planner
from planner.errors import InputError, PlannerError, UnknownName
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Calibrated, Uniform
from planner.plans.diff import counted, stored_types, worst_bits_lost
from planner.plans.plan import Plan
from planner.propagation.propagate import propagate
from planner.what_if.edits import edited
from planner.what_if.harm import HARMLESS
from planner.what_if.suggest import Suggestion, suggest
from tests.propagation.graphs import TARGET, random_graph

CASES = Path(__file__).parent.parent / "cases"
NPU = planner.load_target(CASES / "npu.yaml")

EDITS = {
    "concat_two_pins_one_covers": ("q#0", {"values": {"q": "!quant.uniform<i8:f32, 0.03125>"}}),
    "fixed_output_pinned_otherwise": ("s#0", {"remove": ["s"]}),
    "pool_between_two_pins": ("q#0", {"remove": ["q"]}),
    "bias_behind_a_rescale": ("x#0", {"remove": ["conv.in[0]"]}),
    "residual_ring_with_a_pinned_skip": (
        "p#0",
        {"values": {"p": "!quant.uniform<i8:f32, 0.0117647061124444:-1>"}},
    ),
}


def plan_of(case: str) -> Plan:
    """The plan of one of the named cases."""
    return planner.plan(planner.load_model(CASES / f"{case}.json"), NPU)


@pytest.mark.parametrize("case", EDITS)
def test_the_first_suggestion(case: str) -> None:
    """The edit that one would make by hand comes first."""
    rescale, edits = EDITS[case]
    first = suggest(plan_of(case), rescale)[0]
    assert first.to_dict()["edits"] == edits


@pytest.mark.parametrize("case", EDITS)
def test_every_suggestion_holds(case: str) -> None:
    """Each, planned from its edits alone, has fewer rescales, no more casts, and a sound plan."""
    rescale, _ = EDITS[case]
    plan = plan_of(case)
    found = suggest(plan, rescale)
    assert [one.size for one in found] == sorted(one.size for one in found)
    for one in found:
        again = planner.replan(plan, one.edits)
        planner.check(again)
        assert again.to_json() == one.plan.to_json()
        assert len(counted(again)[0]) < len(counted(plan)[0])
        assert len(counted(again)[1]) <= len(counted(plan)[1])
        assert one.price == (plan.price, again.price)


def test_a_suggestion_that_cuts_says_so_and_comes_last() -> None:
    """A range forced onto a wider value costs what it cuts off."""
    found = suggest(plan_of("concat_pin_too_narrow"), "p#0")
    assert [one.cut > 0.01 for one in found] == sorted(one.cut > 0.01 for one in found)
    assert found[-1].cut == pytest.approx(0.75, abs=0.01)


@given(st.integers(0, 1 << 20))
@settings(suppress_health_check=[HealthCheck.too_slow], max_examples=10)
def test_figures_are_those_of_the_plan_and_ranges_stay_as_observed(seed: int) -> None:
    """Planned from scratch with its edits a suggestion is what it says; no edit touches what was observed."""
    graph = random_graph(seed, 8, facts=0.25)
    try:
        plan = propagate(graph, TARGET)
    except PlannerError:
        return
    for rescale in counted(plan)[0][:1]:
        found = suggest(plan, rescale.id)
        assert found == tuple(sorted(found, key=lambda one: one.cut > HARMLESS))
        for one in found:
            changed = edited(graph, one.edits)
            again = propagate(changed, TARGET)
            assert one.price == (plan.price, again.price)
            assert one.worst_bits_lost == (worst_bits_lost(plan), worst_bits_lost(again))
            assert observed(changed) == observed(graph)
            assert_harm_is_told(plan, again, one)


def observed(graph: Graph) -> dict[str, list[Calibrated]]:
    """Ranges by value."""
    return {
        name: [fact for fact in value.facts if isinstance(fact, Calibrated)]
        for name, value in graph.values.items()
    }


def assert_harm_is_told(before: Plan, after: Plan, one: Suggestion) -> None:
    """By numbers of its own: no value loses more, and of no observed range more is cut off, than is said."""
    for name, value in after.values.items():
        assert value.bits_lost - before.values[name].bits_lost <= one.harm.lost + 1e-9
        ranges = observed(before.graph)[name]
        if ranges:
            lo, hi = min(ranges[0].lo, 0.0), max(ranges[0].hi, 0.0)
            shares = [[outside(lo, hi, kind) for kind in stored_types(p, name)] for p in (before, after)]
            assert max(shares[1], default=0.0) <= max([*shares[0], one.cut]) + 1e-9
    told = "\n".join(one.lines())
    assert (one.cut > HARMLESS) == ("cuts off" in told)
    assert (one.harm.lost >= 0.005) == ("bits more" in told)


def outside(lo: float, hi: float, kind: Uniform) -> float:
    """Share of a range beyond a type and half a step."""
    ends = np.clip([lo, hi], kind.lo - kind.scale / 2, kind.hi + kind.scale / 2)
    return 1 - float(ends[1] - ends[0]) / (hi - lo) if hi > lo else 0.0


def test_a_pin_that_loses_says_how_much() -> None:
    """A range in its place had the same types, came first, and claimed 0.00 bits."""
    found = suggest(plan_of("float_use_counts"), "a#1")
    assert found[0].edits["values"] == {"a": "!quant.uniform<i8:f32, 0.062745101749897:-1>"}
    assert found[0].worst_bits_lost[0] == 0.0
    assert found[0].worst_bits_lost[1] == pytest.approx(3.0, abs=0.01)
    assert [*found[0].lines()][2] == "consumers of 'a' lose 3.00 bits more, 18.1 dB"
    assert not any("calibrated" in str(one.edits) for one in found)


def test_a_loss_shows_behind_a_greater_one_elsewhere() -> None:
    """The worst of the whole plan stays what it was; that of this value does not."""
    first = suggest(plan_of("interface_pinned_by_training"), "a#0")[0]
    assert first.worst_bits_lost[0] == first.worst_bits_lost[1]
    assert first.harm.lost == pytest.approx(1.99, abs=0.01)
    assert first.to_dict()["lost_at"] == "a"


def test_nothing_helps_where_the_kernel_wants_two_types() -> None:
    """No constraint makes one storage out of the two that a row asks for."""
    plan = plan_of("mul_of_one_value_in_two_storages")
    assert suggest(plan, counted(plan)[0][0].id) == ()


def test_an_unknown_rescale_names_the_nearest() -> None:
    """The error lists what there is."""
    with pytest.raises(UnknownName, match="q#1") as caught:
        suggest(plan_of("concat_two_pins_one_covers"), "q#1")
    assert "q#0" in str(caught.value)


def test_a_plan_from_a_file_needs_its_model() -> None:
    """Without model and target there is nothing to plan again; with them it works."""
    model = planner.load_model(CASES / "concat_two_pins_one_covers.json")
    read = planner.plan_from_json(planner.plan(model, NPU).to_json())
    with pytest.raises(InputError, match="model="):
        suggest(read, "q#0")
    assert suggest(read, "q#0", model=model, target=NPU)

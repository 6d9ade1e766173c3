"""Suggestions remove the rescale they are for, and say what that costs."""

from pathlib import Path

import pytest

import planner
from planner.errors import InputError, UnknownName
from planner.plans.diff import counted
from planner.plans.plan import Plan
from planner.what_if.suggest import suggest

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
        assert one.price == (plan.cost, again.cost)


def test_a_suggestion_that_cuts_says_so_and_comes_last() -> None:
    """A range forced onto a wider value costs what it cuts off."""
    found = suggest(plan_of("concat_pin_too_narrow"), "p#0")
    assert [one.cut > 0.01 for one in found] == sorted(one.cut > 0.01 for one in found)
    assert found[-1].cut == pytest.approx(0.75, abs=0.01)


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

"""A kernel back in float, and what that changed."""

import json
from pathlib import Path

import pytest

import planner
from planner.errors import InputError, UnknownName

CASES = Path(__file__).parent.parent / "cases"
NPU = planner.load_target(CASES / "npu.yaml")
RING = CASES / "residual_ring_of_same_scale.json"


def test_a_restored_kernel_is_float_with_casts_around_it() -> None:
    """Its row is gone, the plan says why, and the checker agrees."""
    plan = planner.plan(planner.load_model(RING), NPU)
    name = plan.kernels_in_order[1].name
    again = planner.restore(plan, name)
    kernel = again.kernels[name]
    assert kernel.row is None
    assert "!quant.none" in (kernel.reason or "")
    assert all(port.type is None for port in (*kernel.inputs, *kernel.outputs))
    assert len(again.rescales) > len(plan.rescales)
    planner.check(again, None, NPU)


def test_a_restored_kernel_cannot_be_restored() -> None:
    """It is float already; and a kernel that is not there has neighbours in spelling."""
    plan = planner.plan(planner.load_model(RING), NPU)
    name = plan.kernels_in_order[0].name
    again = planner.restore(plan, name)
    with pytest.raises(InputError, match="float already"):
        planner.restore(again, name)
    with pytest.raises(UnknownName, match="unknown kernel"):
        planner.restore(plan, name + "x")


def test_a_plan_does_not_differ_from_itself() -> None:
    """Nothing to say."""
    plan = planner.plan(planner.load_model(RING), NPU)
    found = planner.diff(plan, planner.plan_from_json(plan.to_json()))
    assert found.is_empty
    assert str(found) == "The plans decide the same."


def test_a_diff_names_rows_types_rescales_and_reasons() -> None:
    """Of a plan and the same with a pin more."""
    plan = planner.plan(planner.load_model(CASES / "concat_two_pins_one_covers.json"), NPU)
    again = planner.replan(plan, {"values": {"q": "!quant.uniform<i8:f32, 0.03125>"}})
    found = planner.diff(plan, again)
    assert found.totals["rescales"] == (1, 0)
    assert [change.at for change in found.rescales] == ["q#0"]
    assert any("0.03125" in change.after and "pinned" in change.why for change in found.ports)
    document = json.loads(found.to_json())
    assert document["format"] == "qplan.diff/1"
    assert str(found).startswith("price: 64 -> 48")

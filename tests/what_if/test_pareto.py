"""The front of a component: no point beats another, and the plan's own is marked."""

from pathlib import Path

import pytest

import planner

CASES = Path(__file__).parent.parent / "cases"
NPU = planner.load_target(CASES / "npu.yaml")

FRONTS = {
    "nested_concat": ("a", [(0, 2.0, False), (16, 0.0, True)]),
    "float_use_counts": ("a#1", [(0, 3.0, False), (16, 0.0, True)]),
    "residual_ring_with_a_pinned_skip": ("p", [(4, 0.59, True), (20, 0.49, False)]),
    "concat_two_pins_one_covers": ("q", [(16, 0.0, True)]),
}


@pytest.mark.parametrize("case", FRONTS)
def test_the_front(case: str) -> None:
    """(rescaled elements, worst bits lost, whether the plan has it), few elements first."""
    address, wanted = FRONTS[case]
    plan = planner.plan(planner.load_model(CASES / f"{case}.json"), NPU)
    found = planner.pareto(plan, address)
    assert [(one.rescaled_elements, one.worst_bits_lost, one.chosen) for one in found] == [
        (elements, pytest.approx(bits, abs=0.01), chosen) for elements, bits, chosen in wanted
    ]


def test_a_point_is_what_planning_with_its_limit_gives() -> None:
    """The limit of a point, given to `plan`, gives no more bits lost."""
    model = planner.load_model(CASES / "nested_concat.json")
    plan = planner.plan(model, NPU)
    for point in planner.pareto(plan, "a"):
        again = planner.plan(model, NPU, bit_price=0.0, max_bits_lost=point.max_bits_lost)
        lost = max(again.values[name].bits_lost for name in point.types)
        assert lost == pytest.approx(point.worst_bits_lost, abs=0.01)

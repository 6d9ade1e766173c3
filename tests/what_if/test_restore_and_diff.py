"""A kernel back in float, and what that changed."""

import json
from pathlib import Path

import pytest

import planner
from planner.errors import InputError, UnknownName
from planner.target.modeltext import read_model_text

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


ASKED = """
w = constant : f32[8,8,3,3] {-0.5, 0.5}
v = constant : f32[8,8,3,3] {-0.5, 0.5}
a = Conv(x, w) : f32[1,8,6,6] {-2, 2}
b = Conv(a, v) : f32[1,8,4,4] {-2, 2}
"""


@pytest.mark.parametrize(
    ("wanted", "said", "others"),
    [
        ({"a": "i16"}, "i16, asked of it by 'a'", {}),
        ({"*": "i16"}, "i16, asked of it by '*'", {"*": "i16"}),
        ({"?": {"in": ["i16", "i8"]}}, "{in: [i16, i8]}, asked of it by '?'", {"?": "{in: [i16, i8]}"}),
    ],
)
def test_restoring_is_the_later_word(wanted, said, others) -> None:
    """What annotations ask of the kernel is dropped, and said; other kernels are still asked it."""
    model = planner.annotate(read_model_text(ASKED, "asked"), kernels=wanted)
    plan = planner.plan(model, "litert-int8")
    assert str(plan.kernels["a"].outputs[0].type.storage) == "i16"
    again = planner.restore(plan, "a")
    assert (again.kernels["a"].row, again.kernels["a"].reason) == (None, "annotated: float")
    assert again.kernels["b"].row == plan.kernels["b"].row
    assert again.warnings == (f"'a' was restored to float: {said}, is dropped", *plan.warnings)
    assert {key: str(one) for key, one in again.graph.wanted.items()} == {**others, "a": "float"}
    planner.check(again, None, "litert-int8")
    read = planner.plan_from_json(plan.to_json())
    assert planner.restore(read, "a", model=model, target="litert-int8").to_json() == again.to_json()


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
    assert any("0.03125" in change.after and "fixed type" in change.why for change in found.ports)
    document = json.loads(found.to_json())
    assert document["format"] == "qplan.diff/1"
    assert str(found).startswith("price: 64 -> 48")


WEIGHTS = """
w = constant : f32[64,64] {-0.5, 0.5}
a = MatMul(x, w) : f32[2,64] {-2, 2}
y = Relu(a) : f32[2,64] {0, 2}
"""


@pytest.mark.parametrize("target", ["llm-w4", "onnxruntime-dynamic"])
def test_a_kernel_whose_activations_are_float_is_restored_whole(target) -> None:
    """Its integers are its weights, or made at run time: no fact of an activation takes the row from it."""
    plan = planner.plan(read_model_text(WEIGHTS, "weights"), target)
    name = next(kernel.name for kernel in plan.kernels_in_order if kernel.row is not None)
    again = planner.restore(plan, name)
    assert (again.kernels[name].row, again.kernels[name].reason) == (None, "annotated: float")
    planner.check(again, None, target)
    with pytest.raises(InputError, match="float already"):
        planner.restore(again, name)


MOVED = """
a = HardSwish(x) : f32[2,8] {-0.4, 3}
b = Reshape(a) : f32[16] {-0.4, 3}
y = HardSwish(b) : f32[16] {-0.4, 3}
"""


def test_a_width_at_a_port_that_moves_floats_is_reported() -> None:
    """It has no effect there, which the checker wants to be said."""
    plan = planner.plan(read_model_text(MOVED, "moved"), "teaching-npu")
    again = planner.replan(plan, {"ports": {"b.in[0]": "!quant.any<i8>"}})
    assert again.warnings == ("b.in[0] is float, so !quant.any<i8> on 'a' has no effect there",)
    planner.check(again, None, "teaching-npu")

"""A plan as MLIR text is a model whose ports are pinned: planned again, its types stay, without weights."""

import pytest

import planner
from tests.conftest import ROOT

DIGITS = ROOT / "examples" / "digits"


@pytest.mark.parametrize(
    "target", ["litert-int8", "onnxruntime-cpu", "tensorrt-int8", "teaching-npu", "stablehlo"]
)
def test_a_planned_text_planned_again_keeps_its_types(target):
    """Biases per channel among them, whose numbers the text does not have."""
    model = planner.load_model(DIGITS / "digits.onnx")
    stats = planner.calibrate(model, DIGITS / "calibration.npz")
    plan = planner.plan(planner.annotate(model, stats=stats), target)
    text = planner.load_model(plan.to_mlir().encode(), format="mlir")
    again = planner.plan(text, target)
    for kernel in plan.kernels_in_order:
        same = again.kernels[kernel.name]
        assert [port.type for port in same.inputs] == [port.type for port in kernel.inputs], same.reason
        assert [port.type for port in same.outputs] == [port.type for port in kernel.outputs]
    assert [text for text in again.warnings if "has no effect" in text] == []


@pytest.mark.parametrize("bits", [2, 4, 8, 12, 16])
def test_weights_of_any_width_of_a_wildcard_row_are_checked(bits):
    """A weight is as wide as asked: one scale a channel, as far on both sides of zero."""
    model = planner.load_model(DIGITS / "digits.onnx")
    wish = {"format": "qplan.annotations/1", "values": {"res/conv2_weight": f"!quant.any<i{bits}>"}}
    stats = planner.calibrate(model, DIGITS / "calibration.npz")
    model = planner.annotate(model, stats=stats, annotations=wish)
    plan = planner.plan(model, "finn-fpga")
    weight = plan.kernels["res/conv2"].inputs[1].type
    assert weight is not None
    assert weight.storage.bits == bits
    planner.check(plan, model, "finn-fpga")

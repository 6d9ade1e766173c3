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

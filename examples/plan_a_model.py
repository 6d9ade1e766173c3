"""The library in ten lines: from a float ONNX file to a quantized one, and the reason for one type.

Usage: `python examples/plan_a_model.py [OUT.onnx]`.
"""

import sys
from pathlib import Path

import planner

digits = Path(__file__).resolve().parent / "digits"
out = Path(sys.argv[1] if len(sys.argv) > 1 else "digits-int8.onnx")

model = planner.load_model(digits / "digits.onnx")
stats = planner.calibrate(model, digits / "calibration.npz", method="minmax")
target = planner.load_target("onnxruntime-cpu")
ready = planner.correct_biases(planner.annotate(model, stats=stats), target, stats)
plan = planner.plan(ready, target)
planner.check(plan, ready, target)
data = planner.export(ready, plan, "onnx-qdq")
quality = planner.compare(model, data, digits / "calibration.npz")

out.write_bytes(data)
print(f"{len(plan.kernels)} kernels, {len(plan.rescales)} changes of type, cost {plan.cost:g}")
for kernel in plan.kernels_in_order[:3]:
    print(f"{kernel.name}: reads {kernel.inputs[0].type}, gives {kernel.outputs[0].type}")
print(planner.explain(plan, plan.kernels_in_order[-1].outputs[0].address))
print(f"SQNR: { {name: round(found.sqnr, 1) for name, found in quality.outputs.items()} } dB")

"""Train a network of 2-bit weights for an FPGA under its plan, plan it again, and write the file."""

import numpy as np
import torch
from sklearn.datasets import load_digits

import planner
import planner.torch

model = planner.load_model("examples/digits/digits.onnx")
stats = planner.calibrate(model, "examples/digits/calibration.npz")
narrow = {"format": "qplan.annotations/1", "values": {"*_weight": "!quant.any<i2>"}}
model = planner.annotate(model, stats=stats, annotations=narrow)
plan = planner.plan(model, "finn-fpga")

test = np.load("examples/digits/test.npz")
known = {image.tobytes() for image in test["image"]}
digits = load_digits()
images = np.float32(digits.images[:, None] / 16)
kept = [i for i, image in enumerate(images) if image.tobytes() not in known]
images, labels = torch.tensor(images[kept]), torch.tensor(digits.target[kept])


def right(model: planner.Graph, plan: planner.Plan) -> float:
    """Return the share of right answers of the plan, in percent."""
    scores = planner.evaluate(model, plan, {"image": test["image"]}).outputs["probabilities"]
    return 100 * float(np.mean(scores.argmax(axis=1) == test["label"]))


torch.manual_seed(0)
module = planner.torch.fake_quantized(model, plan, outputs=["head/gemm_out"])
module.fit_weights(images[:256])
optimizer = torch.optim.Adam(planner.torch.parameter_groups(module, 2e-3))
for _ in range(4):
    for batch in torch.randperm(len(labels)).split(64):
        loss = torch.nn.functional.cross_entropy(module(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
module.save("learned.npz")

trained = planner.with_learned(model, "learned.npz")
again = planner.plan(trained, "finn-fpga")
print(f"after calibration: {right(model, plan):.1f} % right, {len(plan.rescales)} rescales and casts")
print(f"after training: {right(trained, again):.1f} % right, {len(again.rescales)} rescales and casts")
planner.export_to(trained, again, "finn", "digits-2bit.onnx")

"""Train the digits example under plans of few bits in PyTorch's environment; prints a line of JSON a run.

Run by `benchmarks.training_under_a_plan` as `.oracles/torch/bin/python benchmarks/training_side.py TARGET
BITS SEED EPOCHS tied|apart`. `apart` gives every tensor a scale of its own, as habit has it.
"""

import json
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits

import planner
import planner.torch
from planner.torch.module import FakeQuantized
from planner.training.spec import TrainingSpec

DIGITS = "examples/digits"
BATCH = 64
SCORES = "head/gemm_out"
SIGNED = frozenset({"res/conv2", "separable/pointwise"})
"""Convolutions without a Relu behind them."""


def asked(model: Any, bits: int) -> dict[str, Any]:
    """Annotations: so many bits for weights and for results of convolutions; 8 are the default."""
    convs = [op.name for op in model.ops if op.type == "Conv"]
    stores = {name: f"{'i' if name in SIGNED else 'u'}{bits}" for name in convs}
    kernels = {name: {"in": ["*", "*"], "out": [store]} for name, store in stores.items()}
    return {
        "format": "qplan.annotations/1",
        "values": {"*_weight": f"!quant.any<i{bits}>"} if bits < 8 else {},
        "kernels": kernels if bits < 8 else {},
    }


def untied(spec: TrainingSpec) -> TrainingSpec:
    """The spec with a group for each edge."""
    edges = tuple(replace(edge, group=f"{edge.group}/{i}") for i, edge in enumerate(spec.edges))
    groups = {
        edge.group: replace(spec.groups[old.group], name=edge.group)
        for edge, old in zip(edges, spec.edges, strict=True)
    }
    kept = {item.edge.group: spec.groups[item.edge.group] for item in spec.constants}
    return replace(spec, edges=edges, groups=groups | kept)


def training_data(test: Any) -> tuple[Any, Any]:
    """The digits that are not in the test file."""
    known = {image.tobytes() for image in test["image"]}
    digits = load_digits()
    images = np.float32(digits.images[:, None] / 16)
    kept = [i for i, image in enumerate(images) if image.tobytes() not in known]
    return torch.tensor(images[kept]), torch.tensor(digits.target[kept])


def train(module: Any, images: Any, labels: Any, epochs: int) -> None:
    """Train from a fitted start with Adam and a rate that falls to 0."""
    module.fit_weights(images[:256])
    optimizer = torch.optim.Adam(planner.torch.parameter_groups(module, 2e-3))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(len(labels)).split(BATCH):
            loss = torch.nn.functional.cross_entropy(module(images[batch])[0], labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()


def figures(plan: Any) -> dict[str, Any]:
    """Rescales without the casts at the ends, and the price of all."""
    kinds = [rescale.kind for rescale in plan.rescales]
    inner = [kind for kind in kinds if kind not in ("quantize", "dequantize")]
    return {"rescales": len(inner), "price": sum(rescale.cost for rescale in plan.rescales)}


def main(target: str, bits: int, seed: int, epochs: int, *, tied: bool) -> dict[str, Any]:
    """Plan, train, plan again; accuracies in percent of the 450 test images."""
    test = np.load(f"{DIGITS}/test.npz")
    model = planner.load_model(f"{DIGITS}/digits.onnx")
    stats = planner.calibrate(model, f"{DIGITS}/calibration.npz")
    ready = planner.annotate(model, stats=stats, annotations=asked(model, bits))
    ready = planner.correct_biases(ready, target, stats)
    plan = planner.plan(ready, target)
    torch.manual_seed(seed)
    spec = planner.training_spec(plan)
    module = FakeQuantized(ready, plan, spec if tied else untied(spec), outputs=[SCORES, *ready.outputs])
    start = time.process_time()
    train(module, *training_data(test), epochs)
    seconds = time.process_time() - start
    trained = planner.with_learned(ready, module)
    again = planner.plan(trained, target)

    def outputs(graph: Any, of: Any) -> Any:
        return planner.evaluate(graph, of, {"image": test["image"]}).outputs["probabilities"]

    def right(scores: Any) -> float:
        return 100 * float(np.mean(scores.argmax(1) == test["label"]))

    with torch.no_grad():
        by_torch = module(torch.tensor(test["image"]))[1].numpy()
    by_device = outputs(trained, again)
    return {
        "calibrated": right(outputs(ready, plan)),
        "trained": right(by_torch),
        "again": right(by_device),
        "difference": float(np.abs(by_torch - by_device).max()),
        "before": figures(plan),
        "after": figures(again),
        "seconds": seconds,
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    name, width, number, count, how = sys.argv[1:]
    print(json.dumps(main(name, int(width), int(number), int(count), tied=how == "tied")))

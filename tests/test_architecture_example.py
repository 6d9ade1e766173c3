"""The worked example of ARCHITECTURE.md, from ports to classes to labels, is what the planner does."""

import json
from pathlib import Path

import planner

PAGE = (Path(__file__).parents[1] / "ARCHITECTURE.md").read_text("utf-8")
RANGES = {"x": 1, "a": 1, "b": 4, "y": 2, "z": 2}
KERNELS = {
    "conv1": ("conv2d", ["x", "w1", None], "a"),
    "conv2": ("conv2d", ["x", "w2", None], "b"),
    "cat": ("Concat", ["a", "b"], "c"),
    "conv3": ("conv2d", ["c", "w3", None], "y"),
    "conv4": ("conv2d", ["a", "w4", None], "z"),
}


def model():
    values = [
        {"name": name, "shape": [1, 8, 4, 4], "constraints": [f"!quant.calibrated<f32<-{end}.0:{end}.0>>"]}
        for name, end in RANGES.items()
    ]
    values.append({"name": "c", "shape": [1, 16, 4, 4]})
    values += [
        {"name": f"w{i}", "shape": [8, 16 if i == 3 else 8, 1, 1], "constant": {"range": [-1, 1]}}
        for i in (1, 2, 3, 4)
    ]
    kernels = [
        {"name": name, "kernel": kernel, "inputs": inputs, "outputs": [output]}
        for name, (kernel, inputs, output) in KERNELS.items()
    ]
    document = {
        "format": "qplan.annotated/1",
        "name": "architecture",
        "values": [{"dtype": "f32", **value} for value in values],
        "kernels": kernels,
        "inputs": ["x"],
        "outputs": ["y", "z"],
    }
    return planner.load_model(json.dumps(document).encode(), format="json")


def test_the_example():
    plan = planner.plan(model(), "litert-int8")
    scales = {
        address: round(plan.ports[name].inputs[i].type.scale, 5)
        for address, name, i in (("cat", "cat", 0), ("conv4", "conv4", 0))
    }
    assert scales == {"cat": 0.03137, "conv4": 0.00784}
    assert [(r.id, r.kind, r.cost) for r in plan.rescales if r.kind == "requantize"] == [
        ("a#0", "requantize", 128)
    ]
    assert (plan.cost, plan.optimal) == (512, True)
    greedy = planner.plan(model(), "litert-int8", strategy="rfc")
    assert greedy.cost == 512
    assert any("74.9%" in text for text in greedy.warnings), greedy.warnings
    for told in ("0.0314", "0.00784", "`a#0`", "cost 512", "(2 - 0.5) = 384", "three quarters of `b`"):
        assert told in PAGE

"""Models quantized for other devices: a pin that the device has no storage for costs no change of type."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.errors import PlanInvalid
from planner.ir.graph import model_digest
from planner.propagation.propagate import propagate
from planner.what_if.edits import edited
from tests.exporters.litert.running import told
from tests.oracles import litert
from tests.propagation.small import graph_of, target_of


@pytest.fixture(scope="module")
def unsigned(tmp_path_factory):
    """The shipped example as a QDQ file of u8, as onnxruntime's own quantizer writes by default."""
    model = planner.load_model("examples/digits/digits.onnx")
    stats = planner.calibrate(model, "examples/digits/calibration.npz")
    model = planner.annotate(model, stats=stats)
    path = tmp_path_factory.mktemp("held") / "digits.onnx"
    path.write_bytes(planner.export(model, planner.plan(model, "onnxruntime-cpu"), "onnx-qdq"))
    return planner.load_model(path)


@pytest.mark.parametrize("target", ["litert-int8", "tosa-int8"])
def test_bytes_of_the_other_sign_cost_nothing(unsigned, target):
    """Two changes of zero point at each activation before, 5,740 element-rescales."""
    plan = planner.plan(unsigned, target)
    planner.check(plan, unsigned, target)
    assert not [rescale for rescale in plan.rescales if rescale.kind == "zero_point"]
    at_home = planner.plan(unsigned, "onnxruntime-cpu")
    assert plan.optimal
    assert plan.cost < 1.1 * at_home.cost
    sample = {"image": np.load("examples/digits/calibration.npz")["image"][:1]}
    wanted = planner.evaluate(unsigned, at_home, sample).outputs["probabilities"]
    found = planner.evaluate(unsigned, plan, sample).outputs["probabilities"]
    np.testing.assert_allclose(found, wanted, atol=0.02)


def test_litert_files_of_unsigned_models(unsigned, tmp_path):
    plan = planner.plan(unsigned, "litert-int8")
    data = planner.export(unsigned, plan, "litert")
    casts = Counter(rescale.kind for rescale in plan.rescales)
    assert told(data).counts["QUANTIZE"] == casts["quantize"] + casts["requantize"]
    sample = {"image": np.load("examples/digits/calibration.npz")["image"][:1]}
    [found] = litert.run(tmp_path, [(data, [sample])])
    assert not isinstance(found, str), found
    wanted = planner.evaluate(unsigned, plan, sample).outputs["probabilities"]
    np.testing.assert_array_equal(found[0]["probabilities"], wanted)


SIGNED = target_of("- {kernel: op, in: {a: a8}, out: {y: a8}}")
PIN = "!quant.uniform<u8:f32, 0.0078125:128>"


def chain():
    values = dict.fromkeys(("v0", "v1", "v2", "v3"), PIN)
    kernels = [(f"k{n}", "op", f"v{n}", f"v{n + 1}") for n in range(3)]
    return graph_of(values, kernels, outputs="v3", shapes=dict.fromkeys(values, (4,)))


@pytest.mark.parametrize("strategy", ["minimal", "rfc"])
def test_the_model_is_handed_and_hands_out_what_it_says(strategy):
    graph = chain()
    plan = propagate(graph, SIGNED, model=model_digest(graph), strategy=strategy)
    planner.check(plan, graph, SIGNED)
    assert [(rescale.value, rescale.kind) for rescale in plan.rescales] == [
        ("v0", "zero_point"),
        ("v3", "zero_point"),
    ]
    assert {step.rule for step in plan.steps if step.port == "k1.in[0]"} == {"pinned"}


def test_texts_and_documents_say_the_same(tmp_path):
    graph = chain()
    plan = propagate(graph, SIGNED, model=model_digest(graph))
    assert planner.plan_from_json(plan.to_json()).rescales == plan.rescales
    path = tmp_path / "plan.mlir"
    path.write_text(plan.to_mlir())
    again = planner.load_model(path)
    assert propagate(again, SIGNED, model=model_digest(graph)).rescales == plan.rescales
    assert not again.notes


def test_a_plan_of_other_storages_is_refused():
    graph = chain()
    plan = propagate(graph, SIGNED, model=model_digest(graph))
    other = replace(plan, target=replace(plan.target, storages=None))
    with pytest.raises(PlanInvalid, match="storages"):
        planner.check(other, graph, SIGNED)


@pytest.mark.parametrize(
    "edit", ["!quant.calibrated<f32<-1.0:0.9921875>>", "!quant.uniform<i8:f32, 0.0078125>"]
)
def test_planned_again_in_part(edit):
    """At the border of a part is no change of type either, which this device could not do between kernels."""
    values = {f"v{n}": PIN for n in range(41)} | dict.fromkeys(("v0", "v40"), "[-1, 0.9921875]")
    kernels = [(f"k{n}", "op", f"v{n - 1}", f"v{n}") for n in range(1, 41)]
    graph = graph_of(values, kernels, outputs="v40", shapes=dict.fromkeys(values, (4,)))
    target, edits = replace(SIGNED, rescale_allowed=False), {"values": {"v20": edit}}
    plan = propagate(graph, target, model=model_digest(graph))
    assert [rescale.kind for rescale in plan.rescales] == ["quantize", "dequantize"]
    changed = edited(graph, edits)
    scratch = propagate(changed, target, model=model_digest(changed))
    assert planner.replan(plan, edits).to_json() == scratch.to_json()
    assert planner.pareto(plan, "v20")

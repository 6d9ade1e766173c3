"""Models quantized for other devices: a pin that the device has no storage for costs no change of type."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import planner
from planner.errors import PlanInvalid
from planner.ir.graph import model_digest
from planner.ir.types.qtypes import Uniform
from planner.propagation.propagate import propagate
from planner.what_if.edits import edited
from tests.awkward.net import Net
from tests.formats.litert.writer.running import told
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


def between(op, storage, zero):
    """A quantizer of 16 bits in front of an op and behind it, of values in -3 to 3."""
    net = Net(7)
    element = np.dtype(storage)
    low = np.iinfo(element).min
    span = {"scale": np.float32(6 / 65535), "zero": element.type(zero + low)}

    def quantized(x):
        operands = net.const(span["scale"]), net.const(span["zero"])
        return net.op("DequantizeLinear", net.op("QuantizeLinear", x, *operands), *operands)

    x = quantized(net.input("x", [1, 4, 6, 6]))
    match op:
        case "Conv":
            made = net.conv(x, 4, 4)
        case "Add" | "Mul":
            made = net.op(op, x, quantized(net.input("x2", [1, 4, 6, 6])))
        case "Concat":
            made = net.op("Concat", x, x, axis=1)
        case "Reshape":
            made = net.op("Reshape", x, net.ints(1, 2, 12, 6))
        case "MaxPool":
            made = net.op("MaxPool", x, kernel_shape=[2, 2])
        case _:
            made = net.op(op, x)
    net.op("Identity", quantized(quantized(made) if op == "Relu" else made), out="y")
    net.output("y", None)
    return planner.load_model(net.data(opset=21, ir=10))


OPS = ("Add", "Concat", "Conv", "MaxPool", "Mul", "Relu", "Reshape", "Sigmoid", "Transpose")


@pytest.mark.parametrize(("storage", "zero"), [("int16", 1200), ("uint16", 0), ("uint16", 30000)])
@pytest.mark.parametrize("target", ["litert-int8", "ethos-u55"])
def test_files_of_values_that_litert_stores_around_0_alone(storage, zero, target, tmp_path):
    """The runtime takes no 16 bits with a zero point: a plan made for it has another type, and says so."""
    random, made = np.random.default_rng(5), []
    for op in OPS:
        model = between(op, storage, zero)
        samples = [
            {name: random.uniform(-3.2, 3.2, (1, 4, 6, 6)).astype(np.float32) for name in model.inputs}
            for _ in range(2)
        ]
        graph = planner.annotate(model, stats=planner.calibrate(model, samples))
        plan = planner.plan(graph, target)
        planner.check(plan, graph, target)
        replaced = [text.split("'")[1] for text in plan.warnings if "takes its place" in text]
        fixed = {
            name
            for name, value in plan.graph.values.items()
            if any(isinstance(fact, Uniform) for fact in value.facts)
        }
        assert sorted(replaced) == sorted(fixed - {*model.outputs})
        assert replaced
        again = planner.plan_from_json(plan.to_json())
        assert again.held_pins == plan.held_pins
        assert again.rescales == plan.rescales
        assert planner.compare(model, planner.export(graph, plan, "onnx-qdq"), samples).worst_sqnr > 30, op
        made.append((graph, plan, samples))
    files = [(planner.export(graph, plan, "litert"), samples) for graph, plan, samples in made]
    for (graph, plan, samples), found in zip(made, litert.run(tmp_path, files), strict=True):
        assert not isinstance(found, str), found
        for sample, results in zip(samples, found, strict=True):
            wanted = planner.evaluate(graph, plan, sample).outputs["y"]
            np.testing.assert_allclose(results["y"], wanted, atol=1e-3)


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

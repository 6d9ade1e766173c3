"""The reference is the model that the user gave: of a file with quantizers of its own, as written."""

import math

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.errors import ModelError, UnknownName
from planner.formats.annotated.document import write_annotated
from planner.formats.mlir.module import write_mlir
from planner.interpreter.compare import compare
from planner.interpreter.models import run_model
from planner.interpreter.reference import open_reference
from planner.ir.graph import WRITTEN_LEFT_OUT
from tests.conftest import ROOT

QONNX = "qonnx.custom_op.general"
RNG = np.random.default_rng(8)
SAMPLES = [{"x": RNG.normal(size=(1, 6)).astype(np.float32)} for _ in range(8)]


def trained(rounding: str = "FLOOR", *, custom: bool = False) -> bytes:
    """A net of one product whose input and result have quantizers of four bits, and of weights on a grid."""
    weight = np.random.default_rng(1).integers(-3, 4, (6, 5)).astype(np.float32) * np.float32(0.25)
    scales = {"s": np.float32(0.4), "s2": np.float32(0.37)}
    constants = {"w": weight, **scales, "z": np.float32(0), "bits": np.float32(4)}
    attributes = {"domain": QONNX, "signed": 1, "narrow": 0, "rounding_mode": rounding}
    nodes = [
        helper.make_node("Quant", ["x", "s", "z", "bits"], ["xq"], "quantize", **attributes),
        helper.make_node("MatMul", ["xq", "w"], ["product"], "product"),
        helper.make_node("Quant", ["product", "s2", "z", "bits"], ["pq"], "requantize", **attributes),
        helper.make_node("Relu", ["pq"], ["y"], "relu"),
    ]
    if custom:
        nodes.append(helper.make_node("Unknown", ["y"], ["z1"], "stranger", domain="some.where"))
    out = "z1" if custom else "y"
    graph = helper.make_graph(
        nodes,
        "trained",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 6])],
        [helper.make_tensor_value_info(out, TensorProto.FLOAT, [1, 5])],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    domains = [
        helper.make_opsetid("", 21),
        helper.make_opsetid(QONNX, 1),
        helper.make_opsetid("some.where", 1),
    ]
    return onnx.ModelProto.SerializeToString(helper.make_model(graph, opset_imports=domains, ir_version=10))


@pytest.mark.parametrize("rounding", ["ROUND", "FLOOR", "HALF_UP"])
def test_a_file_is_exact_against_itself_and_not_against_its_float_net(rounding):
    data = trained(rounding)
    model = planner.load_model(data)
    written = compare(model, data, SAMPLES)
    assert {quality.sqnr for quality in written.outputs.values()} == {math.inf}
    assert written.reference == "written"
    stripped = compare(model, data, SAMPLES, reference="stripped")
    assert stripped.worst_sqnr < 20
    assert stripped.reference == "stripped"
    assert stripped.measured_on == "on 8 samples against the model without its own quantizers"
    assert written.measured_on == "on 8 samples against the model with its own quantizers"


def test_facts_of_the_user_leave_the_reference_as_it_is():
    data = trained()
    model = planner.load_model(data)
    facts = planner.annotate(
        model, annotations={"format": "qplan.annotations/1", "values": {"y": "!quant.any<i8>"}}
    )
    assert facts.written is model.written
    assert compare(facts, data, SAMPLES).worst_sqnr == math.inf


def test_results_are_those_of_the_file_bit_for_bit():
    data = trained("FLOOR")
    run = open_reference(planner.load_model(data))
    for sample in SAMPLES:
        assert np.array_equal(run("sample", sample, ("y",))["y"], run_model(data, sample)["y"])


def test_a_value_is_watched_behind_its_quantizer():
    """As a planned file has it: the name of what is quantized, in reals, after it was."""
    data = trained("FLOOR")
    model = planner.load_model(data)
    seen = open_reference(model, ("product",))("sample", SAMPLES[0], ("product",))["product"]
    steps = seen / np.float32(0.37)
    assert np.array_equal(steps, np.rint(steps))


def test_a_float_model_has_no_other_form():
    model = planner.load_model(ROOT / "examples/digits/digits.onnx")
    assert model.written is None
    with pytest.raises(UnknownName) as caught:
        compare(model, b"", SAMPLES, reference="float")
    assert str(caught.value) == "unknown reference 'float' (known: 'stripped', 'written')"


def test_what_cannot_run_as_written_says_what_to_do():
    run = open_reference(planner.load_model(trained(custom=True)))
    with pytest.raises(ModelError) as caught:
        run("sample 3", SAMPLES[0], ("z1",))
    assert str(caught.value) == (
        "sample 3: some.where::Unknown at 'stranger': onnxruntime has no such operator (the reference runs "
        "the model with its own quantizers; the reference 'stripped' has none)"
    )


@pytest.mark.parametrize(("name", "least"), [("kwsmlp_w3a3", 30), ("qkeras_jettagging", 25)])
def test_trained_models_are_judged_by_what_was_trained(models, name, least):
    """The float net under the quantizers is another model, 13.9 and 5.5 dB away from a plan that holds."""
    path = models / "qonnx" / f"{name}.onnx"
    model = planner.load_model(path)
    rng = np.random.default_rng(0)
    shape = model.values[model.inputs[0]].shape
    samples = [{model.inputs[0]: rng.random(shape).astype(np.float32)} for _ in range(4)]
    ready = planner.annotate(model, stats=planner.calibrate(model, samples))
    file = planner.export(ready, planner.plan(ready, "onnxruntime-cpu"), "onnx-qdq")
    assert planner.compare(model, file, samples).worst_sqnr > least
    assert planner.compare(model, file, samples, reference="stripped").worst_sqnr < 20


@pytest.mark.parametrize("format_", ["json", "mlir"])
@pytest.mark.parametrize("kind", ["written", "stripped"])
def test_an_annotated_model_says_that_its_quantizers_are_left_out(format_, kind):
    """It holds their types, and no rounding: judged as if it were the model, it would mislead."""
    data = trained("FLOOR")
    model = planner.load_model(data)
    text = {"json": write_annotated, "mlir": write_mlir}[format_](model)
    again = planner.load_model(text.encode(), format=format_)
    assert again.notes == (*model.notes, WRITTEN_LEFT_OUT)
    found = compare(again, data, SAMPLES, reference=kind)
    stripped = compare(model, data, SAMPLES, reference="stripped")
    assert found.outputs == stripped.outputs
    assert found.reference == "stripped"
    told = [text for text in found.warnings if "compare with the ONNX file" in text]
    assert len(told) == (kind == "written")
    twice = {"json": write_annotated, "mlir": write_mlir}[format_](again)
    assert planner.load_model(twice.encode(), format=format_).notes == again.notes


def test_a_float_model_has_no_such_note():
    model = planner.load_model(ROOT / "examples/digits/digits.onnx")
    again = planner.load_model(write_annotated(model).encode(), format="json")
    assert again.notes == model.notes

"""Metadata of an ONNX file, such as names of classes, is in every ONNX file made of it."""

import json

import numpy as np
import onnx
import pytest
from onnx import helper

import planner
from planner.errors import ModelError, PlanFormatError
from planner.formats.annotated.document import read_annotated, write_annotated
from planner.formats.mlir.module import read_mlir, write_mlir
from planner.formats.onnx.write import write_graph
from planner.formats.table import FORMATS
from planner.ir.graph import model_digest, source_digest

ENTRIES = {"names": "{0: 'cat', 1: 'Eichhörnchen'}", "sample_rate": "16000", "empty": ""}
TARGETS = {"finn": "finn-fpga", "hls4ml": "hls4ml-fpga", "onnx-matmulnbits": "llm-w4"}
ONNX_FORMATS = [
    name for name, known in FORMATS.items() if known.suffix == ".onnx" and not known.is_types_alone
]
SAMPLES = {"x": np.linspace(-1, 1, 8 * 64, dtype=np.float32).reshape(8, 1, 64)}


def source(entries=ENTRIES):
    rng = np.random.default_rng(0)
    weights = onnx.numpy_helper.from_array(rng.normal(size=(64, 32)).astype(np.float32), "w")
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("MatMul", ["x", "w"], ["h"], "fc"),
                helper.make_node("Relu", ["h"], ["y"], "act"),
            ],
            "net",
            [helper.make_tensor_value_info("x", 1, [1, 64])],
            [helper.make_tensor_value_info("y", 1, [1, 32])],
            [weights],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    helper.set_model_props(model, entries)
    return model.SerializeToString()


def entries_of(data):
    return {entry.key: entry.value for entry in onnx.load_from_string(data).metadata_props}


def own(data):
    return {key: text for key, text in entries_of(data).items() if not key.startswith("qplan.")}


@pytest.mark.parametrize("name", ONNX_FORMATS)
def test_every_onnx_file_has_them(name):
    target = TARGETS.get(name, "onnxruntime-cpu")
    done = planner.quantize(source(), SAMPLES, target=target, effort="quick", format="onnx-qdq")
    data = planner.export(done.model, done.plan, name)
    assert own(data) == ENTRIES
    assert entries_of(data)["qplan.plan"] == done.plan.key


def test_a_float_file_and_one_in_another_dialect_have_them():
    done = planner.quantize(source(), SAMPLES, effort="quick")
    assert own(write_graph(done.model)) == ENTRIES
    assert own(planner.convert(done.data, "qonnx")) == ENTRIES


def test_a_plan_and_an_annotated_model_keep_them():
    graph = planner.load_model(source())
    model = planner.annotate(graph, stats=planner.calibrate(graph, SAMPLES))
    for read in (read_annotated(write_annotated(model)), read_mlir(write_mlir(model))):
        assert read.metadata == ENTRIES
    plan = planner.plan(model, "onnxruntime-cpu")
    read = planner.plan_from_json(plan.to_json())
    assert read.graph.metadata == ENTRIES
    planner.check(read, model)


def test_other_names_of_classes_are_another_file_with_the_same_statistics():
    one, other = (planner.load_model(source({**ENTRIES, "names": names})) for names in ("a", "b"))
    assert model_digest(one) == model_digest(other)
    assert source_digest(one) != source_digest(other)
    stats = planner.calibrate(one, SAMPLES)
    keys = [
        planner.plan(planner.annotate(graph, stats=stats), "onnxruntime-cpu").key for graph in (one, other)
    ]
    assert keys[0] != keys[1]


def test_a_planned_file_does_not_hand_on_its_own_plan():
    first = planner.quantize(source(), SAMPLES, effort="quick")
    again = planner.load_model(first.data)
    assert again.metadata == ENTRIES


def test_metadata_of_a_module_is_texts():
    text = write_mlir(planner.load_model(source()))
    with pytest.raises(ModelError, match=r"qplan\.metadata is no dictionary of texts"):
        read_mlir(text.replace(r"\"sample_rate\": \"16000\"", r"\"sample_rate\": 16000"))


def test_metadata_of_a_document_is_texts():
    document = json.loads(write_annotated(planner.load_model(source())))
    document["metadata"]["sample_rate"] = 16000
    with pytest.raises(PlanFormatError, match=r"metadata"):
        read_annotated(json.dumps(document))

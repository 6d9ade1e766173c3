"""Recurrent layers of every form: one kernel each, states in classes, and files that engines run alike."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, numpy_helper

from planner.checker.check import check
from planner.formats.onnx.read import read_onnx
from planner.formats.onnx.sessions import open_session
from planner.formats.onnx.write import write_graph
from planner.interpreter.compare import compare
from planner.ir.types.qtypes import Uniform, storage
from planner.pipeline import annotate, calibrate, evaluate, export, plan
from planner.target.load import load_target
from tests.formats.onnx.reader.runs import check_each, every_node_case, kind_of
from tests.recurrent.layers import LAYERS, data, sample

DEVICE = load_target(Path(__file__).parent / "device.yaml")


@cache
def planned(name):
    layer = LAYERS[name]
    graph = read_onnx(data(layer))
    graph = annotate(graph, stats=calibrate(graph, [sample(layer, seed) for seed in range(1, 5)]))
    return graph, plan(graph, DEVICE)


def run(session, feeds):
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))


@pytest.mark.parametrize("name", list(LAYERS))
def test_a_layer_is_one_kernel_whose_states_are_classes(name):
    graph, made = planned(name)
    check(made, graph, DEVICE)
    kernel = made.kernels["layer"]
    assert kernel.row is not None, kernel.reason
    ports = {port.value: port.type for port in (*kernel.inputs, *kernel.outputs) if port.value}
    assert all(isinstance(kind, Uniform) for kind in ports.values())
    named = {"states": "y", "cell": "c"}  # results that the model leaves out
    words = {named.get(value.rpartition("/")[2], value.split("/")[0]): kind for value, kind in ports.items()}
    assert {"y", "c"} <= set(words) or LAYERS[name].kind != "LSTM"
    hidden = [words[name] for name in ("h0", "y", "h") if name in words]
    cell = [words[name] for name in ("c0", "c") if name in words]
    assert len(set(hidden)) <= 1
    assert len(set(cell)) <= 1
    assert {kind.storage for kind in cell} <= {storage("i16")}
    assert all(np.frexp(kind.scale)[0] == 0.5 and kind.zero_point == 0 for kind in cell)
    assert words["w"].storage == words["r"].storage == storage("i8", -127, 127)
    assert [rescale for rescale in made.rescales if rescale.kind not in ("quantize", "dequantize")] == []


@pytest.mark.parametrize("form", ["onnx-qdq", "onnx-qoperator"])
@pytest.mark.parametrize("name", list(LAYERS))
def test_the_file_and_the_interpreter_agree_bit_for_bit(name, form):
    graph, made = planned(name)
    feeds = sample(LAYERS[name], 9)
    theirs = run(open_session(export(graph, made, form)), feeds)
    arithmetic = "float32_qdq" if form == "onnx-qdq" else "float32_even"
    ours = evaluate(graph, made, feeds, arithmetic=arithmetic)
    assert set(theirs) == set(graph.outputs)
    for output, array in theirs.items():
        np.testing.assert_array_equal(array, ours.outputs[output])


@pytest.mark.parametrize("name", list(LAYERS))
def test_stored_states_agree_too(name):
    """With the boundary pinned to the planned types the file gives stored integers."""
    graph, made = planned(name)
    kernel = made.kernels["layer"]
    pins = {port.value: port.type for port in kernel.outputs if port.value in graph.outputs}
    texts = {value: str(kind) for value, kind in pins.items()}
    pinned = annotate(graph, annotations={"format": "qplan.annotations/1", "values": texts})
    again = plan(pinned, DEVICE)
    feeds = sample(LAYERS[name], 9)
    theirs = run(open_session(export(pinned, again, "onnx-qdq")), feeds)
    ours = evaluate(pinned, again, feeds)
    for value, kind in pins.items():
        assert theirs[value].dtype == (np.int8 if kind.storage.bits == 8 else np.int16)
        np.testing.assert_array_equal(theirs[value], ours.stored[value])


@pytest.mark.parametrize("name", list(LAYERS))
def test_numbers_stay_near_the_float_layer(name):
    graph, made = planned(name)
    samples = [sample(LAYERS[name], seed) for seed in range(1, 5)]
    found = compare(graph, export(graph, made, "onnx-qdq"), samples)
    assert found.worst_sqnr > 30


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
def test_node_cases_of_onnx_compute_what_they_say(kind):
    """Read, brought to time first, written again and run: the numbers of the onnx package."""
    check_each([case for case in every_node_case() if kind_of(case, [kind])], computes_what_it_says)


def computes_what_it_says(case):
    graph = read_onnx(case.model.SerializeToString())
    assert all(op.attributes.get("layout", 0) == 0 for op in graph.ops)
    session = open_session(write_graph(graph))
    for given, wanted in case.data_sets:
        names = [info.name for info in case.model.graph.input]
        got = run(session, {name: array_of(item) for name, item in zip(names, given, strict=True)})
        for output, item in zip(graph.outputs, wanted, strict=True):
            np.testing.assert_allclose(got[output], array_of(item), rtol=case.rtol, atol=1e-6)


def array_of(item):
    return numpy_helper.to_array(item) if isinstance(item, TensorProto) else np.asarray(item)

"""Models with weights in files: sessions compute the same wherever the weights lie."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.formats.onnx import sessions
from planner.formats.onnx.read import read_onnx
from planner.ir.graph import Constant
from planner.ir.mapped import mapped_file

RNG = np.random.default_rng(0)
WEIGHTS = {"w": RNG.normal(size=(6, 5)).astype(np.float32), "v": RNG.normal(size=(5, 4)).astype(np.float32)}
SMALL = RNG.integers(-8, 8, (6, 5)).astype(ml_dtypes.int4)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A model whose weights are in a file beside it, of four bits among them."""
    nodes = [
        helper.make_node("DequantizeLinear", ["q", "s"], ["d"], "d"),
        helper.make_node("Add", ["w", "d"], ["u"], "u"),
        helper.make_node("MatMul", ["x", "u"], ["a"], "a"),
        helper.make_node("MatMul", ["a", "v"], ["y"], "y"),
    ]
    packed = SMALL.reshape(-1).astype(np.int8).view(np.uint8) & 15
    raw = (packed[::2] | packed[1::2] << 4).tobytes()
    constants = [numpy_helper.from_array(array, name) for name, array in WEIGHTS.items()]
    constants.append(helper.make_tensor("q", TensorProto.INT4, SMALL.shape, raw, raw=True))
    constants.append(numpy_helper.from_array(np.float32(0.5), "s"))
    ports = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, n]) for name, n in (("x", 6), ("y", 4))
    ]
    graph = helper.make_graph(nodes, "g", ports[:1], ports[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    found = tmp_path_factory.mktemp("external") / "model.onnx"
    onnx.save_model(model, found, save_as_external_data=True, size_threshold=0, location="weights")
    return found


@pytest.mark.parametrize("in_memory", [(), ("w",), ("v", "w")])
@pytest.mark.parametrize("large", [0, 1 << 40])
@pytest.mark.parametrize("inline", [0, 90, 125, 1 << 40])
def test_a_session_has_its_weights_wherever_they_lie(path, monkeypatch, inline, large, in_memory):
    monkeypatch.setattr(sessions, "LARGE", large)
    graph = read_onnx(path)
    mapped = {
        name for name in WEIGHTS if name in graph.constants and mapped_file(graph.constants[name].array)
    }
    constants = {
        name: Constant(np.array(constant.array)) if name in in_memory else constant
        for name, constant in graph.constants.items()
    }
    session = sessions.open_graph(
        replace(graph, constants=constants), onnxruntime.SessionOptions(), inline=inline
    )
    x = RNG.normal(size=(3, 6)).astype(np.float32)
    wanted = x @ (WEIGHTS["w"] + SMALL.astype(np.float32) / 2) @ WEIGHTS["v"]
    np.testing.assert_allclose(session.run(None, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)
    assert "v" in mapped


@pytest.mark.parametrize(("in_memory", "written"), [((), 0), (("v",), 1), (("v", "w"), 1)])
def test_weights_that_lie_in_files_are_not_written_again(path, monkeypatch, in_memory, written):
    monkeypatch.setattr(sessions, "LARGE", 0)
    made = []
    folder = sessions.tempfile.TemporaryDirectory
    monkeypatch.setattr(
        sessions.tempfile, "TemporaryDirectory", lambda **given: made.append(given) or folder(**given)
    )
    graph = read_onnx(path)
    constants = {
        name: Constant(np.array(constant.array)) if name in in_memory else constant
        for name, constant in graph.constants.items()
    }
    sessions.open_graph(replace(graph, constants=constants), onnxruntime.SessionOptions(), inline=130)
    assert len(made) == written


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("[ONNXRuntimeError] : 2 : no such\n  axis", "2 : no such axis"),
        ("[ONNXRuntimeError] : 1 : FAIL : Load model from /tmp/a.onnx failed:why", "1 : FAIL : why"),
        ("e" * 300, "e" * 300),
        ("e" * 301, "e" * 297 + "..."),
    ],
)
def test_what_onnxruntime_says_is_one_line_of_at_most_300_characters(said, told):
    assert sessions.one_line(RuntimeError(said)) == told

"""The verb tensors, and channels and batches of convert."""

import json

import numpy as np
from onnx import TensorProto, helper

import planner
from planner.conversion.convert import convert
from planner.formats.onnx.read import read_written
from planner.interpreter.models import run_model
from tests.conversion.files import file_of
from tests.conversion.test_pruning import X as IMAGE
from tests.conversion.test_pruning import net as pruning_net
from tests.conversion.test_pruning import normal

X = {"x": (TensorProto.FLOAT, [1, 4, 6, 6])}


def test_the_verb_says_datatypes_ranges_and_stuck_channels(qplan, tmp_path):
    weight = np.ones((2, 4, 1, 1), np.float32)
    weight[1] = 0
    path, samples = tmp_path / "m.onnx", tmp_path / "s.npz"
    path.write_bytes(file_of([helper.make_node("Conv", ["x", "w"], ["y"], "c")], X, ["y"], {"w": weight}))
    np.savez(samples, x=np.full((3, 1, 4, 6, 6), 0.5, np.float32))
    answer = qplan("tensors", path, "--range", "0,0,0,-1:1,1,1,1", "--data", samples)
    assert answer.code == 0
    assert "-1 to 4" in answer.out
    found = json.loads(qplan("tensors", path, "--range", "x=0:1", "--data", samples, "--json").out)
    assert found["tensors"][1] == {
        "name": "y",
        "shape": [1, 2, 6, 6],
        "datatype": "FLOAT32",
        "constant": False,
        "bounds": {"lo": [0.0, 0.0], "hi": [4.0, 0.0], "stuck": {"1": 0.0}},
        "why": "",
        "seen": {"lo": [2.0, 0.0], "hi": [2.0, 0.0], "stuck": {"0": 2.0, "1": 0.0}},
    }
    assert "accepted is LO:HI" in qplan("tensors", path, "--range", "1").err
    (first, second) = planner.tensors(path, inputs={"x": (0.0, 1.0)})
    assert (first.name, second.datatype, dict(second.bounds.stuck)) == ("x", "FLOAT32", {1: 0.0})


def test_a_fixed_batch_is_given_another_size(qplan, tmp_path):
    shape = np.asarray([1, 4 * 64])
    data = file_of(
        [
            helper.make_node("Conv", ["x", "w"], ["a"], "c", pads=[1, 1, 1, 1]),
            helper.make_node("Reshape", ["a", "shape"], ["y"], "r"),
        ],
        IMAGE,
        ["y"],
        {"w": normal(4, 3, 3, 3), "shape": shape},
    )
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    path.write_bytes(data)
    assert qplan("convert", path, "--to", "cleaned", "--batch", "3", "-o", out).code == 0
    x = normal(3, 3, 8, 8)
    singly = np.concatenate([run_model(data, {"x": x[i : i + 1]})["y"] for i in range(3)])
    assert np.allclose(run_model(out, {"x": x})["y"], singly, atol=1e-5)
    answer = qplan("convert", path, "--to", "cleaned", "--batch", "0", "-o", out)
    assert (answer.code, "a batch has one sample or more, not 0" in answer.err) == (2, True)


def test_the_verb_prunes(qplan, tmp_path):
    path, out = tmp_path / "m.onnx", tmp_path / "out.onnx"
    path.write_bytes(pruning_net())
    assert qplan("convert", path, "--to", "cleaned", "--prune", "a=1,3", "-o", out).code == 0
    assert out.read_bytes() == convert(path, "cleaned", prune={"a": [1, 3]})
    assert qplan("convert", path, "--to", "cleaned", "--prune", "w3@0=2", "-o", out).code == 0
    assert read_written(out).values["y"].shape == (1, 6)
    assert (
        "accepted is TENSOR=N,N" in qplan("convert", path, "--to", "cleaned", "--prune", "a", "-o", out).err
    )

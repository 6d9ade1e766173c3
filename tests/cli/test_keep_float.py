"""Coverage that pays: where a quantized file has nothing to offer, `quantize` says so and writes none."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner

HIDDEN, STEPS = 8, 6
FLOAT_IS_CHEAP = """
apiVersion: planner/v1
kind: Target
id: cheap-float
version: 1.0.0
title: A device whose floats cost next to nothing
mode: fixed
extends: litert-int8
float_work: {mac: 0.001, element: 0.001, byte: 0}
"""


def saved(folder, name, nodes, sizes, constants):
    """A model and its samples, as files."""
    kept = [numpy_helper.from_array(array, key) for key, array in constants.items()]
    sides = [[helper.make_tensor_value_info(key, TensorProto.FLOAT, size)] for key, size in sizes.items()]
    model = helper.make_model(
        helper.make_graph(nodes, name, *sides, kept),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    onnx.save(model, folder / f"{name}.onnx")
    rng = np.random.default_rng(1)
    np.savez(folder / f"{name}.npz", x=rng.normal(size=(8, *sizes["x"])).astype(np.float32))
    return folder / f"{name}.onnx", folder / f"{name}.npz"


@pytest.fixture
def recurrent(tmp_path):
    """A voice detector in small: an LSTM, for which onnxruntime has no integer kernel, and a sigmoid."""
    rng = np.random.default_rng(0)
    weights = {
        "W": rng.normal(size=(1, 4 * HIDDEN, 4)).astype(np.float32),
        "R": rng.normal(size=(1, 4 * HIDDEN, HIDDEN)).astype(np.float32),
        "axis": np.array([0], np.int64),
    }
    nodes = [
        helper.make_node("LSTM", ["x", "W", "R"], ["", "h"], hidden_size=HIDDEN, name="lstm"),
        helper.make_node("Squeeze", ["h", "axis"], ["flat"], name="squeeze"),
        helper.make_node("Sigmoid", ["flat"], ["y"], name="sigmoid"),
    ]
    return saved(tmp_path, "voice", nodes, {"x": [STEPS, 1, 4], "y": [1, HIDDEN]}, weights)


@pytest.fixture
def products(tmp_path):
    """Two products of few numbers."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="product"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "w"], ["y"], name="last"),
    ]
    weights = {"w": np.eye(4, dtype=np.float32)}
    return saved(tmp_path, "small", nodes, {"x": [8, 4], "y": [8, 4]}, weights)


def test_a_recurrent_model_is_kept_as_it_is(qplan, recurrent, tmp_path):
    model, data = recurrent
    out = tmp_path / "out"
    line = ("quantize", model, "--data", data, "-o", out)
    answer = qplan(*line)
    assert answer.code == 1
    assert "verdict: keep the float model: nothing is quantized, all 2 kernels fall back" in answer.out
    said = "1 operator (100 % of multiply-adds) is not supported by onnxruntime-cpu: LSTM (1)"
    assert said in answer.out
    assert "nothing is written; --force writes the files all the same" in answer.out
    assert not out.exists()
    command = next(text for text in answer.out.splitlines() if text.startswith("why, kernel by kernel"))
    words = command.partition(": qplan ")[2].split()
    assert qplan(*words).code == 1
    assert (out / "report.html").is_file()
    assert "keep the float model: nothing is quantized" in (out / "report.html").read_text()
    assert not (out / "onnx-qdq.onnx").exists()


def test_forced_it_writes_and_the_exit_code_still_says_so(qplan, recurrent, tmp_path):
    model, data = recurrent
    out = tmp_path / "out"
    answer = qplan("quantize", model, "--data", data, "-o", out, "--force", "--json")
    assert answer.code == 1
    assert str(out / "onnx-qdq.onnx") in answer.json["files"]
    assert (out / "onnx-qdq.onnx").is_file()
    assert answer.json["verdict"]["keep_float"] is True


@pytest.mark.parametrize("effort", ["quick", "normal"])
def test_as_json_no_file_is_listed(qplan, recurrent, tmp_path, effort):
    model, data = recurrent
    answer = qplan("quantize", model, "--data", data, "-o", tmp_path / "out", "--effort", effort, "--json")
    assert (answer.code, answer.json["files"]) == (1, [])
    assert answer.json["verdict"]["level"] == "poor"
    assert not list((tmp_path / "out").glob("*.onnx"))


def test_the_library_has_the_same_verdict(recurrent):
    model, data = recurrent
    found = planner.quantize(model, data)
    assert found.verdict.keeps_float
    assert str(found.verdict).startswith("keep the float model: nothing is quantized")


def test_bigger_and_slower_is_kept(qplan, products, tmp_path):
    """On a device whose floats are as good as free, casts are all that quantizing adds."""
    model, data = products
    target = tmp_path / "cheap-float.yaml"
    target.write_text(FLOAT_IS_CHEAP)
    answer = qplan("quantize", model, "--data", data, "-t", target, "-o", tmp_path / "out")
    assert answer.code == 1
    assert "verdict: keep the float model: the file is bigger, " in answer.out
    assert "times the work of the given model" in answer.out
    assert not (tmp_path / "out").exists()
    found = planner.quantize(model, data, target=target).verdict
    assert f"verdict: {found}" in answer.out
    assert found.covered.mac_share == 1
    usual = qplan("quantize", model, "--data", data, "-t", "litert-int8", "-o", tmp_path / "out")
    assert (usual.code, (tmp_path / "out" / "onnx-qdq.onnx").is_file()) == (0, True)


def test_one_format_that_pays_is_enough(qplan, products, tmp_path):
    """A text has no bytes that a device holds, so that its size says nothing."""
    model, data = products
    target = tmp_path / "cheap-float.yaml"
    target.write_text(FLOAT_IS_CHEAP)
    line = ("quantize", model, "--data", data, "-t", target, "-o", tmp_path / "out", "-f", "onnx-qdq")
    assert qplan(*line, "-f", "stablehlo").code == 0
    assert (tmp_path / "out" / "onnx-qdq.onnx").is_file()


def at_run_time(path, *, floats=False):
    """Two products of integers that the file quantizes at run time; with `floats` one more of floats."""
    rng = np.random.default_rng(5)
    nodes, arrays, x = [], {}, "x"
    for n in range(2):
        arrays |= {f"w{n}": rng.integers(-90, 90, (64, 64)).astype(np.int8), f"s{n}": np.float32(0.01)}
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [x], [f"q{n}", f"qs{n}", f"qz{n}"]),
            helper.make_node("MatMulInteger", [f"q{n}", f"w{n}", f"qz{n}"], [f"i{n}"]),
            helper.make_node("Cast", [f"i{n}"], [f"c{n}"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"qs{n}", f"s{n}"], [f"t{n}"]),
            helper.make_node("Mul", [f"c{n}", f"t{n}"], [f"m{n}"]),
            helper.make_node("Tanh", [f"m{n}"], [f"y{n}"]),
        ]
        x = f"y{n}"
    if floats:
        arrays["w"] = rng.normal(size=(64, 64)).astype(np.float32)
        nodes.append(helper.make_node("MatMul", [x, "w"], ["z"]))
        x = "z"
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 64)) for name in ("x", x)]
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "m", ends[:1], ends[1:], tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("floats", "target", "keeps"),
    [(False, "onnxruntime-cpu", True), (True, "onnxruntime-cpu", False), (False, "litert-int8", False)],
)
def test_a_file_that_multiplies_in_integers_is_kept_by_its_engine(tmp_path, floats, target, keeps):
    model = at_run_time(tmp_path / "m.onnx", floats=floats)
    samples = [{"x": np.random.default_rng(k).normal(size=(1, 64)).astype(np.float32)} for k in range(8)]
    found = planner.quantize(model, samples, target=target, effort="quick").verdict
    assert found.keeps_float is keeps, str(found)
    assert ("times the work of the given model" in str(found)) is keeps

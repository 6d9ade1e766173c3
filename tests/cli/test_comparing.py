"""The comparison that `plan` prints: as users run the file, with a warning where that loses."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.cli.comparing import bigger, compare_as_used
from tests.interpreter.test_at_defaults import whole_numbers

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(4, 3)).astype(np.float32)
WEIGHT[0, 0] = 300


def file_of(nodes, arrays):
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (8, n)) for name, n in (("x", 4), ("y", 3))
    ]
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "m", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_what_the_optimisations_lose_is_warned_of(capsys, tmp_path):
    gemm = helper.make_node("Gemm", ["x", "w"], ["y"])
    source = planner.load_model(file_of([gemm], {"w": WEIGHT}).SerializeToString())
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Gemm", ["d", "w"], ["g"]),
        helper.make_node("QuantizeLinear", ["g", "s", "z"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "s", "z"], ["y"]),
    ]
    arrays = {"w": WEIGHT, "s": np.float32(1e-3), "z": np.int16(0)}
    data = file_of(nodes, arrays).SerializeToString()
    x = RNG.normal(size=(8, 4)).astype(np.float32)
    x[:, 0] = 0
    np.savez(tmp_path / "x.npz", x=x[None])
    found = compare_as_used(source, "onnx-qdq", data, str(tmp_path / "x.npz"))
    told = capsys.readouterr().err
    assert "warning: onnx-qdq: y has " in told
    assert "dB with onnxruntime's optimisations" in told
    assert found.worst_sqnr < planner.compare(source, data, str(tmp_path / "x.npz")).worst_sqnr - 10


def test_what_holds_is_not(capsys, tmp_path):
    gemm = helper.make_node("Gemm", ["x", "w"], ["y"])
    data = file_of([gemm], {"w": WEIGHT}).SerializeToString()
    np.savez(tmp_path / "x.npz", x=RNG.normal(size=(1, 8, 4)).astype(np.float32))
    compare_as_used(planner.load_model(data), "onnx-qdq", data, str(tmp_path / "x.npz"))
    assert capsys.readouterr().err == ""


def test_a_file_bigger_than_its_source_says_so(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"12345")
    files = {"onnx-qdq.onnx": 6, "onnx-integer.onnx": 4, "plan.json": 7}
    told = f"onnx-qdq.onnx is bigger than {path}: 6 bytes, not 5"
    assert list(bigger(str(path), files)) == [told]
    assert list(bigger("-", files)) == []


def test_the_command_keeps_everything_of_a_file_that_does_not_run_at_defaults(qplan, tmp_path):
    data, arrays = whole_numbers()
    (tmp_path / "net.onnx").write_bytes(data)
    np.savez(tmp_path / "x.npz", **arrays)
    out = tmp_path / "out"
    found = qplan("quantize", tmp_path / "net.onnx", "--data", tmp_path / "x.npz", "--out", out)
    assert found.code == 1
    told = "the exported file does not run at onnxruntime's defaults: Resize 'up' fails with optimisations of"
    assert f"verdict: poor: {told}" in found.out
    assert found.out.endswith("missed: onnx-qdq: does not run at the engine's defaults\n")
    assert {path.name for path in out.iterdir()} == {"plan.json", "plan.mlir", "report.html", "onnx-qdq.onnx"}
    is_told = "fails with optimisations of level" in (out / "report.html").read_text(encoding="utf-8")
    assert is_told

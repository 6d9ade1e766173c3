"""Files compared as users run them: at the engine's defaults, and other devices' files without its faults."""

import subprocess
import sys

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import planner
from planner.formats.onnx.sessions import session_options
from planner.interpreter import reference
from planner.interpreter.as_used import compare_as_used
from planner.target.records import Files

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


HERE = Files(runtime="onnxruntime")


def test_what_the_optimisations_lose_is_warned_of(monkeypatch):
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
    runs = []
    run_float = reference.run_session
    monkeypatch.setattr(reference, "run_session", lambda *given: runs.append(given[1]) or run_float(*given))
    used = compare_as_used(source, "onnx-qdq", data, [{"x": x}, {"x": x}], device=HERE)
    # The figures without optimisations are of the same reference.
    assert len(runs) == len(set(runs)) == 2
    written = compare_as_used(source, "onnx-qdq", data, [{"x": x}, {"x": x}], device=Files())
    told = f"{used.worst_sqnr:.1f} dB with onnxruntime's optimisations, {written.worst_sqnr:.1f} without"
    assert (used.notes, written.notes) == ((told,), ())
    assert used.worst_sqnr < written.worst_sqnr - 10


def test_what_holds_is_not():
    gemm = helper.make_node("Gemm", ["x", "w"], ["y"])
    data = file_of([gemm], {"w": WEIGHT}).SerializeToString()
    samples = [{"x": RNG.normal(size=(8, 4)).astype(np.float32)}]
    found = compare_as_used(planner.load_model(data), "onnx-qdq", data, samples, device=HERE)
    assert found.notes == ()


def large_products():
    """A product whose pairs of u8 and i8 leave 16 bits."""
    weight = np.repeat(RNG.uniform(0.9, 1, size=(64, 1)), 3, axis=1).astype(np.float32)
    gemm = helper.make_node("Gemm", ["x", "w"], ["y"])
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, (8, n)) for name, n in (("x", 64), ("y", 3))
    ]
    graph = helper.make_graph([gemm], "m", ends[:1], ends[1:], [numpy_helper.from_array(weight, "w")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@pytest.mark.parametrize("verb", ["quantize", "plan"])
def test_a_file_for_another_device_is_judged_without_what_this_processor_loses(tmp_path, verb):
    """In a process of its own: here all sessions have exact products (`tests.exact_products`)."""
    (tmp_path / "m.onnx").write_bytes(large_products().SerializeToString())
    np.savez(tmp_path / "x.npz", x=RNG.uniform(0, 1, size=(4, 8, 64)).astype(np.float32))
    asked = [verb, "m.onnx", "--data", "x.npz", "-t", "qnn-htp", "-f", "onnx-qdq", "--out", "out"]
    code = f"import sys; from planner.cli.app import main; sys.argv[1:] = {asked}; main()"
    run = [sys.executable, "-c", code]
    found = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "verdict: good" in found.stdout
    assert "optimisations" not in found.stderr


@pytest.mark.parametrize("target", planner.target_ids())
def test_targets_say_whether_they_are_the_engine_here(target):
    is_here = target.startswith("onnxruntime-")
    assert planner.load_target(target).files.runtime == ("onnxruntime" if is_here else None)


def test_threads_do_not_spin_between_runs():
    """Reference and file run in turn: spinning threads of one take the cores of the other."""
    assert session_options().get_session_config_entry("session.intra_op.allow_spinning") == "0"

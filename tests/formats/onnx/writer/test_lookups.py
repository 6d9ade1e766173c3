"""A Gather of a table in `onnx-qdq`: onnxruntime reads rows of it, and never dequantizes the whole table."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import planner
from tests.formats.plans import model, op

ROOT = Path(__file__).resolve().parents[4]
ENTRIES, WIDTH = 800, 32


def looked_up(store, *, axis=0):
    rng = np.random.default_rng(1)
    constants = {
        "t": rng.normal(size=(ENTRIES, WIDTH)).astype(np.float32),
        "c": rng.normal(size=(8, WIDTH) if axis == 0 else (800, 8)).astype(np.float32),
    }
    found = (8, WIDTH) if axis == 0 else (ENTRIES, 8)
    graph = model(
        [op("Gather", "t i", "e", axis=axis), op("Add", "e c", "y")],
        inputs={"i": (8,)},
        outputs={"y": found},
        constants=constants,
        dtypes={"i": "i64"},
        shapes={"e": found},
    )
    samples = [{"i": rng.integers(0, WIDTH, 8)} for _ in range(4)]
    ready = planner.annotate(graph, stats=planner.calibrate(graph, samples), kernels={"op_y": store})
    return ready, planner.plan(ready, "onnxruntime-cpu"), samples


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("store", ["i8", "u8"])
def test_no_run_dequantizes_the_table(store, axis, tmp_path):
    ready, plan, samples = looked_up(store, axis=axis)
    data = planner.export(ready, plan, "onnx-qdq")
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "profile")
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    (got,) = session.run(None, samples[0])
    np.testing.assert_array_equal(got, planner.evaluate(ready, plan, samples[0]).outputs["y"])
    events = json.loads(Path(session.end_profiling()).read_text(encoding="utf-8"))
    ran = [event["args"] for event in events if event["name"].endswith("_kernel_time")]
    assert "Gather" in {one["op_name"] for one in ran}
    sizes = [
        np.prod(shape)
        for one in ran
        if one["op_name"] == "DequantizeLinear"
        for shape in one["input_type_shape"][0].values()
    ]
    assert max(sizes, default=0) < ENTRIES * WIDTH


@pytest.mark.parametrize(("target", "is_on_integers"), [("onnxruntime-cpu", True), ("litert-int8", False)])
def test_other_readers_see_a_pair_in_front(target, is_on_integers):
    """Compilers want an operator between its pairs; what onnxruntime does on x86 is none of theirs."""
    text = (ROOT / "targets" / f"{target}.yaml").read_text(encoding="utf-8")
    if not is_on_integers:
        text = text.replace("files: {", "files: {reader: any, ")
    ready, _, _ = looked_up("i8")
    nodes = onnx.load_from_string(
        planner.export(ready, planner.plan(ready, planner.load_target(text)), "onnx-qdq")
    ).graph.node
    gather = next(node for node in nodes if node.op_type == "Gather")
    assert (gather.input[0] == "t_quantized") == is_on_integers

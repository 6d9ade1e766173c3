"""The float model beside a plan is the one that the plan is for: verbs that take the folder find it."""

import numpy as np
import onnx
import pytest
from onnx import helper

import planner
from planner.cli.app import run
from tests.awkward.models import AWKWARD

NAMES = (
    "captured_values",
    "constant_of_shape_weights",
    "contrib_operator",
    "conv_forms",
    "dynamic_batch",
    "einsum_and_reductions",
    "if_computed",
    "local_functions",
    "loop_body",
    "newest_operators",
    "scan_body",
    "weights_in_branches",
)


def open_sizes():
    """A picture of any size, sizes inside stated by names that nothing infers, as YOLO's exporter does."""
    rng = np.random.default_rng(2)
    weights = {
        "w": rng.normal(size=(4, 3, 3, 3)),
        "b": rng.normal(size=4),
        "v": rng.normal(size=(2, 4, 1, 1)),
    }
    model = helper.make_model(
        helper.make_graph(
            [
                helper.make_node("Conv", ["x", "w", "b"], ["c"], "conv", strides=[2, 2], pads=[1, 1, 1, 1]),
                helper.make_node("Relu", ["c"], ["r"], "act"),
                helper.make_node("Conv", ["r", "v"], ["y"], "head"),
            ],
            "open_sizes",
            [helper.make_tensor_value_info("x", 1, ["batch", 3, "height", "width"])],
            [helper.make_tensor_value_info("y", 1, ["batch", 2, "floor(height/2)", "floor(width/2)"])],
            [onnx.numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()],
            value_info=[
                helper.make_tensor_value_info("c", 1, ["batch", 4, "floor(height/2)", "floor(width/2)"])
            ],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
    )
    return model.SerializeToString()


def samples_of(graph):
    rng = np.random.default_rng(1)
    found = {}
    for name in graph.inputs:
        value = graph.values[name]
        shape = [
            size if isinstance(size, int) else (8 if at > 1 else 1) for at, size in enumerate(value.shape)
        ]
        reals = rng.normal(size=(4, *shape)) + 0.5 if value.is_float else np.ones((4, *shape))
        found[name] = reals.astype({"f32": np.float32, "i64": np.int64, "bool": np.bool_}[value.dtype])
    return found


@pytest.mark.parametrize("name", [*NAMES, "open_sizes"])
def test_the_folder_of_a_plan_knows_its_model(name, tmp_path):
    model, out = tmp_path / f"{name}.onnx", tmp_path / "out"
    model.write_bytes(open_sizes() if name == "open_sizes" else AWKWARD[name]())
    np.savez(tmp_path / "data.npz", **samples_of(planner.load_model(model)))
    data = ["--data", str(tmp_path / "data.npz")]
    run(["quantize", str(model), *data, "--effort", "quick", "--force", "--out", str(out)])
    assert list(out.glob(f"{name}.corrected-float.*"))
    assert run(["check", str(out)]) == 0
    assert run(["export", str(out), "--format", "onnx-qoperator", "--out", str(tmp_path / "again.onnx")]) == 0
    assert run(["losses", str(out), *data, "--limit", "1"]) == 0

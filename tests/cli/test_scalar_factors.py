"""Scalar factors that annotating absorbed: every command finds the planned model in the file."""

import numpy as np
import onnx
import onnx.helper
import onnx.numpy_helper
import pytest

import planner
from tests.formats.onnx.reader.runs import session

TARGETS = {
    "litert-int8": "litert",
    "onnxruntime-cpu": "onnx-qdq",
    "tosa-int8": "tosa",
    "qnn-htp": "onnx-qdq",
}
FLOAT = onnx.TensorProto.FLOAT


def saved(path, nodes, x, y, constants) -> str:
    """A model of named nodes, in a file."""
    made = [
        onnx.helper.make_node(kind, inputs.split(), [out], name=f"op_{out}", **more)
        for kind, inputs, out, more in nodes
    ]
    ends = [onnx.helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in (x, y)]
    arrays = [onnx.numpy_helper.from_array(np.asarray(a, np.float32), name) for name, a in constants.items()]
    graph = onnx.helper.make_graph(made, path.stem, ends[:1], ends[1:], arrays)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    onnx.save(model, path)
    return str(path)


def attention(path) -> str:
    rng = np.random.default_rng(0)
    nodes = [
        *(("MatMul", f"x w{k}", f"{k}0", {}) for k in "qkv"),
        *(("Add", f"{k}0 b", k, {}) for k in "qkv"),
        ("Transpose", "k", "kt", {"perm": [0, 2, 1]}),
        ("MatMul", "q kt", "scores", {}),
        ("Div", "scores root", "scaled", {}),
        ("Softmax", "scaled", "p", {"axis": -1}),
        ("MatMul", "p v", "o", {}),
        ("Neg", "o", "n", {}),
        ("MatMul", "n wo", "y", {}),
    ]
    weights = {f"w{k}": rng.normal(size=(8, 8)) / 3 for k in "qkvo"}
    size = [1, 6, 8]
    more = {"b": rng.normal(size=8) / 3, "root": np.sqrt(8)}
    return saved(path, nodes, ("x", size), ("y", size), {**weights, **more})


def picture(path) -> str:
    rng = np.random.default_rng(0)
    nodes = [
        ("Div", "x bytes", "a", {}),
        ("Conv", "a w b", "c", {"pads": [1, 1, 1, 1]}),
        ("Relu", "c", "d", {}),
        ("Mul", "d sixth", "e", {}),
        ("Conv", "e v", "y", {}),
    ]
    constants = {
        "bytes": 255,
        "sixth": 1 / 6,
        "w": rng.normal(size=(4, 3, 3, 3)),
        "b": rng.normal(size=4),
        "v": rng.normal(size=(4, 4, 1, 1)),
    }
    return saved(path, nodes, ("x", [1, 3, 8, 8]), ("y", [1, 4, 8, 8]), constants)


@pytest.fixture(params=[attention, picture], ids=["attention", "picture"])
def given(request, tmp_path) -> tuple[str, str]:
    """A model and samples of it."""
    made = request.param(tmp_path / "model.onnx")
    rng, port = np.random.default_rng(1), session(made).get_inputs()[0]
    scale = 1 if request.param is attention else 255
    samples = tmp_path / "samples.npz"
    np.savez(samples, x=scale * rng.uniform(size=(8, *port.shape)).astype(np.float32))
    return made, str(samples)


def done(answer):
    """An answer without an error."""
    assert answer.code == 0, answer.err
    return answer


def kernels_of(plan) -> list[tuple[str, str, str | None]]:
    """Names, kinds and rows of a plan in a file."""
    read = planner.plan_from_json(plan.read_text(encoding="utf-8"))
    return [(kernel.name, kernel.kernel, kernel.row) for kernel in read.kernels_in_order]


@pytest.mark.parametrize("target", TARGETS)
def test_every_command(qplan, given, target, tmp_path):
    model, samples = given
    out, stats = tmp_path / "out", tmp_path / "stats.json"
    done(qplan("calibrate", model, "--data", samples, "--out", stats))
    line = ("plan", model, "--target", target, "--stats", stats, "--out", out)
    done(qplan(*line, "--no-bias-correction"))
    plan = out / "plan.json"
    kernels = kernels_of(plan)
    assert not [kind for _, kind, _ in kernels if kind in ("Div", "Neg", "Mul", "mul")]
    done(qplan("check", plan, "--model", model, "--target", target))
    done(qplan("export", plan, "--model", model, "--format", TARGETS[target], "--out", tmp_path / "file"))
    done(qplan("losses", plan, "--model", model, "--target", target, "--data", samples))
    kernel = next(name for name, _, row in kernels if row is not None)
    done(qplan("restore", plan, kernel, "--model", model, "--out", tmp_path / "restored.json"))
    done(qplan("check", tmp_path / "restored.json", "--model", model, "--target", target))
    (tmp_path / "edits.yaml").write_text(
        '{format: qplan.annotations/1, values: {y: "!quant.none"}}', encoding="utf-8"
    )
    edited = tmp_path / "edited.json"
    done(qplan("replan", plan, "--edits", tmp_path / "edits.yaml", "--model", model, "--out", edited))
    done(qplan("check", edited, "--model", model, "--target", target))
    other = "tosa-int8" if target != "tosa-int8" else "litert-int8"
    done(qplan("retarget", plan, other, "--model", model, "--out", tmp_path / "other.json"))
    done(qplan("check", tmp_path / "other.json", "--model", model, "--target", other))
    factor = "op_n" if "op_p" in [name for name, _, _ in kernels] else "op_a"
    assert "is no kernel" in done(qplan("explain", plan, factor)).out


@pytest.mark.parametrize("target", ["litert-int8", "onnxruntime-cpu"])
def test_with_corrected_biases_and_search(qplan, given, target, tmp_path):
    model, samples = given
    out = tmp_path / "out"
    done(qplan("plan", model, "--target", target, "--data", samples, "--out", out))
    done(qplan("check", out))
    done(qplan("losses", out, "--data", samples))
    found = qplan(
        "search", model, "--target", target, "--goal", "sqnr=30", "--trials", "3", "--data", samples,
        "--out", tmp_path / "found",
    )  # fmt: skip
    assert found.code in (0, 3), found.err
    done(qplan("check", tmp_path / "found"))


@pytest.mark.parametrize("suffix", ["json", "mlir"])
def test_an_annotated_file_is_planned_alike(qplan, given, suffix, tmp_path):
    model, samples = given
    stats, file = tmp_path / "stats.json", tmp_path / f"annotated.{suffix}"
    done(qplan("calibrate", model, "--data", samples, "--out", stats))
    done(qplan("annotate", model, "--stats", stats, "--out", file))
    found = []
    for source in (model, file):
        out = tmp_path / f"out{len(found)}"
        line = ("plan", source, "--target", "litert-int8", "--stats", stats, "--out", out)
        done(qplan(*line, "--no-bias-correction"))
        found.append(kernels_of(out / "plan.json"))
    assert found[0] == found[1]

"""`--dim`: every verb that reads a model takes sizes, and what stays open is told."""

import ast
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from typer.main import get_command

from planner.cli.app import app, run
from tests.calibration.test_sizes_seen import attention, samples

CLI = Path(__file__).parents[2] / "planner" / "cli"
READERS = {"load_model", "read_model", "read_saved", "read_saved_model", "read_written", "_runnable"}
"""Functions that read a model from the command line."""
WITHOUT = {"diff", "explain", "mlir", "show"}
"""Verbs on plans alone, and on text that is edited as text."""


@pytest.fixture
def model(tmp_path):
    from planner.formats.onnx.write import write_graph

    path = tmp_path / "attention.onnx"
    path.write_bytes(write_graph(attention()))
    return str(path)


def folder(path, *lengths):
    path.mkdir()
    for k, sample in enumerate(samples(*lengths)):
        np.savez(path / f"{k}.npz", **sample)
    return str(path)


def verbs():
    """Commands by their function's name, those of `target` too."""
    whole = get_command(app)
    found = dict(whole.commands)
    found |= {f"target {name}": verb for name, verb in found.pop("target").commands.items()}
    return found


def test_every_verb_that_reads_a_model_has_dim():
    reading = set()
    for path in CLI.rglob("*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef):
                called = {
                    getattr(call.func, "id", "") for call in ast.walk(node) if isinstance(call, ast.Call)
                }
                if called & READERS or any(arg.arg == "model" for arg in node.args.args):
                    reading.add(node.name)
    missing = []
    for name, verb in verbs().items():
        options = {option for param in verb.params for option in param.opts}
        takes = "--model" in options or "model" in {param.name for param in verb.params}
        if (takes or verb.callback.__name__ in reading) and name not in WITHOUT and "--dim" not in options:
            missing.append(name)
    assert missing == []
    assert {"quantize", "plan", "search", "calibrate", "losses", "export", "target coverage"} <= {
        name for name, verb in verbs().items() if "--dim" in {o for p in verb.params for o in p.opts}
    }


def test_sizes_are_given_from_calibration_to_export(model, tmp_path, capsys):
    data, out = folder(tmp_path / "data", 16, 16), str(tmp_path / "out")
    sizes = ["--dim", "batch=1", "--dim", "seq=16"]
    assert run(["calibrate", model, "--data", data, *sizes, "--out", str(tmp_path / "s.json")]) == 0
    stats = ["--stats", str(tmp_path / "s.json")]
    assert run(["plan", model, "-t", "onnxruntime-cpu", *stats, *sizes, "--out", out]) == 0
    assert "another model" not in capsys.readouterr().err
    # The plan says its sizes, so later verbs need not be given them.
    file = str(tmp_path / "e.onnx")
    for more in ([], sizes, ["--model", model]):
        assert run(["export", out, "-f", "onnx-qdq", "--out", file, *more]) == 0
    shape = onnx.load(file).graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in shape] == [1, 16, 8]
    assert run(["check", out]) == 0
    assert run(["losses", out, "--data", data]) == 0
    assert run(["retarget", out, "litert-int8", "--out", str(tmp_path / "other.json")]) == 0
    assert (
        json.loads(Path(tmp_path / "other.json").read_text())["sources"]["dims"] == '{"batch": 1, "seq": 16}'
    )
    assert run(["run", model, "--data", data, *sizes]) == 0
    capsys.readouterr()
    assert run(["cost", model, *sizes, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"]["macs"] == 2 * 16 * 16 * 8 + 16 * 8 * 8


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--dim", "batch"], "--dim batch: accepted is NAME=SIZE, such as --dim batch=1"),
        (["--dim", "seq=8", "--dim", "seq=9"], "--dim seq=9: 'seq' has size 8 already"),
        (["--dim", "seq=8", "--dim", "x[1]=9"], "dimension 'seq' cannot be 8 (as 'seq') and 9 (as 'x[1]')"),
    ],
)
def test_sizes_that_are_none(model, tmp_path, capsys, given, said):
    assert run(["plan", model, "-t", "litert-int8", "--out", str(tmp_path / "o"), *given]) == 2
    assert said in capsys.readouterr().err


def test_what_stays_open_is_told(model, tmp_path, capsys):
    notes = tmp_path / "a.yaml"
    notes.write_text(
        "format: qplan.annotations/1\nvalues: {'*': '!quant.calibrated<f32<-4.0:4.0>>'}\n", encoding="utf-8"
    )
    asked = ["--annotations", str(notes), "--out", str(tmp_path / "o")]
    assert run(["plan", model, "-t", "stablehlo", "-f", "stablehlo", *asked]) == 0
    told = (
        "stablehlo has fixed sizes; these are open and set to 1: x[0] 'batch', x[1] 'seq'; give them: "
        "--dim batch=N --dim seq=N"
    )
    assert told in capsys.readouterr().err
    assert run(["export", str(tmp_path / "o"), "-f", "stablehlo", "--out", str(tmp_path / "x.mlir")]) == 0
    assert told in capsys.readouterr().err


def test_sizes_of_samples_are_said(model, tmp_path, capsys):
    data = folder(tmp_path / "data", 16, 16)
    assert run(["plan", model, "-t", "stablehlo", "--data", data, "--out", str(tmp_path / "o")]) == 0
    assert (
        "open sizes weigh as the samples have them: x[0] 'batch' is 1, x[1] 'seq' is 16"
        in capsys.readouterr().out
    )


def test_two_dimensions_called_by_a_question_mark(tmp_path):
    weight = onnx.numpy_helper.from_array(np.ones((1, 3, 1, 1), np.float32), "w")
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    kind = onnx.TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("x", kind, [1, 3, "?", "?"])]
    outputs = [helper.make_tensor_value_info("y", kind, None)]
    graph = helper.make_graph([node], "g", inputs, outputs, [weight])
    whole = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(whole, tmp_path / "m.onnx")
    out = str(tmp_path / "o.onnx")
    sizes = ["--dim", "x[2]=8", "--dim", "x[3]=24"]
    assert run(["convert", str(tmp_path / "m.onnx"), "--to", "onnx", "--out", out, *sizes]) == 0
    shape = onnx.load(out).graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in shape] == [1, 3, 8, 24]

"""The verbs convert, run and cost on small QONNX files."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import planner
from planner.interpreter.models import run_model
from tests.conversion.files import file_of, op_types, quant_node


@pytest.fixture
def model(tmp_path):
    first, arrays = quant_node("a", "x", scale=0.5, zero_point=0.0, bits=4)
    second, more = quant_node("b", "w", scale=0.25, zero_point=0.0, bits=3, narrow=1)
    nodes = [first, second, helper.make_node("MatMul", ["a", "b"], ["y"], "layer")]
    weight = np.linspace(-1, 1, 16, dtype=np.float32).reshape(8, 2)
    path = tmp_path / "m.onnx"
    path.write_bytes(
        file_of(nodes, {"x": (TensorProto.FLOAT, [1, 8])}, ["y"], {**arrays, **more, "w": weight})
    )
    return path


@pytest.fixture
def samples(tmp_path):
    path = tmp_path / "samples.npz"
    np.savez(path, x=np.linspace(-4, 4, 24, dtype=np.float32).reshape(3, 1, 8))
    return path


def test_convert_writes_the_same_numbers(qplan, model, tmp_path):
    out = tmp_path / "out.onnx"
    answer = qplan("convert", model, "--to", "onnx-qcdq", "-o", out)
    assert (answer.code, answer.err) == (0, "")
    assert answer.out == f"wrote {out}: onnx-qcdq, {out.stat().st_size:,} bytes\n"
    assert "Quant" not in op_types(out.read_bytes())
    x = np.ones((1, 8), np.float32)
    assert np.array_equal(run_model(out, {"x": x})["y"], run_model(model, {"x": x})["y"])


def test_convert_reads_standard_input(qplan, model, tmp_path):
    out = tmp_path / "out.onnx"
    answer = qplan("convert", "-", "--to", "cleaned", "-o", out, "--json", stdin=model.read_bytes())
    assert answer.json == {"file": str(out), "to": "cleaned", "bytes": out.stat().st_size}


def test_convert_refuses_with_the_reason(qplan, model, tmp_path):
    node, arrays = quant_node("y", "x", scale=0.5, zero_point=0.0, bits=3, narrow=1)
    model.write_bytes(file_of([node], {"x": (TensorProto.FLOAT, [1, 8])}, ["y"], arrays))
    answer = qplan("convert", model, "--to", "onnx-qdq", "-o", tmp_path / "out.onnx")
    assert answer.code == 2
    assert "onnx-qdq cannot say Quant at 'y' (port y.in[0]): it keeps -3 to 3 of its 3 bits" in answer.err
    assert not (tmp_path / "out.onnx").exists()


def test_convert_names_the_dialects(qplan, model, tmp_path):
    answer = qplan("convert", model, "--to", "qcdq", "-o", tmp_path / "out.onnx")
    assert (answer.code, answer.err) == (
        2,
        "qplan: error: unknown dialect 'qcdq' (did you mean 'onnx-qcdq' or 'onnx-qdq'?)\n",
    )


def test_run_keeps_the_outputs(qplan, model, samples, tmp_path):
    answer = qplan("run", model, "--data", samples, "-o", tmp_path / "y.npz")
    assert (answer.code, answer.err) == (0, "")
    assert "3 samples" in answer.out
    with np.load(samples) as given, np.load(tmp_path / "y.npz") as got:
        assert got["y"].shape == (3, 1, 2)
        for x, y in zip(given["x"], got["y"], strict=True):
            assert np.array_equal(run_model(model, {"x": x})["y"], y)


def test_run_as_json(qplan, model, samples):
    answer = qplan("run", model, "--data", samples, "--json").json
    assert answer["samples"] == 3
    assert answer["outputs"]["y"]["shape"] == [1, 2]
    assert answer["outputs"]["y"]["min"] <= answer["outputs"]["y"]["max"]


def test_cost_is_a_table_and_a_document(qplan, model):
    answer = qplan("cost", model)
    assert answer.code == 0
    assert [word for word in answer.out.split() if word in ("layer", "16", "192", "48")]
    total = qplan("cost", model, "--mode", "qonnx", "--json").json["total"]
    counts = {"macs": 16, "bops": 192.0, "weights": 16, "weight_bits": 48}
    assert total == {**counts, "main_macs": 16, "main_weights": 16}
    assert qplan("cost", model, "--main").out == answer.out


def test_cost_refuses_an_unknown_mode(qplan, model):
    answer = qplan("cost", model, "--mode", "eq6")
    assert answer.code == 2
    assert "unknown cost mode 'eq6' (did you mean 'eq5'?)" in answer.err


def test_convert_sizes_what_is_open(qplan, tmp_path):
    out = tmp_path / "out.onnx"
    assert qplan("convert", open_model(tmp_path), "--to", "onnx", "--dim", "n=3", "-o", out).code == 0
    assert planner.load_model(out).values["x"].shape == (3, 4)


@pytest.mark.parametrize(
    ("dim", "line"),
    [
        ("n", "--dim n: accepted is NAME=SIZE, such as --dim batch=1"),
        ("n=-1", "--dim n=-1: accepted is NAME=SIZE, such as --dim batch=1"),
        (f"n={'9' * 5000}", f"--dim n={'9' * 198}: accepted is NAME=SIZE, such as --dim batch=1"),
        ("m=1", "unknown open dimension 'm' (known: 'n', 'x[0]')"),
        ("n=0", "dimension 'n' cannot be 0; accepted: a whole number of at least 1"),
    ],
)
def test_convert_refuses_other_sizes(qplan, tmp_path, dim, line):
    answer = qplan("convert", open_model(tmp_path), "--to", "onnx", "--dim", dim, "-o", tmp_path / "out.onnx")
    assert (answer.code, answer.err.strip()) == (2, f"qplan: error: {line}")


def open_model(folder):
    """A file whose input leaves its first dimension open."""
    text = '<ir_version: 8, opset_import: ["" : 17]> g (float[n, 4] x) => (float[n, 4] y) { y = Relu(x) }'
    path = folder / "open.onnx"
    onnx.save(parser.parse_model(text), path)
    return path

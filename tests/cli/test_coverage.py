"""Coverage on the command line: word, exit code, reasons, the next command, and which file it is of."""

from pathlib import Path

import numpy as np
import pytest

import planner
from planner.accuracy.coverage import coverage_of
from planner.formats.file_coverage import coverage_in_file

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
MODEL, DATA = DIGITS / "digits.onnx", DIGITS / "calibration.npz"


@pytest.fixture
def batches(tmp_path):
    """Samples of one image and of two: the batch stays open, and most rows of some devices want one."""
    images = np.load(DATA)["image"]
    (tmp_path / "batches").mkdir()
    for i, size in enumerate((1, 2, 1, 2)):
        np.savez(tmp_path / "batches" / f"{i}.npz", image=images[4 * i : 4 * i + size])
    return tmp_path / "batches"


def test_nothing_quantized_is_a_negative_answer(qplan, tmp_path, batches):
    """Most rows of this device want a batch of one, and the model leaves it open."""
    answer = qplan("quantize", MODEL, "--data", batches, "-t", "k210-kpu", "-o", tmp_path / "out")
    assert answer.code == 1
    assert (
        "verdict: keep the float model: nothing is quantized, all 11 kernels fall back to float" in answer.out
    )
    assert "  8 kernels (100 % of multiply-adds) need a fixed N: add --dim N=1" in answer.out
    assert answer.out.splitlines()[-1].startswith("missed: nothing is quantized")
    assert not (tmp_path / "out").exists()
    line = ("plan", MODEL, "--data", batches, "-t", "k210-kpu", "-o", tmp_path / "plan")
    assert qplan(*line).code == 1
    found = qplan(*line, "--json").json["verdict"]
    assert (found["level"], found["accuracy"], found["coverage"]["on_device"]) == ("poor", None, 0)
    assert found["keep_float"] is True
    assert (tmp_path / "plan" / "report.html").is_file()


def test_a_bound_decides_what_is_poor(qplan, tmp_path, batches):
    line = ("quantize", MODEL, "--data", batches, "-t", "ethos-u55", "-o", tmp_path / "out")
    answer = qplan(*line)
    assert (answer.code, "verdict: keep the float model: the file is bigger, " in answer.out) == (1, True)
    assert not (tmp_path / "out").exists()
    assert qplan(*line, "--min-coverage", "0.0001").code == 0
    assert (tmp_path / "out" / "onnx-qdq.onnx").is_file()
    short = qplan(*line, "--min-coverage", "0.5")
    assert short.code == 1
    assert short.out.splitlines()[-1] == ("missed: under 1 % of multiply-adds are quantized, of at least 50%")
    wrong = qplan(*line, "--min-coverage", "90")
    assert (wrong.code, "a share of the multiply-adds, between 0 and 1" in wrong.err) == (2, True)


@pytest.mark.parametrize(("target", "form"), [("litert-int8", "litert"), ("tosa-int8", "tosa")])
def test_a_verdict_is_of_the_file_that_was_written(qplan, tmp_path, target, form):
    out = tmp_path / "out"
    answer = qplan("quantize", MODEL, "--data", DATA, "-t", target, "-f", form, "-o", out, "--json")
    assert answer.code == 0
    assert list(answer.json["judged"]) == [form]
    judged = answer.json["judged"][form]
    assert judged["by"] == "computed by the reference interpreter in the file's own arithmetic"
    assert (judged["of"], judged["verdict"]["level"], judged["verdict"]["coverage"]["level"]) == (
        "",
        "good",
        "good",
    )
    assert not (out / "onnx-qdq.onnx").exists()


def test_compare_has_the_same_bound(qplan, tmp_path):
    """Without the plan, by the file: products whose weights have quantizers, sizes as in the samples."""
    notes = tmp_path / "notes.json"
    notes.write_text('{"format": "qplan.annotations/1", "kernels": {"stem/conv": "float"}}')
    out = tmp_path / "out"
    made = qplan("quantize", MODEL, "--data", DATA, "--annotations", notes, "-o", out, "--json")
    share = made.json["verdict"]["coverage"]["multiply_add_share"]
    assert 0 < share < 1
    line = ("compare", MODEL, out / "onnx-qdq.onnx", "--data", DATA)
    assert qplan(*line, "--min-coverage", share - 0.001).code == 0
    short = qplan(*line, "--min-coverage", share + 0.001)
    assert short.code == 1
    assert "of multiply-adds are quantized, of at least" in short.out.splitlines()[-1]
    found = qplan(*line, "--min-coverage", "0.5", "--json").json
    assert (found["min_coverage"], found["ok"]) == (0.5, share >= 0.5)
    itself = qplan("compare", MODEL, MODEL, "--data", DATA, "--min-coverage", "0")
    assert itself.code == 1
    assert itself.out.splitlines()[-1] == "missed: nothing is quantized, all 8 kernels fall back to float"
    assert qplan("compare", MODEL, MODEL, "--data", DATA).code == 0


@pytest.mark.parametrize("form", ["onnx-qdq", "onnx-qoperator", "onnx-integer", "onnx-qcdq", "qonnx"])
@pytest.mark.parametrize("asked", ["", "stem/conv", "head/gemm"])
def test_a_file_has_the_share_of_its_plan(form, asked):
    model = planner.load_model(MODEL)
    sample = {"image": np.load(DATA)["image"][:1]}
    wanted = {asked: "float"} if asked else {}
    ready = planner.annotate(model, stats=planner.calibrate(model, [sample]), kernels=wanted)
    plan = planner.plan(ready, "onnxruntime-cpu")
    found = coverage_in_file(planner.export(ready, plan, form), sample)
    assert found.mac_share == coverage_of(plan).mac_share
    assert sum(one.kernels for one in found.fallbacks) == bool(asked)


def test_a_device_whose_tools_read_no_onnx_names_its_format(qplan, tmp_path):
    line = ("quantize", MODEL, "--data", DATA, "-t", "ethos-u55", "--dim", "N=1", "-o", tmp_path / "out")
    told = "tools of ethos-u55 read litert alone: add --format litert"
    assert told in qplan(*line).out.splitlines()
    assert told not in qplan(*line, "--format", "litert").out
    assert (tmp_path / "out" / "litert.tflite").read_bytes()[4:8] == b"TFL3"

"""Coverage on the command line: word, exit code, reasons, the next command, and which file it is of."""

from pathlib import Path

import numpy as np
import pytest

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
    assert "6 kpu_conv2d, over 99 % of multiply-adds: " in answer.out
    assert "to fix it: --dim N=1" in answer.out
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

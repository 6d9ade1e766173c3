"""Judging: held-out data, labels, metrics and bounds, what is printed and which exit code it gives."""

import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from planner.cli.console import say_missed
from tests.cli.conftest import DATA, DIGITS, MODEL

TEST = str(DIGITS / "test.npz")
METRICS = """
def hits(outputs, labels):
    return float((outputs["probabilities"].argmax(1) == labels).mean())

def fails(outputs, labels):
    return outputs["boxes"]

def text(outputs, labels):
    return "good"

number = 3
"""


@pytest.fixture
def plan(qplan, tmp_path):
    """`plan("--eval-data", path)`: plan the digits example for its device, in one format."""

    def call(*options, form="onnx-qdq"):
        line = ["plan", MODEL, "-t", "onnxruntime-cpu", "--data", DATA, "-o", tmp_path / "out", "-f", form]
        return qplan(*line, *options)

    return call


@pytest.fixture
def metrics(tmp_path):
    """A module of metrics."""
    path = tmp_path / "mine.py"
    path.write_text(METRICS, encoding="utf-8")
    return path


def test_quality_on_calibration_samples_says_so(plan):
    answer = plan()
    assert answer.code == 0
    told = (
        "quality on the 128 calibration samples against the float model; --eval-data takes held-out ones:\n"
    )
    assert told in answer.out
    assert "top1" not in answer.out


def test_held_out_samples_judge_and_their_labels(plan, tmp_path):
    answer = plan("--eval-data", TEST)
    assert answer.code == 0
    assert "quality on 450 held-out samples against the float model:\n" in answer.out
    assert "  onnx-qdq: top1 99.8 %, float 99.8 %\n" in answer.out
    assert "left out" not in answer.err
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "on 450 held-out samples against the float model" in page
    assert "99.8 %" in page


def test_held_out_samples_beyond_what_calibration_saw(plan, tmp_path):
    test = np.load(TEST)["image"].copy()
    test[3] *= 2
    np.savez(tmp_path / "bright.npz", image=test)
    told = plan("--eval-data", tmp_path / "bright.npz").err
    assert "warning: held-out data take " in told
    assert "in bright.npz, sample 3, not 0 to " in told
    assert "; calibrate with samples like these, or give these values ranges of your own\n" in told


def test_odd_samples_are_warned_of(qplan, tmp_path):
    dark = np.load(DATA)["image"].copy()
    dark[5] = 0
    np.savez(tmp_path / "dark.npz", image=dark * 255)
    notes = tmp_path / "notes.yaml"
    notes.write_text('format: qplan.annotations/1\nvalues: {image: "!quant.calibrated<f32<0:1>>"}\n', "utf-8")
    answer = qplan("plan", MODEL, "-t", "onnxruntime-cpu", "--data", tmp_path / "dark.npz",
                   "--annotations", notes, "-o", tmp_path / "out")  # fmt: skip
    assert answer.code == 0
    zero = (
        "warning: input 'image' is all zero in dark.npz, sample 5: give samples like the data of the device\n"
    )
    assert zero in answer.err
    assert "input 'image' is 0 to 255 in the samples, beyond the model's range for it, 0 to 1: " in answer.err
    assert zero in qplan("calibrate", MODEL, "--data", tmp_path / "dark.npz", "-o", tmp_path / "s.json").err


def test_what_is_missed_is_the_last_line_and_the_exit_code(plan, metrics):
    """The files are there all the same."""
    answer = plan("--min-sqnr", "60")
    assert (answer.code, answer.out.splitlines()[-1][:60]) == (
        1,
        "missed: onnx-qdq: probabilities has 47.68 dB of at least 60",
    )
    assert "wrote " in answer.out
    assert plan("--min-sqnr", "40").code == 0
    own = ("--eval-data", TEST, "--metric", f"{metrics}:hits", "--min-metric", "1")
    answer = plan(*own)
    assert answer.code == 1
    assert answer.out.splitlines()[-1] == "missed: onnx-qdq: hits is 0.9978 of at least 1"
    assert plan("--eval-data", TEST, "--min-metric", "0.99").code == 0
    document = plan(*own, "--json")
    assert document.code == 1
    assert document.json["missed"] == ["onnx-qdq: hits is 0.9978 of at least 1"]
    judged = document.json["judged"]["onnx-qdq"]
    assert (judged["samples"], judged["held_out"], judged["reference"]) == (450, True, "float")
    assert judged["metrics"]["hits"] == judged["metrics"]["top1"]


def test_compare_judges_likewise(qplan, planned):
    line = ("compare", MODEL, planned / "onnx-qdq.onnx", "--eval-data", TEST)
    answer = qplan(*line, "--metric", "cross_entropy", "--min-metric", "-0.001")
    assert answer.code == 1
    assert answer.out.startswith("quality on 450 held-out samples against the float model:\n")
    assert answer.out.splitlines()[-1].startswith("missed: minus cross_entropy is -0.05")
    assert qplan(*line, "--metric", "cross_entropy", "--min-metric", "-0.1").code == 0
    found = qplan(*line, "--json").json
    assert (found["ok"], found["missed"], found["samples"], found["held_out"]) == (True, [], 450, True)
    assert found["metrics"]["top1"]["quantized"] == pytest.approx(449 / 450)
    both = qplan(*line, "--data", DATA)
    assert both.code == 0
    assert "held-out data take 'res/relu2_out' beyond what calibration saw by 15 %" in both.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("--metric", "accuracy"),
            "--metric accuracy: expected module:function, or one of sqnr",
        ),
        (("--metric", "no_such_module:f"), "--metric no_such_module:f: ModuleNotFoundError: "),
        (("--metric", "MINE:missing"), "has no function 'missing'"),
        (("--metric", "MINE:number"), "has no function 'number'"),
        (("--metric", "MINE:fails"), "metric 'fails' raised KeyError: 'boxes' (it is called with"),
        (("--metric", "MINE:text"), "metric 'text' returned 'good'; accepted: one number, larger is better"),
        (("--output", "logits"), "unknown output 'logits'"),
        (("--min-metric", "97"), "--min-metric 97: top1 is a share of the labels, between 0 and 1"),
        (("--min-metric", "nan"), "--min-metric: NaN is no bound"),
        (("--metric", "sqnr", "--min-metric", "1"), "--min-metric is not for sqnr (--min-sqnr)"),
    ],
)
def test_bad_options(plan, metrics, options, said):
    given = [option.replace("MINE", str(metrics)) for option in options]
    answer = plan("--eval-data", TEST, *given)
    assert answer.code == 2
    assert said in answer.err


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({}, "sample 0: top1 needs labels (an array 'label' or 'labels' beside the inputs)"),
        (
            {"label": np.arange(7)},
            "e.npz: there are 7 labels, the samples are 450 (labels lie",
        ),
        ({"label": np.full(450, 10)}, "label 10, but output 'probabilities' has 10 classes"),
        (
            {"label": np.zeros((450, 3), int)},
            "labels of shape (1, 3) do not fit output 'probabilities'",
        ),
    ],
)
def test_bad_labels(plan, tmp_path, arrays, said):
    np.savez(tmp_path / "e.npz", image=np.load(TEST)["image"], **arrays)
    answer = plan("--eval-data", tmp_path / "e.npz", "--min-metric", "0.5")
    assert answer.code == 2
    assert said in answer.err


def test_nothing_to_judge_is_refused(qplan, plan, tmp_path):
    assert (
        "need a format that can be run here (--format onnx-qdq, say)"
        in plan("--min-sqnr", "3", form="mlir").err
    )
    line = ("plan", MODEL, "-t", "onnxruntime-cpu", "-f", "onnx-qdq", "--min-sqnr", "3", "-o", tmp_path / "x")
    assert "no evaluation data (--eval-data, held out, or --data)" in qplan(*line).err
    assert "no samples to compare on (--eval-data, held out, or --data)" in qplan("compare", MODEL, MODEL).err


def detector(path):
    """Boxes of 0 to 600 and scores of 0 to 1 side by side, from one product: one scale for both."""
    rng = np.random.default_rng(3)
    weight = np.concatenate([rng.random((4, 3)) * 200, rng.random((4, 3)) / 4], axis=1)
    arrays = {"w": weight}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"], "head")]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 20, n]) for name, n in (("x", 4), ("y", 6))
    ]
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "detector", ends[:1], ends[1:], tensors)
    opsets = [helper.make_opsetid("", 21)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path / "d.onnx")
    np.savez(path / "d.npz", x=rng.random((6, 20, 4)).astype(np.float32)[:, None])
    return path / "d.onnx", path / "d.npz"


def test_the_worst_group_counts(qplan, tmp_path):
    """An output of boxes and scores: a fine figure over all, and scores of a few steps."""
    model, data = detector(tmp_path)
    answer = qplan("plan", model, "-t", "litert-int8", "--data", data, "-f", "onnx-qdq",
                   "-o", tmp_path / "out", "--min-sqnr", "20")  # fmt: skip
    assert answer.code == 1
    lines = [line.split(" dB")[0] for line in answer.out.splitlines() if "dB, " in line]
    whole, boxes, scores = (float(line.rsplit(" ", 1)[1]) for line in lines)
    assert lines[1].startswith("  onnx-qdq: y[:, :, 0-2] ")
    assert lines[2].startswith("  onnx-qdq: y[:, :, 3-5] ")
    assert scores < 10
    assert 30 < whole <= boxes
    assert answer.out.splitlines()[-1] == f"missed: onnx-qdq: y[:, :, 3-5] has {scores:.2f} dB of at least 20"
    poor = f"warning: onnx-qdq: y[:, :, 3-5] has {scores:.1f} dB, less than 10: calibrate by another method"
    assert poor in answer.err
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "y[:, :, 3-5]" in page


def test_a_terminal_shows_it_in_red(capsys, monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    say_missed("missed: y")
    monkeypatch.setenv("NO_COLOR", "1")
    say_missed("missed: y")
    assert capsys.readouterr().out == "\x1b[31mmissed: y\x1b[0m\nmissed: y\n"


def test_a_model_with_quantizers_is_judged_against_as_it_is(qplan, models, tmp_path):
    """The float net under them, which nobody trained, is not what the user gave."""
    model = models / "qonnx" / "kwsmlp_w3a3.onnx"
    x = np.random.default_rng(0).random((4, 1, 1, 10, 49)).astype(np.float32)
    np.savez(tmp_path / "q.npz", **{"inp.1": x})
    line = ("plan", model, "-t", "onnxruntime-cpu", "--data", tmp_path / "q.npz", "-f", "onnx-qdq")
    line = (*line, "-o", tmp_path / "out", "--min-sqnr", "30")
    answer = qplan(*line)
    assert answer.code == 0
    assert "quality on the 4 calibration samples against the model with its own quantizers; " in answer.out
    bare = qplan(*line, "--reference", "stripped")
    assert bare.code == 1
    assert "quality on the 4 calibration samples against the model without its own quantizers; " in bare.out
    file = tmp_path / "out" / "onnx-qdq.onnx"
    document = qplan("compare", model, file, "--data", tmp_path / "q.npz", "--json").json
    assert (document["reference"], document["held_out"]) == ("written", None)
    assert document["outputs"]["74"]["sqnr"] > 30

"""`qplan condition` writes what `plan` takes; `plan --condition` does both at once."""

import json

import numpy as np
import pytest

import planner
from planner.constants.quantize import dequantize_array, quantize_array
from planner.ir.types.qtypes import Uniform
from tests.cli.conftest import DATA, MODEL

TARGET = "litert-int8"


def test_what_it_writes_is_planned(qplan, tmp_path):
    out = tmp_path / "conditioned"
    line = ("condition", MODEL, "--methods", "migrate:0.7,equalize", "--data", DATA, "--out", out)
    answer = qplan(*line)
    assert (answer.code, answer.err) == (0, "")
    told = answer.out.splitlines()
    assert [text.split(":")[0] for text in told[:2]] == ["equalize", "migrate"]
    assert "outputs move by" in told[0]
    assert {path.name for path in out.iterdir()} == {"digits.onnx", "stats.json"}
    words = told[-1].split()
    assert words[:2] == ["qplan", "plan"]
    words[words.index("TARGET")], words[-1] = TARGET, str(tmp_path / "plan")
    planned = qplan(*words[1:])
    assert (planned.code, planned.err) == (0, "")


def test_the_changes_as_data(qplan, tmp_path):
    answer = qplan("condition", MODEL, "--methods", "equalize", "--out", tmp_path, "--json")
    (change,) = answer.json["changes"]
    assert change["method"] == "equalize"
    assert change["outputs"] is None
    assert answer.json["unobserved"] == []
    assert answer.json["files"] == [str(tmp_path / "digits.onnx")]


def test_values_to_observe_again_are_warned_of(qplan, tmp_path, stats):
    answer = qplan("condition", MODEL, "--methods", "equalize", "--stats", stats, "--out", tmp_path / "o")
    assert answer.code == 0
    assert "values have to be observed again" in answer.err


@pytest.mark.parametrize("correction", ["--bias-correction", "--no-bias-correction"])
def test_planning_conditions_first(qplan, tmp_path, correction):
    out = tmp_path / "plan"
    line = ("plan", MODEL, "-t", TARGET, "--data", DATA, "-o", out, "--condition", "equalize", correction)
    answer = qplan(*line, "-f", "onnx-qdq")
    assert (answer.code, answer.err) == (0, "")
    assert "  equalize: " in answer.out
    assert ("  correct: " in answer.out) is (correction == "--bias-correction")
    model = out / "digits.corrected-float.onnx"
    assert f"{model} is the conditioned float model: this plan is for it" in answer.out
    assert qplan("check", out).code == 0
    quality = planner.compare(planner.load_model(MODEL), out / "onnx-qdq.onnx", DATA)
    assert quality.worst_sqnr > 30


def test_annotations_hold_against_conditioning(qplan, tmp_path):
    """A pinned value stays where it is, and so do its neighbours' weights."""
    free = planner.condition(planner.load_model(MODEL), "equalize").changes[0]
    name = free.rescaled[-1]
    notes = tmp_path / "a.json"
    notes.write_text(
        json.dumps({"format": "qplan.annotations/1", "values": {name: "!quant.uniform<u8:f32, 0.5>"}})
    )
    line = ("condition", MODEL, "--methods", "equalize", "--annotations", notes, "--json")
    answer = qplan(*line, "--out", tmp_path / "o")
    (change,) = answer.json["changes"]
    assert name not in change["rescaled"]
    assert any(f"{name!r} has !quant.uniform" in why for why in change["left"])
    assert (tmp_path / "o" / "annotations.yaml").is_file()
    planned = qplan(
        "plan", tmp_path / "o" / "digits.onnx", "--data", DATA, "-t", TARGET, "-o", tmp_path / "p",
        "--annotations", tmp_path / "o" / "annotations.yaml",
    )  # fmt: skip
    assert planned.code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--methods", "smooth"), "unknown method of conditioning 'smooth' (there are equalize, absorb, "),
        (("--methods", "migrate"), "method 'migrate' needs samples"),
        (("--methods", "correct", "--data", DATA), "method 'correct' needs a target"),
    ],
)
def test_bad_input(qplan, tmp_path, words, told):
    answer = qplan("condition", MODEL, *words, "--out", tmp_path / "o")
    assert answer.code == 2
    assert told in answer.err
    assert not (tmp_path / "o").exists()


def test_rounded_weights_are_planned_as_they_are(qplan, tmp_path):
    """Pins go into the annotations beside the model; what is planned with them stores the very numbers."""
    out, plan = tmp_path / "conditioned", tmp_path / "plan"
    answer = qplan("condition", MODEL, "--methods", "round", "-t", TARGET, "--data", DATA, "-o", out)
    assert (answer.code, answer.err) == (0, "")
    words = answer.out.splitlines()[-1].split()
    words[-1] = str(plan)
    assert qplan(*words[1:], "--no-bias-correction").code == 0
    model = planner.load_model(out / "digits.onnx")
    made = planner.plan_from_json((plan / "plan.json").read_text())
    stored = 0
    for kernel in made.kernels_in_order:
        for port in kernel.inputs:
            constant = model.constants.get(port.value)
            if constant is None or constant.array.ndim < 2 or not isinstance(port.type, Uniform):
                continue
            integers = quantize_array(constant.array, port.type)
            assert np.array_equal(dequantize_array(integers, port.type), constant.array)
            stored += 1
    assert stored > 3


def test_planning_rounds_too(qplan, tmp_path):
    line = ("plan", MODEL, "-t", TARGET, "--data", DATA, "--condition", "round,equalize", "--json")
    answer = qplan(*line, "-o", tmp_path, "-f", "onnx-qdq")
    assert answer.code == 0
    assert [change["method"] for change in answer.json["conditioned"]] == ["equalize", "round", "correct"]
    assert qplan("check", tmp_path).code == 0

"""`qplan losses`, the report's section, and plans of poor quality that end with where it is lost."""

import json
from pathlib import Path

import numpy as np
import pytest

import planner
from planner.report.html import write_report
from tests.accuracy.nets import digits as digits_model
from tests.accuracy.nets import planned as plan_of
from tests.cli.conftest import DATA, MODEL

COARSE = 'format: qplan.annotations/1\nvalues: {res/relu1_out: "!quant.uniform<i8:f32, 4.0:-128>"}\n'


@pytest.fixture(scope="module")
def few(tmp_path_factory) -> Path:
    """Four samples."""
    path = tmp_path_factory.mktemp("data") / "few.npz"
    np.savez(path, image=np.load(DATA)["image"][:4])
    return path


@pytest.fixture
def poor(qplan, few, tmp_path):
    """The folder of a plan with one value in coarse steps, and what planning it said."""
    edits = tmp_path / "coarse.yaml"
    edits.write_text(COARSE)
    line = ["plan", MODEL, "-t", "litert-int8", "--data", few, "--annotations", edits, "-o", tmp_path / "out"]
    return tmp_path / "out", qplan(*line, "--format", "onnx-qdq")


def test_the_folder_is_enough(qplan, planned, few):
    answer = qplan("losses", planned, "--data", few, "--limit", 3)
    assert answer.code == 0
    assert answer.out.startswith("probabilities: ")
    assert "the loss begins at head/softmax" in answer.out
    assert "Noise of each kernel alone" in answer.out
    assert "Where the whole program gets worse" in answer.out
    assert "Most effective remedies, predicted:" in answer.out


def test_as_json(qplan, planned, few):
    found = qplan("losses", planned, "--data", few, "--json").json
    assert found["format"] == "qplan.losses/1"
    assert found["samples"] == 4
    assert found["kernels"][0]["name"] == found["begins"] == "head/softmax"
    assert {value["value"] for value in found["values"]} >= {"image", "res/relu1_out", "probabilities"}


def test_corrected_biases_are_measured_against_the_model_that_was_given(qplan, planned, few):
    """The plan says where it lies; without it the correction itself would count as noise."""
    sources = json.loads((planned / "plan.json").read_text())["sources"]
    assert sources["model"] == "digits.corrected-float.onnx"
    assert sources["reference"].endswith("digits.onnx")
    line = ("losses", planned, "--data", few, "--json")
    found, named = qplan(*line).json, qplan(*line, "--reference", MODEL).json
    other = qplan(*line, "--reference", planned / "digits.corrected-float.onnx").json
    assert found == named != other


@pytest.mark.parametrize("verb", ["replan", "restore", "retarget"])
def test_a_plan_made_of_another_still_knows_the_model_that_was_given(qplan, planned, few, tmp_path, verb):
    """Else the correction of the biases would count as noise of the new plan."""
    edits = tmp_path / "edits.yaml"
    edits.write_text("format: qplan.annotations/1\nvalues: {res/relu1_out: '!quant.none'}\n")
    more = {"replan": ["--edits", edits], "restore": ["head/softmax"], "retarget": ["onnxruntime-cpu"]}
    out = tmp_path / "other" / "plan.json"
    out.parent.mkdir()
    assert qplan(verb, planned, *more[verb], "--out", out).code == 0
    told = json.loads(out.read_text())["sources"]["reference"]
    assert (out.parent / told).resolve() == Path(MODEL).resolve()
    if verb == "restore":
        line = ("losses", out, "--data", few, "--json", "--limit", 0)
        assert qplan(*line).json == qplan(*line, "--reference", MODEL).json


def test_a_plan_without_corrected_biases_names_no_other_model(qplan, tmp_path):
    line = ["plan", MODEL, "-t", "litert-int8", "--data", DATA, "--no-bias-correction", "-o", tmp_path / "a"]
    assert qplan(*line).code == 0
    out = tmp_path / "plan.json"
    assert qplan("restore", tmp_path / "a", "head/softmax", "--out", out).code == 0
    assert json.loads(out.read_text())["sources"].keys() == {"model", "target"}


def test_a_model_in_place_of_a_plan_is_named(qplan, few):
    answer = qplan("losses", MODEL, "--data", few)
    assert answer.code == 2
    assert "is a model (give a plan; `qplan plan MODEL --target T` writes plan.json)" in answer.err


def test_bad_input(qplan, planned, few, tmp_path):
    assert qplan("losses", planned, "--data", few, "--output", "probabilitys").code == 2
    assert qplan("losses", planned, "--data", few, "--limit", -1).code == 2
    assert qplan("losses", planned, "--data", tmp_path / "none").code == 2
    (tmp_path / "empty").mkdir()
    answer = qplan("losses", planned, "--data", tmp_path / "empty")
    assert answer.code == 2
    assert "no .npz file" in answer.err
    answer = qplan("losses", planned, "--data", few, "--model", MODEL)
    assert answer.code == 1
    assert "corrected biases" in answer.err


def test_a_poor_plan_ends_with_where_it_is_lost(qplan, poor, few):
    folder, answer = poor
    last = answer.out.splitlines()[-5:]
    assert last[0].strip() == f"qplan losses {folder} --data {few}"
    assert "the worst is res/conv1" in last[1]
    assert last[2].startswith("res/conv1")
    assert "qplan search" in last[4]
    assert "explain" not in answer.out
    assert "Where the numbers are lost" in (folder / "report.html").read_text()
    assert qplan("losses", folder, "--data", few).out.splitlines()[0].endswith("of the noise")


def test_a_good_plan_does_not(qplan, few, tmp_path):
    line = ["plan", MODEL, "-t", "litert-int8", "--data", few, "-o", tmp_path / "out", "--format", "onnx-qdq"]
    answer = qplan(*line)
    assert "the loss begins" not in answer.out
    assert "qplan explain" in answer.out
    assert "Where the numbers are lost" not in (tmp_path / "out" / "report.html").read_text()


def test_of_a_large_model_only_the_command_is_told(qplan, few, tmp_path, monkeypatch):
    monkeypatch.setattr("planner.cli.comparing.QUICK", 1000)
    edits = tmp_path / "coarse.yaml"
    edits.write_text(COARSE)
    line = ["plan", MODEL, "-t", "litert-int8", "--data", few, "--annotations", edits, "-o", tmp_path / "out"]
    out = qplan(*line, "--format", "onnx-qdq").out
    assert "qplan losses" in out
    assert "the loss begins" not in out


def test_the_report_has_a_section():
    model, samples = digits_model(2)
    plan = plan_of(model, samples)
    page = write_report(plan, losses=planner.losses(model, plan, samples))
    assert 'id="where-the-numbers-are-lost"' in page
    assert "<h2>Where the numbers are lost</h2>" in page
    assert "the loss begins at head/softmax" in page
    assert "Noise of each kernel alone (2 samples)" in page
    with pytest.raises(planner.PlannerError, match=r"losses are the result of planner\.losses"):
        write_report(plan, losses={})

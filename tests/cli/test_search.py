"""The verb `search`: files, exit codes, a plan made again by its annotations."""

import json

import pytest
import yaml

from planner.cli.app import run
from tests.conftest import ROOT

DATA = ROOT / "examples" / "digits"
BASE = ("search", str(DATA / "digits.onnx"), "-t", "litert-int8", "--data", str(DATA / "calibration.npz"))


def test_what_is_found_is_written_and_made_again(tmp_path, capsys):
    out = tmp_path / "found"
    assert run([*BASE, "--goal", "sqnr=52", "--trials", "6", "-o", str(out)]) == 0
    told = capsys.readouterr().out
    assert "sqnr=52 is met" in told
    assert {"annotations.json", "plan.json", "plan.mlir", "report.html", "search.json"} <= {
        path.name for path in out.iterdir()
    }
    again = tmp_path / "again"
    line = ("plan", *BASE[1:], "--annotations", str(out / "annotations.json"), "--no-bias-correction")
    assert run([*line, "-o", str(again)]) == 0
    plans = [json.loads((folder / "plan.json").read_text()) for folder in (out, again)]
    assert plans[0]["key"] == plans[1]["key"]


def test_annotations_of_the_user_are_kept(tmp_path, capsys):
    given = tmp_path / "given.yaml"
    given.write_text('format: qplan.annotations/1\nkernels: {"head/*": i8}\n')
    out = tmp_path / "found"
    line = [
        *BASE,
        "--goal",
        "work=0.2",
        "--trials",
        "4",
        "--annotations",
        str(given),
        "-o",
        str(out),
        "--json",
    ]
    assert run(line) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["format"] == "qplan.search-result/1"
    written = json.loads((out / "annotations.json").read_text())
    assert written["kernels"]["head/*"] == "i8"
    assert not any(name.startswith("head/") for name in document["annotations"]["kernels"])
    assert yaml.safe_load(given.read_text())["kernels"] == {"head/*": "i8"}


def test_a_goal_that_is_not_reached_has_an_exit_code(tmp_path, capsys):
    given = tmp_path / "pins.json"
    pin = {"probabilities": "!quant.uniform<i8:f32, 0.00390625:-128>"}
    given.write_text(json.dumps({"format": "qplan.annotations/1", "values": pin}))
    line = [
        *BASE,
        "--goal",
        "sqnr=300",
        "--trials",
        "4",
        "--annotations",
        str(given),
        "-o",
        str(tmp_path / "o"),
    ]
    assert run(line) == 3
    told = capsys.readouterr()
    assert "not met" in told.out + told.err
    assert (tmp_path / "o" / "plan.json").is_file()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--goal", "fast=1"), "fast"),
        (("--goal", "sqnr"), "sqnr=30"),
        (("--goal", "drop=1%"), "metric"),
        (("--goal", "sqnr=30", "--metric", "nope"), "nope"),
        (("--goal", "sqnr=30", "--trials", "0"), "trials"),
    ],
)
def test_wrong_words_are_bad_input(words, told, tmp_path, capsys):
    assert run([*BASE, *words, "-o", str(tmp_path)]) == 2
    assert told in capsys.readouterr().err

"""A saved plan knows its model and its target: verbs take its folder, and find both by digest."""

import json
import shutil
from pathlib import Path

import pytest

import planner
from planner.cli.app import run
from planner.plans.read_mlir import plan_from_mlir

CASES = Path(__file__).parent.parent / "cases"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A plan of a model and a target of one's own, all in places of their own."""
    (tmp_path / "in").mkdir()
    shutil.copy(CASES / "concat_two_pins_one_covers.json", tmp_path / "in" / "model.json")
    shutil.copy(CASES / "npu.yaml", tmp_path / "in" / "npu.yaml")
    words = ["plan", str(tmp_path / "in" / "model.json"), "-t", str(tmp_path / "in" / "npu.yaml")]
    assert run([*words, "-o", str(tmp_path / "out")]) == 0
    return tmp_path / "out"


def test_every_verb_takes_the_folder(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same answers as with both named; what is written knows them too."""
    named = [
        "--model",
        str(folder.parent / "in" / "model.json"),
        "-t",
        str(folder.parent / "in" / "npu.yaml"),
    ]
    capsys.readouterr()
    for words in (["suggest", "q#0"], ["pareto", "q"], ["check"]):
        assert run([words[0], str(folder), *words[1:]]) == 0
        found = capsys.readouterr().out
        assert run([words[0], str(folder / "plan.json"), *words[1:], *named]) == 0
        assert capsys.readouterr().out == found
    edits, again = folder.parent / "edits.yaml", folder.parent / "elsewhere" / "again" / "plan.json"
    edits.write_text('format: qplan.annotations/1\nvalues: {q: "!quant.uniform<i8:f32, 0.03125>"}\n')
    assert run(["replan", str(folder), "--edits", str(edits), "--out", str(again)]) == 0
    assert run(["restore", str(again.parent), "k1", "--out", str(again)]) == 0
    assert run(["check", str(again)]) == 0
    assert run(["show", str(again.parent)]) == 0
    assert run(["retarget", str(folder), str(CASES / "npu.yaml"), "--out", str(again)]) == 0


def test_paths_are_told_from_the_folder_on(folder: Path, tmp_path: Path) -> None:
    """All of it can move; no path of this machine is in the file."""
    sources = json.loads((folder / "plan.json").read_text())["sources"]
    assert sources == {"model": "../in/model.json", "target": "../in/npu.yaml"}
    shutil.copytree(tmp_path, tmp_path / "moved", ignore=shutil.ignore_patterns("moved"))
    shutil.rmtree(folder.parent / "in")
    assert run(["check", str(tmp_path / "moved" / "out")]) == 0
    assert run(["check", str(folder)]) == 2


def test_what_moved_is_found_beside_the_plan_by_its_digest(folder: Path) -> None:
    """A model under any name; another model or target beside it is passed over."""
    source = folder.parent / "in"
    shutil.copy(CASES / "pool_between_two_pins.json", folder / "a.json")
    shutil.copy(CASES / "strict.yaml", folder / "a.yaml")
    (source / "model.json").rename(folder / "renamed.json")
    (source / "npu.yaml").rename(folder / "npu.yaml")
    assert run(["suggest", str(folder), "q#0"]) == 0


@pytest.mark.parametrize(("what", "name"), [("model", "model.json"), ("target", "npu.yaml")])
def test_what_changed_since_is_not_taken(
    what: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Bad input that names the option, the place, and why it is none."""
    path = folder.parent / "in" / name
    path.write_text(path.read_text().replace('"shape": [16]', '"shape": [32]').replace("1.0.0", "1.0.1"))
    assert run(["suggest", str(folder), "q#0"]) == 2
    told = capsys.readouterr().err
    assert f"the {what} that plan" in told
    assert str(path) in told
    assert f"give it with --{what}" in told


def test_a_plan_that_says_no_place(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As the library writes it: what is beside it, shipped targets, or nothing."""
    model = planner.load_model(folder.parent / "in" / "model.json")
    plain = folder.parent / "plain"
    plain.mkdir()
    (plain / "plan.json").write_text(planner.plan(model, "litert-int8").to_json())
    assert run(["pareto", str(plain), "q"]) == 2
    assert "it says no place and nothing is beside it (give it with --model)" in capsys.readouterr().err
    shutil.copy(folder.parent / "in" / "model.json", plain)
    assert run(["pareto", str(plain), "q"]) == 0


def test_an_output_never_replaces_what_was_found(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The model was not named on the command line, and is an input all the same."""
    model = folder.parent / "in" / "model.json"
    assert run(["restore", str(folder), "k1", "--out", str(model)]) == 2
    assert "would be written over the input" in capsys.readouterr().err


def test_the_places_survive_both_texts(folder: Path) -> None:
    """As all that a plan holds."""
    plan = planner.plan_from_json((folder / "plan.json").read_text())
    assert planner.plan_from_json(plan.to_json()).sources == plan.sources != {}
    assert plan_from_mlir(plan.to_mlir()).sources == plan.sources


def test_a_quantized_model_is_its_plans_model_by_name_and_by_itself(tmp_path: Path) -> None:
    """Its file brings pins and no statistics: verbs complete it from the plan, as they do a float model."""
    data = "examples/digits/calibration.npz"
    source = tmp_path / "own.onnx"
    source.write_bytes(planner.quantize("examples/digits/digits.onnx", data, target="litert-int8").data)
    out = tmp_path / "out"
    words = ["quantize", str(source), "--data", data, "-t", "onnxruntime-cpu", "--effort", "quick"]
    assert run([*words, "-o", str(out)]) == 0
    again = str(tmp_path / "again" / "plan.json")
    for verb, *others in (
        ["check"],
        ["losses", "--data", data],
        ["export", "-f", "onnx-qoperator", "-o", str(tmp_path / "exported.onnx")],
        ["restore", "head/conv", "--out", again],
        ["retarget", "qnn-htp", "--out", again],
    ):
        for named in ([], ["--model", str(source)]):
            assert run([verb, str(out), *others, *named]) == 0, (verb, named)

"""`qplan diff suggest pareto replan restore` on a plan file: output, JSON, exit codes."""

import json
from pathlib import Path

import pytest

import planner
from planner.cli.app import run

CASES = Path(__file__).parent.parent / "cases"
MODEL = str(CASES / "concat_two_pins_one_covers.json")
TARGET = str(CASES / "npu.yaml")
GIVEN = ["--model", MODEL, "--target", TARGET]


@pytest.fixture
def plan_file(tmp_path: Path) -> str:
    """A saved plan with one rescale, `q#0`."""
    path = tmp_path / "plan.json"
    path.write_text(planner.plan(planner.load_model(MODEL), TARGET).to_json())
    return str(path)


def test_suggest_says_what_helps(plan_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The first edit, its price, the rescales."""
    assert run(["suggest", plan_file, "q#0", *GIVEN]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "1. fix the type of 'q' to !quant.uniform<i8:f32, 0.03125>\n   price 64 -> 48, rescales 1 -> 0"
    )


def test_suggestions_as_json_are_edits_for_replan(
    plan_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `suggest --json` prints is what `replan --edits` takes."""
    assert run(["suggest", plan_file, "q#0", *GIVEN, "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["suggestions"][0]
    edits, out = tmp_path / "edits.json", tmp_path / "again.json"
    edits.write_text(json.dumps({"format": "qplan.annotations/1", **first["edits"]}))
    assert run(["replan", plan_file, *GIVEN, "--edits", str(edits), "--out", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["cost"] == first["price"][1]
    assert run(["diff", plan_file, str(out)]) == 1
    assert "- q#0" in capsys.readouterr().out


def test_retarget_where_pins_cannot_all_hold(
    plan_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other target forbids rescales: a conflict, or a plan that says what it gave up."""
    out = tmp_path / "there.json"
    words = ["retarget", plan_file, str(CASES / "rigid.yaml"), *GIVEN, "--out", str(out)]
    assert run(words) == 1
    assert "rigid" in capsys.readouterr().err
    assert run([*words, "--best-effort"]) == 0
    assert "done all the same" in capsys.readouterr().err
    assert run(["check", str(out), "--model", MODEL, "--target", str(CASES / "rigid.yaml")]) == 0


def test_pareto_lists_the_front(plan_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One point: the rescale that cannot be had for less."""
    assert run(["pareto", plan_file, "q", *GIVEN, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["tradeoffs"]
    assert [(point["rescaled_elements"], point["chosen"]) for point in found] == [(16, True)]
    assert run(["pareto", plan_file, "q", *GIVEN]) == 0
    assert "worst bits lost" in capsys.readouterr().out


def test_view_draws_the_front(plan_file: str, tmp_path: Path) -> None:
    """The page is what the library writes with the trade-offs of the same address."""
    out = tmp_path / "page.html"
    assert run(["view", plan_file, *GIVEN, "--pareto", "q", "--out", str(out)]) == 0
    plan = planner.plan(planner.load_model(MODEL), TARGET)
    read = planner.plan_from_json(Path(plan_file).read_text())
    assert out.read_text() == planner.write_report(read, tradeoffs={"q": planner.pareto(plan, "q")})
    assert "Trade-offs" in out.read_text()
    assert run(["view", plan_file, *GIVEN, "--pareto", "zz", "--out", str(out)]) == 2


def test_view_draws_histograms(tmp_path: Path) -> None:
    """Of statistics that have them; the page is the library's."""
    digits = Path(__file__).parents[2] / "examples" / "digits"
    model = planner.load_model(digits / "digits.onnx")
    stats = planner.calibrate(model, digits / "calibration.npz", method="percentile")
    stats.save(tmp_path / "stats.json")
    plan = planner.plan(planner.annotate(model, stats=stats), "litert-int8")
    (tmp_path / "plan.json").write_text(plan.to_json())
    out = tmp_path / "page.html"
    words = ["view", str(tmp_path / "plan.json"), "--stats", str(tmp_path / "stats.json"), "--out", str(out)]
    assert run(words) == 0
    assert "Values and their ranges" in out.read_text()
    assert out.read_text() == planner.write_report(planner.plan_from_json(plan.to_json()), stats=stats)


def test_restore_writes_a_plan(plan_file: str, tmp_path: Path) -> None:
    """A plan with that kernel in float."""
    out = tmp_path / "restored.json"
    name = planner.plan_from_json(Path(plan_file).read_text()).kernels_in_order[-1].name
    assert run(["restore", plan_file, name, *GIVEN, "--out", str(out)]) == 0
    assert planner.plan_from_json(out.read_text()).kernels[name].row is None


@pytest.mark.parametrize(
    ("verb", "message"),
    [(["suggest", "q#7"], "q#0"), (["pareto", "zz"], "unknown value or rescale"), (["restore", "zz"], "zz")],
)
def test_what_is_not_there_is_bad_input(
    verb: list[str], message: str, plan_file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and one line."""
    out = ["--out", str(tmp_path / "out.json")] if verb[0] == "restore" else []
    assert run([verb[0], plan_file, verb[1], *GIVEN, *out]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_equal_plans_have_no_diff(plan_file: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 0."""
    assert run(["diff", plan_file, plan_file]) == 0
    assert capsys.readouterr().out == "The plans decide the same.\n"

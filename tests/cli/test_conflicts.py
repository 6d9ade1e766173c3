"""Conflicts on the command line: exit code 1, a line and its facts; `--best-effort` plans all the same."""

from pathlib import Path

CASES = Path(__file__).resolve().parents[1] / "cases"
MODEL = str(CASES / "contradictory_constraints.json")
TARGET = str(CASES / "npu.yaml")


def test_a_conflict_names_its_facts_and_is_code_1(qplan, tmp_path):
    answer = qplan("plan", MODEL, "-t", TARGET, "-o", str(tmp_path / "out"))
    assert answer.code == 1
    pin, wish = "!quant.uniform<i8:f32, 0.03125>", "!quant.any<i16>"
    assert answer.err.splitlines() == [
        f"qplan: error: 'a' cannot be both {pin} and {wish} (drop one of them)",
        f"qplan: error: because of value 'a': {pin}",
        f"qplan: error: because of value 'a': {wish}",
    ]
    assert not (tmp_path / "out").exists()


def test_best_effort_warns_of_what_it_gave_up(qplan, tmp_path):
    answer = qplan("plan", MODEL, "-t", TARGET, "-o", str(tmp_path / "out"), "--best-effort")
    assert answer.code == 0, answer.err
    assert "left out: !quant.any<i16> at a" in answer.err
    assert (tmp_path / "out" / "plan.json").is_file()

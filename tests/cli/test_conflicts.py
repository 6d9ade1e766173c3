"""Conflicts on the command line: exit code 1, a line and its facts; `--best-effort` plans all the same."""

from pathlib import Path

from tests.cli.conftest import DATA
from tests.cli.conftest import MODEL as DIGITS_MODEL

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


def test_a_best_effort_plan_is_checked_exported_and_used_as_any_other(qplan, tmp_path):
    """It is a plan for the model without what it left out, with or without the file's other constraints."""
    wish = '["!quant.uniform<i8:f32, 0.02>", "!quant.any<i16>"]'
    (tmp_path / "a.yaml").write_text(f"format: qplan.annotations/1\nvalues: {{stem/relu_out: {wish}}}\n")
    line = ("plan", DIGITS_MODEL, "-t", "litert-int8", "--data", DATA, "--annotations", tmp_path / "a.yaml")
    out = tmp_path / "out"
    answer = qplan(*line, "--best-effort", "--no-bias-correction", "-f", "onnx-qdq", "-o", out)
    assert answer.code == 0, answer.err
    assert "left out: !quant.any<i16> at stem/relu_out" in answer.err
    plan = ("--model", DIGITS_MODEL, "--target", "litert-int8")
    assert qplan("check", out / "plan.json", *plan).code == 0
    again = qplan(
        "export", out / "plan.json", "--model", DIGITS_MODEL, "-f", "onnx-qdq", "-o", out / "b.onnx"
    )
    assert again.code == 0
    assert (out / "b.onnx").read_bytes() == (out / "onnx-qdq.onnx").read_bytes()


CIRCLE = """
apiVersion: planner/v1
kind: Target
id: odd
version: 1.0.0
defaults: {port: {storage: i8}}
kernels:
  - kernel: Gemm
    in: {x: {storage: i8}, w: {storage: i8}, b?: {storage: i32}}
    out: {y: {storage: i8}}
    rules: [RULES]
"""


def test_rules_in_a_circle_are_a_conflict_with_their_lines(qplan, tmp_path):
    rules = "{derive: {port: y, scale: x.scale * 2}}, {derive: {port: x, scale: y.scale * 2}}"
    target = tmp_path / "odd.yaml"
    target.write_text(CIRCLE.replace("RULES", rules).lstrip())
    answer = qplan("plan", DIGITS_MODEL, "-t", target, "--data", DATA, "-o", tmp_path / "out")
    assert answer.code == 1
    nothing = "no scales and zero points were found that satisfy its row"
    advice = "derive a port by one rule, from ports that do not rest on it"
    assert answer.err.splitlines() == [
        f"qplan: error: 'head/gemm': rules derive 'y' and 'x' in a circle: {nothing} ({advice})",
        "qplan: error: because of odd.yaml:10: derive of 'y': scale x.scale * 2",
        "qplan: error: because of odd.yaml:10: derive of 'x': scale y.scale * 2",
    ]
    assert not (tmp_path / "out").exists()
    assert "L036" in qplan("target", "lint", target).out


def test_a_plan_that_does_not_hold_is_not_written(qplan, tmp_path):
    """A port that two rules fix: the checker's refusal is the plan verb's."""
    rules = "{fixed_scale: {port: y, scale: 0.5}}, {fixed_scale: {port: y, scale: 0.25}}"
    target = tmp_path / "odd.yaml"
    target.write_text(CIRCLE.replace("RULES", rules).lstrip())
    answer = qplan("plan", DIGITS_MODEL, "-t", target, "--data", DATA, "-o", tmp_path / "out")
    assert answer.code == 1
    assert "head/gemm.out[0]: is !quant.uniform<i8:f32, 0.25>, fixed_scale at odd.yaml:10" in answer.err
    assert not (tmp_path / "out").exists()

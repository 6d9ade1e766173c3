"""The README tells the truth: its Python runs, its commands exist, its files appear."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from planner.cli.app import run

ROOT = Path(__file__).resolve().parents[1]


def blocks(page: str, language: str) -> list[str]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder with the example in it, as the current one."""
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(("page", "outputs"), [("README.md", ["digits-int8.onnx"]), ("docs/library.md", [])])
def test_python_runs(elsewhere, page, outputs):
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        if "layer*" not in block:  # constraints of a model that is not the example
            exec(compile(block, page, "exec"), names)  # noqa: S102 - our own page
    assert all((elsewhere / name).is_file() for name in outputs)


def test_the_target_of_the_docs_is_one(elsewhere):
    text = next(block for block in blocks("docs/targets/rules.md", "yaml") if block.startswith("apiVersion"))
    (elsewhere / "my.yaml").write_text(text)
    assert run(["target", "lint", "my.yaml"]) == 0
    data = ["--data", "examples/digits/calibration.npz"]
    assert run(["plan", "examples/digits/digits.onnx", "--target", "my.yaml", *data, "--out", "out"]) == 0


def test_commands_run(elsewhere):
    lines = [line for block in blocks("README.md", "sh") for line in block.replace("\\\n", " ").splitlines()]
    commands = [shlex.split(line) for line in lines if line.startswith("qplan ")]
    assert len(commands) == 4
    for command in commands:
        assert run(command[1:]) == 0
    written = sorted(path.name for path in (elsewhere / "out" / "digits").iterdir())
    assert written == [
        "digits.corrected-float.onnx",
        "onnx-qdq.onnx",
        "plan.json",
        "plan.mlir",
        "report.html",
    ]


def test_make_targets_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"\bmake (\w+)", (ROOT / "README.md").read_text())
    assert named
    assert set(named) <= set(targets)

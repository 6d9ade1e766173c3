"""The README tells the truth: its Python runs, its commands exist, its files appear."""

import itertools
import re
import shlex
import shutil
from pathlib import Path

import pytest

from planner.cli.app import run
from tests import walked

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


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("page", ["README.md", "docs/library.md"])
def test_python_runs(page):
    names: dict[str, object] = {}
    for block in blocks(page, "python"):
        if "layer*" not in block:  # constraints of a model that is not the example
            exec(compile(block, page, "exec"), names)  # noqa: S102 - our own page


def test_the_target_of_the_docs_is_one(elsewhere):
    text = next(block for block in blocks("docs/targets/rules.md", "yaml") if block.startswith("apiVersion"))
    (elsewhere / "my.yaml").write_text(text)
    assert run(["target", "lint", "my.yaml"]) == 0
    data = ["--data", "examples/digits/calibration.npz"]
    assert run(["plan", "examples/digits/digits.onnx", "--target", "my.yaml", *data, "--out", "out"]) == 0


def shown(language: str) -> list[str]:
    """The lines that the README shows behind a block of a language."""
    found = list(walked.blocks(ROOT / "README.md"))
    (text,) = [
        after.text
        for before, after in itertools.pairwise(found)
        if (before.language, after.language) == (language, "text")
    ]
    return text.splitlines()


@pytest.mark.usefixtures("elsewhere")
def test_python_prints_what_the_readme_shows(capsys):
    (block,) = blocks("README.md", "python")
    exec(compile(block, "README.md", "exec"), {})  # noqa: S102 - our own page
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in shown("python") if not walked.is_printed(line, printed)] == []


def test_commands_run(elsewhere, capsys):
    lines = [line for block in blocks("README.md", "sh") for line in block.replace("\\\n", " ").splitlines()]
    (command,) = [shlex.split(line) for line in lines if line.startswith("qplan ")]
    capsys.readouterr()
    assert run(command[1:]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in shown("sh") if not walked.is_printed(line, printed)] == []
    assert sorted(path.name for path in (elsewhere / "out" / "digits").iterdir()) == [
        "digits.corrected-float.onnx",
        "onnx-qdq.onnx",
        "plan.json",
        "plan.mlir",
        "report.html",
    ]


def test_the_first_commands_are_those_of_make():
    first = blocks("README.md", "sh")[0].splitlines()
    assert [line.split("#")[0].strip() for line in first] == ["make demo", "make test"]


def test_make_targets_exist():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = re.findall(r"\bmake (\w+)", (ROOT / "README.md").read_text())
    assert named
    assert set(named) <= set(targets)

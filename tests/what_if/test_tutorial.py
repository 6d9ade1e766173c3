"""docs/plans.md: its commands run on the shipped example, and print what the page quotes."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from planner.cli.app import run

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "plans.md").read_text(encoding="utf-8")


def test_the_tutorial_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each quoted line is in what the commands before it printed; the numbers of the table too."""
    shutil.copytree(ROOT / "examples" / "digits", tmp_path / "examples" / "digits")
    monkeypatch.chdir(tmp_path)
    printed = ""
    for kind, block in re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL):
        if kind == "yaml":
            Path("wider.yaml").write_text(block)
        elif kind == "text":
            for line in block.splitlines():
                assert _figures(line) in _figures(printed)
        else:
            for line in block.splitlines():
                arguments = shlex.split(line)[1:]
                wanted = 1 if arguments[0] == "diff" else 0
                assert run(arguments) == wanted, line
                printed = capsys.readouterr().out
                for level in re.findall(r"(\d+\.\d)\d* dB", printed):
                    assert f"{level} dB" in PAGE or arguments[0] == "plan"


def _figures(text: str) -> str:
    """A text without the blanks that tables are padded with."""
    return " ".join(text.split())

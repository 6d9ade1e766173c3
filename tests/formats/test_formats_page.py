"""The formats page tells the truth: its Python and its command run, and every format writes its file."""

import shlex

import pytest

from planner.cli.app import run
from planner.formats.table import EXPORTERS, file_name
from tests.test_readme import ROOT, blocks, elsewhere

__all__ = ["elsewhere"]
PAGE = "docs/formats.md"


@pytest.mark.usefixtures("elsewhere")
def test_its_python_runs(capsys):
    names: dict[str, object] = {}
    for block in blocks(PAGE, "python"):
        exec(compile(block, PAGE, "exec"), names)  # noqa: S102 - our own page
    assert set(names["files"]) == {"finn", "onnx-integer", "onnx-qcdq", "qonnx"}
    assert "LayerName" in capsys.readouterr().out


def test_its_commands_write_every_format(elsewhere):
    lines = [line for block in blocks(PAGE, "sh") for line in block.splitlines()]
    named = [name for name in EXPORTERS for line in lines if f"--format {name} " in line]
    assert len(named) == 7
    for line in lines:
        assert run(shlex.split(line)[1:]) == 0
    written = {path.name for path in (elsewhere / "out").glob("*/*")}
    assert {file_name(name) for name in named} <= written


def test_the_page_says_each_formats_arithmetic():
    rows = [
        line.split("|")[1].strip()
        for line in (ROOT / "docs" / "reference" / "formats.md").read_text().splitlines()
        if line.startswith("| `")
    ]
    listed = [row.strip("`") for row in rows if row.strip("`") in EXPORTERS]
    assert listed == sorted(EXPORTERS)

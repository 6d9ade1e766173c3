"""The edges of the command: bugs, control characters, whole files, numbers JSON lacks."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from planner.cli import files, plans
from planner.cli.app import BUG, PIPE_CLOSED, run
from planner.cli.console import clean, say_json
from planner.errors import InputError

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def broken(monkeypatch, tmp_path):
    """A command line that runs into a bug."""

    def fail(_):
        raise ZeroDivisionError("1 / 0\nsecond line")

    monkeypatch.setattr(plans, "read_plan", fail)
    return ["show", str(tmp_path / "plan.json")]


def test_a_bug_is_one_line_and_code_70(broken, capsys, monkeypatch):
    monkeypatch.delenv("QPLAN_TRACEBACK", raising=False)
    assert run(broken) == BUG == 70
    assert capsys.readouterr().err == (
        "qplan: error: this is a bug: ZeroDivisionError: 1 / 0 second line (QPLAN_TRACEBACK=1 shows where)\n"
    )


def test_a_bug_shows_where_when_asked(broken, capsys, monkeypatch):
    monkeypatch.setenv("QPLAN_TRACEBACK", "1")
    assert run(broken) == BUG
    assert "Traceback" in capsys.readouterr().err


def test_names_cannot_write_elsewhere_on_the_screen():
    assert clean("conv\x1b[2J\u202e1") == "conv\\x1b[2J\\u202e1"


def test_json_has_no_infinity(capsys):
    say_json({"sqnr": math.inf, "errors": [math.nan, 1.5]})
    assert json.loads(capsys.readouterr().out) == {"sqnr": None, "errors": [None, 1.5]}


def test_files_are_written_all_or_none(tmp_path):
    goal = tmp_path / "out"
    (goal / "b").mkdir(parents=True)  # a folder where a file should go
    with pytest.raises(InputError):
        files.write_folder(str(goal), {"a/x": b"1"})
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]
    assert sorted(path.name for path in goal.iterdir()) == ["b"]


def test_a_file_is_replaced_whole(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("old")
    files.write_file(str(path), b"new")
    assert path.read_text() == "new"
    with pytest.raises(InputError, match="it is a folder"):
        files.write_file(str(tmp_path), b"new")


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b' {"format": 1}', "json"),
        (b"module {\n", "mlir"),
        (b"func.func @main", "mlir"),
        (b"\x08\x08", "onnx"),
    ],
)
def test_standard_input_is_told_apart(data, kind):
    assert files.model_format(data) == kind


QPLAN = [sys.executable, "-c", "from planner.cli.app import main; main()"]


@pytest.mark.parametrize("words", [["show"], ["show", "--json"], ["target", "list"]])
def test_a_reader_that_leaves_early_sees_no_complaint(planned, words):
    """Whether the output is more than a buffer, which is written on the way, or less, which is at the end."""
    plan = [planned / "plan.json"] if "show" in words else []
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [*QPLAN, *words, *plan], stdout=closed, stderr=subprocess.PIPE, check=False, cwd=ROOT
        )
    assert (done.returncode, done.stderr) == (PIPE_CLOSED, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [["target", "list"], ["target", "list", "--json"]])
def test_output_that_finds_no_room(words):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*QPLAN, *words], stdout=full, stderr=subprocess.PIPE, check=False, cwd=ROOT)
    line = b"qplan: error: cannot write to standard output: No space left on device\n"
    assert (done.returncode, done.stderr) == (2, line)

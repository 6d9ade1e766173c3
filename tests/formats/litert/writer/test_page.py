"""The page of the format tells the truth: its command runs, and every op that can be written is on it."""

import re
import shlex

from planner.cli.app import run
from planner.formats.litert.writer.table import WRITERS
from tests.formats.litert.writer.running import told
from tests.test_readme import ROOT, blocks, elsewhere

__all__ = ["elsewhere"]
PAGE = "docs/litert.md"


def test_its_command_writes_the_file(elsewhere):
    lines = [line for block in blocks(PAGE, "sh") for line in block.splitlines() if line.startswith("qplan ")]
    assert len(lines) == 1
    assert run(shlex.split(lines[0])[1:]) == 0
    data = (elsewhere / "out" / "digits-litert" / "litert.tflite").read_bytes()
    assert told(data).counts["CONV_2D"] > 0


def test_every_op_is_on_it():
    names = set(re.findall(r"\w+", (ROOT / PAGE).read_text("utf-8")))
    assert sorted(WRITERS.keys() - names) == []

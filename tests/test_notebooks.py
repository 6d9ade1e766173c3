"""The notebooks run from top to bottom, show tables, and are committed with the outputs that they give."""

import json
import re

import pytest

from benchmarks.notebooks import NOTEBOOKS, run

NUMBERS = re.compile(r"-?\d[\d,]*(?:\.\d+)?(?:e-?\d+)?")
"""Figures of onnxruntime differ in the last digits from one processor to the next."""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_gives_what_is_committed_with_it(path, tmp_path):
    committed = json.loads(path.read_text(encoding="utf-8"))
    assert committed["nbformat"] == 4
    found = run(path, tmp_path)
    for cell, again in zip(committed["cells"], found["cells"], strict=True):
        assert masked(cell) == masked(again)
    shown = [cell["outputs"] for cell in committed["cells"] if cell.get("outputs")]
    assert any("text/html" in output.get("data", {}) for outputs in shown for output in outputs)
    assert [output for outputs in shown for output in outputs if output["output_type"] == "error"] == []


def masked(cell):
    return NUMBERS.sub("0", json.dumps(cell))


def test_both_are_there():
    assert [path.stem for path in NOTEBOOKS] == ["a_device_of_ones_own", "first_steps"]

"""What an upgrade of an engine changed: rows by verdict and detail, and which of them got worse."""

import json

import pytest

from planner.errors import InputError
from planner.target_tests.changed_rows import changed_rows, read_before
from planner.target_tests.engines.table import ENGINES, HERE, Engine
from planner.target_tests.row_probe import RowFinding


def finding(name, verdict, detail="", row="t.yaml:9"):
    return RowFinding(name, name.split("-")[0], row, verdict, detail)


def test_rows_that_differ():
    before = [
        finding("add-1", "integers"),
        finding("add-2", "one step", "3 of 64 elements of y0 differ, by 1 at most"),
        finding("Mul-1", "one step", "2 of 64 differ"),
        finding("Tanh-1", "integers"),
        finding("Gather", "no model", "small models have other ports"),
        finding("Gather", "no model", "runs in f32"),
    ]
    after = [
        finding("add-1", "one step", "1 of 64 elements of y0 differ, by 1 at most"),
        finding("add-2", "integers"),
        finding("Mul-1", "one step", "9 of 64 differ"),
        finding("Tanh-1", "integers", row="t.yaml:12"),
        finding("Erf-1", "refused", "no such operator"),
        finding("Gather", "no model", "small models have other ports"),
    ]
    found = changed_rows(before, after)
    assert [(change.text, change.refuted) for change in found] == [
        ("add-1: integers -> one step (1 of 64 elements of y0 differ, by 1 at most)", True),
        ("add-2: one step (3 of 64 elements of y0 differ, by 1 at most) -> integers", False),
        (
            "Mul-1: one step (2 of 64 differ) -> one step (9 of 64 differ)",
            False,
        ),
        ("Erf-1: absent -> refused (no such operator)", True),
        ("Gather: no model (runs in f32) -> absent", False),
    ]
    assert changed_rows(after, after) == ()


@pytest.mark.parametrize(
    ("was", "now", "is_worse"),
    [
        ("differs", "one step", False),
        ("refused", "one step", False),
        ("refused", "cpu", False),
        ("one step", "differs", True),
        ("differs", "refused", True),
        ("one step", "float", True),
    ],
)
def test_a_row_that_comes_closer_got_no_worse(was, now, is_worse):
    (change,) = changed_rows([finding("add-1", was)], [finding("add-1", now)])
    assert change.refuted is is_worse


def test_a_file_that_holds_no_findings(tmp_path):
    path = tmp_path / "before.json"
    row = {"name": "x", "kernel": "x", "row": "t.yaml:9", "verdict": "integers"}
    wrong = [{"rows": [{**row, "name": ["x"]}]}, {"rows": [row], "version": 3}, {"rows": ["x"]}]
    texts = ["", "[]", "{}", '{"rows": [{"name": "x"}]}', "[" * 100_000, *map(json.dumps, wrong)]
    for text in texts:
        path.write_text(text)
        with pytest.raises(InputError, match="holds no findings of an earlier probe"):
            read_before(path)
    path.write_text(json.dumps({"rows": [], "version": "device 3"}))
    assert read_before(path).version == "device 3"


def test_an_engine_says_its_version(tmp_path):
    name, _, number = ENGINES["onnxruntime"].version(HERE).partition(" ")
    assert (name, number[0].isdigit()) == ("onnxruntime", True)
    assert ENGINES["tosa"].version(str(tmp_path / "no_such")) == ""
    assert Engine("onnx-qdq", lambda *_: []).version(HERE) == ""

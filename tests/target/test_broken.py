"""Broken files, one per code: the whole message stands beside each, as `.err`."""

from pathlib import Path
from typing import get_args

import pytest

from planner.errors import TargetError
from planner.formats.table import FORMATS
from planner.target.lint.codes import MEANINGS
from planner.target.lint.findings import CHECKS, finding_text, lint
from planner.target.load import load_target
from planner.target.records import ExportFormat

FOLDER = Path(__file__).parent / "broken"
CASES = sorted(FOLDER.glob("*.yaml"))


def messages(path):
    try:
        target = load_target(path)
    except TargetError as error:
        return str(error) + "\n"
    return "".join(f"{finding_text(target, finding)}\n" for finding in lint(target))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_message(path):
    """Each file gives exactly the lines beside it, and its own code is among them."""
    found = messages(path)
    assert found == path.with_suffix(".err").read_text(encoding="utf-8")
    assert f" {path.stem.partition('-')[0]} " in found


def test_every_lint_code_has_a_broken_file():
    """A check that nothing fails is no check."""
    assert set(CHECKS) <= {path.stem for path in CASES}


def test_every_code_has_a_meaning_and_every_meaning_a_file():
    """T002 takes a megabyte, so it has no file here."""
    assert set(MEANINGS) == {path.stem.partition("-")[0] for path in CASES} | {"T002"}


def test_lint_knows_the_formats_of_plans():
    """They are listed above the floor of targets."""
    assert sorted(get_args(ExportFormat)) == sorted(FORMATS)


def test_errors_are_records():
    """HTTP answers with the same errors as data."""
    with pytest.raises(TargetError) as caught:
        load_target(FOLDER / "T012.yaml")
    first = next(error for error in caught.value.errors if "whn" in error.message)
    assert (first.file, first.line, first.column, first.code) == ("T012.yaml", 10, 5, "T012")
    assert first.path == "kernels[0].whn"
    assert first.quote == "whn: {min_bits: {x: 9}}"
    assert str(caught.value).splitlines() == [str(error) for error in caught.value.errors]

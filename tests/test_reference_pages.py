"""Generated pages of the reference are what the code says today."""

import importlib
import sys
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy", reason="the page on HTTP needs the extra service")

DOCS = Path(__file__).resolve().parents[1] / "docs"
sys.path.insert(0, str(DOCS / "site"))
reference = importlib.import_module("reference")


@pytest.mark.parametrize("name", reference.PAGES)
def test_a_generated_page_is_current(name):
    """Write them with `python docs/site/reference.py`."""
    assert (DOCS / name).read_text(encoding="utf-8") == reference.PAGES[name]()


def test_choices_and_required_options_are_told():
    page = reference.command_page()
    assert "`--effort` `quick\\|normal\\|high`" in page
    assert "**`--target`, `-t`** `T`" in page


def test_problems_and_bounds_are_told():
    page = reference.http_page()
    assert "### `POST /v1/plans`" in page
    assert "- 202: its job, see `Location`; JobRecord, `application/json`" in page

"""The examples in the docstrings of public functions run, from the root of the sources."""

import doctest
import inspect

import numpy as np
import pytest
from PIL import Image

import planner
from tests.conftest import ROOT

FUNCTIONS = {
    name: item for name in planner.__all__ if inspect.isfunction(item := getattr(planner, name, None))
}
WITH_EXAMPLES = [name for name, item in FUNCTIONS.items() if ">>>" in (item.__doc__ or "")]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_the_example_of_a_docstring_runs(name, tmp_path, monkeypatch):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (16, 16)).save(tmp_path / "photos" / "one.png")
    monkeypatch.chdir(tmp_path)
    names = {"planner": planner, "np": np}
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    found = doctest.DocTestParser().get_doctest(text, names, name, None, 0)
    said: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(found, out=said.append)
    assert found.examples
    assert result.failed == 0, "".join(said)


def test_the_functions_of_a_first_day_have_one():
    wanted = {
        "quantize",
        "load_model",
        "calibrate",
        "annotate",
        "plan",
        "check",
        "export",
        "compare",
        "explain",
    }
    assert wanted <= set(WITH_EXAMPLES)

"""The notebooks run from top to bottom, and every cell that ends in a result of ours shows a table."""

import ast
import json
import shutil

import pytest

from tests.conftest import ROOT

EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))


def run_cells(document) -> list[object]:
    """Run the code cells in one namespace, as a kernel does; what the last line of each gives."""
    names: dict[str, object] = {"__name__": "__main__"}
    shown = []
    for cell in document["cells"]:
        if cell["cell_type"] == "code":
            tree = ast.parse("".join(cell["source"]))
            last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, "cell", "exec"), names)  # noqa: S102 - our own cells
            if last is not None:
                shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))  # noqa: S307
    return shown


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    shutil.copytree(EXAMPLES / "digits", tmp_path / "digits")
    monkeypatch.chdir(tmp_path)
    document = json.loads(path.read_text(encoding="utf-8"))
    shown = [item for item in run_cells(document) if item is not None]
    assert [item for item in shown if hasattr(item, "_repr_html_")]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_committed_without_results(path):
    """Results of one machine say nothing of the next, and a diff of them nothing to a reader."""
    document = json.loads(path.read_text(encoding="utf-8"))
    assert document["nbformat"] == 4
    code = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_both_are_there():
    assert [path.stem for path in NOTEBOOKS] == ["a_device_of_ones_own", "first_steps"]

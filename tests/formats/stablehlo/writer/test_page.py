"""The page tells the truth: its Python and command run, and its table of pairs is the interpreter's."""

import shlex

import numpy as np
import pytest

from planner.cli.app import run
from planner.interpreter.evaluate import evaluate
from tests.formats.stablehlo.writer.test_pairs import SETS, pairs_of
from tests.test_readme import ROOT, blocks, elsewhere

__all__ = ["elsewhere"]
PAGE = "docs/programs.md"
AGREEMENT = "docs/results/stablehlo-agreement.md"


@pytest.mark.usefixtures("elsewhere")
def test_its_python_runs(capsys):
    names: dict[str, object] = {}
    for block in blocks(PAGE, "python"):
        exec(compile(block, PAGE, "exec"), names)  # noqa: S102 - our own page
    assert "stablehlo of 'digits' for stablehlo" in capsys.readouterr().out
    assert "uniform" not in str(names["integers"])


def test_its_command_writes_both_forms(elsewhere):
    (line,) = [line for line in "".join(blocks(PAGE, "sh")).splitlines() if "--target stablehlo" in line]
    assert run(shlex.split(line)[1:]) == 0
    written = {path.name for path in (elsewhere / "out" / "digits-stablehlo").iterdir()}
    assert {"stablehlo.mlir", "stablehlo-int.mlir"} <= written


def _listed():
    lines = (ROOT / AGREEMENT).read_text().splitlines()
    rows = [line.split("|")[1:-1] for line in lines if line.startswith("| ")]
    kinds = {"Add", "Div", "Max, Min", "Mul", "Sub"}
    found = {
        row[0].strip(): [int(cell) for cell in row[1:]]
        for row in rows
        if row[0].strip() in kinds and len(row) == 6
    }
    return {kind: counts for name, counts in found.items() for kind in name.split(", ")}


@pytest.mark.parametrize("kind", ["Add", "Div", "Max", "Min", "Mul", "Sub"])
def test_its_table_counts_the_pairs_between_the_forms(kind):
    counts = []
    for name in SETS:
        graph, plan, sample = pairs_of(kind, name)
        one, two = (
            evaluate(graph, plan, sample, arithmetic=form).stored["y"].astype(int)
            for form in ("exact_even", "float32_spec")
        )
        assert np.abs(one - two).max() <= 1
        counts.append(int(np.count_nonzero(one != two)))
    assert _listed()[kind] == counts

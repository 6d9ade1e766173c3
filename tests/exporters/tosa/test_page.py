"""The page on TOSA tells the truth: its command writes the file, its counts are counted."""

import shlex

import numpy as np
import pytest

from planner.cli.app import run
from planner.interpreter.evaluate import Interpreter
from planner.ir.arithmetic.rescaling import apply_scale_32, multiplier_and_shift, reciprocal_scale
from tests.exporters.plans import model, op, plan_of
from tests.exporters.tosa.test_pairs import SETS, grid
from tests.test_readme import ROOT, blocks, elsewhere

__all__ = ["elsewhere"]
PAGE = "docs/programs.md"
AGREEMENT = "docs/results/tosa-agreement.md"
ARITHMETICS = ("tosa_single", "tosa_double", "gemmlowp")


def test_its_command_writes_a_program(elsewhere):
    (line,) = [line for line in "".join(blocks(PAGE, "sh")).splitlines() if "--target tosa" in line]
    assert run(shlex.split(line)[1:]) == 0
    text = (elsewhere / "out" / "digits-tosa" / "tosa.mlir").read_text()
    assert text.count('"tosa.conv2d"') == 7


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul"])
def test_its_counts(kind):
    rows = [
        line.split(" | ")
        for line in (ROOT / AGREEMENT).read_text().splitlines()
        if line.startswith(f"| {kind} | 0")
    ]
    assert len(rows) == len(SETS)
    for row, (a, b, y) in zip(rows, SETS, strict=True):
        assert row[1] == ", ".join(f"{kind.scale:g}" for kind in (a, b, y))
        x, z = np.meshgrid(grid(a), grid(b), indexing="ij")
        graph = model(
            [op(kind, "a b", "y")],
            inputs={"a": x.shape, "b": x.shape},
            outputs={"y": x.shape},
            constants={},
        )
        plan = plan_of(graph, [(("y",), "a b", "y")], {"a": a, "b": b, "y": y}, "exact_even")
        stored = {
            name: Interpreter(graph, plan, arithmetic=name).run({"a": x, "b": z}).stored["y"].astype(int)
            for name in (*ARITHMETICS, "exact_even")
        }
        off = [np.abs(stored[name] - stored["exact_even"]) for name in ARITHMETICS]
        assert max(part.max() for part in off) <= 1
        assert [int(part.sum()) for part in off] == [int(text.strip(" |")) for text in row[2:]]


@pytest.mark.parametrize(("count", "single", "double"), [(4, 255, 255), (9, 0, 510)])
def test_its_averages(count, single, double):
    """AVG_POOL2D divides with ties away from zero; a RESCALE does not."""
    sums = np.arange(-255 * count, 255 * count + 1)
    pooled = apply_scale_32(sums, *reciprocal_scale(count), double_round=False)
    assert pooled.tolist() == (np.sign(sums) * ((2 * np.abs(sums) + count) // (2 * count))).tolist()
    for wanted, twice in ((single, False), (double, True)):
        got = apply_scale_32(sums, *multiplier_and_shift(1 / count), double_round=twice)
        assert np.count_nonzero(got != pooled) == wanted
    assert len(sums) == {4: 2041, 9: 4591}[count]

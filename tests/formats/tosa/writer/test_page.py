"""The page on TOSA tells the truth: its command writes the file, its counts are counted."""

import shlex

import numpy as np
import pytest

from planner.cli.app import run
from planner.interpreter.evaluate import Interpreter
from planner.ir.arithmetic.rescaling import apply_scale_32, multiplier_and_shift, reciprocal_scale
from tests.formats.plans import model, op, plan_of
from tests.formats.tosa.writer.test_pairs import SETS, grid
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


AGREES = """# TOSA: how far numbers agree

Made by `pytest tests/formats/tosa/writer/test_page.py --update-golden`.
The programs: [TOSA](../programs.md#tosa).
Pairs of bytes (of 65,536) whose result is one step from `exact_even`'s, by scales of a, b and the result; no
pair is two steps off. The reference model gives every one of the 65,536.

| operator | scales | `tosa_single` | `tosa_double` | `gemmlowp` |
|---|---|---|---|---|
"""
TESTS = """
## Tests
`tosa-opt` validates each program (TOSA 1.0, level 8K, strict), the reference model runs it (`make
oracles`): RESCALE on 10^6 values for each rounding, all pairs of bytes in five sets of scales and four
arithmetics, control flow and 2,682 recurrent results without a difference, every row of `tosa-int8`,
`litert-int8`, `ethos-u55` and `teaching-npu`, [awkward models](awkward-models.md) of fixed sizes, and every
stored value of MLPerf Tiny, the example, MobileNetV2, SqueezeNet, UltraFace, the U-Net, BERT,
super-resolution and QONNX networks.
"""


def counts(kind, a, b, y):
    """Pairs that are a step off in each arithmetic."""
    x, z = np.meshgrid(grid(a), grid(b), indexing="ij")
    graph = model(
        [op(kind, "a b", "y")], inputs={"a": x.shape, "b": x.shape}, outputs={"y": x.shape}, constants={}
    )
    plan = plan_of(graph, [(("y",), "a b", "y")], {"a": a, "b": b, "y": y}, "exact_even")
    stored = {
        name: Interpreter(graph, plan, arithmetic=name).run({"a": x, "b": z}).stored["y"].astype(int)
        for name in (*ARITHMETICS, "exact_even")
    }
    off = [np.abs(stored[name] - stored["exact_even"]) for name in ARITHMETICS]
    assert max(part.max() for part in off) <= 1
    return [int(part.sum()) for part in off]


def test_its_counts(request):
    rows = []
    for kind in ("Add", "Sub", "Mul"):
        for scales in SETS:
            cells = (kind, ", ".join(f"{one.scale:g}" for one in scales), *map(str, counts(kind, *scales)))
            rows.append(f"| {' | '.join(cells)} |\n")
    text, path = AGREES + "".join(rows) + TESTS, ROOT / AGREEMENT
    if request.config.getoption("--update-golden"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


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

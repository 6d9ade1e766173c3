"""The interpreter equals onnxruntime: 10^4 values of each operator, storage, granularity, zero-point sign.

Where it does not, the exception has a name, the engine's formula and the measured difference, here and on the
page that is made of this: docs/results/exactness.md (`pytest --update-golden` rewrites it).
"""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from planner.interpreter.kernels.elementwise import qlinear_add
from planner.interpreter.kernels.softmax import qlinear_softmax
from planner.interpreter.kernels.stored import quantize
from planner.interpreter.requantize import Grid
from planner.ir.graph import Op
from tests.interpreter.campaign import (
    FORMATS,
    OPERATORS,
    SCALES,
    SIGNS,
    VALUES,
    cases,
    results,
    run_pair,
    two_bits,
)
from tests.interpreter.one_op import CONTRIB, run_op, seeded

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "exactness.md"
BEGIN, END = "<!-- campaign -->", "<!-- /campaign -->"


@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_each_case(case):
    spans = []
    for expected, got in results(case):
        assert got.dtype == expected.dtype
        np.testing.assert_array_equal(got, expected)
        assert got.size >= VALUES
        spans.append(got.max() > got.min())
    assert any(spans)


@pytest.mark.soak
@pytest.mark.parametrize("case", list(cases()), ids=str)
def test_each_case_again_and_again(case):
    for round_ in range(1, 12):
        for expected, got in results(case, round_):
            np.testing.assert_array_equal(got, expected)


def test_the_page_lists_the_campaign(request):
    counts = Counter(case.op for case in cases())
    lines = ["| operator | storages | parameters per | cases | differ |", "|---|---|---|---|---|"]
    lines += [
        f"| `{name}` | {', '.join(storages)} | {', '.join(granularities)} | {counts[name]} | 0 |"
        for name, (_, storages, granularities) in OPERATORS.items()
    ]
    wanted = "\n".join(["", *lines, ""])
    before, rest = PAGE.read_text(encoding="utf-8").split(BEGIN)
    held, after = rest.split(END)
    if request.config.getoption("--update-golden"):
        PAGE.write_text(f"{before}{BEGIN}{wanted}{END}{after}", encoding="utf-8", newline="\n")
        held = wanted
    assert held == wanted
    assert len(SCALES) == len(SIGNS) == 3


@pytest.mark.parametrize("storage", ["i2", "u2"])
@pytest.mark.parametrize("zero_point", [0, 1])
def test_two_bits_overflow_in_the_engine(storage, zero_point):
    """Ours saturates, as ONNX says; the engine's quotients wrap from 2^31 steps on."""
    dtype, code, *_ = FORMATS[storage]
    s, z = np.asarray(0.25, np.float32), np.asarray(zero_point, np.float32)
    x = np.asarray([0.3, 1e30, -1e30, np.inf, -np.inf, 2.0**29, -(2.0**29), 2.0**28], np.float32)
    cast = helper.make_node("Cast", ["q"], ["y"], to=TensorProto.FLOAT)
    engine = run_pair((x, s, z), code, {}, cast)
    np.testing.assert_array_equal(engine, two_bits(x, s, zero_point, storage))
    (ours,) = quantize(Op("q", "QuantizeLinear", (), (), {}), [x, s, z.astype(dtype)])
    differ = ours.astype(np.float32) != engine
    assert np.abs(x[differ] / s).min() >= 2.0**31
    assert np.count_nonzero(differ) == 3


def test_a_plain_sum_is_not_the_engines():
    """QLinearAdd multiplies and adds in one rounding, twice; three plain steps differ in single elements."""
    rng, worst, differ, total = seeded("plain sum"), 0, 0, 0
    for _ in range(20):
        a, b = (rng.integers(0, 256, VALUES).astype(np.uint8) for _ in range(2))
        sa, sb, sy = (np.float32(rng.uniform(0.01, 0.1)) for _ in range(3))
        grids = [Grid(float(s), 128, 0, 255) for s in (sa, sb, sy)]
        ours = qlinear_add(a, grids[0], b, grids[1], grids[2]).astype(int)
        real = (a.astype(np.float32) - 128) * sa + (b.astype(np.float32) - 128) * sb
        steps = np.abs(np.clip(np.rint(real / sy) + 128, 0, 255) - ours)
        worst, differ, total = max(worst, int(steps.max())), differ + np.count_nonzero(steps), total + VALUES
    assert worst <= 1
    assert differ / total < 1e-3


@pytest.mark.parametrize(("scale", "levels"), [(1 / 256, 256), (1 / 200.9, 200), (0.0078, 128)])
def test_softmax_floors_the_inverse_of_its_scale(scale, levels):
    """A certain class is `floor(1 / scale)` steps: too few unless the inverse is whole."""
    x = np.asarray([[255, 0, 0]], np.uint8)
    one, none = np.float32(0.5), np.uint8(0)
    feeds = {"x": x, "sx": one, "zx": none, "sy": np.float32(scale), "zy": none}
    got = run_op(
        "QLinearSoftmax",
        feeds,
        constants=("sx", "zx", "sy", "zy"),
        result=np.uint8,
        domain=CONTRIB,
        attributes={"axis": -1, "opset": 13},
    )
    ours = qlinear_softmax(x, Grid(0.5, 0, 0, 255), Grid(float(np.float32(scale)), 0, 0, 255))
    assert got.tolist() == ours.tolist()
    assert got[0, 0] == min(levels, 255)

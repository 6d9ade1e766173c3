"""The QONNX paper's table I for our exports: what each can say of a plan, found by writing and running it.

A tick is a plan that the format writes, whose file gives the numbers of the interpreter in that format's
arithmetic, every one; an empty cell is a refusal, or a file that lacks what the column asks for. The page
docs/results/dialects.md holds the table (`pytest --update-golden` rewrites it).
"""

import io
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from planner.errors import UnsupportedExport
from planner.formats.onnx.read import read_written
from planner.formats.qonnx.hls4ml import MODEL_FILE
from planner.formats.table import EXPORTERS
from planner.interpreter.evaluate import Interpreter
from planner.interpreter.models import ModelRunner
from planner.ir.types.qtypes import storage, sub_channel, uniform
from tests.formats.plans import execute, i8, model, op, plan_of, u8, weight

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "dialects.md"
BEGIN, END = "<!-- exports -->", "<!-- /exports -->"

# The arithmetic of each format's files, None for the row's own; how near float sums in another order come.
ARITHMETIC: Mapping[str, str | None] = {
    "finn": None,
    "hls4ml": "exact_even",
    "onnx-integer": None,
    "onnx-matmulnbits": "float32_qdq",
    "onnx-qcdq": "float32_qdq",
    "onnx-qdq": "float32_qdq",
    "onnx-qoperator": "float32_even",
    "onnx-qoperator-clip": "float32_even",
    "qonnx": "float32_quant",
}
# A float result of hls4ml's file is integers times a factor of 24 bits; the plan multiplies by its scales.
NEARLY = {"onnx-matmulnbits": 2e-5, "hls4ml": 1e-6}
STANDARD = frozenset({"MatMul", "Add"})
OUR_RUNNER = ("finn", "hls4ml", "qonnx")
RNG = np.random.default_rng(5)
X = RNG.normal(size=(16, 32)).astype(np.float32)
W = (RNG.normal(size=(32, 8)) * 0.3).astype(np.float32)


@dataclass(frozen=True)
class Probe:
    """A product of x and w planned in some types, and what its file must have."""

    types: Mapping[str, Any] = field(default_factory=dict)
    arithmetic: str = "float32_even"
    holds: Callable[[onnx.ModelProto], bool] = lambda proto: True  # noqa: ARG005 - one signature for all


def blocks_of(name):
    return sub_channel(
        storage(name), [0.11 + 0.01 * i for i in range(16)], 0, blocks={0: 16, 1: 1}, grid=(2, 8)
    )


def low(name, scale, zero=0, ends=()):
    return uniform(storage(name, *ends), scale, zero)


def is_standard(proto):
    """Whether the product is the float model's own op, whatever its operands are."""
    return sum(node.op_type in STANDARD for node in proto.graph.node) == 1


def is_packed(proto):
    """Whether weights are stored in fewer bytes than their floats."""
    return len(proto.SerializeToString()) < W.nbytes


TENSOR, COLUMNS = low("i8", 0.008), weight(W, 1)
WEIGHTS_ONLY = ({"w": COLUMNS}, {"w": blocks_of("i4")})
CAPABILITIES: Mapping[str, tuple[tuple[Probe, ...], ...]] = {
    # All of the first level have to hold, of the second one.
    "arbitrary precision": (
        (Probe({"x": low("i3", 0.7), "w": low("i5", 0.06), "y": low("i7", 0.2)}),),
        (Probe({"x": low("u12", 0.0015, 2000), "w": TENSOR, "y": low("i12", 0.004)}),),
    ),
    "below 8 bits": tuple(
        (Probe({"x": low(name, 0.5), "w": low("i4", 0.12), "y": low("i4", 0.9)}),)
        for name in ("i4", "u4", "i2")
    ),
    "any range": (
        (Probe({"x": low("u8", 0.02, 100, (3, 200)), "w": TENSOR, "y": low("i8", 0.05, 7, (-100, 90))}),),
    ),
    "scale per channel": ((Probe({"x": i8(0.025), "w": COLUMNS, "y": i8(0.05)}),),),
    "scale per block": ((Probe({"w": blocks_of("i4")}),),),
    "zero point": ((Probe({"x": u8(0.025, 120), "w": TENSOR, "y": u8(0.05, 99)}),),),
    # Half of the sums are ties here, which each arithmetic rounds its own way.
    "the row's rounding": tuple(
        (Probe({"x": i8(0.25), "w": low("i8", 0.125), "y": i8(0.0625)}, arithmetic),)
        for arithmetic in ("exact_even", "gemmlowp", "power_of_two", "tosa_single")
    ),
    "weights only": (tuple(Probe(types) for types in WEIGHTS_ONLY),),
    "no op duplication": ((Probe({"x": i8(0.025), "w": TENSOR, "y": i8(0.05)}, holds=is_standard),),),
    "high-precision output": ((Probe({"x": i8(0.025), "w": TENSOR}),),),
    "weights stored small": (tuple(Probe(types, holds=is_packed) for types in WEIGHTS_ONLY),),
}


@cache
def can_say(form: str, capability: str) -> bool:
    return all(any(_holds(form, probe) for probe in probes) for probes in CAPABILITIES[capability])


def _holds(form: str, probe: Probe) -> bool:
    graph = model(
        [op("MatMul", "x w", "y")], inputs={"x": X.shape}, outputs={"y": (16, 8)}, constants={"w": W}
    )
    plan = plan_of(graph, [(["y"], "x w", "y")], probe.types, probe.arithmetic)
    try:
        data = EXPORTERS[form](graph, plan)
    except UnsupportedExport:
        return False
    if form == "hls4ml":
        data = zipfile.ZipFile(io.BytesIO(data)).read(MODEL_FILE)
    if form in OUR_RUNNER:
        got = ModelRunner(read_written(data)).run({"x": X})["y"]
    else:
        (got,) = execute(data, {"x": X})
    wanted = Interpreter(graph, plan, arithmetic=ARITHMETIC[form]).run({"x": X}).outputs["y"]
    assert np.ptp(wanted) > 0
    np.testing.assert_allclose(got, wanted, rtol=0, atol=NEARLY.get(form, 0.0))
    own = Interpreter(graph, plan).run({"x": X}).outputs["y"]
    is_own = probe.arithmetic == "float32_even" or np.array_equal(wanted, own)
    return is_own and probe.holds(onnx.load_from_string(data))


def table() -> str:
    head = f"| | {' | '.join(CAPABILITIES)} |"
    rows = [
        f"| `{form}` | {' | '.join('yes' if can_say(form, name) else '' for name in CAPABILITIES)} |"
        for form in ARITHMETIC
    ]
    return "\n".join(["", head, "|---" * (len(CAPABILITIES) + 1) + "|", *rows, ""])


def cells() -> list[tuple[str, str, bool]]:
    """Cells of the page's table: format, capability, and whether it is ticked."""
    held = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip().splitlines()
    names = [cell.strip() for cell in held[0].split("|")[2:-1]] if held else []
    found = []
    for line in held[2:]:
        form, *ticks = [cell.strip() for cell in line.split("|")[1:-1]]
        found += [(form.strip("`"), name, tick == "yes") for name, tick in zip(names, ticks, strict=True)]
    return found


@pytest.mark.parametrize(("form", "capability", "ticked"), cells())
def test_each_cell(form, capability, ticked):
    assert can_say(form, capability) == ticked


def test_the_page_holds_the_table(request):
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    held, after = rest.split(END)
    if request.config.getoption("--update-golden"):
        held = table()
        PAGE.write_text(f"{before}{BEGIN}{held}{END}{after}", encoding="utf-8", newline="\n")
    assert held == table()
    onnx_family = [name for name in EXPORTERS if name.startswith("onnx-") or name in OUR_RUNNER]
    assert sorted(ARITHMETIC) == sorted(onnx_family)

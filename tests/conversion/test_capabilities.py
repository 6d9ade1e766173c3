"""The QONNX paper's table I for our dialects: the page holds what trying finds, each tick a test."""

from pathlib import Path

import pytest

from tests.conversion.capabilities import CAPABILITIES, DIALECTS, can_say, capability_table

PAGE = Path(__file__).resolve().parents[2] / "docs" / "results" / "dialects.md"
BEGIN, END = "<!-- capabilities -->", "<!-- /capabilities -->"
# The paper's ticks for the formats it compares; an empty cell there may be a tick here.
PAPER = {
    "qonnx": ("arbitrary precision", "below 8 bits", "every rounding", "weights only", "no op duplication",
              "high-precision output"),
    "onnx-qcdq": ("below 8 bits", "weights only", "no op duplication", "high-precision output"),
    "onnx-qdq": ("weights only", "no op duplication", "high-precision output"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "capability"), [(name, tick) for name, ticks in PAPER.items() for tick in ticks]
)
def test_what_the_paper_ticks_is_so(dialect, capability):
    assert can_say(dialect, capability)


@pytest.mark.parametrize(
    ("dialect", "capability"),
    [("onnx-qcdq", "arbitrary precision"), ("onnx-qdq", "below 8 bits"), ("onnx", "weights only")],
)
def test_what_cannot_be_said_is_no_tick(dialect, capability):
    assert not can_say(dialect, capability)


def test_the_page_holds_the_table(request):
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    held, after = rest.split(END)
    table = f"\n{capability_table()}\n"
    if request.config.getoption("--update-golden"):
        PAGE.write_text(f"{before}{BEGIN}{table}{END}{after}", encoding="utf-8", newline="\n")
        held = table
    assert held == table
    assert all(f"| `{dialect}` |" in held for dialect in DIALECTS)
    assert all(f"| {name} |" in held for name in CAPABILITIES)

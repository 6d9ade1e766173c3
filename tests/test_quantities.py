"""A number and its noun agree: `1 input`, not `1 inputs`, in what the planner and the service say.

Each f-string in which a number stands before a plural is read; `planner.errors.quantity` writes both.
"""

import ast
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from planner.errors import plural, quantity

ROOT: Final = Path(__file__).resolve().parents[1]
SPOKEN: Final = (
    "api",
    "planner/accuracy",
    "planner/checker",
    "planner/cli",
    "planner/plan_search",
    "planner/plans",
    "planner/propagation",
    "planner/report",
)
NOUNS: Final = (
    *("array", "axis", "bit", "cast", "channel", "class", "constraint", "dimension", "element", "entry"),
    *("file", "finding", "input", "kernel", "label", "level", "op", "output", "port", "range", "rescale"),
    *("sample", "scale", "test", "trial", "value", "warning", "worker"),
)
COUNTED: Final = re.compile(rf" (?:{'|'.join(map(plural, NOUNS))})\b")
MANY: Final = re.compile(r"(?:\w+\.)?_?[A-Z][A-Z_0-9]+")
"""Constants, which are more than one."""
PHRASES: Final = {
    "{len(self.rescales)} rescales and casts",
    "{', '.join(map(str, widths)) or 'no'} bits; accepted: 1 sample or more, 2 to ",
    "{coverage.kernels} kernels fall back to float",
    "{fact.bits} bits or more, or float",
    "{len(drawn)} trials are points.",
    "{len(change.left)} values stay (--json says why)",
    "{len(done.unobserved)} values have to be observed again (",
    "{len(planned.kernels_in_order)} kernels hold on ",
    "{of} kernels do not",
    "{scales.size} scales moved, ",
    "{served} kernels have a row, ",
}
"""With a verb or a second noun that would have to agree as well, and never or hardly ever of one."""


def numbers_before_plurals(path: Path) -> Iterator[str]:
    """Where a value stands right before a plural, with the words behind it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for value, text in pairwise(parts):
            if (
                isinstance(value, ast.FormattedValue)
                and isinstance(text, ast.Constant)
                and value.conversion < 0
            ):
                said = ast.unparse(value.value)
                # With digits behind the point a number takes the plural, 1.00 too.
                is_real = value.format_spec is not None and re.search(
                    r"[fg]", ast.unparse(value.format_spec)[1:]
                )
                if COUNTED.match(text.value) and not MANY.fullmatch(said) and not is_real:
                    yield f"{{{said}}}{text.value}"


FILES: Final = sorted(path for folder in SPOKEN for path in (ROOT / folder).rglob("*.py"))


def test_numbers_agree_with_their_nouns():
    found = [text for path in FILES for text in numbers_before_plurals(path)]
    assert [text for text in found if text not in PHRASES] == []


@pytest.mark.parametrize(
    ("number", "noun", "form", "text"),
    [
        (0, "input", "", "0 inputs"),
        (1, "input", "", "1 input"),
        (2, "axis", "", "2 axes"),
        (3, "entry", "", "3 entries"),
        (2, "class", "", "2 classes"),
        (1000, "element", ",", "1,000 elements"),
    ],
)
def test_quantities(number, noun, form, text):
    assert quantity(number, noun, form) == text


@pytest.mark.parametrize(
    ("noun", "many"), [("array", "arrays"), ("axis", "axes"), ("class", "classes"), ("entry", "entries")]
)
def test_plurals(noun, many):
    assert plural(noun) == many

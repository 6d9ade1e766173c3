"""Broken modules give errors of ours with a place, whatever is broken; never another exception."""

import random
import re
from pathlib import Path

import pytest

from planner.errors import PlannerError
from planner.formats.mlir.module import read_mlir
from planner.formats.mlir.passes.table import PASSES
from planner.formats.mlir.passes.tool import run_parts, split

FILES = [Path(__file__).parent / f"{name}.mlir" for name in ("accepted", "passes", "refused")]
PARTS = [re.findall(r"\w+|\s+|.", text) for path in FILES for _, text in split(path.read_text())]
TOKENS = [token for part in PARTS for token in part]


def broken(source: random.Random) -> str:
    tokens = list(source.choice(PARTS))
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(tokens))
        change = source.randrange(4)
        if change == 0:
            tokens[at : at + source.randint(1, 3)] = [""]
        elif change == 1:
            tokens.insert(at, source.choice(TOKENS))
        elif change == 2:
            tokens[at] = source.choice(TOKENS)
        else:
            tokens[at] = tokens[at][::-1]
    return "".join(tokens)


def check(seed: int, count: int) -> None:
    source = random.Random(seed)  # noqa: S311 - tests repeat
    for _ in range(count):
        text = broken(source)
        passes = [source.choice(list(PASSES))] if source.random() < 0.5 else []
        for part in run_parts(text, passes):
            assert part.text or re.match(r"\d+:\d+: ", part.error), text
        try:
            read_mlir(text)
        except PlannerError:
            continue


def test_broken_modules():
    check(seed=1, count=1_000)


@pytest.mark.soak
def test_very_many_broken_modules():
    check(seed=2, count=10_000)

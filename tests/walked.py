"""Pages walked through: blocks of commands and files, and whether a line that a page shows was printed."""

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

BLOCK: Final = re.compile(r"(?:<!-- (file|exit|server)(?:: (.+?))? -->\n)?```(\w+)\n(.*?)```", re.DOTALL)
NUMBER: Final = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
NEAR: Final = 0.03
"""Share by which a measured number may differ: processors round float sums in different ways."""


class Block(NamedTuple):
    """A block of code of a page, with the mark above it."""

    mark: str
    name: str
    language: str
    text: str


def blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks that have a language, in order."""
    for found in BLOCK.finditer(page.read_text(encoding="utf-8")):
        yield Block(*(found[group] or "" for group in range(1, 5)))


def is_printed(line: str, printed: Iterable[str]) -> bool:
    """Return whether a line is one of those printed or a part of one, with numbers close to its own."""
    wanted = [float(number.replace(",", "")) for number in NUMBER.findall(line)]
    pattern = f"({NUMBER.pattern})".join(map(re.escape, NUMBER.split(line.strip())))
    return any(
        all(
            math.isclose(float(number.replace(",", "")), one, rel_tol=NEAR)
            for number, one in zip(found.groups(), wanted, strict=True)
        )
        for other in printed
        for found in re.finditer(pattern, other)
    )

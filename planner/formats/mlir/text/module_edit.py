"""Edits of a module's text: operands, types of ops in generic form, lines behind an op, numbers.

Places come from the parser, so that text between edits stays to the byte: comments, attributes, locations.
Source: MLIR language reference, "Operations"; `TextParser` for the offsets.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from planner.formats.mlir.attributes import dtype_of
from planner.formats.mlir.generic import dense_text
from planner.formats.mlir.parse import TextParser
from planner.formats.mlir.types import element_of

_STRING: Final = r'"(?:[^"\\]|\\.)*+"'
_TOKEN: Final = re.compile(rf"{_STRING}|//[^\n]*|%[\w$.-]+(?:#\d+)?")
_RESULTS: Final = re.compile(r"%[\w$.-]+(?::\d+)?(?:\s*,\s*%[\w$.-]+(?::\d+)?)*\s*=\s*")
_DENSE: Final = re.compile(rf"\bdense(?:_resource)?<(?:{_STRING}|[^\">])*>")
_PIECE: Final = re.compile(rf"{_STRING}|//[^\n]*|->|[\[({{<]|[\])}}>]|,")
_WORD: Final = re.compile(r"[!\w.$-]+")
_NAME: Final = re.compile(r"%[\w$.-]+")


@dataclass
class TextEdit:
    """Edits of one text, put into it by `written`."""

    text: str
    parser: TextParser
    edits: list[tuple[int, int, str]] = field(default_factory=list)
    lines: dict[SSAValue, list[str]] = field(default_factory=dict)
    taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.taken = set(_NAME.findall(self.text))

    def is_generic(self, op: Operation) -> bool:
        """Whether an op is written in generic form, `"dialect.op"(...)`."""
        return id(op) in self.parser.signatures

    def operand(self, op: Operation, index: int, token: str) -> None:
        """Let an op read another SSA value."""
        own = self.parser.tokens[op.operands[index]]
        tokens = [self.parser.tokens.get(value) for value in op.operands[:index]]
        start = self.parser.starts[id(op)]
        results = _RESULTS.match(self.text, start)
        inside = [self.parser.starts[id(inner)] for region in op.regions for inner in region.walk()]
        end = min(inside, default=self.parser.ends[id(op)])
        places = _TOKEN.finditer(self.text, results.end() if results else start, end)
        found = [match for match in places if match[0] == own]
        match = found[min(tokens.count(own), len(found) - 1)]
        self.edits.append((match.start(), match.end(), token))

    def types(self, op: Operation, taken: dict[int, str], given: dict[int, str]) -> None:
        """Give operands and results of an op in generic form other types, by their indices."""
        places = _signature(self.text, self.parser.signatures[id(op)])
        operands, results = places[: len(op.operands)], places[len(op.operands) :]
        self.edits += [(*operands[i], kind) for i, kind in taken.items()]
        self.edits += [(*results[i], kind) for i, kind in given.items()]

    def attributes(self, op: Operation, items: Mapping[str, str]) -> None:
        """Add attributes to an op in generic form without regions."""
        start, signature = self.parser.starts[id(op)], self.parser.signatures[id(op)]
        before = self.text[start:signature].rstrip().removesuffix(":").rstrip()
        told = ", ".join(f"{key} = {text}" for key, text in items.items())
        if not before.endswith("}"):
            at = start + len(before)
            self.edits.append((at, at, f" {{{told}}}"))
            return
        at = start + len(before) - 1
        empty = before[:-1].rstrip().endswith("{")
        self.edits.append((at, at, told if empty else f", {told}"))

    def line(self, value: SSAValue, line: str) -> None:
        """Add a line behind the op that defines a value, or in front of the first of the block it enters."""
        self.lines.setdefault(value, []).append(line)

    def numbers(self, op: Operation, array: np.ndarray) -> bool:
        """Write other numbers into a constant; False where it shows none in its own text."""
        start, end = self.parser.starts[id(op)], self.parser.ends[id(op)]
        match = _DENSE.search(self.text, start, end)
        if match is None:
            return False
        element = dtype_of(element_of(op.results[0].type))
        self.edits.append((match.start(), match.end(), dense_text(array, element).rpartition(" : ")[0]))
        return True

    def fresh(self, value: SSAValue, suffix: str) -> str:
        """Make an SSA name, after that of a value."""
        stem = re.sub(r"[^\w$.-]", "_", self.parser.tokens[value][1:])
        stem = f"v{stem}" if stem[0].isdigit() else stem
        count, found = 0, f"%{stem}_{suffix}"
        while found in self.taken:
            count += 1
            found = f"%{stem}_{suffix}{count}"
        self.taken.add(found)
        return found

    def written(self) -> str:
        """The text with all edits in it."""
        inserted = [self._insertion(value, lines) for value, lines in self.lines.items()]
        parts, at = [], 0
        for start, end, new in sorted({*self.edits, *inserted}):
            parts += [self.text[at:start], new]
            at = end
        return "".join([*parts, self.text[at:]])

    def _insertion(self, value: SSAValue, lines: Sequence[str]) -> tuple[int, int, str]:
        owner = value.owner
        if isinstance(owner, Block):
            first = next(iter(owner.ops))
            at = self.parser.starts[id(first)]
            return at, at, "".join(f"{line}\n{self._indent(at)}" for line in lines)
        start = self.parser.starts[id(owner)]
        at = start + len(self.text[start : self.parser.ends[id(owner)]].rstrip())
        return at, at, "".join(f"\n{self._indent(start)}{line}" for line in lines)

    def _indent(self, at: int) -> str:
        line = self.text[self.text.rfind("\n", 0, at) + 1 : at]
        return line[: len(line) - len(line.lstrip())]


def _signature(text: str, start: int) -> list[tuple[int, int]]:
    """Places of the types of `(A, B) -> (C, D)` or `(A) -> B`, in order."""
    inputs, end = _list(text, text.index("(", start))
    end = text.index("->", end) + 2
    end += len(text[end:]) - len(text[end:].lstrip()) if text[end].isspace() else 0
    if text[end] == "(":
        return [*inputs, *_list(text, end)[0]]
    word = _WORD.match(text, end)
    stop = end if word is None else word.end()
    if text.startswith("<", stop):
        stop = _closing(text, stop)
    return [*inputs, (end, stop)]


def _list(text: str, start: int) -> tuple[list[tuple[int, int]], int]:
    """Places of the items between a parenthesis and its closing one; the offset behind that."""
    stop = _closing(text, start)
    cuts = [start, *_commas(text, start, stop), stop - 1]
    found = []
    for left, right in pairwise(cuts):
        item = text[left + 1 : right]
        if item.strip():
            found.append((left + 1 + len(item) - len(item.lstrip()), left + 1 + len(item.rstrip())))
    return found, stop


def _commas(text: str, start: int, stop: int) -> Iterator[int]:
    depth = 0
    for match in _PIECE.finditer(text, start, stop):
        depth += _step(match[0])
        if match[0] == "," and depth == 1:
            yield match.start()


def _closing(text: str, start: int) -> int:
    depth = 0
    for match in _PIECE.finditer(text, start):
        depth += _step(match[0])
        if depth == 0:
            return match.end()
    return len(text)


def _step(piece: str) -> int:
    """How much deeper a piece leads."""
    return (piece in tuple("[({<")) - (piece in tuple("])}>"))

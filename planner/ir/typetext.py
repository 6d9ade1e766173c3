"""Reading quantized types: MLIR's `quant` text into `qtypes`.

`str(type)` writes; `parse_type` reads. Errors point at the column. No MLIR module is parsed here.
Source: MLIR quant dialect grammar; design 01, section 2.
"""

import math
import re
from collections.abc import Callable
from typing import Final, NoReturn

from planner.errors import QTypeError
from planner.ir.qtypes import (
    EXPRESSED,
    FLOAT_STORAGE,
    AnyType,
    Bipolar,
    Calibrated,
    FloatType,
    NoneType,
    QType,
    Storage,
    Uniform,
    round_scales,
    storage,
)

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<name>!?[A-Za-z_][\w.]*)|(?P<number>[-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))|(?P<sign>[<>{}:,()]))",
    re.ASCII,
)
_MAX_TEXT: Final = 64_000_000


def parse_type(text: str) -> QType:
    """Read one type, e.g. `!quant.uniform<i8:f32, 0.02:-3>`.

    Raises:
      QTypeError: with the column (from 1) of the first character that does not fit.
    """
    reader = _Reader(text)
    result = _type(reader)
    reader.end()
    return result


def parse_storage(text: str) -> Storage:
    """Read a storage alone, e.g. `i8<-127:127>` or `u8`."""
    reader = _Reader(text)
    result = _storage(reader)
    reader.end()
    return result


class _Reader:
    """A cursor over the tokens of one text."""

    def __init__(self, text: str) -> None:
        if len(text) > _MAX_TEXT:
            raise QTypeError(f"type text of {len(text)} characters; at most {_MAX_TEXT} are read")
        self.text = text
        self.at = 0
        self.next: re.Match[str] | None = None
        self.advance()

    def advance(self) -> None:
        self.next = _TOKEN.match(self.text, self.at)

    def fail(self, wanted: str) -> NoReturn:
        column = self.at + 1 + len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
        found = self.text[column - 1 : column + 11] or "the end"
        raise QTypeError(f"column {column}: expected {wanted}, found {found!r} in {self.text[:80]!r}")

    def take(self, kind: str, wanted: str) -> str:
        if self.next is None or self.next[kind] is None:
            self.fail(wanted)
        token: str = self.next[kind]
        self.at = self.next.end()
        self.advance()
        return token

    def sign(self, sign: str) -> None:
        if not self.sees(sign):
            self.fail(repr(sign))
        self.take("sign", repr(sign))

    def sees(self, sign: str) -> bool:
        return self.next is not None and self.next["sign"] == sign

    def accept(self, sign: str) -> bool:
        if self.sees(sign):
            self.take("sign", sign)
            return True
        return False

    def integer(self) -> int:
        at = self.at
        token = self.take("number", "an integer")
        if not re.fullmatch(r"[-+]?\d{1,40}", token):
            self.at = at
            self.fail("an integer")
        return int(token)

    def real(self) -> float:
        return float(self.take("number", "a number"))

    def end(self) -> None:
        if self.text[self.at :].strip():
            self.fail("the end")


def _type(reader: _Reader) -> QType:
    name = reader.take("name", "a type such as !quant.uniform<...>")
    if name in EXPRESSED:
        return FloatType(name)
    if name == "!quant.none":
        return NoneType()
    read = _TYPES.get(name)
    if read is None:
        known = ", ".join([*_TYPES, "!quant.none", *EXPRESSED])
        raise QTypeError(f"unknown type {name!r}; known: {known}")
    reader.sign("<")
    result = read(reader)
    reader.sign(">")
    return result


def _storage(reader: _Reader) -> Storage:
    name = reader.take("name", "a storage such as i8")
    if not reader.accept("<"):
        return storage(name)
    qmin = reader.integer()
    reader.sign(":")
    qmax = reader.integer()
    reader.sign(">")
    if name in FLOAT_STORAGE and not -FLOAT_STORAGE[name] <= qmin < qmax <= FLOAT_STORAGE[name]:
        raise QTypeError(f"storage range {qmin}:{qmax} lies outside {name}")
    return storage(name, qmin, qmax)


def _expressed(reader: _Reader) -> str:
    name = reader.take("name", "an expressed type such as f32")
    if name not in EXPRESSED:
        raise QTypeError(f"expressed type {name!r} is none of {', '.join(EXPRESSED)}")
    return name


def _pair(reader: _Reader) -> tuple[float, int]:
    scale = reader.real()
    return (scale, reader.integer()) if reader.accept(":") else (scale, 0)


def _uniform(reader: _Reader) -> Uniform:
    store = _storage(reader)
    reader.sign(":")
    expressed = _expressed(reader)
    axis: int | None = None
    blocks: list[tuple[int, int]] = []
    grid: tuple[int, ...] = ()
    if reader.accept(":"):
        if reader.accept("{"):
            blocks = _blocks(reader)
        else:
            axis = reader.integer()
    reader.sign(",")
    if axis is None and not blocks:
        pairs = [_pair(reader)]
    else:
        pairs, grid = _nested(reader)
    if axis is not None and len(grid) != 1:
        raise QTypeError(f"a per-axis type has one flat list of scales, this one nests {len(grid)} deep")
    if axis is not None and axis < 0:
        raise QTypeError(f"quantized dimension {axis} is negative")
    if blocks and blocks[-1][0] >= len(grid):
        raise QTypeError(f"block axis {blocks[-1][0]} is beyond the scale list, which nests {len(grid)} deep")
    scales = _scales([scale for scale, _ in pairs], expressed)
    zeros = tuple(zero_point for _, zero_point in pairs)
    return Uniform(store, scales, zeros, expressed, axis, tuple(blocks), grid if blocks else ())


def _blocks(reader: _Reader) -> list[tuple[int, int]]:
    blocks = []
    while True:
        axis = reader.integer()
        reader.sign(":")
        size = reader.integer()
        if axis < 0 or size <= 0:
            raise QTypeError(f"block {axis}:{size}: the axis must not be negative, the size positive")
        blocks.append((axis, size))
        if not reader.accept(","):
            break
    reader.sign("}")
    if len({axis for axis, _ in blocks}) != len(blocks):
        raise QTypeError("an axis has two block sizes")
    return sorted(blocks)


def _nested(reader: _Reader) -> tuple[list[tuple[float, int]], tuple[int, ...]]:
    """Read `{{0.1, 0.2:5}, {..}}` without recursion: the leaves row-major, and the shape."""
    leaves: list[tuple[float, int]] = []
    grid: list[int] = []
    counts: list[int] = []
    while True:
        while reader.accept("{"):
            counts.append(0)
        if not counts:
            reader.fail("'{'")
        leaves.append(_pair(reader))
        counts[-1] += 1
        while reader.accept("}"):
            depth, size = len(counts), counts.pop()
            if len(grid) < depth:
                grid = [0] * (depth - len(grid)) + grid
            if grid[depth - 1] not in (0, size):
                raise QTypeError(f"scale lists of {grid[depth - 1]} and {size} entries on one level")
            grid[depth - 1] = size
            if not counts:
                if len(leaves) != _product(grid):
                    raise QTypeError(f"{len(leaves)} scales do not fill a grid of {grid}")
                return leaves, tuple(grid)
            counts[-1] += 1
        reader.sign(",")


def _product(grid: list[int]) -> int:
    total = 1
    for size in grid:
        total *= size
    return total


def _any(reader: _Reader) -> AnyType:
    store = _storage(reader)
    return AnyType(store, _expressed(reader) if reader.accept(":") else None)


def _calibrated(reader: _Reader) -> Calibrated:
    expressed = _expressed(reader)
    if not reader.accept(":"):
        reader.sign("<")
        lo, hi = _range(reader)
        reader.sign(">")
        return Calibrated((lo,), (hi,), expressed)
    axis = reader.integer()
    reader.sign(",")
    reader.sign("{")
    pairs = [_range(reader)]
    while reader.accept(","):
        pairs.append(_range(reader))
    reader.sign("}")
    return Calibrated(tuple(lo for lo, _ in pairs), tuple(hi for _, hi in pairs), expressed, axis)


def _range(reader: _Reader) -> tuple[float, float]:
    lo = reader.real()
    reader.sign(":")
    return lo, reader.real()


def _bipolar(reader: _Reader) -> Bipolar:
    expressed = _expressed(reader)
    reader.sign(",")
    return Bipolar(expressed, _scales([reader.real()], expressed)[0])


def _scales(scales: list[float], expressed: str) -> tuple[float, ...]:
    for scale in scales:
        if not 0.0 < scale < math.inf:
            raise QTypeError(f"scale {scale!r} must be positive and finite")
    return round_scales(scales, expressed)


_TYPES: Final[dict[str, Callable[[_Reader], QType]]] = {
    "!quant.any": _any,
    "!quant.bipolar": _bipolar,
    "!quant.calibrated": _calibrated,
    "!quant.uniform": _uniform,
}

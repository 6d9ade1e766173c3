"""Quantized types exactly as MLIR text writes them, where our own type language says less.

`ui8` beside `u8`, a scale that is no value of its expressed type, a zero point outside the storage: MLIR
keeps all of these apart, so modules that pass through us must too. The tokens are MLIR's (hexadecimal
floats, aliases, comments). Canonical text never comes here: `ir.typetext` reads it, and faster.
Source: MLIR quant dialect, its grammar and its parser's limits.
"""

import math
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from xdsl.dialects.builtin import AnyFloat
from xdsl.parser import AttrParser
from xdsl.utils.mlir_lexer import MLIRTokenKind

from planner.errors import QTypeError
from planner.ir.types.qtypes import MAX_BITS, QType, Uniform, float_text, full_range, nested_text, pair_text
from planner.ir.types.scales import FORMATS
from planner.ir.types.typetext import parse_type

FLOAT_LIMITS: Final = {"f4E2M1FN": 6, "f8E4M3FN": 448, "f8E5M2": 57344}
"""Storages that hold floats, with their largest value."""
_FLOAT_BITS: Final = {"f4E2M1FN": 4}
_INTEGER: Final = re.compile(r"(i|si|u|ui)0*([1-9][0-9]*)")
_COLUMN: Final = re.compile(r"^column \d+: ")
_INT64: Final = 1 << 63
_MOST: Final = 60


@dataclass(frozen=True, slots=True)
class WrittenStorage:
    """A storage and its spelling: `u8`, `ui8`, `i4<-8:6>`, `f8E5M2`; a float storage's range is in reals.

    `table`: the quantile type that is the storage (LLVM 23), whose own storage the rest describes.
    """

    name: str
    qmin: int
    qmax: int
    table: "WrittenQuantile | None" = None

    @property
    def is_float(self) -> bool:
        """Whether it holds floats, or what stands for them in a table."""
        return self.name in FLOAT_LIMITS or self.table is not None

    @property
    def signed(self) -> bool:
        """Whether its integers have a sign."""
        return not self.name.startswith("u")

    @property
    def bits(self) -> int:
        """Width."""
        return _FLOAT_BITS.get(self.name, 8) if self.name in FLOAT_LIMITS else int(self.name.lstrip("siu"))

    @property
    def full(self) -> tuple[int, int]:
        """The range that need not be written."""
        if self.table is not None:
            return self.table.storage.qmin, self.table.storage.qmax
        if self.is_float:
            return -FLOAT_LIMITS[self.name], FLOAT_LIMITS[self.name]
        return full_range(self.bits, signed=self.signed)

    def __str__(self) -> str:
        name = self.name if self.table is None else str(self.table)
        return name if (self.qmin, self.qmax) == self.full else f"{name}<{self.qmin}:{self.qmax}>"


@dataclass(frozen=True, slots=True)
class WrittenUniform:
    """`!quant.uniform` as written.

    Attributes:
      scales: as written, row-major over `grid` where there are blocks.
      blocks: (axis, block size) pairs as listed; None where the type is no sub-channel type.
      grid: shape of the nested scale list of a sub-channel type, else ().
    """

    storage: WrittenStorage
    expressed: str
    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int | None = None
    blocks: tuple[tuple[int, int], ...] | None = None
    grid: tuple[int, ...] = ()

    def __str__(self) -> str:
        head = f"{self.storage}:{self.expressed}"
        params = [pair_text(s, z) for s, z in zip(self.scales, self.zero_points, strict=True)]
        if self.blocks is not None:
            sizes = ", ".join(f"{axis}:{size}" for axis, size in self.blocks)
            return f"!quant.uniform<{head}:{{{sizes}}}, {nested_text(params, self.grid)}>"
        if self.axis is not None:
            return f"!quant.uniform<{head}:{self.axis}, {{{','.join(params)}}}>"
        return f"!quant.uniform<{head}, {params[0]}>"


@dataclass(frozen=True, slots=True)
class WrittenAny:
    """`!quant.any` as written."""

    storage: WrittenStorage
    expressed: str | None

    def __str__(self) -> str:
        return f"!quant.any<{self.storage}{f':{self.expressed}' if self.expressed else ''}>"


@dataclass(frozen=True, slots=True)
class WrittenQuantile:
    """`!quant.quantile` as written: a table of reals, one a stored value. Carried, never planned with.

    Attributes:
      storage: with the range of the table.
      is_ranged: whether the range is written, which a table keeps apart from the same one left out.
    """

    storage: WrittenStorage
    expressed: str
    values: tuple[float, ...]
    is_ranged: bool = False

    def __str__(self) -> str:
        store = self.storage
        table = ",".join(map(float_text, self.values))
        tail = f", <{store.qmin}:{store.qmax}>" if self.is_ranged else ""
        held = store.name if store.table is None else str(store.table)
        return f"!quant.quantile<{held}:{self.expressed}, {{{table}}}{tail}>"


Written: TypeAlias = WrittenUniform | WrittenAny | WrittenQuantile


def as_qtype(data: QType | Written) -> QType:
    """Turn a type as written into one of our language: scales rounded, `ui8` as `u8`.

    Raises:
      QTypeError: a type that MLIR accepts and we do not: a zero point outside the storage, say.
    """
    if not isinstance(data, WrittenUniform | WrittenAny | WrittenQuantile):
        return data
    table = data if isinstance(data, WrittenQuantile) else data.storage.table
    if table is not None:
        raise QTypeError(f"{_brief(table)} is a table of reals; a plan stores integers and floats")
    try:
        return parse_type(str(data))
    except QTypeError as error:
        raise QTypeError(_COLUMN.sub("", error.message)) from None


def _brief(table: WrittenQuantile) -> str:
    text = str(table)
    return text if len(text) <= _MOST else f"{text[:_MOST]}...>"


def as_written(data: Uniform) -> WrittenUniform:
    """Write out one of our uniform types."""
    store = data.storage
    blocks = data.blocks if data.is_sub_channel else None
    return WrittenUniform(
        WrittenStorage(store.name, store.qmin, store.qmax),
        data.expressed,
        data.scales,
        data.zero_points,
        data.axis,
        blocks,
        data.grid,
    )


def exact(written: Written) -> QType | Written:
    """Our own type where it says the same, to the last digit; else the type as written."""
    text = str(written)
    try:
        found = parse_type(text)
    except QTypeError:
        return written
    return found if str(found) == text else written


def read_uniform(parser: AttrParser) -> QType | Written:
    """Read the text behind `!quant.uniform`.

    Raises:
      ParseError: at the token that does not fit.
    """
    parser.parse_punctuation("<")
    storage = _storage(parser)
    parser.parse_punctuation(":")
    expressed = _expressed(parser)
    axis, blocks = None, None
    if parser.parse_optional_punctuation(":") is not None:
        if parser.parse_optional_punctuation("{") is not None:
            blocks = _blocks(parser)
        else:
            axis = _integer(parser, "the quantized dimension")
            if axis < 0:
                parser.raise_error(f"quantized dimension {axis} is negative")
    parser.parse_punctuation(",")
    if axis is None and blocks is None:
        pairs, grid = [_pair(parser, expressed)], [1]
    else:
        pairs, grid = _nested(parser, expressed)
    if axis is not None and len(grid) != 1:
        parser.raise_error(f"a per-axis type has one flat list of scales, this one nests {len(grid)} deep")
    parser.parse_punctuation(">")
    shape = tuple(grid) if blocks is not None else ()
    scales, zeros = tuple([s for s, _ in pairs]), tuple([z for _, z in pairs])
    return exact(WrittenUniform(storage, expressed, scales, zeros, axis, blocks, shape))


def read_any(parser: AttrParser) -> QType | Written:
    """Read the text behind `!quant.any`; raises as `read_uniform`."""
    parser.parse_punctuation("<")
    storage = _storage(parser)
    expressed = _expressed(parser) if parser.parse_optional_punctuation(":") is not None else None
    parser.parse_punctuation(">")
    return exact(WrittenAny(storage, expressed))


def read_quantile(parser: AttrParser) -> QType | Written:
    """Read the text behind `!quant.quantile`; raises as `read_uniform`."""
    parser.parse_punctuation("<")
    storage = _storage(parser)
    if storage.table is None:  # a table has an entry for each pattern of bits, unless a range is written
        signed = storage.name in FLOAT_LIMITS or storage.name.startswith("si")
        qmin, qmax = full_range(storage.bits, signed=signed)
        storage = replace(storage, qmin=qmin, qmax=qmax)
    parser.parse_punctuation(":")
    start = parser.pos
    kind = parser.parse_type()
    if not isinstance(kind, AnyFloat):
        parser.raise_error(f"the quantile type is a float type, this is {kind}", start)
    parser.parse_punctuation(",")
    start = parser.pos
    braces = AttrParser.Delimiter.BRACES
    values = parser.parse_comma_separated_list(braces, lambda: _float(parser, "a quantile"))
    is_ranged = storage.table is not None and (storage.qmin, storage.qmax) != storage.full
    if parser.parse_optional_punctuation(",") is not None:
        is_ranged = True
        place = parser.pos
        parser.parse_punctuation("<")
        qmin, qmax = _range(parser)
        if qmin >= qmax:
            parser.raise_error(f"storage range {qmin}:{qmax} must not be empty", place)
        storage = replace(storage, qmin=qmin, qmax=qmax)
    parser.parse_punctuation(">")
    needed = storage.qmax - storage.qmin + 1
    if len(values) != needed:
        parser.raise_error(f"{len(values)} quantiles for the {needed} values of storage {storage}", start)
    return WrittenQuantile(storage, str(kind), tuple(values), is_ranged)


def read_calibrated(parser: AttrParser) -> QType:
    """Read the text behind `!quant.calibrated`, per tensor; raises as `read_uniform`."""
    parser.parse_punctuation("<")
    expressed = _expressed(parser)
    parser.parse_punctuation("<")
    lo = _float(parser, "the least value")
    parser.parse_punctuation(":")
    hi = _float(parser, "the greatest value")
    for _ in range(2):
        parser.parse_punctuation(">")
    return parse_type(f"!quant.calibrated<{expressed}<{float_text(lo)}:{float_text(hi)}>>")


def _storage(parser: AttrParser) -> WrittenStorage:
    start = parser.pos
    token = parser._parse_optional_token(MLIRTokenKind.BARE_IDENT)  # noqa: SLF001 - xDSL has no keyword of any name
    kind = None if token is not None else parser.parse_type()
    table = getattr(kind, "data", None)
    if isinstance(table, WrittenQuantile):
        inner = table.storage
        return _narrowed(parser, WrittenStorage(inner.name, inner.qmin, inner.qmax, table), start)
    name = token.text if token is not None else str(kind)
    match = _INTEGER.fullmatch(name)
    if name in FLOAT_LIMITS:
        store = WrittenStorage(name, -FLOAT_LIMITS[name], FLOAT_LIMITS[name])
    elif match is None or len(match[2]) > 3 or int(match[2]) > MAX_BITS:
        known = ", ".join(FLOAT_LIMITS)
        parser.raise_error(f"unknown storage {name!r}; a storage is i1..i32, u1..u32, {known}", start)
    else:
        name = match[1] + match[2]
        store = WrittenStorage(name, *full_range(int(match[2]), signed=not name.startswith("u")))
    return _narrowed(parser, store, start)


def _narrowed(parser: AttrParser, store: WrittenStorage, start: int) -> WrittenStorage:
    """Read the part of a storage's range in use, where it is written."""
    if parser.parse_optional_punctuation("<") is None:
        return store
    qmin, qmax = _range(parser)
    low, high = store.full
    if not low <= qmin < qmax <= high:
        message = f"storage range {qmin}:{qmax} must not be empty and lie within {low}:{high} of {store.name}"
        parser.raise_error(message, start)
    return replace(store, qmin=qmin, qmax=qmax)


def _range(parser: AttrParser) -> tuple[int, int]:
    """Read a range behind its `<`."""
    qmin = _integer(parser, "the least stored value")
    parser.parse_punctuation(":")
    qmax = _integer(parser, "the greatest stored value")
    parser.parse_punctuation(">")
    return qmin, qmax


def _expressed(parser: AttrParser) -> str:
    start = parser.pos
    kind = parser.parse_optional_type()
    if not isinstance(kind, AnyFloat):
        found = "no type" if kind is None else str(kind)
        parser.raise_error(f"the expressed type is a float type, this is {found}", start)
    return str(kind)


def _integer(parser: AttrParser, what: str) -> int:
    start = parser.pos
    found = parser.parse_optional_integer(allow_boolean=False)
    if found is None:
        parser.raise_error(f"expected an integer, {what}", start)
    if not -_INT64 <= found < _INT64:
        parser.raise_error(f"{found} has more than 64 bits", start)
    return found


def _float(parser: AttrParser, what: str) -> float:
    start = parser.pos
    sign = -1.0 if parser._parse_optional_token(MLIRTokenKind.MINUS) is not None else 1.0  # noqa: SLF001
    found = parser.parse_optional_float(allow_negative=False)
    if found is not None:
        return sign * found
    token = parser._parse_optional_token(MLIRTokenKind.INTEGER_LIT)  # noqa: SLF001
    if token is None or not token.text.startswith("0x") or len(token.text) > 18:
        parser.raise_error(f"expected a float with a decimal point such as 1.0, {what}", start)
    # Hexadecimal is the bit pattern of a double.
    bits: float = struct.unpack(">d", int(token.text, 16).to_bytes(8, "big"))[0]
    return sign * bits


def _pair(parser: AttrParser, expressed: str) -> tuple[float, int]:
    start = parser.pos
    scale = _float(parser, "a scale")
    limits = FORMATS.get(expressed, FORMATS["f64"])
    if not limits.step <= scale <= limits.most:
        parser.raise_error(f"scale {scale!r} is no positive, finite value of {expressed}", start)
    if parser.parse_optional_punctuation(":") is None:
        return scale, 0
    return scale, _integer(parser, "a zero point")


def _blocks(parser: AttrParser) -> tuple[tuple[int, int], ...]:
    blocks: list[tuple[int, int]] = []
    while parser.parse_optional_punctuation("}") is None:
        if blocks:
            parser.parse_punctuation(",")
        start = parser.pos
        axis = _integer(parser, "an axis")
        parser.parse_punctuation(":")
        size = _integer(parser, "a block size")
        if axis < 0 or size <= 0:
            message = f"block {axis}:{size}: the axis must not be negative, the size positive"
            parser.raise_error(message, start)
        if axis in (known for known, _ in blocks):
            parser.raise_error(f"axis {axis} has two block sizes", start)
        blocks.append((axis, size))
    return tuple(blocks)


def _nested(parser: AttrParser, expressed: str) -> tuple[list[tuple[float, int]], list[int]]:
    """Read `{{0.1, 0.2:5}, {..}}` without recursion: the leaves row-major, and the shape."""
    leaves: list[tuple[float, int]] = []
    grid: list[int] = []
    counts: list[int] = []
    depth = 0
    while True:
        start = parser.pos
        while parser.parse_optional_punctuation("{") is not None:
            counts.append(0)
        if not counts:
            parser.raise_error("expected '{', a list of scales", start)
        if depth not in (0, len(counts)):
            parser.raise_error(f"scales nest {len(counts)} deep here and {depth} deep before", start)
        depth = len(counts)
        leaves.append(_pair(parser, expressed))
        counts[-1] += 1
        while parser.parse_optional_punctuation("}") is not None:
            _close(parser, counts, grid)
            if not counts:
                if len(leaves) != math.prod(grid):
                    parser.raise_error(f"{len(leaves)} scales do not fill a grid of {grid}", start)
                return leaves, grid
            counts[-1] += 1
        parser.parse_punctuation(",")


def _close(parser: AttrParser, counts: list[int], grid: list[int]) -> None:
    depth, size = len(counts), counts.pop()
    if len(grid) < depth:
        grid[:0] = [0] * (depth - len(grid))
    if grid[depth - 1] not in (0, size):
        parser.raise_error(f"scale lists of {grid[depth - 1]} and {size} entries on one level")
    grid[depth - 1] = size


def shape_text(shape: Sequence[int]) -> str:
    """`[2, 3, ?]`, a negative size unknown."""
    return "[" + ", ".join("?" if size < 0 else str(size) for size in shape) + "]"

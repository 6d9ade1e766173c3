"""Reading quantized types: MLIR's `quant` text into `qtypes`.

`str(type)` writes; `parse_type` reads. Errors point at the column. Canonical texts of uniform types are read
by `canonical_texts` first, everything else token by token, without recursion. No MLIR module is parsed here.
Source: MLIR quant dialect grammar; docs/specification.md, section 2; our extensions: docs/types.md.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from planner.errors import QTypeError
from planner.ir.types.canonical_texts import read_canonical
from planner.ir.types.parameter_texts import MANY
from planner.ir.types.qtypes import (
    EXPRESSED,
    MAX_RANK,
    AnyType,
    AtReaders,
    Bipolar,
    Calibrated,
    FloatType,
    NoneType,
    QType,
    RowMax,
    Storage,
    Uniform,
    WidthRange,
    storage,
)
from planner.ir.types.scales import FORMATS, held_scale, held_scales, scale_problem
from planner.ir.types.typereader import Reader, wrong

Range = tuple[int, int]

_MAX_AXIS: Final = (1 << 31) - 1
_MAX_BLOCK: Final = (1 << 63) - 1


def parse_type(text: str) -> QType:
    """Read one type, e.g. `!quant.uniform<i8:f32, 0.02:-3>`.

    Raises:
      QTypeError: with the column (from 1) of the first character that does not fit.

    Example:
      >>> planner.parse_type("!quant.uniform<i8:f32, 0.02:-3>").storage.bits
      8
    """
    if not isinstance(text, str):
        raise QTypeError(f"a type is read from text, not from a {type(text).__name__}")
    known = read_canonical(text)
    if known is not None:
        return known
    reader = Reader(text)
    result = _type(reader)
    reader.end()
    return result


def parse_storage(text: str) -> Storage:
    """Read a storage alone, e.g. `i8<-127:127>` or `u8`.

    Raises:
      QTypeError: text that is no storage.
    """
    reader = Reader(text)
    name = reader.take("name", "a storage such as i8")
    result = storage(name, *_range(reader)) if reader.accept("<") else storage(name)
    reader.end()
    return result


def _type(reader: Reader) -> QType:
    at = reader.at
    name = reader.take("name", "a type such as !quant.uniform<...>")
    if name in EXPRESSED:
        return FloatType(name)
    if name == "!quant.none":
        return NoneType()
    read = _TYPES.get(name)
    if read is None:
        known = ", ".join([*_TYPES, "!quant.none", *EXPRESSED])
        raise wrong(at, f"unknown type {name!r}; known: {known}")
    reader.sign("<")
    result = read(reader)
    reader.sign(">")
    return result


def _storage(reader: Reader) -> Storage:
    at = reader.at
    name = reader.take("name", "a storage such as i8")
    if not reader.accept("<"):
        with reader.pointing(at):
            return storage(name)
    return _narrowed(reader, name, at)


def _narrowed(reader: Reader, name: str, name_at: int) -> Storage:
    with reader.pointing(name_at):
        storage(name)
    at = reader.at
    qmin, qmax = _range(reader)
    with reader.pointing(at):
        return storage(name, qmin, qmax)


def _range(reader: Reader) -> Range:
    qmin = reader.integer()
    reader.sign(":")
    qmax = reader.integer()
    reader.sign(">")
    return qmin, qmax


def _expressed(reader: Reader) -> str:
    at = reader.at
    name = reader.take("name", "an expressed type such as f32")
    if name not in EXPRESSED:
        raise wrong(at, f"expressed type {name!r} is none of {', '.join(EXPRESSED)}")
    return name


@dataclass(frozen=True, slots=True)
class _Block:
    axis: int
    size: int
    at: int


@dataclass(slots=True)
class _Params:
    """Scales and zero points as they are read, each checked where it stands."""

    store: Storage
    expressed: str
    ranges: tuple[Range, ...]
    scales: list[float] = field(default_factory=list)
    zeros: list[int] = field(default_factory=list)

    def take(self, reader: Reader) -> None:
        at = reader.at
        scale = reader.real()
        kept = FORMATS[self.expressed]
        if not kept.step <= scale <= kept.most:
            raise wrong(at, scale_problem(scale, self.expressed))
        zero_at, zero_point = at, 0
        if reader.accept(":"):
            zero_at, zero_point = reader.at, reader.integer()
        self._check_zero_point(zero_at, zero_point)
        self.scales.append(scale)
        self.zeros.append(zero_point)

    def slice_ranges(self) -> tuple[Range, ...]:
        """The ranges; () where they say no more than the storage does."""
        if len(self.ranges) == len(self.scales) and len(set(self.ranges)) == 1:
            return ()
        return self.ranges

    def held(self) -> tuple[float, ...]:
        return held_scales(self.scales, self.expressed)

    def _check_zero_point(self, at: int, zero_point: int) -> None:
        qmin, qmax = self.store.qmin, self.store.qmax
        if self.ranges and len(self.scales) < len(self.ranges):
            qmin, qmax = self.ranges[len(self.scales)]
        if not qmin <= zero_point <= qmax:
            raise wrong(
                at,
                f"zero point {zero_point} lies outside the storage range {qmin}:{qmax} of {self.store.name}",
            )


def _uniform(reader: Reader) -> Uniform:
    at = reader.at
    store, ranges = _slice_storage(reader)
    reader.sign(":")
    params = _Params(store, _expressed(reader), ranges)
    if reader.accept(":"):
        return _sliced(reader, params, at)
    reader.sign(",")
    params.take(reader)
    if ranges:
        raise wrong(at, "storage ranges per slice need an axis or blocks")
    return _of_tensor(params)


def _of_tensor(params: _Params) -> Uniform:
    return Uniform(
        params.store, params.held(), tuple(params.zeros), params.expressed, written=tuple(params.scales)
    )


def _sliced(reader: Reader, params: _Params, storage_at: int) -> Uniform:
    axis: int | None = None
    blocks: tuple[_Block, ...] = ()
    is_blocked = reader.accept("{")
    if is_blocked:
        blocks = _blocks(reader)
    else:
        axis = _axis(reader)
    reader.sign(",")
    list_at = reader.at
    grid = _nested(reader, params)
    if not is_blocked and len(grid) != 1:
        raise wrong(list_at, f"a per-axis type has one flat list of scales, this one nests {len(grid)} deep")
    for block in blocks:
        if block.axis >= len(grid):
            raise wrong(
                block.at,
                f"block axis {block.axis} is beyond the scale list, which nests {len(grid)} deep",
            )
    sizes = tuple(sorted((block.axis, block.size) for block in blocks))
    with reader.pointing(storage_at):
        return Uniform(
            params.store,
            params.held(),
            tuple(params.zeros),
            params.expressed,
            axis,
            sizes,
            grid if is_blocked else (),
            params.slice_ranges(),
            tuple(params.scales) if len(params.scales) < MANY else (),
        )


def _slice_storage(reader: Reader) -> tuple[Storage, tuple[Range, ...]]:
    """Read a storage, or (ours) one with a range per slice: `i8<{-8:7,-128:127}>`; with their hull."""
    at = reader.at
    name = reader.take("name", "a storage such as i8")
    if not reader.accept("<"):
        with reader.pointing(at):
            return storage(name), ()
    if not reader.accept("{"):
        return _narrowed(reader, name, at), ()
    with reader.pointing(at):
        storage(name)
    ranges: list[Range] = []
    while True:
        at = reader.at
        low = reader.integer()
        reader.sign(":")
        ranges.append((low, reader.integer()))
        with reader.pointing(at):
            storage(name, *ranges[-1])
        if not reader.accept(","):
            break
    reader.sign("}")
    reader.sign(">")
    hull = storage(name, min(low for low, _ in ranges), max(high for _, high in ranges))
    return hull, tuple(ranges)


def _axis(reader: Reader) -> int:
    at = reader.at
    axis = reader.integer()
    if axis < 0:
        raise wrong(at, f"quantized dimension {axis} is negative")
    if axis > _MAX_AXIS:
        raise wrong(at, f"quantized dimension {axis} is beyond {_MAX_AXIS}")
    return axis


def _blocks(reader: Reader) -> tuple[_Block, ...]:
    """Read `0:1, 1:32}`."""
    found: dict[int, _Block] = {}
    if reader.accept("}"):
        return ()
    while True:
        at = reader.at
        axis = reader.integer()
        reader.sign(":")
        size = reader.integer()
        if not (0 <= axis <= _MAX_AXIS and 0 < size <= _MAX_BLOCK):
            raise wrong(at, f"block {axis}:{size}: the axis must not be negative, the size positive")
        if axis in found:
            raise wrong(at, f"axis {axis} has two block sizes")
        found[axis] = _Block(axis, size, at)
        if not reader.accept(","):
            break
    reader.sign("}")
    return tuple(found.values())


def _nested(reader: Reader, params: _Params) -> tuple[int, ...]:
    """Read `{{0.1, 0.2:5}, {..}}` without recursion: the leaves into `params`, row-major; the shape."""
    sizes: dict[int, int] = {}
    counts: list[int] = []
    leaf_depth = 0
    while True:
        _open(reader, counts, leaf_depth)
        leaf_depth = len(counts)
        params.take(reader)
        counts[-1] += 1
        while True:
            at = reader.at
            if not reader.accept("}"):
                break
            depth, size = len(counts), counts.pop()
            if sizes.setdefault(depth, size) != size:
                raise wrong(at, f"scale lists of {sizes[depth]} and {size} entries on one level")
            if not counts:
                return tuple(sizes[level] for level in range(1, leaf_depth + 1))
            counts[-1] += 1
        reader.sign(",")


def _open(reader: Reader, counts: list[int], leaf_depth: int) -> None:
    """Enter lists down to the next leaf; every leaf lies at the depth of the first one."""
    at = reader.at
    while reader.accept("{"):
        counts.append(0)
        if len(counts) > MAX_RANK:
            raise wrong(at, f"scale lists nest more than {MAX_RANK} deep")
    if not counts:
        raise reader.fail("'{'")
    if leaf_depth not in (0, len(counts)):
        raise wrong(reader.at, f"a scale {len(counts)} deep where others are {leaf_depth} deep")


def _any(reader: Reader) -> AnyType:
    store = _storage(reader)
    expressed = _expressed(reader) if reader.accept(":") else None
    params = _Params(store, expressed or "", ())
    at = reader.at
    if expressed is not None and reader.accept(":"):
        trained = _sliced(reader, params, at)
    elif expressed is not None and reader.accept(","):
        params.take(reader)
        trained = _of_tensor(params)
    else:
        return AnyType(store, expressed)
    with reader.pointing(at):
        return AnyType(store, expressed, trained)


def _calibrated(reader: Reader) -> Calibrated:
    at, expressed, axis = reader.at, _expressed(reader), None
    if reader.accept(":"):
        axis = _axis(reader)
        reader.sign(",")
        reader.sign("{")
        pairs = [_extent(reader)]
        while reader.accept(","):
            pairs.append(_extent(reader))
        reader.sign("}")
    else:
        reader.sign("<")
        pairs = [_extent(reader)]
        reader.sign(">")
    seen = _seen(reader)
    with reader.pointing(at):
        return Calibrated(tuple(lo for lo, _ in pairs), tuple(hi for _, hi in pairs), expressed, axis, *seen)


def _seen(
    reader: Reader,
) -> tuple[tuple[RowMax, ...], bool, tuple[WidthRange, ...], tuple[AtReaders, ...]]:
    """Other observations: `, {row_max = {3: -4.1 of 128}, 8 = -6.0:1.5, readers = {8 = 15.5}}`."""
    rows: tuple[RowMax, ...] = ()
    readers: tuple[AtReaders, ...] = ()
    widths: dict[int, WidthRange] = {}
    known: set[str] = set()
    more = reader.accept(",")
    if more:
        reader.sign("{")
    while more:
        at = reader.at
        if reader.next is not None and reader.next["number"] is not None:
            width = _width(reader)
            if width.bits in widths:
                raise wrong(at, f"{width.bits} bits have two ranges")
            widths[width.bits] = width
        else:
            key = reader.take("name", "'row_max', 'two_values', 'readers' or a number of bits")
            if key not in _SEEN or key in known:
                accepted = "row_max = {AXIS: REAL}, two_values = true, BITS = LO:HI, readers = {BITS = DB}"
                raise wrong(at, f"{key!r} is not read here; accepted: {accepted}, each once")
            known.add(key)
            reader.sign("=")
            if key == "row_max":
                rows = _row_maxima(reader)
            elif key == "readers":
                readers = _at_readers(reader)
            elif reader.take("name", "'true'") != "true":
                raise wrong(at, "two_values is true or not there")
        more = reader.accept(",")
        if not more:
            reader.sign("}")
    return rows, "two_values" in known, tuple(widths[bits] for bits in sorted(widths)), readers


_SEEN: Final = ("readers", "row_max", "two_values")


def _at_readers(reader: Reader) -> tuple[AtReaders, ...]:
    found: dict[int, AtReaders] = {}
    reader.sign("{")
    more = True
    while more:
        at, bits = reader.at, reader.integer()
        if bits in found:
            raise wrong(at, f"{bits} bits have two dB at consumers")
        reader.sign("=")
        db = reader.real()
        with reader.pointing(at):
            found[bits] = AtReaders(bits, db)
        more = reader.accept(",")
    reader.sign("}")
    return tuple(found[bits] for bits in sorted(found))


def _width(reader: Reader) -> WidthRange:
    at, bits = reader.at, reader.integer()
    reader.sign("=")
    lo, hi = _extent(reader)
    with reader.pointing(at):
        return WidthRange(bits, lo, hi)


def _row_maxima(reader: Reader) -> tuple[RowMax, ...]:
    reader.sign("{")
    rows = [_row_max(reader)]
    while reader.accept(","):
        rows.append(_row_max(reader))
    reader.sign("}")
    return tuple(rows)


def _row_max(reader: Reader) -> RowMax:
    at, axis = reader.at, reader.integer()
    reader.sign(":")
    least, entries = reader.real(), None
    if reader.next is not None and reader.next["name"] == "of":
        reader.take("name", "'of'")
        entries = reader.integer()
    with reader.pointing(at):
        return RowMax(axis, least, entries)


def _extent(reader: Reader) -> tuple[float, float]:
    at = reader.at
    lo = reader.real()
    reader.sign(":")
    hi = reader.real()
    if not (math.isfinite(lo) and math.isfinite(hi)):
        raise wrong(at, f"calibrated range {lo}:{hi} must be finite")
    if lo > hi:
        raise wrong(at, f"calibrated range {lo}:{hi} has min > max")
    return lo, hi


def _bipolar(reader: Reader) -> Bipolar:
    expressed = _expressed(reader)
    reader.sign(",")
    at = reader.at
    scale = reader.real()
    with reader.pointing(at):
        return Bipolar(expressed, held_scale(scale, expressed))


_TYPES: Final[Mapping[str, Callable[[Reader], QType]]] = {
    "!quant.any": _any,
    "!quant.bipolar": _bipolar,
    "!quant.calibrated": _calibrated,
    "!quant.uniform": _uniform,
}


def brief(kind: QType | None) -> str:
    """A type's text, its scales counted rather than listed where there are many; None is float."""
    if kind is None:
        return "float"
    if isinstance(kind, AnyType) and kind.trained is not None:
        return brief(kind.trained).replace("!quant.uniform<", "!quant.any<", 1)
    if not isinstance(kind, Uniform) or kind.is_per_tensor:
        return str(kind)
    where = kind.axis if kind.axis is not None else dict(kind.blocks)
    return f"!quant.uniform<{kind.storage}:{kind.expressed}:{where}, {{{len(kind.scales)} scales}}>"

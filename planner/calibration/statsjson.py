"""Reading statistics: JSON of `qplan.stats/2`, strictly; `/1` is read. `Statistics.to_json` writes it.

Source: docs/formats.md.
"""

import json
import math
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

from planner.calibration.rows_seen import RowsSeen
from planner.calibration.sizes_seen import SizesSeen
from planner.calibration.statistics import FORMAT, Bins, Mean, Statistics, ValueStats, percentile_of
from planner.errors import StatsError
from planner.ir.dims import MOST
from planner.ir.types.qtypes import MAX_BITS, AtReaders

Entry = TypeVar("Entry")
READ: Final = ("qplan.stats/1", FORMAT)
# Far beyond a float's exponents and any count of bins that calibration writes.
MAX_EXPONENT: Final = 1024
MAX_READ_BINS: Final = 1 << 20

_NEEDED: Final = ("format", "method", "model", "samples", "values")
_FIELDS: Final = ("format", "method", "model", "samples", "sizes", "trips", "values")
_SIZES_FIELDS: Final = ("least", "most", "sizes")
_VALUE_FIELDS: Final = (
    "axis",
    "below",
    "bins",
    "inf",
    "max",
    "mean",
    "min",
    "nan",
    "readers",
    "row_max",
    "two_values",
)
_BINS_FIELDS: Final = ("counts", "exponent", "first")
_MEAN_FIELDS: Final = ("axis", "values")
_ROWS_FIELDS: Final = ("apart", "axis", "entries", "least", "sample")


def read_statistics(text: str, source: str = "statistics") -> Statistics:
    """Read JSON text.

    Args:
      text: the file's content.
      source: in messages, such as the file name.

    Raises:
      StatsError: not JSON, another format or version, an unknown or missing field, a number that is none, or
        min > max; with the path inside the file.
    """
    try:
        document = json.loads(text, object_pairs_hook=lambda pairs: _unique(pairs, source))
    except (ValueError, RecursionError) as error:
        raise StatsError(f"{source}: not JSON: {error}") from error
    if not isinstance(document, dict):
        _fail(source, "", f"expected an object, found {_shown(document)}")
    if document.get("format") not in READ:
        known = " and ".join(map(repr, READ))
        _fail(source, "format", f"{_shown(document.get('format'))} is not read here; {known} are")
    _fields(document, _FIELDS, _NEEDED, source, "")
    method = _text(document["method"], source, "method")
    percentile_of(method)
    values = document["values"]
    if not isinstance(values, dict):
        _fail(source, "values", f"expected an object, found {_shown(values)}")
    return Statistics(
        _text(document["model"], source, "model"),
        method,
        _count(document["samples"], source, "samples"),
        {name: _value(item, source, f"values.{name}") for name, item in values.items()},
        _table(document.get("sizes", {}), _sizes, source, "sizes"),
        _table(document.get("trips", {}), _trips, source, "trips"),
    )


def load_statistics(path: str | Path) -> Statistics:
    """Read a file that `Statistics.save` or `qplan calibrate` wrote.

    Raises:
      StatsError: no readable file, or one that `read_statistics` refuses.
    """
    if not isinstance(path, str | Path):
        raise StatsError(
            f"statistics are the result of calibrate, or a file of it, not a {type(path).__name__}"
        )
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise StatsError(f"{path}: cannot read statistics: {reason}") from error
    return read_statistics(text, path.name)


def _value(item: Any, source: str, path: str) -> ValueStats:
    if not isinstance(item, dict):
        _fail(source, path, f"expected an object, found {_shown(item)}")
    _fields(item, _VALUE_FIELDS, ("max", "min"), source, path)
    axis = None if "axis" not in item else _count(item["axis"], source, f"{path}.axis")
    los = _reals(item["min"], axis, source, f"{path}.min")
    his = _reals(item["max"], axis, source, f"{path}.max")
    if len(los) != len(his):
        _fail(source, path, f"min has {len(los)} entries, max has {len(his)}")
    for k, (lo, hi) in enumerate(zip(los, his, strict=True)):
        if lo > hi:
            where = path if axis is None else f"{path}[{k}]"
            _fail(source, where, f"min {lo} is above max {hi}")
    bins = None
    if "bins" in item:
        if axis is not None:
            _fail(source, f"{path}.bins", "a value with an axis has no histogram")
        bins = _bins(item["bins"], source, f"{path}.bins")
    nan, inf = (_count(item.get(key, 0), source, f"{path}.{key}") for key in ("nan", "inf"))
    mean = _mean(item["mean"], source, f"{path}.mean") if "mean" in item else None
    rows = _rows(item.get("row_max", []), source, f"{path}.row_max")
    two_values, below = (
        _truth(item.get(key, False), source, f"{path}.{key}") for key in ("two_values", "below")
    )
    readers = _readers(item.get("readers", {}), source, f"{path}.readers")
    return ValueStats(los, his, nan, inf, bins, axis, mean, rows, two_values, readers, below)


def _truth(item: Any, source: str, path: str) -> bool:
    if not isinstance(item, bool):
        _fail(source, path, f"expected true or false, found {_shown(item)}")
    return item


def _table(item: Any, read: Callable[[Any, str, str], Entry], source: str, path: str) -> dict[str, Entry]:
    if not isinstance(item, dict):
        _fail(source, path, f"expected an object, found {_shown(item)}")
    return {name: read(entry, source, f"{path}.{name}") for name, entry in item.items()}


def _sizes(item: Any, source: str, path: str) -> SizesSeen:
    if not isinstance(item, dict):
        _fail(source, path, f"expected an object, found {_shown(item)}")
    _fields(item, _SIZES_FIELDS, ("sizes",), source, path)
    found = {}
    for key in ("sizes", "least", "most"):
        listed = item.get(key, item["sizes"])
        if not isinstance(listed, list):
            _fail(source, f"{path}.{key}", f"expected a list of sizes, found {_shown(listed)}")
        found[key] = tuple(_size(size, source, f"{path}.{key}[{k}]") for k, size in enumerate(listed))
    if not len(found["sizes"]) == len(found["least"]) == len(found["most"]):
        _fail(source, path, "sizes, least and most have as many entries")
    for low, size, high in zip(found["least"], found["sizes"], found["most"], strict=True):
        if not low <= size <= high:
            _fail(source, path, f"size {size} lies outside {low} to {high}")
    return SizesSeen(**found)


def _trips(item: Any, source: str, path: str) -> int:
    number = _size(item, source, path)
    return number or _fail(source, path, "a body ran no time; accepted: at least 1")


def _size(item: Any, source: str, path: str) -> int:
    number = _integer(item, source, path)
    if not 0 <= number < MOST:
        _fail(source, path, f"{_shown(number)} is no size")
    return number


def _readers(item: Any, source: str, path: str) -> tuple[AtReaders, ...]:
    if not isinstance(item, dict):
        _fail(source, path, f"expected an object of dB by bits, found {_shown(item)}")
    found = []
    for key, db in item.items():
        if not re.fullmatch("[1-9][0-9]?", key) or int(key) > MAX_BITS:
            _fail(source, f"{path}.{key}", f"no width; accepted: 1 to {MAX_BITS} bits")
        found.append(AtReaders(int(key), _real(db, source, f"{path}.{key}")))
    return tuple(sorted(found, key=lambda at: at.bits))


def _rows(item: Any, source: str, path: str) -> tuple[RowsSeen, ...]:
    if not isinstance(item, list) or not all(isinstance(entry, dict) for entry in item):
        _fail(source, path, f"expected a list of objects, found {_shown(item)}")
    found: list[RowsSeen] = []
    for k, entry in enumerate(item):
        where = f"{path}[{k}]"
        _fields(entry, _ROWS_FIELDS, ("axis", "entries", "least"), source, where)
        axis, entries, apart = (
            _count(entry.get(key, 0), source, f"{where}.{key}") for key in ("axis", "entries", "apart")
        )
        if not entries or axis in [rows.axis for rows in found]:
            _fail(source, where, f"{entries} entries along axis {axis}; accepted: at least 1, an axis once")
        least, sample = _real(entry["least"], source, f"{where}.least"), entry.get("sample", "")
        found.append(RowsSeen(axis, least, entries, apart, _text(sample, source, f"{where}.sample")))
    return tuple(found)


def _mean(item: Any, source: str, path: str) -> Mean:
    if not isinstance(item, dict):
        _fail(source, path, f"expected an object, found {_shown(item)}")
    _fields(item, _MEAN_FIELDS, _MEAN_FIELDS, source, path)
    axis = _count(item["axis"], source, f"{path}.axis")
    return Mean(axis, _reals(item["values"], axis, source, f"{path}.values"))


def _bins(item: Any, source: str, path: str) -> Bins:
    if not isinstance(item, dict):
        _fail(source, path, f"expected an object, found {_shown(item)}")
    _fields(item, _BINS_FIELDS, _BINS_FIELDS, source, path)
    exponent = _integer(item["exponent"], source, f"{path}.exponent")
    if abs(exponent) > MAX_EXPONENT:
        _fail(source, f"{path}.exponent", f"{exponent} lies outside -{MAX_EXPONENT}..{MAX_EXPONENT}")
    first = _integer(item["first"], source, f"{path}.first")
    if first.bit_length() > 53:
        _fail(source, f"{path}.first", f"{first} has more than 53 bits")
    counts = item["counts"]
    if not isinstance(counts, list) or not 0 < len(counts) <= MAX_READ_BINS:
        _fail(source, f"{path}.counts", f"expected a list of 1 to {MAX_READ_BINS} counts")
    read = tuple(_count(count, source, f"{path}.counts[{k}]") for k, count in enumerate(counts))
    if not any(read):
        _fail(source, f"{path}.counts", "every bin is empty")
    return Bins(exponent, first, read)


def _reals(item: Any, axis: int | None, source: str, path: str) -> tuple[float, ...]:
    if axis is None:
        return (_real(item, source, path),)
    if not isinstance(item, list) or not item:
        _fail(source, path, f"expected a list of numbers, one per slice of axis {axis}")
    return tuple(_real(number, source, f"{path}[{k}]") for k, number in enumerate(item))


def _real(item: Any, source: str, path: str) -> float:
    if isinstance(item, bool) or not isinstance(item, (int, float)):
        _fail(source, path, f"expected a number, found {_shown(item)}")
    if (isinstance(item, int) and item.bit_length() > MAX_EXPONENT) or not math.isfinite(item):
        _fail(source, path, f"{_shown(item)} is not a finite number")
    return float(item)


def _integer(item: Any, source: str, path: str) -> int:
    if isinstance(item, bool) or not isinstance(item, int):
        _fail(source, path, f"expected a whole number, found {_shown(item)}")
    return item


def _count(item: Any, source: str, path: str) -> int:
    number = _integer(item, source, path)
    if not 0 <= number < 1 << 62:
        _fail(source, path, f"{_shown(number)} is not a count")
    return number


def _text(item: Any, source: str, path: str) -> str:
    if not isinstance(item, str):
        _fail(source, path, f"expected text, found {_shown(item)}")
    return item


def _fields(
    item: Mapping[str, Any], known: tuple[str, ...], needed: tuple[str, ...], source: str, path: str
) -> None:
    for key in item:
        if key not in known:
            _fail(source, f"{path}.{key}".lstrip("."), f"unknown field; known: {', '.join(known)}")
    for key in needed:
        if key not in item:
            _fail(source, f"{path}.{key}".lstrip("."), "this field is missing")


def _unique(pairs: list[tuple[str, Any]], source: str) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        _fail(source, next(key for key in keys if keys.count(key) > 1), "this field is there twice")
    return found


def _shown(item: Any) -> str:
    text = json.dumps(item)
    return text if len(text) <= 40 else text[:37] + "..."


def _fail(source: str, path: str, problem: str) -> NoReturn:
    raise StatsError(f"{source}: {path}: {problem}" if path else f"{source}: {problem}")

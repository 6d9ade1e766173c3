"""Rows and targets as plain data, and rows back, for plan files, `target show` and HTTP.

`row_from_json(row_to_json(row)) == row` for every row. Fields at their default are left out; ports stand in
order as pairs in lists, since JSON objects have none. Source: docs/formats.md.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from planner.errors import PlanFormatError, PlannerError
from planner.ir.types.qtypes import EXPRESSED, FloatType, Storage
from planner.ir.types.typetext import parse_storage
from planner.target.records import (
    DynamicRange,
    Engines,
    Files,
    Fusion,
    LookupTable,
    PartialSums,
    PortPattern,
    PortType,
    Row,
    Rule,
    Target,
    WorkRates,
)
from planner.target.signature import freeze

Made = TypeVar("Made")


def row_to_json(row: Row) -> dict[str, Any]:
    """Write a row as JSON data (dicts, lists, numbers, text)."""
    data = _written(row)
    if row.table is not None:
        data["table"] = _written(row.table)
    if row.dynamic is not None:
        data["dynamic"] = {**_written(row.dynamic), "storage": str(row.dynamic.storage)}
    data["in"] = [_port_to_json(port) for port in row.inputs]
    data["out"] = [_port_to_json(port) for port in row.outputs]
    if row.rules:
        data["rules"] = [_written(rule) for rule in row.rules]
    if row.accumulator is not None:
        data["accumulator"] = str(row.accumulator)
    if row.partial is not None:
        data["partial"] = {"storage": str(row.partial.storage), "products": row.partial.products}
    if row.work != WorkRates():
        data["work"] = work_to_json(row.work)
    return data


def engines_to_json(engines: Engines) -> dict[str, Any]:
    """Write what is given; nothing of a device with one."""
    return _written(engines)


def files_to_json(files: Files) -> dict[str, Any]:
    """Write what is given; nothing of a compiler that reads any."""
    return _written(files)


def files_from_json(data: Any) -> Files:
    """Read files that `files_to_json` wrote.

    Raises:
      PlanFormatError: unknown fields, or values of the wrong kind.
    """
    return _record(Files, data, "files", _FILES)


def engines_from_json(data: Any) -> Engines:
    """Read engines that `engines_to_json` wrote.

    Raises:
      PlanFormatError: unknown fields, or values of the wrong kind.
    """
    return _record(Engines, data, "engines", _ENGINES)


def work_to_json(work: WorkRates) -> dict[str, float]:
    """Write the rates that are given."""
    return _written(work)


def work_from_json(data: Any) -> WorkRates:
    """Read rates that `work_to_json` wrote.

    Raises:
      PlanFormatError: unknown fields, or no numbers.
    """
    return _record(WorkRates, data, "work", _WORK)


def row_from_json(data: Mapping[str, Any]) -> Row:
    """Read a row that `row_to_json` wrote.

    Raises:
      PlanFormatError: unknown or missing fields, or values of the wrong kind.
    """
    fields = dict(_mapping(data, "row"))
    inputs = tuple(_port_from_json(item) for item in _list(fields.pop("in", []), "in"))
    outputs = tuple(_port_from_json(item) for item in _list(fields.pop("out", []), "out"))
    rules = tuple(_record(Rule, item, "rule", _RULE) for item in _list(fields.pop("rules", []), "rules"))
    row = _record(Row, fields, "row", _ROW)
    return dataclasses.replace(row, inputs=inputs, outputs=outputs, rules=rules)


def target_to_json(target: Target) -> dict[str, Any]:
    """Describe a target as JSON data: identity, prices, fusions, rows by kernel."""
    return {
        "id": target.id,
        "version": target.version,
        "title": target.title,
        "mode": target.mode,
        "file": target.file,
        "digest": target.digest,
        "defaults": {
            "port": type_to_json(target.default_port),
            "on_no_kernel": target.on_no_kernel,
            "rescale_single_consumer": target.rescale_single_consumer,
            "duplicate_constants": target.duplicate_constants,
            "asked_widths": target.asked_widths,
            "unsigned": target.unsigned,
            "islands": target.islands,
            "bias": target.bias,
        },
        "rescale_allowed": target.rescale_allowed,
        "costs": dataclasses.asdict(target.costs),
        "float_work": work_to_json(target.float_work),
        "work_unit": target.work_unit,
        "engines": engines_to_json(target.engines),
        "files": files_to_json(target.files),
        "fusions": [_fusion_to_json(fusion) for fusion in target.fusions],
        "kernels": {kernel: [row_to_json(row) for row in rows] for kernel, rows in target.rows.items()},
        "tests": [case.name for case in target.tests],
    }


def type_to_json(kind: PortType) -> dict[str, Any]:
    """Write the type that a port accepts; `storage` is its text (`i8<-127:127>`, `bf16`, `*`)."""
    return {"storage": "*" if kind.storage is None else str(kind.storage), **_written(kind, "storage")}


def type_from_json(data: Mapping[str, Any]) -> PortType:
    """Read a type that `type_to_json` wrote."""
    fields = {"storage": "*", **_mapping(data, "type")}
    return _record(PortType, fields, "type", _TYPE)


_RECORDS: Final = frozenset(
    {"inputs", "outputs", "rules", "accumulator", "partial", "table", "dynamic", "type", "work"}
)
"""Fields that are records themselves."""


def _written(record: Any, *without: str) -> dict[str, Any]:
    """The plain fields of a record that differ from their defaults."""
    skipped = {*without, *_RECORDS}
    result: dict[str, Any] = {}
    for item in dataclasses.fields(record):
        value = getattr(record, item.name)
        factory: Any = item.default_factory
        default = item.default if factory is dataclasses.MISSING else factory()
        if item.name not in skipped and value != default:
            result[item.name] = _thawed(value)
    return result


def _thawed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _thawed(item) for key, item in value.items()}
    return [_thawed(item) for item in value] if isinstance(value, list | tuple) else value


def _port_to_json(port: PortPattern) -> dict[str, Any]:
    return {**_written(port), "type": type_to_json(port.type)}


def _port_from_json(data: Any) -> PortPattern:
    return _record(PortPattern, _mapping(data, "port"), "port", _PORT)


def _fusion_to_json(fusion: Fusion) -> dict[str, Any]:
    return _written(fusion)


def _storage(text: str) -> Storage | FloatType | None:
    if text == "*":
        return None
    return FloatType(text) if text in EXPRESSED else parse_storage(text)


def _mapping(data: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(data, Mapping):
        raise PlanFormatError(f"{what}: an object is expected, not {type(data).__name__}")
    return data


def _list(data: Any, what: str) -> list[Any]:
    if not isinstance(data, list | tuple):
        raise PlanFormatError(f"{what}: a list is expected, not {type(data).__name__}")
    return list(data)


def _kind(*kinds: type) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise PlanFormatError(f"{value!r} is no {' or '.join(kind.__name__ for kind in kinds)}")
        return freeze(value)

    return read


_text, _flag, _whole = _kind(str), _kind(bool), _kind(int)
_table, _sequence, _real = _kind(dict), _kind(list, tuple), _kind(int, float)

_TYPE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "storage": lambda value: _storage(_text(value)),
    "granularity": _text,
    "symmetric": _flag,
    "power_of_two": _flag,
    "scale_min": _real,
    "scale_max": _real,
    "zero_point": _whole,
    "block_size": _sequence,
    "short_block": _flag,
    "sparsity": _sequence,
    "scales": _text,
    "weight_bits_effective": _whole,
    "weight_pairs": _whole,
}
_PORT: Final[Mapping[str, Callable[[Any], Any]]] = {
    "name": _text,
    "type": type_from_json,
    "optional": _flag,
    "variadic": _flag,
}
_RULE: Final[Mapping[str, Callable[[Any], Any]]] = {"kind": _text, "args": _table, "source": _text}
_ENGINES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "names": _sequence,
    "crossing": _real,
    "one_way": _flag,
}
_FILES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "opset": _sequence,
    "layout": _text,
    "formats": lambda value: tuple(_text(name) for name in _sequence(value)),
    "sizes": _text,
    "runtime": _text,
    "reader": _text,
}
_WORK: Final[Mapping[str, Callable[[Any], Any]]] = {
    "mac": _real,
    "element": _real,
    "byte": _real,
    "mac_unsigned": _real,
}
_PARTIAL: Final[Mapping[str, Callable[[Any], Any]]] = {
    "storage": lambda value: parse_storage(_text(value)),
    "products": _whole,
}
_TABLE: Final[Mapping[str, Callable[[Any], Any]]] = {
    "entries": _whole,
    "low": _real,
    "high": _real,
    "interpolate": _whole,
}
_DYNAMIC: Final[Mapping[str, Callable[[Any], Any]]] = {
    "storage": lambda value: parse_storage(_text(value)),
    "per_batch": _flag,
    "per_token": _flag,
    "symmetric": _flag,
}
_ROW: Final[Mapping[str, Callable[[Any], Any]]] = {
    "kernel": _text,
    "axis": _table,
    "when": _table,
    "requantize": _text,
    "accumulator": lambda value: parse_storage(_text(value)),
    "overflow": _text,
    "partial": lambda value: _record(PartialSums, value, "partial sums", _PARTIAL),
    "table": lambda value: _record(LookupTable, value, "table", _TABLE),
    "dynamic": lambda value: _record(DynamicRange, value, "dynamic", _DYNAMIC),
    "computes": _flag,
    "float": _text,
    "work": work_from_json,
    "runs_on": _text,
    "source": _text,
    "mark": _text,
}


def _record(
    make: Callable[..., Made], data: Any, what: str, readers: Mapping[str, Callable[[Any], Any]]
) -> Made:
    fields: dict[str, Any] = {"inputs": (), "outputs": ()} if readers is _ROW else {}
    for key, value in _mapping(data, what).items():
        if key not in readers:
            raise PlanFormatError(f"{what}: unknown field {key!r}; known: {', '.join(readers)}")
        try:
            fields[key] = readers[key](value)
        except PlannerError as error:
            raise PlanFormatError(f"{what}.{key}: {error.message}") from error
    try:
        return make(**fields)
    except PlannerError as error:
        raise PlanFormatError(f"{what}: {error.message}") from error
    except TypeError as error:
        missing = str(error).partition("argument")[2].lstrip("s: ")
        raise PlanFormatError(f"{what}: field {missing} is missing") from error

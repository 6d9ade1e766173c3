"""Attribute values as plain JSON data, exactly.

Numbers, text, tuples and tables stand for themselves; values that JSON lacks are an object with one tag:
`{"float": "inf"}`, `{"list": [..]}`, `{"bytes": base64}`, `{"opaque": {"kind", "data"}}`,
`{"array": {"dtype", "shape", "data"}}` (little-endian, base64), `{"scalar": {..}}`. A table whose only key
is a tag is written `{"dict": {..}}`.
"""

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from planner.errors import PlanFormatError
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Opaque

_PLAIN: Final = (str, bool, int, type(None))
_EXTENDED: Final = {dtype.name: dtype for dtype in NUMPY.values() if dtype.isbuiltin != 1}


def attribute_to_json(value: Any) -> Any:
    """Turn one attribute value into JSON data.

    Raises:
      TypeError: a value of a type that no import makes.
    """
    if isinstance(value, float) and not isinstance(value, np.generic):
        return value if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, tuple):
        return [attribute_to_json(item) for item in value]
    if isinstance(value, list):
        return {"list": [attribute_to_json(item) for item in value]}
    if isinstance(value, Mapping):
        table = {key: attribute_to_json(item) for key, item in value.items()}
        return {"dict": table} if len(table) == 1 and next(iter(table)) in _TAGS else table
    if isinstance(value, bytes):
        return {"bytes": _base64(value)}
    if isinstance(value, np.ndarray):
        return {"array": array_to_json(value)}
    if isinstance(value, np.generic):
        return {"scalar": array_to_json(np.asarray(value))}
    if isinstance(value, Opaque):
        return {"opaque": {"kind": value.kind, "data": _base64(value.data)}}
    raise TypeError(f"an attribute of type {type(value).__name__} has no JSON form")


def attribute_from_json(data: Any, path: str) -> Any:
    """Read one attribute value; `path` is its place in the file, for errors.

    Raises:
      PlanFormatError: data that does not fit its tag, or NaN and infinity without theirs.
    """
    if isinstance(data, float):
        if not math.isfinite(data):
            raise PlanFormatError(f'{path}: {data} is no JSON number; write {{"float": "{data}"}}')
        return data
    if isinstance(data, _PLAIN):
        return data
    if isinstance(data, list):
        return tuple(attribute_from_json(item, f"{path}[{i}]") for i, item in enumerate(data))
    tag, content = next(iter(data.items()), ("", None))
    read = _TAGS.get(tag) if len(data) == 1 else None
    if read is None:
        return attributes_from_json(data, path)
    try:
        return read(content, f"{path}.{tag}")
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise PlanFormatError(f"{path}.{tag}: {type(error).__name__}: {error}") from None


def attributes_to_json(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the attributes of an op or kernel into JSON data."""
    return {key: attribute_to_json(value) for key, value in attributes.items()}


def attributes_from_json(data: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Read the attributes of an op or kernel."""
    return {key: attribute_from_json(value, f"{path}.{key}") for key, value in data.items()}


def array_to_json(array: np.ndarray) -> dict[str, Any]:
    """Turn an array into `{"dtype", "shape", "data"}`; text arrays hold `items` in place of `data`."""
    shape = list(array.shape)
    if array.dtype.kind in "OUS":
        return {"dtype": "object", "shape": shape, "items": [attribute_to_json(x) for x in array.flat]}
    little = np.ascontiguousarray(array)
    if little.dtype.byteorder == ">":
        little = little.astype(little.dtype.newbyteorder("<"))
    return {"dtype": array.dtype.name, "shape": shape, "data": _base64(little.tobytes())}


def array_from_json(data: Mapping[str, Any], path: str) -> np.ndarray:
    """Read an array.

    Raises:
      PlanFormatError: an unknown element type, or data of the wrong length.
    """
    name, shape = data["dtype"], tuple(int(size) for size in data["shape"])
    count = math.prod(shape)
    if name == "object":
        items = [attribute_from_json(item, f"{path}.items[{i}]") for i, item in enumerate(data["items"])]
        if len(items) != count:
            raise PlanFormatError(f"{path}: {len(items)} items for shape {list(shape)}")
        array = np.empty(count, dtype=object)
        array[:] = items
        return array.reshape(shape)
    try:
        dtype = _EXTENDED.get(name) or np.dtype(name)
    except TypeError:
        raise PlanFormatError(f"{path}.dtype: unknown element type {name!r}") from None
    raw = _bytes(data["data"], f"{path}.data")
    if dtype.hasobject or len(raw) != count * dtype.itemsize:
        raise PlanFormatError(f"{path}: {len(raw)} bytes are not {count} elements of {name}")
    return np.frombuffer(raw, dtype=dtype.newbyteorder("<") if dtype.isbuiltin == 1 else dtype).reshape(shape)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str, path: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise PlanFormatError(f"{path}: not base64: {error}") from None


def _scalar(data: Mapping[str, Any], path: str) -> Any:
    return array_from_json(data, path).reshape(1)[0]


def _float(data: str, path: str) -> float:
    if data not in ("inf", "-inf", "nan"):
        raise PlanFormatError(f"{path}: {data!r} is none of inf, -inf, nan")
    return float(data)


def _list(data: list[Any], path: str) -> list[Any]:
    return [attribute_from_json(item, f"{path}[{i}]") for i, item in enumerate(data)]


def _opaque(data: Mapping[str, Any], path: str) -> Opaque:
    return Opaque(data["kind"], _bytes(data["data"], f"{path}.data"))


_TAGS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "array": array_from_json,
    "bytes": _bytes,
    "dict": attributes_from_json,
    "float": _float,
    "list": _list,
    "opaque": _opaque,
    "scalar": _scalar,
}

"""Attributes of ops: `AttributeProto` to plain Python values and back.

int, float, str (bytes where it is no UTF-8), tuples of them, arrays for tensors; what only ONNX
understands (graphs, sparse tensors, types) is `Opaque`. Source: onnx.proto, `AttributeProto`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from onnx import AttributeProto, NodeProto

from planner.errors import ModelError
from planner.formats.onnx.tensors import array_of, tensor_of
from planner.ir.graph import Opaque

GRAPH: Final = "onnx.GraphProto"
_INT: Final = AttributeProto.INT
_INTS: Final = AttributeProto.INTS
_SPARSE: Final = "onnx.SparseTensorProto"
_TYPE: Final = "onnx.TypeProto"


def value_of(attribute: AttributeProto, folder: Path | None = None) -> Any:
    """Read an attribute.

    Raises:
      ModelError: a kind of attribute that has no plain value.
    """
    if attribute.type == AttributeProto.TENSOR:
        return array_of(attribute.t, folder)
    reader = _READERS.get(attribute.type)
    if reader is None:
        raise ModelError(f"attribute {attribute.name!r} is of kind {attribute.type}, which is not supported")
    return reader(attribute)


def write_attribute(node: NodeProto, name: str, value: Any) -> None:
    """Give a node an attribute; an empty sequence becomes a list of integers.

    Raises:
      ModelError: a value ONNX has no attribute kind for.
    """
    if type(value) is int:
        node.attribute.add(name=name, type=_INT, i=value)
    elif isinstance(value, (tuple, list)) and all(type(item) is int for item in value):
        node.attribute.add(name=name, type=_INTS, ints=value)
    elif isinstance(value, (tuple, list)):
        _write_many(node.attribute.add(name=name), list(value))
    else:
        _write_one(node.attribute.add(name=name), value)


def _text(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


def _write_one(attribute: AttributeProto, value: Any) -> None:
    if isinstance(value, np.ndarray):
        attribute.type, _ = AttributeProto.TENSOR, attribute.t.CopyFrom(tensor_of("", value))
    elif isinstance(value, (bool, int, np.integer, np.bool_)):
        attribute.type, attribute.i = AttributeProto.INT, int(value)
    elif isinstance(value, (float, np.floating)):
        attribute.type, attribute.f = AttributeProto.FLOAT, float(value)
    elif isinstance(value, (str, bytes)):
        attribute.type, attribute.s = AttributeProto.STRING, _bytes(value)
    elif isinstance(value, Opaque) and value.kind in _MESSAGES:
        field, kind = _MESSAGES[value.kind]
        attribute.type = kind
        getattr(attribute, field).ParseFromString(value.data)
    else:
        raise _no_kind(attribute.name, value)


def _write_many(attribute: AttributeProto, items: list[Any]) -> None:
    if all(isinstance(item, (bool, int, np.integer)) for item in items):
        attribute.type, _ = AttributeProto.INTS, attribute.ints.extend(int(item) for item in items)
    elif all(isinstance(item, (float, int, np.floating)) for item in items):
        attribute.type, _ = AttributeProto.FLOATS, attribute.floats.extend(float(item) for item in items)
    elif all(isinstance(item, (str, bytes)) for item in items):
        attribute.type, _ = AttributeProto.STRINGS, attribute.strings.extend(map(_bytes, items))
    elif all(isinstance(item, np.ndarray) for item in items):
        attribute.type = AttributeProto.TENSORS
        attribute.tensors.extend(tensor_of("", item) for item in items)
    else:
        raise _no_kind(attribute.name, items)


def _no_kind(name: str, value: Any) -> ModelError:
    return ModelError(
        f"attribute {name!r} is {value!r:.60}; ONNX has int, float, str, tensor, graph and lists of them"
    )


_MESSAGES: Final[dict[str, tuple[str, Any]]] = {
    GRAPH: ("g", AttributeProto.GRAPH),
    _SPARSE: ("sparse_tensor", AttributeProto.SPARSE_TENSOR),
    _TYPE: ("tp", AttributeProto.TYPE_PROTO),
}

_READERS: Final[dict[int, Callable[[AttributeProto], Any]]] = {
    AttributeProto.FLOAT: lambda a: a.f,
    AttributeProto.INT: lambda a: a.i,
    AttributeProto.STRING: lambda a: _text(a.s),
    AttributeProto.FLOATS: lambda a: tuple(a.floats),
    AttributeProto.INTS: lambda a: tuple(a.ints),
    AttributeProto.STRINGS: lambda a: tuple(map(_text, a.strings)),
    AttributeProto.TENSORS: lambda a: tuple(map(array_of, a.tensors)),
    AttributeProto.GRAPH: lambda a: Opaque(GRAPH, a.g.SerializeToString()),
    AttributeProto.SPARSE_TENSOR: lambda a: Opaque(_SPARSE, a.sparse_tensor.SerializeToString()),
    AttributeProto.TYPE_PROTO: lambda a: Opaque(_TYPE, a.tp.SerializeToString()),
}

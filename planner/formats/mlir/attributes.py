"""Attribute values and tensor types from xDSL's form into ours; the writing side is `elements`."""

import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from xdsl.dialects import builtin
from xdsl.ir import Attribute

from planner.errors import ModelError
from planner.formats.annotated.attributes import attribute_from_json
from planner.formats.mlir.text.elements import COMPLEX, FLOATS, FOREIGN, JSON_KEY
from planner.formats.mlir.types import ElementType, QuantType
from planner.formats.mlir.verbatim_types import as_qtype
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Facts, Opaque, Shape, Value
from planner.ir.types.qtypes import FloatType

_SIGNED: Final = {
    builtin.Signedness.SIGNLESS: "i",
    builtin.Signedness.SIGNED: "i",
    builtin.Signedness.UNSIGNED: "u",
}


def attribute_value(attribute: Attribute) -> Any:
    """Turn an attribute into plain data: the inverse of `elements.attribute_text`."""
    match attribute:
        case builtin.UnitAttr():
            return None
        case builtin.StringAttr():
            return attribute.data
        case builtin.BytesAttr():  # a string literal with escaped bytes in it
            return attribute.data.decode()
        case builtin.IntegerAttr():
            return bool(attribute.value.data) if attribute.type == builtin.i1 else attribute.value.data
        case builtin.FloatAttr():
            return attribute.value.data
        case builtin.ArrayAttr():
            return tuple([attribute_value(item) for item in attribute.data])
        case builtin.DictionaryAttr():
            return _dictionary(attribute.data)
        case builtin.DenseIntOrFPElementsAttr():
            return dense_array(attribute)
        case builtin.DenseArrayBase():
            return tuple(attribute.get_values())
        case QuantType():
            return as_qtype(attribute.data)
    if str(attribute) in FLOATS:
        return FloatType(str(attribute))
    return Opaque(FOREIGN, str(attribute).encode())


def _dictionary(data: Mapping[str, Attribute]) -> Any:
    if JSON_KEY not in data:
        return {key: attribute_value(item) for key, item in data.items()}
    text = attribute_value(data[JSON_KEY])
    try:
        plain = json.loads(text)
    except (TypeError, ValueError) as error:
        raise ModelError(f"{JSON_KEY} holds no JSON: {error}") from None
    return attribute_from_json(plain, JSON_KEY)


def dense_array(attribute: builtin.DenseIntOrFPElementsAttr[Any]) -> np.ndarray:
    """Numbers of a dense attribute, shaped.

    Raises:
      ModelError: an element type that numpy cannot hold.
    """
    name = dtype_of(attribute.get_element_type())
    known = NUMPY.get(name)
    count = int(np.prod(attribute.get_shape()))
    data = attribute.data.data
    if known is None or len(data) != count * known.itemsize:
        raise ModelError(f"a dense attribute of {name} cannot be read")
    return np.frombuffer(data, dtype=known).reshape(attribute.get_shape())


def dtype_of(element: Attribute) -> str:
    """Our name of an element type."""
    if isinstance(element, builtin.IntegerType):
        if element == builtin.i1:
            return "bool"
        return f"{_SIGNED[element.signedness.data]}{element.width.data}"
    text = element.data if isinstance(element, ElementType) else str(element)
    return COMPLEX.get(text, text)


def value_of(name: str, kind: Attribute) -> Value | None:
    """Build the value of a tensor type; None for a result of type `none`.

    A quantized element type is a fact of the value, which holds reals of the expressed type.

    Raises:
      ModelError: a type that is no tensor.
      QTypeError: a quantized type that we cannot hold.
    """
    if isinstance(kind, builtin.NoneType):
        return None
    if not isinstance(kind, builtin.TensorType | builtin.UnrankedTensorType):
        raise ModelError(f"value {name!r} has type {kind}; only tensors are known here")
    shape: Shape | None = None
    if isinstance(kind, builtin.TensorType):
        shape = tuple([None if dim < 0 else dim for dim in kind.get_shape()])
    if isinstance(kind.element_type, QuantType):
        fact = as_qtype(kind.element_type.data)
        return Value(name, shape, getattr(fact, "expressed", None) or "f32", (fact,))
    return Value(name, shape, dtype_of(kind.element_type))


def spec_facts(spec: Attribute, kind: Attribute | None) -> Facts:
    """Facts that a spec states of a port of type `kind` (None where the port is absent).

    Raises:
      ModelError: a spec that is neither a type, nor several, nor the element type.
    """
    if kind is None or isinstance(spec, builtin.UnitAttr):
        return ()
    if isinstance(kind, builtin.TensorType | builtin.UnrankedTensorType) and spec == kind.element_type:
        return ()
    items = spec.data if isinstance(spec, builtin.ArrayAttr) else (spec,)
    facts = []
    for item in items:
        if isinstance(item, QuantType):
            facts.append(as_qtype(item.data))
        elif str(item) in FLOATS:
            facts.append(FloatType(str(item)))
        else:
            raise ModelError(f"spec {item} of a {kind} is neither a quantized type nor a float")
    return tuple(facts)

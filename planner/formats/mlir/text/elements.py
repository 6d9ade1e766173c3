"""Tensor types and attribute values as MLIR text, written without xDSL.

Element types: `i8` signless for signed, `ui8` for unsigned, `i1` for bool; types that MLIR lacks are
`!qplan.dtype<"str">`. Attribute values MLIR cannot say exactly (NaN, bytes, arrays of text, subgraphs) are
`{qplan.json = "..."}` in the form of `annotated.attributes`. The reading side is `attributes`.
"""

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np

from planner.formats.annotated.attributes import attribute_to_json
from planner.formats.mlir.text.spelling import type_text
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Opaque, Value
from planner.ir.types.qtypes import (
    EXPRESSED,
    AnyType,
    Bipolar,
    Calibrated,
    FloatType,
    NoneType,
    QType,
    Uniform,
    float_text,
)

JSON_KEY: Final = "qplan.json"
FOREIGN: Final = "mlir"
"""`Opaque.kind` of an attribute of another dialect: its text."""
FLOATS: Final = (*EXPRESSED, "f8E4M3FN", "f8E5M2")
DENSE: Final[Mapping[np.dtype, str]] = {
    NUMPY[name]: name for name in ("f16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
}
QTYPES: Final = (AnyType, Bipolar, Calibrated, FloatType, NoneType, Uniform)
COMPLEX: Final = {"complex<f32>": "c64", "complex<f64>": "c128"}
"""Our names of complex element types, by MLIR's."""
_INTEGER: Final = re.compile(r"([iu])([1-9][0-9]{0,3})")
_BARE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_$.]*")
_KEY: Final = re.compile(r"(?!qplan\.json$)[ -~]+")
_PLAIN: Final = re.compile(r"[ !#-\[\]-~]*")
_SPECIAL: Final = re.compile(r'["\\\x00-\x1f\x7f]')


def element_text(dtype: str) -> str:
    """Write an element type: `f32`, `i64`, `ui8`, `i1`, `!qplan.dtype<"str">`."""
    if dtype in FLOATS:
        return dtype
    if dtype == "bool":
        return "i1"
    if dtype in COMPLEX.values():
        return next(text for text, name in COMPLEX.items() if name == dtype)
    match = _INTEGER.fullmatch(dtype)
    if match is None:
        return f"!qplan.dtype<{string(dtype)}>"
    if match[1] == "u":
        return f"ui{match[2]}"
    return dtype if match[2] != "1" else "si1"


def tensor_text(value: Value) -> str:
    """Write a tensor type; named and unknown dimensions are both `?`."""
    element = element_text(value.dtype)
    if value.shape is None:
        return f"tensor<*x{element}>"
    return f"tensor<{''.join(f'{d}x' if isinstance(d, int) else '?x' for d in value.shape)}{element}>"


def string(text: str) -> str:
    """Write a string literal: UTF-8 as it is, quotes, backslashes and control characters escaped."""
    return f'"{text}"' if _PLAIN.fullmatch(text) else '"' + _SPECIAL.sub(_escaped, text) + '"'


def _escaped(match: re.Match[str]) -> str:
    return {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t"}.get(match[0]) or f"\\{ord(match[0]):02X}"


def strings(texts: Iterable[str]) -> str:
    """Write an array of string literals."""
    return f"[{', '.join(map(string, texts))}]"


def entries(items: Mapping[str, str]) -> str:
    """Write the inside of an attribute dictionary from finished texts."""
    return ", ".join(
        f"{key if _BARE.fullmatch(key) else string(key)} = {text}" for key, text in items.items()
    )


def attribute_text(value: Any) -> str:
    """Write an attribute value; `attributes.attribute_value` reads it back exactly."""
    if value is None:
        return "unit"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return string(value)
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return f"{value} : i64"
    if isinstance(value, float) and not isinstance(value, np.generic) and math.isfinite(value):
        return f"{float_text(value)} : f64"
    if isinstance(value, tuple):
        return f"[{', '.join(map(attribute_text, value))}]"
    if isinstance(value, QTYPES):
        return type_text(value)
    if isinstance(value, Mapping) and all(_KEY.fullmatch(key) for key in value):
        return f"{{{entries({key: attribute_text(item) for key, item in value.items()})}}}"
    if isinstance(value, np.ndarray) and value.dtype in DENSE:
        return dense_text(value)
    if isinstance(value, Opaque) and value.kind == FOREIGN:
        return value.data.decode()
    return f"{{{JSON_KEY} = {string(json.dumps(attribute_to_json(value)))}}}"


def dense_text(array: np.ndarray) -> str:
    """Write numbers as hexadecimal `dense`, their element type one of `DENSE`."""
    name = DENSE[array.dtype]
    kind = tensor_text(Value("", array.shape, name))
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    data = f'"0x{little.tobytes().hex().upper()}"' if array.size else ""
    return f"dense<{data}> : {kind}"


def facts_text(facts: Iterable[QType]) -> str:
    """Write facts as an array of types."""
    return f"[{', '.join(map(type_text, facts))}]"

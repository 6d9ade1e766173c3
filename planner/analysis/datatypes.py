"""Datatypes: QONNX's name for the numbers of every tensor, from the quantizers and element types of a model.

Names are those of `qonnx.core.datatype`: `INT4`, `UINT8`, `BINARY`, `BIPOLAR`, `TERNARY` are integers,
`SCALEDINT<4>` integers times a scale, `FIXED<8,4>` fixed point, `FLOAT<4,3,7>` small floats. Products and
sums of integers are 32 bits wide, whatever they reach (`ranges` says that). Source: QONNX InferDataTypes.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from planner.costs import storage_bits
from planner.formats.onnx.quantized.dialect import (
    FLOAT_QUANT,
    IM2COL,
    MAX_POOL_NHWC,
    MULTI_THRESHOLD,
    QUANT_AVG_POOL,
    TRUNC,
    XNOR_POPCOUNT,
)
from planner.formats.onnx.quantized.quantizers import Quantizer, Reader, find_quantizers, reader_of
from planner.ir.graph import Graph, Op
from planner.ir.roles import is_movement, port_inputs
from planner.ir.types.qtypes import AnyType, Bipolar, Uniform
from planner.ops import of_form
from planner.ops.forms import Form

FLOAT32: Final = "FLOAT32"
_MOVING: Final = frozenset({IM2COL, MAX_POOL_NHWC})
_SUMS: Final = of_form(Form.LINEAR, Form.SUM) | {"Mul"}
_FILLED: Final = frozenset({"Pad", "Relu", "Trilu"})
"""Ops that put zeros among the numbers they move."""
_ELEMENTS: Final[Mapping[str, str]] = {"bool": "BINARY", "f16": "FLOAT16", "f32": FLOAT32}
_INTEGER: Final = re.compile(r"([iu])(\d+)")
_BITS: Final = re.compile(r"\D+(\d+)")
_NAMED: Final = {"BINARY": 1, "BIPOLAR": 1, "TERNARY": 2}


def datatypes(graph: Graph) -> Mapping[str, str]:
    """Name the numbers of every tensor.

    Args:
      graph: as `onnx.read.read_written` gives it; with `opened=False` ops of several stay whole.

    Returns:
      QONNX's datatype by name of a value; `FLOAT32` where nothing makes the numbers others.
    """
    reader = reader_of(graph)
    quantized = {item.result: item.quantizer for item in find_quantizers(graph)}
    found = {name: said(graph, name) for name in (*graph.inputs, *graph.constants)}
    for op in graph.ops:
        for out in filter(None, op.outputs):
            if out in quantized:
                found[out] = _of_quantizer(quantized[out])
            else:
                found[out] = _of_op(op, out, [found.get(name, "") for name in op.inputs], reader)
    return found


def said(graph: Graph, name: str) -> str:
    """The datatype of an input or constant: by its file's annotation, else by its element type."""
    value = graph.values[name]
    for fact in value.facts:
        if isinstance(fact, Bipolar):
            return "BIPOLAR"
        if isinstance(fact, AnyType):
            return _integers(fact.storage.bits, signed=fact.storage.signed)
        if isinstance(fact, Uniform) and fact.is_per_tensor and not fact.zero_point:
            store = fact.storage
            if fact.scale == 1:
                is_ternary = (store.bits, store.qmin, store.qmax) == (2, -1, 1)
                return "TERNARY" if is_ternary else _integers(store.bits, signed=store.signed)
            below = -np.log2(fact.scale)
            if below == int(below) and store.signed:
                return f"FIXED<{store.bits},{store.bits - int(below)}>"
            return f"SCALEDINT<{store.bits}>"
    return _of_element(value.dtype)


def _of_element(dtype: str) -> str:
    whole = _INTEGER.fullmatch(dtype)
    if whole is not None:
        return _integers(int(whole[2]), signed=whole[1] == "i")
    return _ELEMENTS.get(dtype, dtype.upper())


def _integers(bits: int, *, signed: bool) -> str:
    if bits == 1:
        return "BIPOLAR" if signed else "BINARY"
    return f"{'' if signed else 'U'}INT{bits}"


def _of_quantizer(quantizer: Quantizer) -> str:
    if quantizer.stored.startswith("f"):
        return FLOAT32
    bits = storage_bits(quantizer)
    if np.all(quantizer.scale == 1):
        if quantizer.is_bipolar:
            return "BIPOLAR"
        if not quantizer.zero_point.any():
            return _integers(bits, signed=quantizer.signed)
    return f"SCALEDINT<{bits}>"


def _of_op(op: Op, out: str, operands: Sequence[str], reader: Reader) -> str:
    dtype = reader.graph.values[out].dtype
    if dtype != "f32":
        return _of_element(dtype)
    rule = RULES.get(op.type)
    if rule is not None:
        return rule(op, reader, operands)
    if op.type in _SUMS:
        return _sum([kind for kind in operands if kind], may_negate=op.type == "Sub")
    if op.type in _MOVING or is_movement(op, reader.graph) or op.type == "Pad":
        data = port_inputs(op, reader.graph)
        kind = _common([kind for name, kind in zip(op.inputs, operands, strict=True) if name in data])
        return "TERNARY" if kind == "BIPOLAR" and _puts_zeros(op) else kind
    return FLOAT32


def _puts_zeros(op: Op) -> bool:
    if op.type == IM2COL:
        return any(op.attributes["pad_amount"]) and not op.attributes["pad_value"]
    return op.type in _FILLED


def _common(kinds: Sequence[str]) -> str:
    """The one name for numbers of several."""
    if len(set(kinds)) == 1:
        return kinds[0]
    if not kinds or any(kind.startswith("FLOAT") or not kind for kind in kinds):
        return FLOAT32
    bits = max(map(bits_of, kinds))
    if not all(map(_is_integer, kinds)):
        return f"SCALEDINT<{bits}>"
    signs = [not kind.startswith(("U", "BINARY")) for kind in kinds]
    if any(signs) and not all(signs):
        bits = max(bits_of(kind) + (not sign) for kind, sign in zip(kinds, signs, strict=True))
    return _integers(max(bits, 2), signed=any(signs))


def _sum(kinds: Sequence[str], *, may_negate: bool) -> str:
    if any(kind.startswith("FLOAT") for kind in kinds):
        return FLOAT32
    if not all(map(_is_integer, kinds)):
        return "SCALEDINT<32>"
    signed = may_negate or any(not kind.startswith(("U", "BINARY")) for kind in kinds)
    return _integers(32, signed=signed)


def _is_integer(kind: str) -> bool:
    return kind in _NAMED or kind.startswith(("INT", "UINT"))


def bits_of(kind: str) -> int:
    """The width of a datatype."""
    found = _BITS.match(kind)
    return _NAMED[kind] if kind in _NAMED else int(found[1]) if found else 32


def _thresholds(op: Op, _reader: Reader, _operands: Sequence[str]) -> str:
    steps = op.attributes["out_scale"], op.attributes["out_bias"]
    return str(op.attributes["out_dtype"]) if all(step == int(step) for step in steps) else FLOAT32


def _number(reader: Reader, op: Op, at: int) -> Any:
    array = reader.array(op.inputs[at]) if len(op.inputs) > at else None
    return None if array is None or array.size != 1 else array.item()


def _trunc(op: Op, reader: Reader, _operands: Sequence[str]) -> str:
    bits = _number(reader, op, 5 if len(op.inputs) > 5 else 4)
    return FLOAT32 if bits is None or bits != int(bits) else f"SCALEDINT<{int(bits)}>"


def _float(op: Op, reader: Reader, _operands: Sequence[str]) -> str:
    scale = reader.array(op.inputs[1])
    widths = [_number(reader, op, at) for at in (2, 3, 4)]
    if scale is None or not np.all(scale == 1) or any(width is None for width in widths):
        return FLOAT32
    return f"FLOAT<{','.join(str(int(width)) for width in widths)}>"


def _dequantized(_op: Op, _reader: Reader, operands: Sequence[str]) -> str:
    return f"SCALEDINT<{bits_of(operands[0])}>" if _is_integer(operands[0]) else FLOAT32


RULES: Final[Mapping[str, Callable[[Op, Reader, Sequence[str]], str]]] = {
    "DequantizeLinear": _dequantized,
    FLOAT_QUANT: _float,
    MULTI_THRESHOLD: _thresholds,
    QUANT_AVG_POOL: lambda op, _reader, _kinds: _integers(
        op.attributes["obits"], signed=bool(op.attributes["signed"])
    ),
    "Sign": lambda _op, _reader, _kinds: "TERNARY",
    TRUNC: _trunc,
    XNOR_POPCOUNT: lambda _op, _reader, _kinds: "UINT32",
}

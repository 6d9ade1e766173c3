"""Dialect: quantization ops of many domains and spellings, written one way.

QONNX ops come in six domains, with and without an opset import, as `Quant` or `IntQuant`, attributes left
out; all become `qonnx.custom_op.general` with every attribute set. Channels-last ops become the standard op
between transposes. Contrib Q/DQ become the standard ones. Source: QONNX and FINN operator pages.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from planner.errors import ModelError
from planner.ir.graph import Graph, Op, Value
from planner.onnx.naming import unused

QONNX: Final = "qonnx.custom_op.general"
QUANT: Final = f"{QONNX}::Quant"
BIPOLAR: Final = f"{QONNX}::BipolarQuant"
TRUNC: Final = f"{QONNX}::Trunc"
FLOAT_QUANT: Final = f"{QONNX}::FloatQuant"
MULTI_THRESHOLD: Final = f"{QONNX}::MultiThreshold"
ELEMENTWISE: Final = frozenset({QUANT, BIPOLAR, TRUNC, FLOAT_QUANT, MULTI_THRESHOLD})
"""Ops whose result has the shape and element type of their first operand."""

CHANNELS_LAST: Final = "qonnx.custom_op.channels_last"
MICROSOFT: Final = "com.microsoft"
DOMAINS: Final = frozenset({"", "finn", "finn.custom_op.general", "onnx.brevitas", QONNX, CHANNELS_LAST})

_NAMES: Final[Mapping[str, str]] = {
    "BipolarQuant": BIPOLAR,
    "FloatQuant": FLOAT_QUANT,
    "IntQuant": QUANT,
    "MultiThreshold": MULTI_THRESHOLD,
    "Quant": QUANT,
    "Trunc": TRUNC,
}
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    BIPOLAR: {},
    FLOAT_QUANT: {"rounding_mode": "ROUND", "has_inf": 0, "has_nan": 0, "has_subnormal": 0, "saturation": 1},
    MULTI_THRESHOLD: {"out_scale": 1.0, "out_bias": 0.0, "out_dtype": "", "data_layout": ""},
    QUANT: {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"},
    TRUNC: {"signed": 1, "narrow": 0, "rounding_mode": "FLOOR"},
}
_OPERANDS: Final[Mapping[str, tuple[int, ...]]] = {
    BIPOLAR: (2,),
    FLOAT_QUANT: (6,),
    MULTI_THRESHOLD: (2,),
    QUANT: (4,),
    TRUNC: (5, 6),
}
# onnxruntime ends the process at one of these without a zero point, but not where its name is empty.
_TABLES: Final = frozenset({"QLinearLeakyRelu", "QLinearSigmoid"})
_SILENT: Final = frozenset({FLOAT_QUANT, MULTI_THRESHOLD})


def canonical(graph: Graph) -> Graph:
    """Write every quantization op one way; the same graph if there is none of another domain.

    Raises:
      ModelError: an op with too few or too many operands.
    """
    names = {out for op in graph.ops for out in op.outputs} | set(graph.values)
    ops: list[Op] = []
    values, notes = dict(graph.values), list(graph.notes)
    for op in graph.ops:
        domain, _, kind = op.type.rpartition("::")
        if kind in _NAMES and domain in DOMAINS:
            ops.append(_spelled(op, _NAMES[kind], notes))
        elif domain == CHANNELS_LAST and kind in _CHANNELS_LAST_OPERANDS:
            ops += _channels_first(op, kind, values, names)
        elif domain == MICROSOFT and kind in ("QuantizeLinear", "DequantizeLinear"):
            ops.append(replace(op, type=kind))
        elif domain == MICROSOFT and kind in _TABLES and len(op.inputs) == 4:
            ops.append(replace(op, inputs=(*op.inputs, "")))
        else:
            ops.append(op)
    if tuple(ops) == graph.ops:
        return graph
    used = {op.type.rpartition("::")[0] for op in ops}
    opsets = {key: number for key, number in graph.opsets.items() if not key or key in used}
    if QONNX in used:
        opsets[QONNX] = 2 if any(op.type == TRUNC and len(op.inputs) > 5 for op in ops) else 1
    return replace(graph, ops=tuple(ops), values=values, opsets=opsets, notes=tuple(dict.fromkeys(notes)))


def rounding_of(op: Op) -> str:
    """The rounding mode of an op, in capitals."""
    return str(op.attributes["rounding_mode"]).upper()


def _spelled(op: Op, kind: str, notes: list[str]) -> Op:
    allowed = _OPERANDS[kind]
    if len(op.inputs) not in allowed or not all(op.inputs):
        given, wanted = len([name for name in op.inputs if name]), " or ".join(map(str, allowed))
        raise ModelError(
            f"{op.type.rpartition('::')[2]} at {op.name!r} has {given} operands, it takes {wanted}"
        )
    defaults = _DEFAULTS[kind]
    missing = [key for key in ("signed", "narrow", "rounding_mode") if key in defaults]
    absent = [key for key in missing if key not in op.attributes]
    is_five = kind == TRUNC and len(op.inputs) < 6
    if absent and kind not in _SILENT and not (is_five and "rounding_mode" not in absent):
        taken = ", ".join(f"{key} {defaults[key]}" for key in absent)
        notes.append(f"{op.type.rpartition('::')[2]} at {op.name!r} says nothing of: {taken} is taken")
    return replace(op, type=kind, attributes={**defaults, **op.attributes})


def _channels_first(op: Op, kind: str, values: dict[str, Value], names: set[str]) -> list[Op]:
    """The standard op between transposes; of operands those that lie channels last are turned."""
    rank = _rank(op, values)
    first, last = (0, rank - 1, *range(1, rank - 1)), (0, *range(2, rank), 1)
    before, inputs = [], list(op.inputs)
    for i in range(_CHANNELS_LAST_OPERANDS[kind]):
        turned = unused(f"{op.inputs[i]}/channels_first", names)
        old = values.get(op.inputs[i])
        shape = None if old is None or old.shape is None else tuple(old.shape[axis] for axis in first)
        values[turned] = Value(turned, shape, old.dtype if old is not None else "f32")
        turn = Op(
            f"{op.name}/turn_{i}", "Transpose", (op.inputs[i],), (turned,), {"perm": first}, scope=op.scope
        )
        before.append(turn)
        inputs[i] = turned
    result = unused(f"{op.outputs[0]}/channels_first", names)
    values[result] = Value(result, None, "")
    inner = replace(op, type=kind, inputs=tuple(inputs), outputs=(result,))
    back = Op(f"{op.name}/turn_back", "Transpose", (result,), op.outputs[:1], {"perm": last}, scope=op.scope)
    return [*before, inner, back]


def _rank(op: Op, values: Mapping[str, Value]) -> int:
    kernel = op.attributes.get("kernel_shape")
    if kernel is not None:
        return len(kernel) + 2
    shape = values[op.inputs[0]].shape if op.inputs[0] in values else None
    return 4 if shape is None else len(shape)


_CHANNELS_LAST_OPERANDS: Final[Mapping[str, int]] = {"BatchNormalization": 1, "Conv": 2, "MaxPool": 1}
"""Number of leading operands of a channels-last op that lie channels last."""

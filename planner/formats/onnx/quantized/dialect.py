"""Dialect: quantization ops of many domains and spellings, written one way.

QONNX ops come in six domains, with and without an opset import, as `Quant` or `IntQuant`, attributes left
out; all become `qonnx.custom_op.general` with every attribute set. Contrib Q/DQ become the standard ones. An
op that stands for several standard ones stays as it is here (`compound_ops`). Source: QONNX and FINN operator
pages.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from planner.errors import ModelError
from planner.ir.graph import Graph, Op

QONNX: Final = "qonnx.custom_op.general"
QUANT: Final = f"{QONNX}::Quant"
INT_QUANT: Final = f"{QONNX}::IntQuant"
"""`QUANT` as version 2 of the domain spells it, in files only."""
BIPOLAR: Final = f"{QONNX}::BipolarQuant"
TRUNC: Final = f"{QONNX}::Trunc"
FLOAT_QUANT: Final = f"{QONNX}::FloatQuant"
MULTI_THRESHOLD: Final = f"{QONNX}::MultiThreshold"
IM2COL: Final = f"{QONNX}::Im2Col"
MAX_POOL_NHWC: Final = f"{QONNX}::MaxPoolNHWC"
QUANT_AVG_POOL: Final = f"{QONNX}::QuantAvgPool2d"
XNOR_POPCOUNT: Final = f"{QONNX}::XnorPopcountMatMul"
ELEMENTWISE: Final = frozenset({QUANT, BIPOLAR, TRUNC, FLOAT_QUANT, MULTI_THRESHOLD})
"""Ops whose result has the shape and element type of their first operand."""

CHANNELS_LAST: Final = "qonnx.custom_op.channels_last"
MICROSOFT: Final = "com.microsoft"
DOMAINS: Final = frozenset({"", "finn", "finn.custom_op.general", "onnx.brevitas", QONNX, CHANNELS_LAST})

OPERATORS: Final[Mapping[str, str]] = {
    "BipolarQuant": BIPOLAR,
    "FloatQuant": FLOAT_QUANT,
    "Im2Col": IM2COL,
    "IntQuant": QUANT,
    "MaxPoolNHWC": MAX_POOL_NHWC,
    "MultiThreshold": MULTI_THRESHOLD,
    "Quant": QUANT,
    "QuantAvgPool2d": QUANT_AVG_POOL,
    "Trunc": TRUNC,
    "XnorPopcountMatMul": XNOR_POPCOUNT,
}
"""Their spellings in files of any domain."""
_DEFAULTS: Final[Mapping[str, Mapping[str, Any]]] = {
    BIPOLAR: {},
    FLOAT_QUANT: {"rounding_mode": "ROUND", "has_inf": 0, "has_nan": 0, "has_subnormal": 0, "saturation": 1},
    IM2COL: {
        "pad_amount": (0, 0, 0, 0),
        "pad_value": 0,
        "depthwise": 0,
        "dilations": (1, 1),
        "input_shape": "",
    },
    MAX_POOL_NHWC: {"ceil_mode": 0},
    MULTI_THRESHOLD: {"out_scale": 1.0, "out_bias": 0.0, "out_dtype": "", "data_layout": ""},
    QUANT: {"signed": 1, "narrow": 0, "rounding_mode": "ROUND"},
    QUANT_AVG_POOL: {"signed": 0, "data_layout": "NCHW"},
    TRUNC: {"signed": 1, "narrow": 0, "rounding_mode": "FLOOR"},
    XNOR_POPCOUNT: {},
}
_OPERANDS: Final[Mapping[str, tuple[int, ...]]] = {
    BIPOLAR: (2,),
    FLOAT_QUANT: (6,),
    IM2COL: (1,),
    MAX_POOL_NHWC: (1,),
    MULTI_THRESHOLD: (2,),
    QUANT: (4,),
    QUANT_AVG_POOL: (1,),
    TRUNC: (5, 6),
    XNOR_POPCOUNT: (2,),
}
# onnxruntime ends the process at one of these without a zero point, but not where its name is empty.
_TABLES: Final = frozenset({"QLinearLeakyRelu", "QLinearSigmoid"})
_SILENT: Final = frozenset({FLOAT_QUANT, MULTI_THRESHOLD})

CHANNELS_LAST_OPERANDS: Final[Mapping[str, int]] = {
    f"{CHANNELS_LAST}::BatchNormalization": 1,
    f"{CHANNELS_LAST}::Conv": 2,
    f"{CHANNELS_LAST}::MaxPool": 1,
}
"""Number of leading operands of a channels-last op that lie channels last."""


def canonical(graph: Graph) -> Graph:
    """Write every quantization op one way; the same graph if there is none of another domain.

    Raises:
      ModelError: an op with too few or too many operands.
    """
    ops: list[Op] = []
    notes = list(graph.notes)
    for op in graph.ops:
        domain, _, kind = op.type.rpartition("::")
        if kind in OPERATORS and domain in DOMAINS:
            ops.append(_spelled(op, OPERATORS[kind], notes))
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
    return replace(graph, ops=tuple(ops), opsets=opsets, notes=tuple(dict.fromkeys(notes)))


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


@dataclass(frozen=True, slots=True)
class Stored:
    """Operands of an operator on stored integers.

    Attributes:
      scales, zeros: places of the scales and zero points.
      wide: those of them that may be per channel.
      weight: of a product: the place of its second operand, and that of the zero point of it.
    """

    scales: tuple[int, ...]
    zeros: tuple[int, ...]
    wide: tuple[int, ...] = ()
    weight: tuple[int, int] | None = None


_ONE: Final = Stored((1, 3), (2, 4))
_TWO: Final = Stored((1, 4, 6), (2, 5, 7))
STORED: Final[Mapping[str, Stored]] = {
    "QLinearConv": Stored((1, 4, 6), (2, 5, 7), (4, 5), (3, 5)),
    "QLinearMatMul": Stored((1, 4, 6), (2, 5, 7), (4, 5), (3, 5)),
    "ConvInteger": Stored((), (2, 3), (3,), (1, 3)),
    "MatMulInteger": Stored((), (2, 3), (2, 3), (1, 3)),
    f"{MICROSOFT}::MatMulIntegerToFloat": Stored((2, 3), (4, 5), (3, 5), (1, 5)),
    f"{MICROSOFT}::QGemm": Stored((1, 4, 7), (2, 5, 8), (4, 5), (3, 5)),
    f"{MICROSOFT}::QLinearAdd": _TWO,
    f"{MICROSOFT}::QLinearAveragePool": _ONE,
    f"{MICROSOFT}::QLinearGlobalAveragePool": _ONE,
    f"{MICROSOFT}::QLinearLeakyRelu": _ONE,
    f"{MICROSOFT}::QLinearMul": _TWO,
    f"{MICROSOFT}::QLinearSigmoid": _ONE,
    f"{MICROSOFT}::QLinearSoftmax": _ONE,
    f"{MICROSOFT}::QLinearWhere": Stored((2, 5, 7), (3, 6, 8)),
}
"""Those with a number of operands that is known."""
INTEGER_PRODUCTS: Final[Mapping[str, tuple[int, int]]] = {
    kind: one.weight for kind, one in STORED.items() if one.weight is not None
}
"""Operands of an integer product that are its weight, the second factor, and the weight's zero point."""

"""Vocabulary: LiteRT's operators, element types and activations beside ours, for reading and writing files.

Source: TensorFlow Lite's schema, version 3.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from planner.ops import of_form
from planner.ops.forms import Form

Bounds: TypeAlias = tuple[float | None, float | None]

IDENTIFIER: Final = b"TFL3"
"""Bytes 4 to 8 of a file."""

ELEMENTS: Final[Mapping[str, str]] = {
    "bool": "BOOL",
    "f16": "FLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
    "i16": "INT16",
    "i32": "INT32",
    "i4": "INT4",
    "i64": "INT64",
    "i8": "INT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "u64": "UINT64",
    "u8": "UINT8",
}
"""Our element types and the schema's."""

FUSED: Final[Mapping[int, Bounds]] = {1: (0.0, None), 2: (-1.0, 1.0), 3: (0.0, 6.0)}
"""Bounds in reals of the activations that operators have inside: RELU, RELU_N1_TO_1, RELU6."""


@dataclass(frozen=True, slots=True)
class Builtin:
    """The operator that an op is.

    Attributes:
      options: the table of its options.
      fuses: whether it can have an activation inside.
    """

    name: str
    options: str = ""
    fuses: bool = False


BUILTINS: Final[Mapping[str, Builtin]] = {
    "Abs": Builtin("ABS", "AbsOptions"),
    "Add": Builtin("ADD", "AddOptions", fuses=True),
    "And": Builtin("LOGICAL_AND", "LogicalAndOptions"),
    "AveragePool": Builtin("AVERAGE_POOL_2D", "Pool2DOptions", fuses=True),
    "Ceil": Builtin("CEIL"),
    "Conv": Builtin("CONV_2D", "Conv2DOptions", fuses=True),
    "Cos": Builtin("COS", "CosOptions"),
    "Div": Builtin("DIV", "DivOptions", fuses=True),
    "Elu": Builtin("ELU"),
    "Equal": Builtin("EQUAL", "EqualOptions"),
    "Exp": Builtin("EXP", "ExpOptions"),
    "Floor": Builtin("FLOOR"),
    "Gelu": Builtin("GELU", "GeluOptions"),
    "Gemm": Builtin("FULLY_CONNECTED", "FullyConnectedOptions", fuses=True),
    "Greater": Builtin("GREATER", "GreaterOptions"),
    "GreaterOrEqual": Builtin("GREATER_EQUAL", "GreaterEqualOptions"),
    "HardSwish": Builtin("HARD_SWISH", "HardSwishOptions"),
    "LeakyRelu": Builtin("LEAKY_RELU", "LeakyReluOptions"),
    "Less": Builtin("LESS", "LessOptions"),
    "LessOrEqual": Builtin("LESS_EQUAL", "LessEqualOptions"),
    "Log": Builtin("LOG"),
    "LogSoftmax": Builtin("LOG_SOFTMAX", "LogSoftmaxOptions"),
    "LpNormalization": Builtin("L2_NORMALIZATION", "L2NormOptions"),
    "MatMul": Builtin("FULLY_CONNECTED", "FullyConnectedOptions", fuses=True),
    "Max": Builtin("MAXIMUM", "MaximumMinimumOptions"),
    "Min": Builtin("MINIMUM", "MaximumMinimumOptions"),
    "Mul": Builtin("MUL", "MulOptions", fuses=True),
    "Neg": Builtin("NEG", "NegOptions"),
    "Not": Builtin("LOGICAL_NOT", "LogicalNotOptions"),
    "Or": Builtin("LOGICAL_OR", "LogicalOrOptions"),
    "Pow": Builtin("POW", "PowOptions"),
    "ReduceMax": Builtin("REDUCE_MAX", "ReducerOptions"),
    "ReduceMean": Builtin("MEAN", "ReducerOptions"),
    "ReduceMin": Builtin("REDUCE_MIN", "ReducerOptions"),
    "ReduceSum": Builtin("SUM", "ReducerOptions"),
    "Round": Builtin("ROUND"),
    "Sigmoid": Builtin("LOGISTIC"),
    "Sin": Builtin("SIN"),
    "Softmax": Builtin("SOFTMAX", "SoftmaxOptions"),
    "Sqrt": Builtin("SQRT"),
    "Sub": Builtin("SUB", "SubOptions", fuses=True),
    "Tanh": Builtin("TANH"),
}
"""Ops that are one operator, which writing and reading take from here."""
UNARIES: Final = of_form(Form.UNARY) & BUILTINS.keys()
COMPARISONS: Final = of_form(Form.COMPARISON) & BUILTINS.keys()
PAIRS: Final = of_form(Form.BINARY, Form.LOGICAL, Form.PRODUCT, Form.SUM) & BUILTINS.keys()


def read_as(*forms: Form) -> Mapping[str, str]:
    """Ops of some families by the operator that they are."""
    return {BUILTINS[kind].name: kind for kind in sorted(of_form(*forms) & BUILTINS.keys())}

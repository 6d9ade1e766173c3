"""Vocabulary: LiteRT's operators, element types and activations beside ours, for reading and writing files.

Source: TensorFlow Lite's schema, version 3.
"""

from collections.abc import Mapping
from typing import Final, TypeAlias

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

UNARIES: Final[Mapping[str, tuple[str, str]]] = {
    "Abs": ("ABS", "AbsOptions"),
    "Ceil": ("CEIL", ""),
    "Cos": ("COS", "CosOptions"),
    "Elu": ("ELU", ""),
    "Exp": ("EXP", "ExpOptions"),
    "Floor": ("FLOOR", ""),
    "Gelu": ("GELU", "GeluOptions"),
    "HardSwish": ("HARD_SWISH", "HardSwishOptions"),
    "LeakyRelu": ("LEAKY_RELU", "LeakyReluOptions"),
    "Log": ("LOG", ""),
    "Neg": ("NEG", "NegOptions"),
    "Not": ("LOGICAL_NOT", "LogicalNotOptions"),
    "Round": ("ROUND", ""),
    "Sigmoid": ("LOGISTIC", ""),
    "Sin": ("SIN", ""),
    "Sqrt": ("SQRT", ""),
    "Tanh": ("TANH", ""),
}
"""Functions of one number: our op, the operator, the table of its options."""

BINARIES: Final[Mapping[str, str]] = {
    "Add": "ADD",
    "And": "LOGICAL_AND",
    "Div": "DIV",
    "Max": "MAXIMUM",
    "Min": "MINIMUM",
    "Mul": "MUL",
    "Or": "LOGICAL_OR",
    "Pow": "POW",
    "Sub": "SUB",
}
"""Functions of two numbers."""

COMPARISONS: Final[Mapping[str, str]] = {
    "Equal": "EQUAL",
    "Greater": "GREATER",
    "GreaterOrEqual": "GREATER_EQUAL",
    "Less": "LESS",
    "LessOrEqual": "LESS_EQUAL",
}

REDUCTIONS: Final[Mapping[str, str]] = {
    "ReduceMax": "REDUCE_MAX",
    "ReduceMean": "MEAN",
    "ReduceMin": "REDUCE_MIN",
    "ReduceSum": "SUM",
}

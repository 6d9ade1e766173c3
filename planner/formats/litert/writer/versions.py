"""Versions: the least version of an operator for its operands, and the first runtime that has it.

A runtime refuses an operator of a version it does not know. Versions go by the element type of the first
operand (of QUANTIZE: of the result), and in a few operators by rank or options.
Source: TensorFlow Lite, versions of operators and of runtimes (tools/versioning).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from planner.errors import ModelError


@dataclass(frozen=True, slots=True)
class Sight:
    """The properties that the version of an operator depends on.

    Attributes:
      element: of the operand that decides.
      rank: the largest rank among operands.
      broadcasts: whether two operands differ in shape.
      scales: of the operands, then of the result, where they are quantized.
      has_slices: whether an operand has a scale per slice.
      options: the operator's.
    """

    element: str
    rank: int
    broadcasts: bool
    scales: tuple[float, ...]
    options: Mapping[str, Any]
    has_slices: bool = False


def version_of(operator: str, sight: Sight) -> int:
    """The least version of an operator for its operands and options."""
    return max(_by_element(operator, sight.element), _by_form(operator, sight))


def runtime_of(operator: str, version: int) -> tuple[int, ...]:
    """The first runtime that has an operator in a version: (2, 3, 0)."""
    return tuple(int(part) for part in RUNTIMES[operator][version].split("."))


def _by_element(operator: str, element: str) -> int:
    if operator not in RUNTIMES:
        raise ModelError(f"operator {operator} has no known versions")
    plain, byte, word = BY_ELEMENT.get(operator, (1, 1, 1))
    if element == "bool":
        return FOR_BOOL.get(operator, plain)
    return {"i8": byte, "i16": word}.get(element, plain)


def _by_form(operator: str, sight: Sight) -> int:
    options = sight.options
    if operator in ("RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"):
        return 3 if options.get("HalfPixelCenters") or options.get("AlignCorners") else 1
    if sight.element == "hybrid":
        return HYBRID[operator][sight.has_slices]
    if operator == "FULLY_CONNECTED":
        # Before 12 weights have one scale: a runtime that would read no other refuses the file.
        return 12 if sight.has_slices else 5 if options.get("KeepNumDims") else 1
    if operator == "DEPTHWISE_CONV_2D":
        return 2 if {options.get("DilationWFactor", 1), options.get("DilationHFactor", 1)} != {1} else 1
    if operator == "MUL" and sight.element == "i8" and len(sight.scales) == 3:
        return 3 if prod(sight.scales[:2]) / sight.scales[2] >= 1.0 else 1
    if operator == "TRANSPOSE":
        return {5: 4, 6: 6}.get(sight.rank, 8 if sight.rank > 6 else 1)
    if operator in _BY_RANK and sight.rank > 4:
        return _BY_RANK[operator]
    if operator in _BROADCASTS and sight.broadcasts and sight.rank > 4:
        return _BROADCASTS[operator]
    return 1


HYBRID: Final[Mapping[str, tuple[int, int]]] = {
    "CONV_2D": (2, 5),
    "DEPTHWISE_CONV_2D": (4, 6),
    "FULLY_CONNECTED": (3, 12),
}
"""Versions that take floats beside weights in bytes: with one scale, and with one per output channel."""

_BY_RANK: Final = {"PAD": 4, "PADV2": 4, "SLICE": 5, "STRIDED_SLICE": 4}
_BROADCASTS: Final = {"DIV": 2, "MAXIMUM": 3, "MINIMUM": 3, "SUB": 3}

FOR_BOOL: Final[Mapping[str, int]] = {
    "GATHER": 3,
    "GATHER_ND": 5,
    "PAD": 5,
    "STRIDED_SLICE": 3,
    "TRANSPOSE": 3,
}
"""Versions that take booleans, where those of floats do not."""

BY_ELEMENT: Final[Mapping[str, tuple[int, int, int]]] = {
    "ABS": (1, 2, 3),
    "ADD": (1, 2, 3),
    "ARG_MAX": (1, 2, 1),
    "AVERAGE_POOL_2D": (1, 2, 3),
    "BATCH_MATMUL": (1, 2, 3),
    "CONCATENATION": (1, 2, 3),
    "CONV_2D": (1, 3, 4),
    "DEPTHWISE_CONV_2D": (1, 3, 5),
    "DEPTH_TO_SPACE": (1, 2, 1),
    "DEQUANTIZE": (1, 2, 3),
    "EQUAL": (1, 2, 5),
    "EXP": (1, 2, 2),
    "FULLY_CONNECTED": (1, 4, 7),
    "GATHER": (1, 2, 4),
    "GATHER_ND": (1, 1, 3),
    "GELU": (1, 2, 1),
    "GREATER": (1, 2, 1),
    "GREATER_EQUAL": (1, 2, 3),
    "L2_NORMALIZATION": (1, 2, 1),
    "LEAKY_RELU": (1, 1, 2),
    "LESS": (1, 2, 3),
    "LESS_EQUAL": (1, 2, 1),
    "LOGISTIC": (1, 2, 3),
    "LOG_SOFTMAX": (1, 2, 1),
    "MAXIMUM": (1, 2, 4),
    "MAX_POOL_2D": (1, 2, 3),
    "MEAN": (1, 2, 3),
    "MINIMUM": (1, 2, 4),
    "MUL": (1, 2, 4),
    "PAD": (1, 2, 3),
    "PADV2": (1, 2, 3),
    "QUANTIZE": (1, 1, 2),
    "REDUCE_MAX": (1, 2, 3),
    "REDUCE_MIN": (1, 2, 3),
    "RELU": (1, 2, 3),
    "RELU6": (1, 2, 3),
    "RESIZE_BILINEAR": (1, 2, 4),
    "RESIZE_NEAREST_NEIGHBOR": (1, 2, 4),
    "SLICE": (1, 2, 4),
    "SOFTMAX": (1, 2, 3),
    "SPACE_TO_DEPTH": (1, 2, 1),
    "STRIDED_SLICE": (1, 2, 1),
    "SUB": (1, 2, 5),
    "SUM": (1, 2, 1),
    "TANH": (1, 2, 3),
    "TILE": (1, 3, 1),
    "TRANSPOSE": (1, 2, 5),
    "TRANSPOSE_CONV": (3, 3, 3),
}
"""Versions for floats and plain integers, for bytes, for words; 1 for operators that are not listed."""

RUNTIMES: Final[Mapping[str, Mapping[int, str]]] = {
    "ABS": {1: "1.13.0", 2: "2.4.0", 3: "2.5.0"},
    "ADD": {1: "1.5.0", 2: "1.14.0", 3: "2.4.0"},
    "ARG_MAX": {1: "1.9.0", 2: "1.14.0"},
    "AVERAGE_POOL_2D": {1: "1.5.0", 2: "1.14.0", 3: "2.3.0"},
    "BATCH_MATMUL": {1: "2.3.0", 2: "2.3.0", 3: "2.4.0"},
    "CAST": {1: "1.5.0"},
    "CEIL": {1: "1.14.0"},
    "CONCATENATION": {1: "1.5.0", 2: "1.14.0", 3: "2.3.0"},
    "CONV_2D": {1: "1.5.0", 2: "1.14.0", 3: "1.14.0", 4: "2.3.0", 5: "2.4.0", 6: "2.9.0"},
    "COS": {1: "1.14.0"},
    "DEPTHWISE_CONV_2D": {1: "1.5.0", 2: "1.12.0", 3: "1.14.0", 4: "2.2.0", 5: "2.3.0", 6: "2.3.0"},
    "DEPTH_TO_SPACE": {1: "2.1.0", 2: "2.5.0"},
    "DEQUANTIZE": {1: "1.13.1", 2: "1.14.0", 3: "1.15.0"},
    "DIV": {1: "1.6.0", 2: "2.3.0"},
    "DYNAMIC_UPDATE_SLICE": {1: "2.9.0"},
    "ELU": {1: "1.14.0"},
    "EQUAL": {1: "1.14.0", 2: "1.14.0", 5: "2.21.0"},
    "EXP": {1: "1.7.0", 2: "2.12.0"},
    "FLOOR": {1: "1.9.0"},
    "FULLY_CONNECTED": {1: "1.5.0", 3: "1.14.0", 4: "1.14.0", 5: "2.0.0", 7: "2.3.0", 12: "2.17.0"},
    "GATHER": {1: "1.6.0", 2: "1.14.0", 3: "1.15.0", 4: "2.4.0"},
    "GATHER_ND": {1: "1.14.0", 3: "2.5.0", 5: "2.16.0"},
    "GELU": {1: "2.9.0", 2: "2.9.0"},
    "GREATER": {1: "1.14.0", 2: "1.14.0"},
    "GREATER_EQUAL": {1: "1.14.0", 2: "1.14.0", 3: "2.13.0"},
    "HARD_SWISH": {1: "1.15.0"},
    "IF": {1: "1.15.0"},
    "L2_NORMALIZATION": {1: "1.5.0", 2: "1.14.0"},
    "LEAKY_RELU": {1: "1.13.1", 2: "2.3.0"},
    "LESS": {1: "1.14.0", 2: "1.14.0", 3: "2.13.0"},
    "LESS_EQUAL": {1: "1.14.0", 2: "1.14.0"},
    "LOG": {1: "1.14.0"},
    "LOGICAL_AND": {1: "1.11.0"},
    "LOGICAL_NOT": {1: "1.11.0"},
    "LOGICAL_OR": {1: "1.11.0"},
    "LOGISTIC": {1: "1.14.0", 2: "1.14.0", 3: "2.3.0"},
    "LOG_SOFTMAX": {1: "1.14.0", 2: "1.14.0"},
    "MAXIMUM": {1: "1.14.0", 2: "1.14.0", 3: "2.3.0", 4: "2.3.0"},
    "MAX_POOL_2D": {1: "1.5.0", 2: "1.14.0", 3: "2.3.0"},
    "MEAN": {1: "1.6.0", 2: "1.14.0", 3: "2.4.0"},
    "MINIMUM": {1: "1.14.0", 2: "1.14.0", 3: "2.3.0", 4: "2.3.0"},
    "MUL": {1: "1.5.0", 2: "1.14.0", 3: "1.15.0", 4: "2.3.0"},
    "NEG": {1: "1.9.0"},
    "PAD": {1: "1.5.0", 2: "1.14.0", 3: "2.4.0", 4: "2.6.0", 5: "2.20.0"},
    "PADV2": {1: "1.9.0", 2: "1.14.0", 3: "2.4.0", 4: "2.6.0"},
    "POW": {1: "1.10.0"},
    "PRELU": {1: "1.8.0"},
    "QUANTIZE": {1: "1.14.0", 2: "1.15.0"},
    "REDUCE_MAX": {1: "1.11.0", 2: "1.14.0", 3: "2.5.0"},
    "REDUCE_MIN": {1: "1.11.0", 2: "1.14.0", 3: "2.5.0"},
    "RELU": {1: "1.5.0", 2: "2.1.0", 3: "2.5.0"},
    "RELU_N1_TO_1": {1: "1.5.0"},
    "RELU6": {1: "1.5.0", 2: "1.14.0", 3: "2.5.0"},
    "RESHAPE": {1: "1.5.0"},
    "RESIZE_BILINEAR": {1: "1.7.0", 2: "1.14.0", 3: "2.2.0", 4: "2.5.0"},
    "RESIZE_NEAREST_NEIGHBOR": {1: "1.13.1", 2: "1.14.0", 3: "2.3.0", 4: "2.4.0"},
    "REVERSE_V2": {1: "1.14.0"},
    "ROUND": {1: "1.14.0"},
    "SELECT_V2": {1: "2.2.0"},
    "SIN": {1: "1.9.0"},
    "SLICE": {1: "1.14.0", 2: "1.14.0", 4: "2.4.0", 5: "2.5.0"},
    "SOFTMAX": {1: "1.5.0", 2: "1.14.0", 3: "2.3.0"},
    "SPACE_TO_DEPTH": {1: "1.5.0", 2: "1.14.0"},
    "SQRT": {1: "1.10.0"},
    "STRIDED_SLICE": {1: "1.6.0", 2: "1.14.0", 3: "2.1.0", 4: "2.2.0"},
    "SUB": {1: "1.6.0", 2: "1.14.0", 3: "2.3.0", 5: "2.4.0"},
    "SUM": {1: "1.10.0", 2: "1.15.0"},
    "TANH": {1: "1.14.0", 2: "1.14.0", 3: "2.3.0"},
    "TILE": {1: "1.10.1", 3: "2.8.0"},
    "TRANSPOSE": {1: "1.6.0", 2: "1.14.0", 3: "1.15.0", 4: "2.3.0", 5: "2.4.0", 6: "2.12.0", 8: "2.22.0"},
    "TRANSPOSE_CONV": {3: "2.3.0"},
    "UNIDIRECTIONAL_SEQUENCE_LSTM": {1: "1.13.1"},
    "WHILE": {1: "1.15.0"},
}
"""The first runtime that has each operator in each version that is written here."""

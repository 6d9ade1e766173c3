"""Vocabulary: TOSA's operators that are one op of ours each, without attributes; read and written by it.

Source: TOSA 1.0, element-wise operators and activation functions.
"""

from collections.abc import Mapping
from typing import Final

from planner.ops import among
from planner.ops.forms import Form

OPERATORS: Final[Mapping[str, str]] = {
    "Abs": "abs",
    "Add": "add",
    "And": "logical_and",
    "BitwiseAnd": "bitwise_and",
    "BitwiseNot": "bitwise_not",
    "BitwiseOr": "bitwise_or",
    "BitwiseXor": "bitwise_xor",
    "Ceil": "ceil",
    "Cos": "cos",
    "Equal": "equal",
    "Erf": "erf",
    "Exp": "exp",
    "Floor": "floor",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
    "Log": "log",
    "Max": "maximum",
    "Min": "minimum",
    "Not": "logical_not",
    "Or": "logical_or",
    "Pow": "pow",
    "Reciprocal": "reciprocal",
    "Sigmoid": "sigmoid",
    "Sin": "sin",
    "Sub": "sub",
    "Tanh": "tanh",
    "Xor": "logical_xor",
}
"""`mul` has a shift as well, and Less is Greater of its operands the other way round."""


UNARIES: Final = among(OPERATORS, Form.UNARY)
BINARIES: Final = among(OPERATORS, Form.BINARY, Form.LOGICAL, Form.PRODUCT, Form.SUM, Form.VARIADIC)

"""Vocabulary: StableHLO's operations that are one op of ours each, without attributes, read and written.

Source: StableHLO specification, element-wise operations and `compare`.
"""

from collections.abc import Mapping
from typing import Final

from planner.ops import among
from planner.ops.forms import Form

OPERATIONS: Final[Mapping[str, str]] = {
    "Abs": "abs",
    "Add": "add",
    "And": "and",
    "Ceil": "ceil",
    "Cos": "cosine",
    "Div": "divide",
    "Equal": "EQ",
    "Exp": "exponential",
    "Floor": "floor",
    "Greater": "GT",
    "GreaterOrEqual": "GE",
    "Less": "LT",
    "LessOrEqual": "LE",
    "Log": "log",
    "Max": "maximum",
    "Min": "minimum",
    "Mul": "multiply",
    "Neg": "negate",
    "Not": "not",
    "Or": "or",
    "Pow": "power",
    "Round": "round_nearest_even",
    "Sigmoid": "logistic",
    "Sign": "sign",
    "Sin": "sine",
    "Sqrt": "sqrt",
    "Sub": "subtract",
    "Tan": "tan",
    "Tanh": "tanh",
    "Where": "select",
    "Xor": "xor",
}
"""Ops that are one operation, or a direction of `compare`."""

COMPARISONS: Final = among(OPERATIONS, Form.COMPARISON)
LOGIC: Final = among(OPERATIONS, Form.LOGICAL)
BINARIES: Final = among(OPERATIONS, Form.BINARY, Form.PRODUCT, Form.SUM)
VARIADICS: Final = among(OPERATIONS, Form.VARIADIC)
UNARIES: Final = among(OPERATIONS, Form.UNARY)

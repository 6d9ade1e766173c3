"""Attributes of ONNX's standard operators, and their defaults, as definitions have them.

Facts of the standard, read where predicates are evaluated. A test compares with the `onnx` package.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import numpy as np

from planner.ops import defined

NOTHING: Final = object()
"""The default of an attribute that has none."""

REDUCTIONS: Final = (
    "L1",
    "L2",
    "LogSum",
    "LogSumExp",
    "Max",
    "Mean",
    "Min",
    "Prod",
    "Sum",
    "SumSquare",
)
"""Ops called `Reduce...`; their axes are an operand."""


def default_of(op: str, attribute: str) -> Any:
    """The default of an attribute that an op does not carry; NOTHING where it has none."""
    return _attributes(op).get(attribute, NOTHING)


def attribute_names(op: str) -> tuple[str, ...]:
    """Attributes that an op may carry; empty for an op without any, or of another domain."""
    return tuple(_attributes(op))


def as_written(number: float) -> float:
    """A float32 as the shortest decimal that stands for it: an alpha of 0.01 is 0.01, not 0.0099999998."""
    with np.errstate(over="ignore"):
        single = np.float32(number)
    return float(str(single)) if float(single) == number else number


@lru_cache(256)
def _attributes(op: str) -> Mapping[str, Any]:
    words = (word.partition("=") for word in defined(op).attributes.split())
    return {name: _value(text) if has_default else NOTHING for name, has_default, text in words}


def _value(text: str) -> Any:
    if "," in text:
        return [_value(part) for part in text.split(",") if part]
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text

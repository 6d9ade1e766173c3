"""Rounding: the integer below a real and the remainder become one integer, by every mode.

Exact: a real is given as `whole + rest / unit`, so nothing is decided by a rounded fraction. QONNX names are
mapped in `QONNX`; its HALF_UP means away from zero, while `half_up` here is towards plus infinity, as
TOSA's and a shift's. Source: docs/specification.md, section 8; docs/qonnx.md.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import QTypeError

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Between:
    """Reals between an integer and the next one.

    Attributes:
      low: the greatest integers not above them.
      beyond: -1, 0 or 1: below, at, or above the middle.
      is_off: whether they are no integers.
      total: the integers below the whole sum that is rounded: `low`, or with a zero point added.
    """

    low: Array
    beyond: Array
    is_off: Array
    total: Array


def divided(x: Array, unit: Array, zero_point: Array) -> Between:
    """Take `x / unit + zero_point` apart, exactly: the remainder of two doubles is a double.

    Args:
      x: finite doubles.
      unit: positive doubles that broadcast against `x`.
      zero_point: integers, added after rounding but counted where signs and parity decide.

    Source: C fmod; quotients from 2^52 on are doubles, rounded ones.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        rest = np.fmod(x, unit)
        # x - rest is a multiple of the unit, so the division
        # is off by its rounding alone, which rint takes away.
        whole = np.rint((x - rest) / unit)
        is_below = rest < 0
        # Twice the remainder against the unit: exact, where half of the unit may not be.
        beyond = np.sign(2.0 * np.abs(rest) - unit)
    low = whole - is_below
    return Between(low, np.where(is_below, -beyond, beyond), rest != 0, low + zero_point)


def floored(x: Array, zero_point: Array | float = 0.0) -> Between:
    """Take floats apart into integers and fractions, exactly; `zero_point` as in `divided`."""
    whole = np.trunc(x)
    rest = x - whole
    is_below = rest < 0
    beyond = np.sign(2 * np.abs(rest) - 1)
    low = whole - is_below
    return Between(low, np.where(is_below, -beyond, beyond), rest != 0, low + zero_point)


def ratio(numerator: Array, denominator: Array, zero_point: Array) -> Between:
    """Take `numerator / denominator + zero_point` apart; integers in object arrays, denominators positive."""
    low = numerator // denominator
    rest = numerator - low * denominator
    beyond = (2 * rest > denominator).astype(np.int8) - (2 * rest < denominator).astype(np.int8)
    return Between(low, beyond, rest != 0, low + zero_point)


def rounded(between: Between, rounding: str) -> Array:
    """The integer each real is rounded to.

    Raises:
      QTypeError: an unknown name.
    """
    goes_up = ROUNDINGS.get(rounding)
    if goes_up is None:
        raise QTypeError(f"unknown rounding {rounding!r}; known: {', '.join(ROUNDINGS)}")
    return np.asarray(between.low + goes_up(between))


def round_floats(x: Array, rounding: str) -> Array:
    """Floats to integers (as floats); infinities and NaN stay.

    Raises:
      QTypeError: an unknown name.
    """
    if rounding in _ONE_STEP:
        return np.asarray(_ONE_STEP[rounding](x))
    with np.errstate(invalid="ignore"):
        result = rounded(floored(x), rounding)
    return np.where(np.isfinite(x), result, x)


def _half_even(reals: Between) -> Array:
    return np.asarray((reals.beyond > 0) | ((reals.beyond == 0) & (reals.total % 2 == 1)))


def _half_away(reals: Between) -> Array:
    # `low` is a floor, so below zero away from zero means to stay there.
    return np.asarray((reals.beyond > 0) | ((reals.beyond == 0) & (reals.total >= 0)))


def _half_to_zero(reals: Between) -> Array:
    return np.asarray((reals.beyond > 0) | ((reals.beyond == 0) & (reals.total < 0)))


ROUNDINGS: Final[Mapping[str, Callable[[Between], Array]]] = {
    "away": lambda reals: reals.is_off & (reals.total >= 0),
    "ceil": lambda reals: reals.is_off,
    "floor": lambda reals: np.zeros_like(reals.is_off),
    "half_away": _half_away,
    "half_down": lambda reals: reals.beyond > 0,
    "half_even": _half_even,
    "half_to_zero": _half_to_zero,
    "half_up": lambda reals: reals.beyond >= 0,
    "to_zero": lambda reals: reals.is_off & (reals.total < 0),
}
"""Whether a real goes up to the next integer."""

_ONE_STEP: Final[Mapping[str, Callable[[Array], Array]]] = {
    "ceil": np.ceil,
    "floor": np.floor,
    "half_even": np.rint,
    "to_zero": np.trunc,
}

QONNX: Final[Mapping[str, str]] = {
    "CEIL": "ceil",
    "DOWN": "to_zero",
    "FLOOR": "floor",
    "HALF_DOWN": "half_to_zero",
    "HALF_EVEN": "half_even",
    "HALF_UP": "half_away",
    "ROUND": "half_even",
    "ROUND_TO_ZERO": "to_zero",
    "UP": "away",
}
"""QONNX's names of them."""

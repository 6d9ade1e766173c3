"""Multipliers of few bits: a real factor as a signed integer and a shift to the right, as a device has them.

`requantize: {multiplier: 16, rounding: half_up, shift: [1, 46]}` of a target row is a `Multiplier`, and its
text is the arithmetic's name elsewhere. LiteRT's 16-bit products (`litert_16`) have one; TOSA's and TFLite's
of 32 bits are each a `Word`. Numbers only, as in `rescaling`, whose mantissas these are. Source:
docs/specification.md, section 8.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

import numpy as np

from planner.errors import RuleError
from planner.ir.arithmetic.rescaling import (
    BEYOND,
    MAX_SHIFT,
    Array,
    Integers,
    apply_scale_32,
    exact_product,
    mantissa_and_shift,
    multiplier_and_shift,
    multiplier_or_zero,
    within_64_bits,
)

Rounding: TypeAlias = Literal["half_up", "half_away", "half_even", "floor"]
ROUNDINGS: Final[tuple[str, ...]] = get_args(Rounding)
LEAST_BITS: Final = 4
MOST_BITS: Final = 32
_TEXT: Final = re.compile(
    r"(?P<bits>\d+)-bit multiplier(?P<cut> cut from (?P<cut_from>\d+))?, (?P<rounding>\w+), "
    r"shift (?P<least>\d+)\.\.(?P<most>\d+)(?P<flushes>, else 0)?"
)


@dataclass(frozen=True, slots=True)
class Multiplier:
    """A device's multiplier: `round(value * multiplier / 2^shift)`, the product exact.

    Attributes:
      bits: of the signed multiplier, which is below `2^(bits - 1)`; an unsigned one has a bit less here.
      rounding: of the shifted product: half up (towards plus infinity), half away from zero, half to even, or
        `floor`, which cuts.
      shifts: the least and the greatest shift.
      cut_from: bits that the factor is rounded to first, whose upper ones are taken, rounded half up, as
        LiteRT does; 0: none.
      flushes: whether a factor that wants a greater shift becomes 0; else its multiplier gives up bits.
    """

    folds: ClassVar[bool] = False
    bits: int
    rounding: Rounding = "half_up"
    shifts: tuple[int, int] = (2, MAX_SHIFT)
    cut_from: int = 0
    flushes: bool = False

    def __post_init__(self) -> None:
        low, high = self.shifts
        if not LEAST_BITS <= self.bits <= MOST_BITS:
            raise RuleError(f"a multiplier of {self.bits} bits; {LEAST_BITS} to {MOST_BITS} are accepted")
        if not 0 <= low <= high <= MAX_SHIFT:
            raise RuleError(f"shifts of {low} to {high}; two of 0 to {MAX_SHIFT}, the lesser first")
        if self.cut_from and not self.bits < self.cut_from <= MOST_BITS:
            raise RuleError(f"{self.bits} bits cut from {self.cut_from}; more than these, up to {MOST_BITS}")

    def __str__(self) -> str:
        cut = f" cut from {self.cut_from}" if self.cut_from else ""
        flushed = ", else 0" if self.flushes else ""
        low, high = self.shifts
        return f"{self.bits}-bit multiplier{cut}, {self.rounding}, shift {low}..{high}{flushed}"

    @property
    def beyond(self) -> float:
        """The least factor that is too large: `2^(bits - 1)` at the least shift."""
        return 2.0 ** (self.bits - 1 - self.shifts[0])

    @property
    def least(self) -> float:
        """The least factor whose multiplier is not 0."""
        return 2.0 ** (self.bits - 2 - self.shifts[1] if self.flushes else -self.shifts[1])

    def factor(self, scale: float | Array) -> tuple[Integers, Integers]:
        """`scale` as `multiplier / 2^shift`, in its shape.

        frexp, rounded half away from zero to `bits - 1` binary digits.

        Raises:
          RuleError: a scale whose shift would be below the least; one that is not finite.
        """
        digits = self.bits - 1
        mantissa, shift = mantissa_and_shift(scale, (self.cut_from or self.bits) - 1)
        if self.cut_from:
            more = self.cut_from - self.bits
            mantissa = np.minimum((mantissa + (1 << (more - 1))) >> more, (1 << digits) - 1)
            shift = shift - more
        low, high = self.shifts
        # A factor of 0 has the shift of 1, of which nothing is left.
        if np.any((shift < low) & (mantissa != 0)):
            raise RuleError(
                f"a requantize by {float(np.max(scale))!r} needs a shift below {low}, "
                f"multipliers of {self.bits} bits go up to 2^{digits - low}",
                hint="a coarser output scale makes the factor smaller",
            )
        over = np.maximum(shift - high, 0)
        if self.flushes:
            return np.where(over > 0, 0, mantissa), np.where(over > 0, max(digits, low), shift)
        return mantissa >> np.minimum(over, digits), np.clip(shift, low, high)

    def headroom(self, scale: float, wanted: int) -> int:
        """Bits that addends get below their last one: as many as leave `scale` its whole multiplier."""
        _, shift = mantissa_and_shift(scale, self.bits - 1)
        return max(0, min(wanted, self.shifts[1] - int(shift)))

    def apply(self, values: Array, multiplier: Array, shift: Array) -> Integers:
        """`values * multiplier / 2^shift` by arrays that broadcast, rounded once, and cut at 2^62."""
        product, wide = exact_product(values, multiplier), np.asarray(shift, np.int64)
        if product.dtype == object:
            wide = wide.astype(object)
        return within_64_bits(_ROUNDED[self.rounding](product, wide))


def _floor(product: Array, shift: Array) -> Array:
    return np.asarray(product >> shift)


def _half_up(product: Array, shift: Array) -> Array:
    return np.asarray((product + _half(shift)) >> shift)


def _half_away(product: Array, shift: Array) -> Array:
    # Half a divisor less one in front of a floor: a tie below zero goes down.
    return np.asarray((product + _half(shift) - ((product < 0) & (shift > 0))) >> shift)


def _half_even(product: Array, shift: Array) -> Array:
    rounded = _half_up(product, shift)
    is_tie = (product - (rounded << shift)) == -_half(shift)
    return np.asarray(rounded - (is_tie & (shift > 0) & (rounded % 2 == 1)))


def _half(shift: Array) -> Array:
    """Half of 2^shift, 0 where nothing is shifted out."""
    return (shift * 0 + 1 << shift) >> 1


_ROUNDED: Final[Mapping[str, Any]] = {
    "floor": _floor,
    "half_away": _half_away,
    "half_even": _half_even,
    "half_up": _half_up,
}

LITERT_16: Final = Multiplier(16, "half_up", (1, 46), cut_from=32, flushes=True)
"""Of LiteRT's kernels of 16-bit products (12-litert.md)."""


@lru_cache(maxsize=256)
def multiplier_of(arithmetic: str) -> Multiplier | None:
    """The multiplier whose text an arithmetic's name is; None of one with a name of its own."""
    found = _TEXT.fullmatch(arithmetic)
    if found is None or found["rounding"] not in ROUNDINGS:
        return None
    return Multiplier(
        int(found["bits"]),
        found["rounding"],  # type: ignore[arg-type]
        (int(found["least"]), int(found["most"])),
        cut_from=int(found["cut_from"] or 0),
        flushes=found["flushes"] is not None,
    )


@dataclass(frozen=True, slots=True)
class Word:
    """A multiplier of 32 bits, as TOSA's RESCALE and TFLite have it, with a shift of 2 to 62.

    Attributes:
      factor: a scale as a multiplier and a shift.
      rounds_twice: whether a product that is shifted further is rounded at 2^30 first.
      folds: whether addends get bits below their last one by lesser shifts, as in TOSA; else they are shifted
        to the left before.
      beyond: the least factor that is too large; None: rows say no such limit.
    """

    factor: Callable[[float | Array], tuple[Integers, Integers]]
    rounds_twice: bool = True
    folds: bool = False
    beyond: float | None = BEYOND

    def headroom(self, _: float, wanted: int) -> int:
        """Bits that addends get below their last one."""
        return wanted

    def apply(self, values: Array, multiplier: Array, shift: Array) -> Integers:
        """`values * multiplier / 2^shift` by arrays that broadcast, half up."""
        return apply_scale_32(values, multiplier, shift, double_round=self.rounds_twice)


def scaling_of(arithmetic: str) -> Word | Multiplier | None:
    """The multiplier of an arithmetic; None if it has no multiplier and shift."""
    return NAMED.get(arithmetic) or multiplier_of(arithmetic)


def multipliers(scale: float | Array, arithmetic: str) -> tuple[Integers, Integers]:
    """`scale` as `multiplier / 2^shift`, as an arithmetic has it.

    Raises:
      RuleError: an arithmetic that has none; a scale beyond its reach.
    """
    own = scaling_of(arithmetic)
    if own is None:
        raise RuleError(
            f"{arithmetic!r} scales by no multiplier and shift; accepted: {', '.join(NAMED)}, or a "
            "multiplier of one's own"
        )
    return own.factor(scale)


def multiplier(scale: float, arithmetic: str) -> tuple[int, int]:
    """Return `scale` as a multiplier and a shift to the right, as a row's arithmetic has it.

    Args:
      scale: of an integer, to that of the result: `x.scale / y.scale` of a rescale.
      arithmetic: `requantize` of a row (docs/arithmetic.md).

    Raises:
      RuleError: an arithmetic without multipliers; a scale beyond its reach.

    Example:
      >>> planner.multiplier(0.3, "gemmlowp")
      (1288490189, 32)
    """
    found, shift = multipliers(scale, arithmetic)
    return int(found), int(shift)


def beyond_of(arithmetic: str) -> float | None:
    """The least factor that an arithmetic's multipliers do not reach; None where it has none."""
    own = scaling_of(arithmetic)
    return None if own is None else own.beyond


def least_of(arithmetic: str) -> float:
    """The least nonzero factor of an arithmetic's multipliers; 0 where there is no limit."""
    known = multiplier_of(arithmetic)
    return 0.0 if known is None else known.least


NAMED: Final[Mapping[str, Word | Multiplier]] = {
    "gemmlowp": Word(multiplier_or_zero),
    "litert": Word(multiplier_or_zero),
    "litert_16": LITERT_16,
    "power_of_two": Word(multiplier_and_shift, rounds_twice=False, beyond=None),
    "tosa_double": Word(multiplier_and_shift, folds=True),
    "tosa_single": Word(multiplier_and_shift, rounds_twice=False, folds=True),
}
"""Multipliers of the named arithmetics (docs/arithmetic.md)."""

"""Roundings: a row's arithmetic on an accumulator, as integer steps proved equal to it.

The reference interpreter says which stored value each accumulator gets; `thresholds` finds the integers that
give the same for all of them. Source: docs/specification.md, sections 7 and 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.formats.common.thresholds import (
    Integers,
    Steps,
    fit,
    least_arguments,
    steps_of,
)
from planner.interpreter.calls import FLOAT32_EVEN, onto, saturated
from planner.interpreter.fixed_point import ratios
from planner.interpreter.kernels.litert import LITERT
from planner.interpreter.requantize import Array, requantize_float32
from planner.ir.arithmetic.multipliers import multipliers
from planner.ir.arithmetic.rescaling import (
    DOUBLE_ROUND_ABOVE,
    apply_scale_32,
    mean_factor,
    reciprocal_scale,
)
from planner.ir.types.qtypes import Uniform

_SINGLE: Final = frozenset({"tosa_single"})
_DOUBLE: Final = frozenset({"gemmlowp", "tosa_double"})


@dataclass(frozen=True, slots=True, eq=False)
class Rounding:
    """From an integer `v` per channel to the stored values [low, high] of a type.

    Attributes:
      numerators: (C,) reals: one step of v is worth `numerator * factor` of the result's expressed value.
      multiplier: (C,) float32: the same in steps of the result, as onnxruntime rounds it.
      added: (C,) reals added to the expressed value, or none.
      count: what the sum is divided by, of an average.
      divides: the average is TOSA's AVG_POOL2D, `kernels.is_tosa_pool`.
      low, high: ends that the storage range and a fused activation leave.
    """

    y: Uniform
    arithmetic: str
    numerators: Sequence[float]
    factor: float
    multiplier: Array
    low: int
    high: int
    added: Sequence[float] | None = None
    count: int = 1
    divides: bool = False

    @property
    def ratio(self) -> Array:
        """Exact steps of the result that one step of v is worth, (C,) Fractions."""
        return ratios(self.numerators, self.factor, self.y.scale) / self.count

    def spread(self, channels: int) -> "Rounding":
        """The same with a row per channel."""
        if len(self.numerators) == channels:
            return self
        numerators = tuple(self.numerators) * channels
        return replace(self, numerators=numerators, multiplier=self.multiplier.repeat(channels))

    def stored(self, v: Integers) -> Array:
        """Stored values of (C, n) integers."""
        if self.arithmetic == FLOAT32_EVEN:
            whole = requantize_float32(v, self.multiplier[:, None], self.y.zero_point, self.low, self.high)
            return whole.astype(np.int64)
        if self.divides and self.arithmetic == LITERT:
            # The zero point is in the sum that is divided.
            zero = self.y.zero_point
            whole = v + zero * self.count
            away = np.sign(whole) * ((np.abs(whole) + self.count // 2) // self.count)
            return np.clip(saturated(away - zero, self.y).astype(np.int64), self.low, self.high)
        if self.arithmetic == LITERT and self.count > 1:
            factor = mean_factor(float((self.ratio * self.count).flat[0]), self.count)
            steps = saturated(apply_scale_32(v, *factor, double_round=True), self.y)
            return np.clip(steps.astype(np.int64), self.low, self.high)
        if self.divides:
            divided = saturated(apply_scale_32(v, *reciprocal_scale(self.count), double_round=False), self.y)
            return np.clip(divided.astype(np.int64), self.low, self.high)
        terms = [(v, self.ratio[:, None])]
        if self.added is not None:
            more = ratios(self.added, 1.0, self.y.scale)[:, None]
            terms.append((np.ones((), np.int64), more))
        return np.clip(onto(terms, self.y, self.arithmetic).astype(np.int64), self.low, self.high)

    def steps(self, low: Integers, high: Integers) -> Steps | None:
        """Integer steps for accumulators in [low, high], (C,) each; None where 64 bits do not do it."""
        slope = self.ratio.astype(np.float64)
        levels = least_arguments(lambda v: self.stored(v) - self.low, low, high, self.high - self.low)
        own = _own(self)
        return fit(levels, slope, None if own is None else steps_of(levels, *own))


def _own(rounding: Rounding) -> tuple[Integers, Integers, Integers, Integers] | None:
    """The multiplier, offset, shift and sign that the arithmetic itself has, if it is made of these."""
    if rounding.divides or rounding.added is not None or rounding.arithmetic not in _SINGLE | _DOUBLE:
        return None
    ratio = rounding.ratio.astype(np.float64)
    multiplier, shift = multipliers(ratio, rounding.arithmetic)
    # Zero point less least level is added in front of the shift, where it is a whole multiple of the divisor,
    # so the floor does not see it. Half a divisor more makes the floor a rounding half up.
    moved = np.left_shift(np.int64(rounding.y.zero_point - rounding.low), shift)
    offset = np.left_shift(np.int64(1), shift - 1) + moved
    # Beyond that shift the first of two roundings is at 2^30, away from zero: 2^30 with the sign of v.
    is_twice = (shift > DOUBLE_ROUND_ABOVE) & (rounding.arithmetic in _DOUBLE)
    return multiplier, offset, shift, np.where(is_twice, np.int64(1 << 30), np.int64(0))

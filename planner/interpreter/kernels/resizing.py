"""Resizing: linear Resize in whole steps, as TOSA's RESIZE has it, and its kernel on stored integers.

Pixel `i` of a result lies at `(i * d + offset) / n` pixels of the operand; a linear Resize is then a sum of
stored integers times whole weights, which one rescale divides. Source: ONNX Resize; TOSA 1.0, RESIZE.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Final

import numpy as np

from planner.interpreter.calls import Call, onto
from planner.interpreter.fixed_point import ratios
from planner.interpreter.requantize import Array
from planner.ir.graph import Op

ARITHMETICS: Final = frozenset({"gemmlowp", "tosa_double", "tosa_single"})
"""Arithmetics whose rows resize in whole steps; LiteRT's has steps of its own."""
_MOST: Final = 1 << 11
_TIMES: Final = 16
_DEFAULTS: Final = {"antialias": 0, "keep_aspect_ratio_policy": "stretch"}


@dataclass(frozen=True, slots=True)
class Steps:
    """Places along one axis: `(i * d + offset) / n` of `size` pixels, for `i` below `count`."""

    n: int
    d: int
    offset: int
    size: int
    count: int

    @property
    def border(self) -> int:
        """RESIZE's `border`, for the places behind the last pixel."""
        return self.d * (self.count - 1) - (self.size - 1) * self.n + self.offset

    @property
    def fits(self) -> bool:
        """Whether RESIZE takes these numbers."""
        return (
            self.n <= _MOST
            and self.d < _TIMES * self.n
            and -self.n <= self.offset < _TIMES * self.n
            and -_TIMES * self.n <= self.border < self.n
        )


def linear_steps(
    op: Op, sizes: Sequence[int], wanted: Sequence[int], factors: Sequence[float] | None
) -> tuple[Steps, Steps] | None:
    """Return the steps of the two spatial axes of a linear Resize; None where RESIZE has none such.

    Args:
      sizes, wanted: of operand and result, four each.
      factors: the op's own, where it has some.
    """
    attributes = op.attributes
    plain = all(attributes.get(key, default) == default for key, default in _DEFAULTS.items())
    if attributes.get("mode") != "linear" or not plain or "axes" in attributes or len(sizes) != 4:
        return None
    if tuple(sizes[:2]) != tuple(wanted[:2]):
        return None
    mode = attributes.get("coordinate_transformation_mode", "half_pixel")
    found = []
    for axis in (2, 3):
        factor = Fraction(wanted[axis], sizes[axis]) if factors is None else Fraction(factors[axis])
        steps = _steps(mode, sizes[axis], wanted[axis], factor)
        if steps is None or not steps.fits:
            return None
        found.append(steps)
    return found[0], found[1]


def _steps(mode: str, size: int, count: int, factor: Fraction) -> Steps | None:
    if min(size, count) < 1:
        return None
    step, start = 1 / factor, Fraction(0)
    if mode == "align_corners":
        step = Fraction(size - 1, count - 1) if count > 1 else Fraction(0)
    elif mode == "half_pixel" or (mode == "pytorch_half_pixel" and count > 1):
        start = 1 / (2 * factor) - Fraction(1, 2)
    elif mode == "pytorch_half_pixel":
        step = Fraction(0)
    elif mode != "asymmetric":
        return None
    n = lcm(step.denominator, start.denominator)
    if step == 0:  # one place, or one pixel: any step leads to it
        n = max(n, count)
        return Steps(n, 1, int(start * n), size, count)
    return Steps(n, int(step * n), int(start * n), size, count)


def resize(call: Call) -> Array | None:
    """Resize by linear interpolation of stored integers, rescaled once."""
    x, op = call.operand(0), call.op
    if x is None or call.arithmetic not in ARITHMETICS or not x.kind.is_per_tensor or x.stored.ndim != 4:
        return None
    factors = call.other(op.inputs[2]).reshape(-1).tolist() if len(op.inputs) > 2 and op.inputs[2] else None
    if len(op.inputs) > 3 and op.inputs[3]:
        factors, wanted = None, [int(size) for size in call.other(op.inputs[3]).reshape(-1)]
    elif factors is None or len(factors) != 4:
        return None
    else:
        wanted = [
            int(size * np.float32(factor)) for size, factor in zip(x.stored.shape, factors, strict=True)
        ]
    steps = linear_steps(op, x.stored.shape, wanted, factors)
    if steps is None:
        return None
    total = x.shifted()
    for axis, own in zip((2, 3), steps, strict=True):
        total = _between(total, own, axis)
    ratio = ratios((x.kind.scale,), 1.0, call.y.scale) / (steps[0].n * steps[1].n)
    return onto([(total, ratio)], call.y, call.arithmetic)


def _between(integers: Array, steps: Steps, axis: int) -> Array:
    """Sums of two neighbours along an axis, `n` times their mean by distance."""
    places = np.arange(steps.count) * steps.d + steps.offset
    lower = places // steps.n
    shape = [1] * integers.ndim
    shape[axis] = steps.count
    rest = (places - lower * steps.n).reshape(shape)
    sides = [np.take(integers, np.clip(lower + k, 0, steps.size - 1), axis) for k in (0, 1)]
    return np.asarray(sides[0] * (steps.n - rest) + sides[1] * rest)

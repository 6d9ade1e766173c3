"""Scaling: RESCALE with the multipliers and shifts of a row's arithmetic, and the CLAMP behind it.

The results are those of interpreter `fixed_point`. Source: TOSA 1.0, RESCALE, apply_scale_32;
docs/specification.md, section 8.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import RuleError
from planner.formats.tosa.writer.operations import Program, Tensor
from planner.interpreter.fixed_point import HEADROOM, WORD_HEADROOM, is_shift
from planner.ir.arithmetic.multipliers import NAMED, Word, multipliers
from planner.ir.arithmetic.rescaling import apply_scale_32, check_scale_32

Array: TypeAlias = npt.NDArray[Any]

WORDS: Final = {name: one for name, one in NAMED.items() if isinstance(one, Word)}
ARITHMETICS: Final = tuple(WORDS)
"""The arithmetics of rows that RESCALE computes."""

_ROUNDINGS: Final[Mapping[bool, str]] = {
    False: "#tosa.rounding_mode<SINGLE_ROUND>",
    True: "#tosa.rounding_mode<DOUBLE_ROUND>",
}
_UNIT: Final = 1 << 30
_UNIT_SHIFT: Final = 30
_WORD_UNIT: Final = 1 << 14
_WORD_SHIFT: Final = 14


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """The multipliers and shifts of a RESCALE.

    Attributes:
      multipliers, shifts: (1,) or one per channel, the last stored axis.
    """

    multipliers: Array
    shifts: Array
    double_round: bool

    def check(self, low: Array | int, high: Array | int) -> None:
        """Check that values in [low, high], per channel or of all, are below 2^(shift - 1).

        Raises:
          RuleError: they are not.
        """
        for end in (low, high):
            check_scale_32(np.asarray(end), self.multipliers, self.shifts)

    def apply(self, values: Array) -> Array:
        """The results of RESCALE for integers, by one factor for all."""
        return apply_scale_32(values, self.multipliers, self.shifts, double_round=self.double_round)


UNIT: Final = Factor(np.asarray([_UNIT]), np.asarray([_UNIT_SHIFT]), double_round=False)
"""Times one, exactly: what only moves a zero point or changes the width."""


def factor_of(ratio: Array, arithmetic: str) -> Factor:
    """The factor of exact ratios ((C,) Fractions) in an arithmetic of `ARITHMETICS`.

    Raises:
      RuleError: a ratio that the arithmetic cannot multiply by.
    """
    reals = ratio.astype(np.float64)
    if arithmetic == "power_of_two" and not is_shift(ratio):
        raise RuleError(
            f"a requantize by {float(reals.flat[0])!r} is no shift, RESCALE has 31 bits of other factors",
            hint="use scales that are powers of two",
        )
    return Factor(*multipliers(reals, arithmetic), double_round=WORDS[arithmetic].rounds_twice)


def rescale(  # noqa: PLR0917
    program: Program,
    tensor: Tensor,
    factor: Factor,
    zeros: tuple[int, int],
    element: str,
    stem: str,
    *,
    unsigned: tuple[bool, bool] = (False, False),
) -> Tensor:
    """`(tensor - zeros[0]) * factor + zeros[1]`, saturated to an element type.

    RESCALE takes zero points of 8 bits (and 32768 of u16); others are subtracted and added beside it, in i32.

    Args:
      program: to write in.
      tensor: integers; its channels are its last stored axis where the factor has many.
      factor: what to multiply by.
      zeros: zero points of the input and the result.
      element: of the result.
      stem: of its name.
      unsigned: whether input and result hold unsigned integers.

    Raises:
      RuleError: integers of 32 bits that have a zero point, or no sign.
    """
    if "i32" in [item for item, flag in zip((tensor.element, element), unsigned, strict=True) if flag]:
        raise RuleError("unsigned integers of 32 bits", hint="use fewer bits, or a signed type")
    if zeros[0] and not _has_zero_points(tensor.element, is_unsigned=unsigned[0]):
        tensor, zeros = _without_zero_point(program, tensor, zeros[0]), (0, zeros[1])
    if zeros[1] and not _has_zero_points(element, is_unsigned=unsigned[1]):
        whole = rescale(
            program, tensor, factor, (zeros[0], 0), "i32", f"{stem}_i32", unsigned=(unsigned[0], False)
        )
        return _with_zero_point(program, whole, zeros[1], element, stem)
    is_word = tensor.element == "i48"
    channels = len(factor.multipliers)
    operands: list[Tensor | str] = [
        tensor,
        program.constant(factor.multipliers, "i16" if is_word else "i32", "m"),
        program.constant(factor.shifts, "i8", "n"),
        program.number(zeros[0], tensor.element),
        program.number(zeros[1], element),
    ]
    attributes = {
        "scale32": "false" if is_word else "true",
        "rounding_mode": _ROUNDINGS[factor.double_round and not is_word],
        "per_channel": "true" if channels > 1 else "false",
        "input_unsigned": "true" if unsigned[0] else "false",
        "output_unsigned": "true" if unsigned[1] else "false",
    }
    return program.emit("rescale", operands, replace(tensor, element=element), stem, attributes=attributes)


def _has_zero_points(element: str, *, is_unsigned: bool) -> bool:
    return element == "i8" or (element == "i16" and is_unsigned)


def _without_zero_point(program: Program, tensor: Tensor, zero_point: int) -> Tensor:
    """`tensor - zero_point` of 16 bits, in i32."""
    if tensor.element != "i16":
        raise RuleError(
            f"a zero point of {zero_point} with integers of {tensor.element[1:]} bits",
            hint="use a zero point of 0, or 16 bits",
        )
    wide = replace(tensor, element="i32")
    wide = program.emit("cast", [tensor], wide, f"{tensor.name}_i32")
    return program.emit("sub", [wide, _like(program, wide, zero_point)], wide, f"{tensor.name}_less")


def _with_zero_point(program: Program, tensor: Tensor, zero_point: int, element: str, stem: str) -> Tensor:
    """`tensor + zero_point` of an i32, saturated to an element type; cut before, so that the sum fits."""
    least, most = -(1 << (int(element[1:]) - 1)), (1 << (int(element[1:]) - 1)) - 1
    cut = clamp(
        program,
        tensor,
        max(least - zero_point, -(1 << 31)),
        min(most - zero_point, (1 << 31) - 1),
        f"{stem}_cut",
    )
    moved = program.emit("add", [cut, _like(program, cut, zero_point)], cut, f"{stem}_moved")
    if element == "i32":
        return moved
    return program.emit("cast", [moved], replace(moved, element=element), stem)


def _like(program: Program, tensor: Tensor, number: int) -> str:
    """A constant of one number that broadcasts to a tensor."""
    return program.constant(np.full((1,) * len(tensor.shape), number), tensor.element)


def narrowed(program: Program, tensor: Tensor) -> Tensor:
    """A 48-bit accumulator that fits 32 bits, in 32 bits."""
    one = Factor(np.asarray([_WORD_UNIT]), np.asarray([_WORD_SHIFT]), double_round=False)
    return rescale(program, tensor, one, (0, 0), "i32", f"{tensor.name}_i32")


def widened(program: Program, tensor: Tensor, zero_point: int) -> Tensor:
    """`tensor - zero_point` in 32 bits, exactly."""
    return rescale(program, tensor, UNIT, (zero_point, 0), "i32", f"{tensor.name}_i32")


def clamp(program: Program, tensor: Tensor, low: int, high: int, stem: str) -> Tensor:
    """Stored integers cut to [low, high]; the tensor itself where its element type does that.

    CLAMP has no form of 32 bits; MAXIMUM and MINIMUM have.
    """
    bits = int(tensor.element[1:])
    if low <= -(1 << (bits - 1)) and high >= (1 << (bits - 1)) - 1:
        return tensor
    if bits > 16:
        nan = {"nan_mode": "#tosa.nan_mode<PROPAGATE>"}
        tensor = program.emit(
            "maximum", [tensor, _like(program, tensor, low)], tensor, f"{stem}_low", attributes=nan
        )
        return program.emit("minimum", [tensor, _like(program, tensor, high)], tensor, stem, attributes=nan)
    attributes = {
        "min_val": f"{low} : {tensor.element}",
        "max_val": f"{high} : {tensor.element}",
        "nan_mode": "#tosa.nan_mode<PROPAGATE>",
    }
    return program.emit("clamp", [tensor], tensor, stem, attributes=attributes)


@dataclass(frozen=True, slots=True, eq=False)
class Sum:
    """How an arithmetic adds: a factor per term (and a shift to the left before), one for the total."""

    terms: Sequence[Factor]
    left: int
    total: Factor


def sum_of(ratios: Sequence[Array], arithmetic: str, *, is_byte: bool) -> Sum:
    """The factors of an addition of scaled integers, as `fixed_point` has them.

    Args:
      ratios: (1,) Fractions per term.
      arithmetic: of `ARITHMETICS`.
      is_byte: whether the result has 8 bits; otherwise it has 16.

    Raises:
      RuleError: a ratio that the arithmetic cannot multiply by.
    """
    if arithmetic == "power_of_two":
        return _aligned(ratios)
    # Over twice the largest ratio every term is at most one half, so sums do not overflow; the headroom keeps
    # bits below the last one until the total is rounded. The total's factor takes both back.
    headroom = HEADROOM if is_byte else WORD_HEADROOM
    twice = max(abs(ratio[0]) for ratio in ratios) * 2
    factors = [factor_of(ratio / twice, arithmetic) for ratio in ratios]
    total = factor_of(np.asarray([twice / (1 << headroom)], object), arithmetic)
    if not WORDS[arithmetic].folds:
        return Sum(factors, headroom, total)
    return Sum([replace(item, shifts=item.shifts - headroom) for item in factors], 0, total)


def _aligned(ratios: Sequence[Array]) -> Sum:
    """Shifts alone: every term in units of the finest, then one shift to the right."""
    for ratio in ratios:
        factor_of(ratio, "power_of_two")
    exponents = [int(np.frexp(float(ratio[0]))[1]) - 1 for ratio in ratios]
    least = min(0, *exponents)
    up = [np.asarray([_UNIT_SHIFT - (exponent - least)]) for exponent in exponents]
    terms = [Factor(np.asarray([_UNIT]), shift, double_round=False) for shift in up]
    return Sum(terms, 0, Factor(np.asarray([_UNIT]), np.asarray([_UNIT_SHIFT - least]), double_round=False))

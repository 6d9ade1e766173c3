"""Rescaling: a real scale as a multiplier and a shift, and integers times that, as TOSA and TFLite have it.

Numbers only: no types, no zero points, no saturation. Products are exact in 64 bits; wider ones go through
Python's integers. Source: TOSA 1.0, apply_scale_32, apply_scale_16 and reciprocal_scale; TFLite
MultiplyByQuantizedMultiplier; docs/specification.md, section 8.
"""

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.errors import RuleError

Array: TypeAlias = npt.NDArray[Any]
Integers: TypeAlias = npt.NDArray[np.int64]

MAX_SHIFT: Final = 62
MIN_SHIFT: Final = 2
BEYOND: Final = 2.0**29
"""The least scale that no multiplier of 32 bits stands for: 2^31, shifted by `MIN_SHIFT`."""
DOUBLE_ROUND_ABOVE: Final = 31
"""Shifts above this are rounded twice, if at all: first at 2^30, which the other shifts do not reach."""

_WIDE: Final = 1 << 31
_LIMIT: Final = 1 << 62
_VALUE_BITS: Final = 48
_PRODUCT_BITS: Final = 62
"""Of a product to which half of a divisor is added in 64 bits."""


def multiplier_and_shift(scale: float | Array, *, bits: int = 32) -> tuple[Integers, Integers]:
    """`scale` as `multiplier / 2^shift` with shifts of 2 to 62, as TOSA has it.

    frexp, round half away to 2^(bits - 1), fold 2^(bits - 1) back, cap the shift at 62.

    Args:
      scale: finite reals; of a negative one the multiplier is negative, which `check_scale_32` refuses.
      bits: of a signed multiplier, 32 (`scale32`) or 16.

    Returns:
      Multipliers below 2^(bits - 1) and shifts, in the shape of `scale`.

    Raises:
      RuleError: a scale of 2^(bits - 3) or more, whose shift would be below 2; an infinite one.
    """
    multiplier, shift = _mantissa_and_shift(scale, bits - 1)
    # Beyond a shift of 62 the multiplier gives up bits instead; past the last one it is 0.
    beyond = np.maximum(shift - MAX_SHIFT, 0)
    return multiplier >> np.minimum(beyond, bits - 1), np.minimum(shift, MAX_SHIFT)


def multiplier_or_zero(scale: float | Array) -> tuple[Integers, Integers]:
    """`scale` as a 32-bit multiplier and a shift, as TFLite has it: scales below 2^-32 become 0.

    Raises:
      RuleError: a scale of 2^29 or more; an infinite one.
    """
    multiplier, shift = _mantissa_and_shift(scale, 31)
    # Here TFLite's QuantizeMultiplier and TOSA differ: one flushes to 0, the other shortens the multiplier.
    is_tiny = shift > MAX_SHIFT
    return np.where(is_tiny, 0, multiplier), np.where(is_tiny, 31, shift)


def mean_factor(scale: float, count: int) -> tuple[Integers, Integers]:
    """`scale / count` as a multiplier and a shift, as LiteRT's MEAN has it.

    The multiplier of the scale, as many times 2 as the count's bits allow, over the count, cut.
    """
    multiplier, shift = multiplier_or_zero(scale)
    left = min(count.bit_length() - 1, 32, MAX_SHIFT - int(shift))
    return np.asarray((int(multiplier) << left) // count), np.asarray(int(shift) + left)


def reciprocal_scale(counts: int | Array) -> tuple[Integers, Integers]:
    """The factor by which TOSA's AVG_POOL2D divides a sum of `counts` elements, for `apply_scale_32`.

    A little more than `1 / counts`, so that a tie is rounded away from zero on both sides.

    Args:
      counts: 1 to 2^31, one number or an array.
    """
    numbers = np.asarray(counts, np.int64)
    # frexp's exponent is the number of bits, exact below 2^53.
    power = np.frexp((numbers - 1).astype(np.float64))[1].astype(np.int64)
    return (((1 << 30) + 1) << power) // numbers, 30 + power


def apply_scale_32(values: Array, multiplier: Array, shift: Array, *, double_round: bool) -> Integers:
    """`values * multiplier / 2^shift`, rounded half up, by arrays that broadcast.

    Args:
      values: integers; `check_scale_32` says which ones TOSA takes, here any do.
      multiplier: below 2^31.
      shift: of 1 to 62.
      double_round: for shifts above 31, round first at 2^30, away from zero: gemmlowp's doubling high
        multiply, then its shift.
    """
    wide = np.asarray(shift, np.int64)
    # Half of 2^shift, added before an arithmetic shift (a floor): rounds half up, for negative values too.
    offset = np.left_shift(1, wide - 1)
    if double_round:
        # The first rounding, at 2^30, is symmetric: its sign is that of the value (TOSA 1.0, apply_scale_32).
        first = np.where(np.asarray(values) >= 0, 1 << 30, -(1 << 30))
        offset = offset + np.where(wide > DOUBLE_ROUND_ABOVE, first, 0)
    return _shifted_product(values, multiplier, wide, offset)


def apply_scale_16(values: Array, multiplier: Array, shift: Array) -> Integers:
    """`values * multiplier / 2^shift` for values of 48 bits and multipliers below 2^15, rounded half up.

    Raises:
      RuleError: a requirement of TOSA that does not hold: a value beyond 48 bits, or a result beyond 32.
    """
    _check_factors(multiplier, shift, 16)
    _check_between(values, -(1 << 47), (1 << 47) - 1, f"apply_scale_16 takes {_VALUE_BITS} bits")
    wide = np.asarray(shift, np.int64)
    result = (np.asarray(values, np.int64) * np.asarray(multiplier, np.int64) + (1 << (wide - 1))) >> wide
    _check_between(result, -_WIDE, _WIDE - 1, "apply_scale_16 gives 32 bits")
    return np.asarray(result)


def check_scale_32(values: Array, multiplier: Array, shift: Array) -> None:
    """Check that TOSA's apply_scale_32 may be used: `-2^(shift - 1) <= value < 2^(shift - 1)`, by broadcast.

    Raises:
      RuleError: a value too large for its shift, a shift outside 2 to 62, a multiplier outside 31 bits.
    """
    _check_factors(multiplier, shift, 32)
    limit = np.left_shift(1, np.asarray(shift, np.int64) - 1)
    is_off = (np.asarray(values) < -limit) | (np.asarray(values) >= limit)
    if np.any(is_off):
        value, bound = (np.broadcast_to(part, is_off.shape)[is_off].flat[0] for part in (values, limit))
        raise RuleError(
            f"apply_scale_32 of {value} with a shift of {int(bound).bit_length()} takes values below "
            f"2^(shift - 1) = {bound}",
            hint="a coarser output scale makes the factor smaller and the shift larger",
        )


def _check_factors(multiplier: Array, shift: Array, bits: int) -> None:
    _check_between(shift, MIN_SHIFT, MAX_SHIFT, "a shift")
    _check_between(multiplier, 0, (1 << (bits - 1)) - 1, f"a multiplier of {bits} bits")


def _check_between(numbers: Array, low: int, high: int, what: str) -> None:
    found = np.asarray(numbers)
    off = found[(found < low) | (found > high)]
    if off.size:
        raise RuleError(f"{what}: {off.flat[0]} is not in {low} to {high}")


def mantissa_and_shift(scale: float | Array, digits: int) -> tuple[Integers, Integers]:
    """`scale` as `mantissa / 2^shift` with a mantissa of so many binary digits, rounded half away from zero.

    Raises:
      RuleError: a scale that is not finite.
    """
    real = np.asarray(scale, np.float64)
    if not np.all(np.isfinite(real)):
        raise RuleError(f"a requantize by {scale} has no integer multiplier: scales are finite")
    fraction, exponent = np.frexp(real)
    # floor(x + 0.5) as std::round does for positive x;
    # np.rint would round ties to even and lose bit equality.
    mantissa = np.floor(np.ldexp(fraction, digits) + 0.5).astype(np.int64)
    # A fraction just below 1 rounds up to 2^digits, one bit too long: halve it and shift one less.
    is_full = mantissa == 1 << digits
    return np.where(is_full, mantissa >> 1, mantissa), digits - exponent.astype(np.int64) - is_full


def _mantissa_and_shift(scale: float | Array, digits: int) -> tuple[Integers, Integers]:
    mantissa, shift = mantissa_and_shift(scale, digits)
    if np.any(shift < MIN_SHIFT):
        raise RuleError(
            f"a requantize by {float(np.max(scale))!r} needs a shift below {MIN_SHIFT}, "
            f"integer multipliers go up to 2^{digits - MIN_SHIFT}",
            hint="a coarser output scale makes the factor smaller",
        )
    return mantissa, shift


def _shifted_product(values: Array, multiplier: Array, shift: Array, offset: Array) -> Integers:
    product = exact_product(values, multiplier)
    if product.dtype != object:
        return np.asarray((product + offset) >> shift)
    return within_64_bits((product + np.asarray(offset).astype(object)) >> np.asarray(shift).astype(object))


def exact_product(values: Array, multiplier: Array) -> Array:
    """`values * multiplier`, int64 where that leaves room for half a divisor, else Python's integers."""
    numbers = np.asarray(values)
    # 31 bits of multiplier times 32 of value is 63 with the sign: more does not fit int64.
    most = int(np.max(np.abs(multiplier), initial=0)).bit_length()
    limit = 1 << (_PRODUCT_BITS - max(most, 1))
    is_wide = numbers.size > 0 and max(-int(numbers.min()), int(numbers.max())) >= limit
    if not is_wide:
        return np.asarray(numbers.astype(np.int64) * np.asarray(multiplier, np.int64))
    return np.asarray(numbers.astype(object) * np.asarray(multiplier).astype(object))


def within_64_bits(numbers: Array) -> Integers:
    """Integers of any size as int64, cut at 2^62."""
    return np.asarray(np.clip(numbers, -_LIMIT, _LIMIT) if numbers.dtype == object else numbers, np.int64)

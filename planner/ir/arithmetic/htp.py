"""HTP: the integer steps of Qualcomm's HTP library, over numpy's arrays or torch's tensors.

Functions take the namespace, `numpy` or `torch`, of the arrays given; integers are int64, ratios float64.
Source: measured on the library; `interpreter.kernels.htp` says on what.
"""

from collections.abc import Sequence
from typing import Any, Final

LARGEST_PRODUCT: Final = {8: 2.0**5, 16: 2.0**-5}
"""Of the ratio of a product of two tensors: the library was measured below."""
_LARGEST_RATIO: Final = 2.0**20
"""Beyond it every step of an operand saturates the result."""
_KEPT: Final = 4
"""Binary digits of a step that sums keep at least."""


def mantissa_and_exponent(xp: Any, numbers: Any) -> tuple[Any, Any]:
    """A mantissa in [1/2, 1) and the exponent of 2, of positive float64 numbers, from their bits.

    As frexp, of whose exponents torch's inductor writes C++ that no compiler takes (PyTorch 2.13, AVX-512).
    """
    exponent = (numbers.view(xp.int64) >> 52) - 1022
    return xp.ldexp(numbers, -exponent), exponent


def scaled(xp: Any, total: Any, ratio: Any, *, whole: bool) -> Any:
    """Steps of sums times 15 digits where they are kept whole, else of cut sums times 11; half up."""
    mantissa, exponent = mantissa_and_exponent(xp, ratio)
    width = 15 if whole else 11
    digits = xp.asarray(xp.floor(mantissa * (1 << width) + 0.5), dtype=xp.int64)
    cut = xp.zeros_like(exponent) if whole else (1 - _KEPT - exponent).clip(0)
    product, shift = (total >> cut) * digits, width - exponent - cut
    half = xp.where(shift > 0, _power(xp, (shift - 1).clip(0)), 0)
    return ((product << (-shift).clip(0)) + half) >> shift.clip(0)


def added(
    xp: Any, integers: Sequence[Any], ratios: Any, zeros: Sequence[int], *, is_byte: bool, is_sum: bool
) -> Any:
    """Steps from zero of a sum or difference, of integers less their zero points; both have their signs."""
    ratios = ratios.clip(max=_LARGEST_RATIO)
    # Sums of bytes must not leave their register; words are multiplied one by one.
    reach = ratios.sum() if is_byte and is_sum else ratios.max()
    most, lost, half = (15, 8, 128) if is_byte else (16, 1, 0)
    shift = (most - 1 - mantissa_and_exponent(xp, reach)[1]).clip(1, most)
    factors = xp.asarray(xp.floor(xp.ldexp(ratios, shift) + 0.5), dtype=xp.int64)
    moved = sum(zero * factor for zero, factor in zip(zeros, factors, strict=True))
    total = sum(number * factor for number, factor in zip(integers, factors, strict=True))
    return (total + moved - (((moved + half) >> lost) << lost) + _power(xp, shift - 1)) >> shift


def multiplied(xp: Any, products: Any, ratio: Any, zeros: Sequence[int], bits: int) -> Any:
    """Steps from zero of products of integers less their zero points, counted from their middle."""
    most, digits, kept = (255, 15, 7) if bits == 8 else (65535, 31, 3)
    middle, half = (most - 2 * zeros[0]) * (most - 2 * zeros[1]), 1 << (digits - 1)
    moved = -((middle + 256) >> 9 << 8) if bits == 8 else -(middle >> 1)

    def parts(shift: Any) -> tuple[Any, Any]:
        factor = xp.asarray(xp.round(xp.ldexp(ratio, shift)), dtype=xp.int64)
        return factor, ((2 * zeros[2] + 1) * _power(xp, shift - 1) - moved * factor + half) >> digits

    shift = (digits - mantissa_and_exponent(xp, ratio)[1]).clip(max=digits + kept)
    # The constant of the zero points and the half has one digit fewer where it would leave its register.
    for _ in range(kept):
        constant = parts(shift)[1]
        is_large = (shift > digits) & ((constant < -(1 << digits)) | (constant >= 1 << digits))
        shift = xp.where(is_large, shift - 1, shift)
    factor, constant = parts(shift)
    total, more = (products + moved) * factor, (digits - shift).clip(0)
    near = ((total + (constant << digits)) >> shift) - zeros[2]
    return xp.where(
        shift > digits,
        near,
        (((total + half) >> digits) << more) - (((moved * factor + half) >> digits) << more),
    )


def _power(xp: Any, exponent: Any) -> Any:
    return xp.ones_like(exponent) << exponent

"""Arithmetic: how a device brings exact integers onto a grid, in torch's integers, without gradients.

The same functions as `interpreter.fixed_point`, `interpreter.requantize` and `interpreter.kernels.htp`, which
work on numpy arrays and exact fractions: forward gives their numbers, and a test compares. A ratio is a
float64: products of two float32 scales are exact there, so their quotient is rounded once. Source:
docs/specification.md, section 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import torch
from torch import Tensor

from planner.interpreter.fixed_point import HEADROOM, WORD_HEADROOM

Term: TypeAlias = tuple[Tensor, Tensor]
"""Integers as int64, and the float64 ratio of their step to the result's."""
FOLDED: Final = frozenset({"tosa_double", "tosa_single"})
SHIFTED: Final = frozenset({"gemmlowp", "litert"})
SINGLE: Final = frozenset({"tosa_single"})
EVEN: Final = frozenset({"exact_even", "float32_spec", "float32_qdq"})
_DIGITS: Final = 31
_MOST_SHIFT: Final = 62
HTP_STRIDED: Final = "htp_strided"
"""`htp` of a depthwise convolution of stride 2."""
_HTP_DIGITS: Final = 10
_HTP_STRIDED_DIGITS: Final = 15
_HTP_KEPT: Final = 4
_LARGEST_RATIO: Final = 2.0**20
_FRACTION: Final = 52
_BIAS: Final = 1022


@dataclass(frozen=True, slots=True)
class Result:
    """The grid that integers are brought onto.

    Attributes:
      bits: of its storage.
      zero_point: stored; only `htp` adds it before it rounds.
    """

    bits: int
    zero_point: int


def knows(arithmetic: str, terms: int = 1) -> bool:
    """Whether sums of so many terms are computed here as the interpreter does."""
    if terms > 1:
        return arithmetic in FOLDED | SHIFTED | {"htp"}
    return arithmetic in FOLDED | SHIFTED | EVEN | {"float32_even", "htp", HTP_STRIDED, "power_of_two"}


def scaled_mean(total: Tensor, ratio: Tensor, count: int, arithmetic: str, result: Result) -> Tensor:
    """Whole steps of a mean: a total, the ratio of its step, and how many numbers it has."""
    if arithmetic not in SHIFTED:
        return scaled_sum([(total, ratio / count)], arithmetic, result)
    # LiteRT's MEAN has the count in its multiplier, cut.
    multiplier, shift = _multiplier(ratio)
    left = (_MOST_SHIFT - shift).clamp(max=min(count.bit_length() - 1, 32))
    return _applied(total, (multiplier << left) // count, shift + left, double=True).double()


def scaled_sum(
    terms: Sequence[Term], arithmetic: str, result: Result, zero_points: Sequence[int] = ()
) -> Tensor:
    """Whole steps from real zero of a sum of scaled integers, float64, not saturated.

    Args:
      zero_points: of the terms, where there are several; only `htp` rounds their part.
    """
    if len(terms) > 1 and arithmetic == "htp":
        return _htp_added(terms, zero_points, is_byte=result.bits <= 8)
    if len(terms) > 1:
        return _added(terms, arithmetic, HEADROOM if result.bits <= 8 else WORD_HEADROOM)
    integers, ratio = terms[0]
    if arithmetic in FOLDED | SHIFTED:
        multiplier, shift = _multiplier(ratio)
        return _applied(integers, multiplier, shift, double=arithmetic not in SINGLE).double()
    if arithmetic == "float32_even":
        return torch.round(integers.float() * ratio.float()).double()
    if arithmetic in {"htp", HTP_STRIDED}:
        return _htp(integers, ratio.float(), result.zero_point, whole=arithmetic == HTP_STRIDED)
    exact = integers.double() * ratio
    return torch.floor(exact + 0.5) if arithmetic == "power_of_two" else torch.round(exact)


def _mantissa_and_exponent(ratio: Tensor) -> tuple[Tensor, Tensor]:
    """A mantissa in [1/2, 1) and the exponent of 2, of positive numbers, from the bits of float64.

    As `torch.frexp`, of whose exponents inductor writes C++ that no compiler takes (PyTorch 2.13, AVX-512).
    """
    bits = ratio.detach().double().view(torch.int64)
    exponent = (bits >> _FRACTION) - _BIAS
    return torch.ldexp(ratio.double(), -exponent), exponent


def _multiplier(ratio: Tensor) -> tuple[Tensor, Tensor]:
    """A ratio as a multiplier of 31 bits and a shift; what no shift reaches gives bits up."""
    fraction, exponent = _mantissa_and_exponent(ratio)
    multiplier = torch.floor(fraction * (1 << _DIGITS) + 0.5).long()
    is_full = multiplier == 1 << _DIGITS
    shift = _DIGITS - exponent - is_full.long()
    multiplier = torch.where(is_full, multiplier >> 1, multiplier)
    beyond = (shift - _MOST_SHIFT).clamp(0, _DIGITS)
    return multiplier >> beyond, shift.clamp(1, _MOST_SHIFT)


def _applied(integers: Tensor, multiplier: Tensor, shift: Tensor, *, double: bool) -> Tensor:
    """`integers * multiplier / 2^shift`, half up; twice rounded above a shift of 31, as gemmlowp does."""
    offset = torch.ones_like(shift) << (shift - 1)
    if double:
        first = torch.where(integers >= 0, 1 << 30, -(1 << 30))
        offset = offset + torch.where(shift > _DIGITS, first, 0)
    return (integers * multiplier + offset) >> shift


def _added(terms: Sequence[Term], arithmetic: str, headroom: int) -> Tensor:
    """Terms with headroom below their last bit, then their sum: TOSA folds the shift, TFLite shifts."""
    twice = torch.stack([ratio.max() for _, ratio in terms]).max() * 2
    double = arithmetic not in SINGLE
    total = torch.zeros((), dtype=torch.long, device=twice.device)
    for integers, ratio in terms:
        multiplier, shift = _multiplier(ratio / twice)
        if arithmetic in FOLDED:
            total = total + _applied(integers, multiplier, (shift - headroom).clamp(1), double=double)
        else:
            total = total + _applied(integers << headroom, multiplier, shift, double=double)
    return _applied(total, *_multiplier(twice / (1 << headroom)), double=double).double()


def _htp_added(terms: Sequence[Term], zero_points: Sequence[int], *, is_byte: bool) -> Tensor:
    """Qualcomm's: multipliers of one shift, the zero points' part rounded (`interpreter.kernels.htp`)."""
    ratios = torch.stack([ratio.double().reshape(()) for _, ratio in terms]).clamp(max=_LARGEST_RATIO)
    most, lost, half = (15, 8, 128) if is_byte else (16, 1, 0)
    reach = ratios.sum() if is_byte else ratios.max()
    shift = (most - 1 - _mantissa_and_exponent(reach)[1]).clamp(1, most)
    factors = torch.floor(torch.ldexp(ratios, shift) + 0.5).long()
    total = sum(
        (integers * factor for (integers, _), factor in zip(terms, factors, strict=True)),
        start=factors[0] * 0,
    )
    zeros = (factors * torch.tensor(zero_points, device=factors.device)).sum()
    total = total + zeros - (((zeros + half) >> lost) << lost)
    return ((total + (torch.ones_like(shift) << (shift - 1))) >> shift).double()


def _htp(integers: Tensor, factor: Tensor, zero_point: int, *, whole: bool) -> Tensor:
    """Qualcomm's: 11 bits of multiplier, the zero point in the sum, its last bits cut; 15 for a whole sum."""
    zero = torch.full((), float(zero_point), device=factor.device) / factor
    total = integers + torch.floor(zero.double() + 0.5).long()
    mantissa, exponent = _mantissa_and_exponent(factor)
    width = _HTP_STRIDED_DIGITS if whole else _HTP_DIGITS + 1
    digits = torch.floor(mantissa * (1 << width) + 0.5).long()
    cut = torch.zeros_like(exponent) if whole else (1 - _HTP_KEPT - exponent).clamp(0)
    product, shift = (total >> cut) * digits, -(exponent - width + cut)
    right, left = shift.clamp(0), (-shift).clamp(0)
    half = torch.where(shift > 0, torch.ones_like(shift) << (shift - 1).clamp(0), 0)
    return (((product << left) + half) >> right).double() - zero_point

"""Arithmetic: how a device brings exact integers onto a grid, in torch's integers, without gradients.

The same functions as `interpreter.fixed_point`, `interpreter.requantize` and `interpreter.kernels.htp`, which
work on numpy arrays and exact fractions: forward gives their numbers, and a test compares. A ratio is a
float64: products of two float32 scales are exact there, so their quotient is rounded once. Source:
docs/specification.md, section 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from planner.interpreter.fixed_point import HEADROOM, WORD_HEADROOM
from planner.ir.types.storages import Storage

FOLDED: Final = frozenset({"tosa_double", "tosa_single"})
SHIFTED: Final = frozenset({"gemmlowp", "litert"})
SINGLE: Final = frozenset({"tosa_single"})
EXACT: Final = frozenset({"exact_even", "power_of_two"})
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
      zero_point: stored; `htp`, and products in float32, add it before they round.
      signed: whether the storage is.
    """

    bits: int
    zero_point: int
    signed: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """Integers, and the float64 ratio of their step to the result's.

    Attributes:
      factors: int64, or float64 in an exact arithmetic, less their zero points; one, or two that are
        multiplied.
      zero_points: of the stored operands; only `htp` rounds their part.
      single: of two factors, the ratio with each step in float32.
    """

    factors: tuple[Tensor, ...]
    ratio: Tensor
    sign: int = 1
    zero_points: tuple[int, ...] = ()
    single: Tensor | None = None

    @property
    def integers(self) -> Tensor:
        """The product with its sign."""
        found = self.factors[0]
        for factor in self.factors[1:]:
            found = found * factor
        return -found if self.sign < 0 else found


def knows(arithmetic: str, terms: int = 1, product_of: Sequence[Storage] = ()) -> bool:
    """Whether sums of so many terms are computed here as the interpreter does.

    Args:
      product_of: storages of the operands and the result, where the term is a product of two tensors.
    """
    if arithmetic in FOLDED | SHIFTED | EXACT:
        return True
    if product_of:
        names, is_bytes = {store.name for store in product_of}, all(store.bits <= 8 for store in product_of)
        of_one_sign = is_bytes and len({store.signed for store in product_of}) == 1
        if arithmetic == "htp":
            return names in ({"u8"}, {"u16"}) or (of_one_sign and product_of[0].signed)
        return arithmetic == "float32_even" and of_one_sign
    return arithmetic == "htp" if terms > 1 else arithmetic in EVEN | {"float32_even", "htp", HTP_STRIDED}


def scaled_mean(total: Term, count: int, arithmetic: str, result: Result) -> Tensor:
    """Whole steps of a mean: a total, and how many numbers it has."""
    if arithmetic not in SHIFTED:
        return scaled_sum([replace(total, ratio=total.ratio / count)], arithmetic, result)
    # LiteRT's MEAN has the count in its multiplier, cut.
    multiplier, shift = _multiplier(total.ratio)
    left = (_MOST_SHIFT - shift).clamp(max=min(count.bit_length() - 1, 32))
    return _applied(total.integers, (multiplier << left) // count, shift + left, double=True).double()


def scaled_sum(terms: Sequence[Term], arithmetic: str, result: Result) -> Tensor:
    """Whole steps from real zero of a sum of scaled integers, float64, not saturated."""
    first = terms[0]
    if len(terms) > 1 and arithmetic == "htp":
        return _htp_added(terms, is_byte=result.bits <= 8)
    if len(terms) > 1 and arithmetic in FOLDED | SHIFTED:
        return _added(terms, arithmetic, HEADROOM if result.bits <= 8 else WORD_HEADROOM)
    if len(first.factors) > 1 and arithmetic in {"float32_even", "htp"}:
        multiplied = _float_multiplied(first, result)
        return _htp_multiplied(first, result, multiplied) if arithmetic == "htp" else multiplied
    integers, ratio = first.integers, first.ratio
    if arithmetic in FOLDED | SHIFTED:
        multiplier, shift = _multiplier(ratio)
        return _applied(integers, multiplier, shift, double=arithmetic not in SINGLE).double()
    if arithmetic == "float32_even":
        return torch.round(integers.float() * ratio.float()).double()
    if arithmetic in {"htp", HTP_STRIDED}:
        return _htp(integers, ratio.float(), result.zero_point, whole=arithmetic == HTP_STRIDED)
    exact = integers.double() * ratio
    for term in terms[1:]:
        exact = exact + term.integers.double() * term.ratio
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
    twice = torch.stack([term.ratio.max() for term in terms]).max() * 2
    double = arithmetic not in SINGLE
    total = torch.zeros((), dtype=torch.long, device=twice.device)
    for term in terms:
        integers, (multiplier, shift) = term.integers, _multiplier(term.ratio / twice)
        if arithmetic in FOLDED:
            total = total + _applied(integers, multiplier, (shift - headroom).clamp(1), double=double)
        else:
            total = total + _applied(integers << headroom, multiplier, shift, double=double)
    return _applied(total, *_multiplier(twice / (1 << headroom)), double=double).double()


def _htp_added(terms: Sequence[Term], *, is_byte: bool) -> Tensor:
    """Qualcomm's: multipliers of one shift, the zero points' part rounded (`interpreter.kernels.htp`)."""
    ratios = torch.stack([term.ratio.double().reshape(()) for term in terms]).clamp(max=_LARGEST_RATIO)
    most, lost, half = (15, 8, 128) if is_byte else (16, 1, 0)
    signs = [term.sign for term in terms]
    reach = ratios.sum() if is_byte and min(signs) > 0 else ratios.max()
    shift = (most - 1 - _mantissa_and_exponent(reach)[1]).clamp(1, most)
    factors = torch.floor(torch.ldexp(ratios, shift) + 0.5).long()
    total = sum(
        (term.integers * factor for term, factor in zip(terms, factors, strict=True)), start=factors[0] * 0
    )
    moved = [sign * term.zero_points[0] for sign, term in zip(signs, terms, strict=True)]
    zeros = (factors * torch.tensor(moved, device=factors.device)).sum()
    total = total + zeros - (((zeros + half) >> lost) << lost)
    return ((total + (torch.ones_like(shift) << (shift - 1))) >> shift).double()


def _float_multiplied(term: Term, result: Result) -> Tensor:
    """QLinearMul's: a float32 product, and the zero point before the one rounding."""
    reals = term.integers.float() * _single(term) + float(result.zero_point)
    return torch.round(reals).double() - result.zero_point


def _htp_multiplied(term: Term, result: Result, otherwise: Tensor) -> Tensor:
    """Qualcomm's: products from the middle of their reach, the rest one constant of few digits.

    Args:
      otherwise: what the library computes of a single byte, of bytes with a sign, and of large ratios.
    """
    is_byte = result.bits <= 8
    if is_byte and (result.signed or 1 in {factor.numel() for factor in term.factors}):
        return otherwise
    most, digits, kept, largest = (255, 15, 7, 2.0**5) if is_byte else (65535, 31, 3, 2.0**-5)
    a, b = ((most - 2 * zero) for zero in term.zero_points)
    moved = -((a * b + 256) >> 9 << 8) if is_byte else -(a * b >> 1)
    # Beyond the largest ratio these numbers are not used.
    ratio = _single(term).double().clamp(max=largest)
    shift = (digits - _mantissa_and_exponent(ratio)[1]).clamp(max=digits + kept)

    def constant(shift: Tensor) -> Tensor:
        whole = (torch.full_like(shift, 2 * result.zero_point + 1) << (shift - 1)) - moved * factor_at(shift)
        return (whole + (1 << (digits - 1))) >> digits

    def factor_at(shift: Tensor) -> Tensor:
        return torch.round(torch.ldexp(ratio, shift)).long()

    for _ in range(kept):
        found = constant(shift)
        is_large = (shift > digits) & ((found < -(1 << digits)) | (found >= 1 << digits))
        shift = torch.where(is_large, shift - 1, shift)
    factor, half = factor_at(shift), 1 << (digits - 1)
    products = (term.integers + moved) * factor
    near = ((products + (constant(shift) << digits)) >> shift) - result.zero_point
    more = (digits - shift).clamp(0)
    far = (((products + half) >> digits) << more) - (((moved * factor + half) >> digits) << more)
    steps = torch.where(shift > digits, near, far).double()
    return torch.where(_single(term) < largest, steps, otherwise)


def _single(term: Term) -> Tensor:
    return (term.ratio.float() if term.single is None else term.single).reshape(())


def _htp(integers: Tensor, factor: Tensor, zero_point: int, *, whole: bool) -> Tensor:
    """Qualcomm's: the zero point in the sum; 11 bits of multiplier and a cut sum, or 15 and a whole one."""
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

"""Arithmetic: how a device brings exact integers onto a grid, in torch's integers, without gradients.

The same functions as `interpreter.fixed_point` and `interpreter.requantize`, which work on numpy arrays and
exact fractions: forward gives their numbers, and a test compares. `htp` is one for both. A ratio is a
float64: products of two float32 scales are exact there, so their quotient is rounded once. Source:
docs/specification.md, section 8.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import torch
from torch import Tensor

from planner.interpreter.fixed_point import HEADROOM, WORD_HEADROOM
from planner.ir.arithmetic import htp
from planner.ir.arithmetic.htp import mantissa_and_exponent
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


def _multiplier(ratio: Tensor) -> tuple[Tensor, Tensor]:
    """A ratio as a multiplier of 31 bits and a shift; what no shift reaches gives bits up."""
    fraction, exponent = mantissa_and_exponent(torch, ratio.detach().double())
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
    """Qualcomm's sum of two tensors."""
    ratios = torch.stack([term.ratio.detach().double().reshape(()) for term in terms])
    moved = [term.sign * term.zero_points[0] for term in terms]
    is_sum = min(term.sign for term in terms) > 0
    integers = [term.integers for term in terms]
    return torch.Tensor.double(htp.added(torch, integers, ratios, moved, is_byte=is_byte, is_sum=is_sum))


def _float_multiplied(term: Term, result: Result) -> Tensor:
    """QLinearMul's: a float32 product, and the zero point before the one rounding."""
    reals = term.integers.float() * _single(term) + float(result.zero_point)
    return torch.round(reals).double() - result.zero_point


def _htp_multiplied(term: Term, result: Result, otherwise: Tensor) -> Tensor:
    """Qualcomm's product of two tensors.

    Args:
      otherwise: what the library computes of a single byte, of bytes with a sign, and of large ratios.
    """
    is_byte, ratio = result.bits <= 8, _single(term)
    if is_byte and (result.signed or 1 in {factor.numel() for factor in term.factors}):
        return otherwise
    bits = 8 if is_byte else 16
    largest = htp.LARGEST_PRODUCT[bits]
    # Beyond the largest ratio these numbers are not used.
    known = ratio.detach().double().clamp(max=largest)
    zeros = (*term.zero_points, result.zero_point)
    steps = htp.multiplied(torch, term.integers, known, zeros, bits).double()
    return torch.where(ratio < largest, steps, otherwise)


def _single(term: Term) -> Tensor:
    return (term.ratio.float() if term.single is None else term.single).reshape(())


def _htp(integers: Tensor, factor: Tensor, zero_point: int, *, whole: bool) -> Tensor:
    """Qualcomm's sums of products: the zero point in the sum."""
    zero = torch.full((), float(zero_point), device=factor.device) / factor
    total = integers + torch.floor((zero if whole else zero.double()) + 0.5).long()
    steps = htp.scaled(torch, total, factor.detach().double(), whole=whole)
    return torch.Tensor.double(steps) - zero_point

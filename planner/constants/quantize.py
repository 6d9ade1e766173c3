"""Quantize: an array of reals onto a Uniform, and back. Per tensor, per axis and per block.

By default ONNX QuantizeLinear in float32, `saturate(rint(x / scale) + zero_point)`; storages above 16 bits
(biases) divide in float64. Other arithmetics: `ARITHMETICS`, or an `Arithmetic` with any rounding. Work goes
piece by piece (`pieces`). Source: ONNX QuantizeLinear; docs/specification.md, section 8.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from planner.constants.pieces import PIECE, Params, params_of, pieces
from planner.constants.rounding import ROUNDINGS, divided, floored, round_floats, rounded
from planner.errors import QTypeError
from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.scales import FORMATS
from planner.ir.types.storages import MAX_BITS

Array: TypeAlias = npt.NDArray[Any]

_DIGITS: Final = 53
_FLOAT_DIGITS: Final = 24
_SHORT: Final = 50

_DTYPES: Final = {
    (signed, bits): np.dtype(f"{'i' if signed else 'u'}{next(n for n in (1, 2, 4, 8) if bits <= 8 * n)}")
    for signed in (False, True)
    for bits in range(1, MAX_BITS + 1)
}
_FLOATS: Final[Mapping[str, np.dtype[Any]]] = {
    "f4E2M1FN": np.dtype(ml_dtypes.float4_e2m1fn),
    "f6E3M2FN": np.dtype(ml_dtypes.float6_e3m2fn),
    "f8E4M3FN": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8E5M2": np.dtype(ml_dtypes.float8_e5m2),
}


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Arithmetic that turns a real into a stored integer.

    Attributes:
      is_exact: one rounding of the exact quotient; otherwise the quotient is a float32 (a float64 above 16
        bits of storage) first.
      offset_first: the zero point is added before rounding (StableHLO, QONNX), so parity and sign of the sum
        decide ties; otherwise after it (ONNX).
      rounding: a key of `rounding.ROUNDINGS`.
    """

    is_exact: bool = False
    offset_first: bool = False
    rounding: str = "half_even"

    def __post_init__(self) -> None:
        if self.rounding not in ROUNDINGS:
            raise QTypeError(f"unknown rounding {self.rounding!r}; known: {', '.join(ROUNDINGS)}")


ARITHMETICS: Final[Mapping[str, Arithmetic]] = {
    "exact_even": Arithmetic(is_exact=True, offset_first=True),
    "float32_even": Arithmetic(),
    "float32_spec": Arithmetic(offset_first=True),
}
"""The arithmetics of docs/specification.md, section 8, that have reals on one side."""
FLOAT32_EVEN: Final = ARITHMETICS["float32_even"]


def stored_dtype(store: Storage) -> np.dtype[Any]:
    """The numpy integer type that holds a storage: the least of 8, 16, 32 and 64 bits, of its sign.

    Raises:
      QTypeError: a float storage, which has no integers.
    """
    if store.float_name:
        raise QTypeError(f"storage {store} holds floats; integer storages are i1..i64 and u1..u64")
    return _DTYPES[store.signed, store.bits]


def array_dtype(store: Storage) -> np.dtype[Any]:
    """The numpy type that holds a storage: `stored_dtype`, or the float of a float storage."""
    return _FLOATS[store.float_name] if store.float_name else stored_dtype(store)


def quantize_array(array: Array, type: Uniform, arithmetic: Arithmetic = FLOAT32_EVEN) -> Array:  # noqa: A002
    """Stored values of reals: `clip(rint(array / scale) + zero_point, qmin, qmax)`, half to even.

    NaN becomes qmin. A float storage holds the nearest of its values, half to even.

    Args:
      array: reals of any float type and shape.
      type: per tensor, per axis or per block; its slices must fit the shape.
      arithmetic: ONNX's in float32 by default.

    Returns:
      Shape of `array`, dtype `array_dtype(type.storage)`.

    Raises:
      QTypeError: slices that do not fit the shape, or a float storage in another arithmetic.
    """
    digits = _DIGITS if array.dtype.itemsize > 4 else _FLOAT_DIGITS
    return quantize_reals(array, type, arithmetic, digits=digits)


def quantize_reals(
    array: Array,
    type: Uniform,  # noqa: A002
    arithmetic: Arithmetic,
    *,
    digits: int,
) -> Array:
    """`quantize_array` for reals of at most so many significant bits: the fewer, the sooner it is exact."""
    store = type.storage
    if store.float_name and arithmetic != FLOAT32_EVEN:
        raise QTypeError(f"storage {store} rounds to the nearest float; {arithmetic} is for integer storages")
    work = np.dtype(np.float32 if store.bits <= 16 and not arithmetic.is_exact else np.float64)
    is_short = digits <= _SHORT and FORMATS[type.expressed].digits <= _FLOAT_DIGITS >= store.bits
    source = np.ascontiguousarray(array)
    result = np.empty(array.shape, array_dtype(store))
    buffer = np.empty(min(source.size, PIECE), work)
    with np.errstate(over="ignore", invalid="ignore"):
        for part, target, params in pieces(source, result, type, params_of(type, work)):
            quotient = buffer[: part.size].reshape(part.shape)
            if not arithmetic.is_exact:
                _rounded(part, params, arithmetic, quotient, is_float=bool(store.float_name))
            elif is_short:
                _short(part, params, arithmetic, quotient)
            else:
                _exact(part, params, arithmetic, quotient)
            _saturate(quotient, params)
            np.copyto(target, quotient, casting="unsafe")
    return result


def dequantize_array(
    stored: Array,
    type: Uniform,  # noqa: A002
    dtype: npt.DTypeLike = np.float32,
) -> Array:
    """Reals of stored values: `float32(stored - zero_point) * scale`, as ONNX DequantizeLinear.

    Args:
      stored: stored values of any shape.
      type: per tensor, per axis or per block; its slices must fit the shape.
      dtype: of the reals; float64 computes in float64, everything else in float32.

    Raises:
      QTypeError: slices that do not fit the shape.
    """
    wanted = np.dtype(dtype)
    work = np.dtype(np.float64 if wanted == np.float64 else np.float32)
    source = np.ascontiguousarray(stored)
    result = np.empty(stored.shape, work)
    # Differences of up to 17 bits are floats; longer ones are taken in integers, then rounded once.
    shift = work if type.storage.bits <= 16 else np.dtype(np.int64)
    known = params_of(type, work if type.storage.bits <= 16 else np.float64)
    with np.errstate(over="ignore"):  # the ends of a range next to float32's own are infinite, as in engines
        for part, target, params in pieces(source, result, type, known):
            shifted = part
            if params.zero_points is not None:
                shifted = part.astype(shift) - params.zero_points.astype(shift, copy=False)
            np.multiply(shifted.astype(work, copy=False), params.scales.astype(work, copy=False), out=target)
    return result.astype(wanted, copy=False)


def _rounded(
    source: Array, params: Params, arithmetic: Arithmetic, quotient: Array, *, is_float: bool
) -> None:
    """Into `quotient`: the quotient in its own float type, with the zero point, rounded."""
    source = _known(source, quotient)
    np.divide(source, params.scales, out=quotient, dtype=quotient.dtype, casting="same_kind")
    if arithmetic.offset_first and params.zero_points is not None:
        np.add(quotient, params.zero_points, out=quotient)
    if arithmetic.rounding == "half_even":
        if not is_float:
            np.rint(quotient, out=quotient)
    else:
        quotient[...] = round_floats(quotient, arithmetic.rounding)
    if not arithmetic.offset_first and params.zero_points is not None:
        np.add(quotient, params.zero_points, out=quotient)


def _known(source: Array, quotient: Array) -> Array:
    """The reals as floats numpy itself knows: bfloat16 and the 8-bit ones are not."""
    return source.astype(quotient.dtype) if source.dtype.kind == "V" else source


def _short(source: Array, params: Params, arithmetic: Arithmetic, quotient: Array) -> None:
    """Quantize exactly by a double, which suffices where no quotient of few digits is near to a tie.

    For reals of up to 50 significant bits, scales and storages of up to 24, `quotient - n/2` is 0 or at least
    2^-25, or 2^-50 of the quotient; a double is off by less than 2^-52 of it.
    """
    np.divide(_known(source, quotient), params.scales, out=quotient)
    zero = params.zero_points
    shift = 0.0 if zero is None or not arithmetic.offset_first else zero
    if arithmetic.rounding == "half_even":
        _to_even(quotient, shift)
    else:
        found = rounded(floored(quotient, shift), arithmetic.rounding)
        np.copyto(quotient, found, where=np.isfinite(quotient))
    if zero is not None:
        np.add(quotient, zero, out=quotient)


def _to_even(quotient: Array, shift: Array | float) -> None:
    """Round in place so that the sum with `shift`, integers, is even at ties."""
    nearest = np.rint(quotient)
    # Even is the sum with the zero point: beside an odd one the tie goes to the odd neighbour instead.
    is_odd = np.asarray(shift) % 2 == 1
    if np.any(is_odd):
        beside = quotient - nearest
        np.add(nearest, 2 * beside, out=nearest, where=(np.abs(beside) == 0.5) & is_odd)
    np.copyto(quotient, nearest)


def _exact(source: Array, params: Params, arithmetic: Arithmetic, quotient: Array) -> None:
    """Into `quotient`: the exact quotient with the zero point, rounded once; not finite ones stay."""
    reals = source.astype(np.float64)
    zero = np.zeros(()) if params.zero_points is None else params.zero_points
    # A rounded quotient may fall on a tie that the exact one misses; the remainder of fmod is exact.
    between = divided(reals, params.scales, zero if arithmetic.offset_first else np.zeros(()))
    found = rounded(between, arithmetic.rounding) + zero
    quotient[...] = np.where(np.isfinite(reals), found, reals)


def _saturate(quotient: Array, params: Params) -> None:
    if params.low.ndim == 0:
        flat = quotient.reshape(-1)
        # The reductions themselves: two thirds of the time of clipping, and NaN fails both.
        if np.minimum.reduce(flat) >= params.low and np.maximum.reduce(flat) <= params.high:
            return
    # fmax, not maximum: NaN becomes qmin.
    np.fmax(quotient, params.low, out=quotient)
    np.minimum(quotient, params.high, out=quotient)

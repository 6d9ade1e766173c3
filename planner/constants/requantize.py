"""Requantize: stored values of one type as stored values of another, for any two granularities.

`real = (stored - zero point) * scale` of the source, then onto the target, in one of `ARITHMETICS` or an
`Arithmetic` with any rounding. Exact where it says so: in doubles while these hold the reals, otherwise in
ratios of Python's integers. Source: docs/specification.md, section 8.
"""

from fractions import Fraction
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.constants.quantize import (
    FLOAT32_EVEN,
    Arithmetic,
    array_dtype,
    dequantize_array,
    quantize_array,
    quantize_reals,
)
from planner.constants.rounding import ratio, rounded
from planner.errors import QTypeError
from planner.ir.types.qtypes import Uniform
from planner.ir.types.scales import FORMATS

Array: TypeAlias = npt.NDArray[Any]

_DIGITS: Final = 53
_TABLE_BITS: Final = 16


def requantize_array(
    stored: Array, source: Uniform, target: Uniform, arithmetic: Arithmetic = FLOAT32_EVEN
) -> Array:
    """Stored values of `source` as those of `target`.

    Args:
      stored: stored values of any shape.
      source: their type; its slices must fit the shape.
      target: the required type; so must its.
      arithmetic: DequantizeLinear, then QuantizeLinear in float32 by default; an exact one rounds once.

    Returns:
      Shape of `stored`, dtype `array_dtype(target.storage)`.

    Raises:
      QTypeError: slices that do not fit the shape, or a float storage in an exact arithmetic.
    """
    if not arithmetic.is_exact:
        return quantize_array(dequantize_array(stored, source), target, arithmetic)
    if source.storage.float_name or target.storage.float_name:
        raise QTypeError(f"{source.storage} onto {target.storage}: exact arithmetic is for integer storages")
    if _has_table(stored, source, target):
        every = np.arange(source.storage.qmin, source.storage.qmax + 1)
        return np.take(
            _exact(every, source, target, arithmetic), stored.astype(np.int64) - source.storage.qmin
        )
    return _exact(stored, source, target, arithmetic)


def _has_table(stored: Array, source: Uniform, target: Uniform) -> bool:
    """Whether one table over all stored values is less work than the array, and serves it."""
    store = source.storage
    return (
        source.is_per_tensor
        and target.is_per_tensor
        and store.bits <= _TABLE_BITS
        and store.steps < stored.size
        and int(stored.min()) >= store.qmin
        and int(stored.max()) <= store.qmax
    )


def _exact(stored: Array, source: Uniform, target: Uniform, arithmetic: Arithmetic) -> Array:
    # A difference (one bit more) times a scale has the digits of both: exact in a double up to 53.
    digits = source.storage.bits + 1 + FORMATS[source.expressed].digits
    if digits <= _DIGITS:
        reals = dequantize_array(stored, source, np.float64)
        return quantize_reals(reals, target, arithmetic, digits=digits)
    return _in_integers(stored, source, target, arithmetic)


def _in_integers(stored: Array, source: Uniform, target: Uniform, arithmetic: Arithmetic) -> Array:
    """Requantize in Python's integers, of any size: some hundred times slower."""
    shape = stored.shape
    scales = [Fraction(scale) for scale in source.scales], [Fraction(scale) for scale in target.scales]
    up = along([scale.numerator for scale in scales[0]], source, shape)
    down = along([scale.denominator for scale in scales[0]], source, shape)
    factor = along([scale.denominator for scale in scales[1]], target, shape)
    divisor = along([scale.numerator for scale in scales[1]], target, shape)
    zero = along(target.zero_points, target, shape)
    # (q - z) * up/down over divisor/factor, as one ratio of integers: it rounds once.
    moved = stored.astype(object) - along(source.zero_points, source, shape)
    between = ratio(moved * up * factor, down * divisor, zero if arithmetic.offset_first else zero * 0)
    found = rounded(between, arithmetic.rounding) + zero
    low = along([qmin for qmin, _ in target.slice_ranges], target, shape)
    high = along([qmax for _, qmax in target.slice_ranges], target, shape)
    result: Array = np.minimum(np.maximum(found, low), high).astype(array_dtype(target.storage))
    return result


def along(values: Any, kind: Uniform, shape: tuple[int, ...]) -> Array:
    """One Python integer per slice, as an object array that broadcasts against a tensor of this type.

    Raises:
      QTypeError: slices that do not fit the shape.
    """
    array = np.empty(len(values), object)
    array[:] = list(values)
    if kind.is_per_tensor:
        return array.reshape(())
    if kind.axis is not None:
        if kind.axis >= len(shape) or shape[kind.axis] != len(values):
            raise QTypeError(f"{len(values)} slices along axis {kind.axis} do not fit the shape {shape}")
        return array.reshape([-1 if axis == kind.axis else 1 for axis in range(len(shape))])
    sizes = dict(kind.blocks)
    if kind.grid != tuple(-(-dim // sizes.get(axis, max(1, dim))) for axis, dim in enumerate(shape)):
        raise QTypeError(f"blocks {sizes} and a grid of {kind.grid} scales do not fit the shape {shape}")
    array = array.reshape(kind.grid)
    for axis, dim in enumerate(shape):
        array = np.repeat(array, sizes.get(axis, dim), axis).take(range(dim), axis)
    return array

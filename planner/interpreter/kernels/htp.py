"""HTP: how Qualcomm's HTP library brings sums of products, of two tensors, and rows onto the result's grid.

The multiplier has 11 significant bits. The zero point of the result is a part of the sum, and bits of the sum
that are worth less than 1/16 to 1/8 of a step are cut off before the product. Of 16-bit activations the sum
is kept in multiples of 256: products of the stored integers, the bias with the result's zero point, and the
zero point of x each lose their 8 lower bits. A depthwise convolution of stride 2 has a kernel of its own: the
whole sum, times 15 bits. Additions have one sum of both operands times multipliers of a
common shift, whose part of zero points is rounded to multiples of 256, or of 2. Products of two tensors are
counted from the middle of their reach, times a multiplier of 15 or 31 bits; the rest is one constant of few
binary digits. A normalized row of bytes has its mean in 64ths of a step and a multiplier in parts of 2^-16,
both cut; the multiplier is of a float32 inverse root, a guess from the bits and two steps of Newton's; the
bias is whole steps. Source: measured on the library in `onnxruntime-qnn` (QNN 2.51); `qplan target probe`
compares (docs/arithmetic.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from planner.constants.quantize import stored_dtype
from planner.interpreter.calls import Operand, grid_of, saturated
from planner.interpreter.requantize import Array
from planner.ir.arithmetic import htp as arithmetic
from planner.ir.arithmetic.htp import LARGEST_PRODUCT, scaled
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.ops.geometry.windows import conv_geometry

_STRIDED_SIDES: Final = range(3, 8)
"""Of a kernel, along each of its two axes, that such a convolution has its own arithmetic for."""
_MISREAD: Final = (5, 5)
"""Sides of such a kernel of words whose padding the library misreads,"""
_MISREAD_PADS: Final = ((1, 1), (2, 2))
"""on top and on the left,"""
_MISREAD_ROW: Final = 3
"""under this row of weights."""
_LEAST_STRIDED: Final = 2.0**-16
"""The ratio that 15 bits and a shift of 30 express: with less in one channel the layer is as others."""
_BIAS_BITS: Final = 28
"""That the largest bias of a layer is counted in."""
_WORD: Final = 8
"""Bits that sums of 16-bit activations lose."""
_MEAN_BITS: Final = 6
"""Of the mean of a normalization, behind the point."""
_NORM_BITS: Final = 16
"""Of the multiplier of a normalized row, behind the point."""
_MAGIC: Final = 0x5F3759DF
"""From which half of a float32's bits are taken for a first guess at its inverse root."""
_LARGEST_FACTOR: Final = np.float32(2.0**31)
"""Rows of one number need none; the library was measured below 2^16."""


@dataclass(frozen=True, slots=True, eq=False)
class Sums:
    """Sums of products by output channel.

    Attributes:
      total: exact, of integers less their zero points, with the bias.
      bias: of each sum, 0 without one.
      taps: the sum of the weights, less their zero points, that each sum multiplies.
    """

    total: Array
    bias: Array
    taps: Array


@dataclass(frozen=True, slots=True, eq=False)
class Steps:
    """Sizes of a step of the sums, float32.

    Attributes:
      unit: of the channel with the largest scale of weights.
      ratio: of each sum, in steps of the result.
    """

    unit: np.float32
    ratio: Array


def onto_grid(sums: Sums, step: Steps, x: Uniform, y: Uniform) -> Array:
    """Return sums of products on the grid of `y`.

    Args:
      sums: whose parts broadcast with the ratios.
      step: of the sums.
      x: type of the activations.
      y: of the result.
    """
    factor = step.ratio
    constant = _with_zero(sums.bias, step, y)
    lost = _WORD if x.storage.bits > 8 else 0
    if lost:
        corrections = sums.taps.astype(np.int64) * x.zero_point
        total = (sums.total - sums.bias + corrections) >> lost
        total = total + (constant >> lost) - ((corrections + (1 << (lost - 1))) >> lost)
    else:
        total = sums.total - sums.bias + constant
    steps = scaled(np, total, factor.astype(np.float64) * 2.0**lost, whole=False)
    grid = grid_of(y)
    return np.asarray(np.clip(steps, grid.qmin, grid.qmax).astype(stored_dtype(y.storage)))


def is_strided_depthwise(op: Op, weight: Sequence[int], least: float) -> bool:
    """Whether a convolution is a depthwise one of stride 2, as the library tells them.

    Args:
      op: any operator.
      weight: the shape of its weights.
      least: the smallest ratio of its channels.
    """
    strides = tuple(op.attributes.get("strides", ()))
    if op.type != "Conv" or strides != (2, 2) or least < _LEAST_STRIDED:
        return False
    channels, inside, *sides = weight
    is_depthwise = inside == 1 and op.attributes.get("group", 1) == channels > 1
    return is_depthwise and all(side in _STRIDED_SIDES for side in sides)


def misread_padding(op: Op, x: Operand, weight: Operand, places: Sequence[int]) -> Array:
    """Return what misread padding adds to the sums of a strided depthwise convolution, by channel and place.

    In words, the library reads the upper byte of the zero point twice in every second row of results.

    Args:
      op: the convolution.
      x: activations.
      weight: with a zero point of 0.
      places: sizes of the result along its two axes.
    """
    found = np.zeros((len(weight.stored), *places), np.int64)
    geometry = conv_geometry(op.attributes, x.stored.shape[2:], weight.stored.shape[2:]).filled(2)
    corner = geometry.pads[:2]
    if x.kind.storage.bits > 8 and weight.stored.shape[2:] == _MISREAD and corner in _MISREAD_PADS:
        upper, lower = divmod(x.kind.zero_point, 1 << 8)
        row = weight.stored[:, 0, _MISREAD_ROW, : corner[1]].astype(np.int64).sum(axis=1)
        found[:, 1::2, 0] = (upper - lower) * row[:, None]
    return found


def strided_onto_grid(sums: Sums, step: Steps, y: Uniform) -> Array:
    """Return sums of a depthwise convolution of stride 2 on the grid of `y`.

    Args:
      sums: whose total broadcasts with the ratios; its parts are not read.
      step: of the sums.
      y: of the result.
    """
    # In float32: from 2^23 on the half makes odd numbers even.
    zero = np.floor(np.float32(y.zero_point) / step.ratio + np.float32(0.5))
    total = sums.total + zero.astype(np.int64)
    steps = scaled(np, total, step.ratio.astype(np.float64), whole=True)
    grid = grid_of(y)
    return np.asarray(np.clip(steps, grid.qmin, grid.qmax).astype(stored_dtype(y.storage)))


def steps_of(x: float, weights: Array, y: float) -> Steps:
    """Return the steps of sums, by way of the largest scale of the weights.

    Args:
      x: the scale of the activations, and what the sum is multiplied with.
      weights: scales, of any shape.
      y: the scale of the result.
    """
    scales = np.asarray(weights, np.float32)
    largest = scales.max()
    unit = np.float32(x) * largest
    return Steps(unit, np.asarray(unit / np.float32(y) * (scales / largest)))


def _with_zero(bias: Array, step: Steps, y: Uniform) -> Array:
    """The bias, in 28 bits of the layer's largest, with the zero point of the result; ties away from zero.

    Each operation is one of float32.
    """
    reals = bias.astype(np.float32) * step.unit
    largest = np.abs(reals).max(initial=0)
    if largest > 0:
        part = np.float32(largest / np.float32(2**_BIAS_BITS))
        reals = np.rint(reals * (np.float32(1) / part)).astype(np.float32) * part
    sums = (reals / step.unit + np.float32(y.zero_point) / step.ratio).astype(np.float64)
    return np.trunc(sums + np.copysign(0.5, sums)).astype(np.int64)


def added(a: Operand, b: Operand, y: Uniform, *, sign: int) -> Array:
    """Return a sum, or with a sign of -1 a difference, of stored tensors on the grid of `y`.

    Args:
      a: per tensor.
      b: the same; the shapes broadcast.
      y: of the result, per tensor.
    """
    step, signs = np.float64(np.float32(y.scale)), (1, sign)
    steps = arithmetic.added(
        np,
        [one * x.shifted() for one, x in zip(signs, (a, b), strict=True)],
        np.asarray([np.float64(np.float32(x.kind.scale)) / step for x in (a, b)]),
        [one * x.kind.zero_point for one, x in zip(signs, (a, b), strict=True)],
        is_byte=y.storage.bits <= 8,
        is_sum=sign > 0,
    )
    return saturated(steps, y)


def multiplied(a: Operand, b: Operand, y: Uniform) -> Array | None:
    """Return a product of stored tensors on the grid of `y`; None where the library computes it otherwise.

    Args:
      a: per tensor, unsigned, of 8 or 16 bits.
      b: the same; the shapes broadcast. One element of 8 bits is multiplied in another way.
      y: of the result, per tensor, as wide.
    """
    bits = y.storage.bits
    ratio = float(np.float32(np.float32(a.kind.scale) * np.float32(b.kind.scale)) / np.float32(y.scale))
    is_known = {x.storage.name for x in (a.kind, b.kind, y)} == {f"u{bits}"} and bits in LARGEST_PRODUCT
    is_single = bits == 8 and 1 in (a.stored.size, b.stored.size)
    if not is_known or is_single or ratio >= LARGEST_PRODUCT[bits]:
        return None
    zeros = [kind.zero_point for kind in (a.kind, b.kind, y)]
    steps = arithmetic.multiplied(np, a.shifted() * b.shifted(), np.asarray(ratio), zeros, bits)
    return saturated(steps, y)


def normalized(x: Operand, weight: Operand, bias: Operand | None, y: Uniform, epsilon: float) -> Array | None:
    """Return the rows of a stored tensor, normalized, on the grid of `y`; None where they are not of bytes.

    Args:
      x: per tensor; its last axis is normalized.
      weight: per tensor, one number for each place of a row.
      bias: the same, or None.
      y: of the result, per tensor.
      epsilon: added to the variance of reals.
    """
    if {kind.storage.name for kind in (x.kind, weight.kind, y)} != {"u8"}:
        return None
    stored, count = x.stored.astype(np.int64), x.stored.shape[-1]
    total = stored.sum(axis=-1, keepdims=True)
    variance = (count * np.square(stored).sum(axis=-1, keepdims=True) - total**2) / count**2
    step = np.float32(x.kind.scale)
    root = _inverse_root(variance.astype(np.float32) + np.float32(epsilon) / (step * step))
    unit = np.float32(weight.kind.scale) / np.float32(y.scale) * np.float32(2**_NORM_BITS)
    factor = np.minimum(root * unit, _LARGEST_FACTOR).astype(np.int64)
    # The float32 of 1 / count, in exact products, may leave a whole mean one part short.
    mean = np.floor(np.ldexp(total * float(np.float32(1) / np.float32(count)), _MEAN_BITS)).astype(np.int64)
    sums = ((stored << _MEAN_BITS) - mean) * weight.shifted() * factor
    lost = _MEAN_BITS + _NORM_BITS
    steps = (sums + (1 << (lost - 1))) >> lost
    if bias is not None:
        reals = bias.shifted() * (float(np.float32(bias.kind.scale)) / float(np.float32(y.scale)))
        steps = steps + np.trunc(reals + np.copysign(0.5, reals)).astype(np.int64)
    return saturated(steps, y)


def _inverse_root(numbers: Array) -> Array:
    """1 / sqrt of float32 numbers: a guess from their bits, and two steps of Newton's in float32."""
    guess: Array = (_MAGIC - (numbers.view(np.int32) >> 1)).astype(np.int32).view(np.float32)
    half = np.float32(0.5) * numbers
    for _ in range(2):
        guess = guess * (np.float32(1.5) - half * (guess * guess))
    return guess

"""Elementwise kernels on stored integers: QLinearAdd, Mul, Where, Concat, Sigmoid, LeakyRelu.

Modelled: ONNX Runtime's CPU kernels on x86 with AVX2 and FMA3 (AVX512 machines run the same code), bit for
bit, vector body and tail alike. Which CPU matters for two of them:
- QLinearAdd: `fma(a, a/y, fma(b, b/y, fixed))`, and `fixed` holds one more fused step; a scalar left side
  swaps the two. Without AVX2 x86 multiplies and adds unfused; Arm uses integer multipliers and shifts: there
  single elements can differ by one step.
- QLinearSigmoid: its table comes from a rational polynomial in FMA; without FMA3 an entry may differ by one.
The others use plain float32 steps, the same on every x86. Source: MLAS, read for its order of operations.
"""

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Final

import numpy as np

from planner.interpreter.kernels.fused import Float32Array, fused_multiply_add
from planner.interpreter.requantize import (
    Array,
    Grid,
    dequantize_linear,
    look_up,
    quantize_linear,
    rescale,
    to_int32,
)

_TABLE_ENTRIES: Final = 1 << 16

# Coefficients of the odd numerator and the even denominator, highest power first.
_NUMERATOR: Final = (
    4.37031012579801e-11,
    1.15627324459942e-07,
    6.08574864600143e-05,
    8.51377133304701e-03,
    2.48287947061529e-01,
)
_DENOMINATOR: Final = (
    6.10247389755681e-13,
    5.76102136993427e-09,
    6.29106785017040e-06,
    1.70198817374094e-03,
    1.16817656904453e-01,
    9.93151921023180e-01,
)


def qlinear_add(a: Array, a_grid: Grid, b: Array, b_grid: Grid, y_grid: Grid) -> Array:
    """Add two stored arrays, numpy broadcasting, onto the grid of the sum.

    Args:
      a: stored integers of `a_grid`.
      a_grid: scale, zero point and storage of `a`.
      b: stored integers of `b_grid`.
      b_grid: the same of `b`.
      y_grid: the same of the result.

    Returns:
      Stored integers of `y_grid`, in its dtype.

    Source: com.microsoft.QLinearAdd; MLAS QLinearAdd for AVX2.
    """
    if has_scalar_rows(a.shape, b.shape):
        return _pairwise(b, b_grid, a, a_grid, lambda q, p: _add(q, b_grid, p, a_grid, y_grid))
    return _pairwise(a, a_grid, b, b_grid, lambda p, q: _add(p, a_grid, q, b_grid, y_grid))


def qlinear_mul(a: Array, a_grid: Grid, b: Array, b_grid: Grid, y_grid: Grid) -> Array:
    """Multiply two stored arrays, numpy broadcasting, onto the grid of the product.

    The zero point is added in float32 before the one rounding, so ties follow the sum, not the product.

    Args:
      a: stored integers of `a_grid`.
      a_grid: scale, zero point and storage of `a`.
      b: stored integers of `b_grid`.
      b_grid: the same of `b`.
      y_grid: the same of the result.

    Returns:
      Stored integers of `y_grid`, in its dtype.

    Source: com.microsoft.QLinearMul; MLAS QLinearMul for SSE2.
    """

    def multiply(p: Array, q: Array) -> Array:
        exact = (p.astype(np.int64) - a_grid.zero_point) * (q.astype(np.int64) - b_grid.zero_point)
        return product_onto(exact, (a_grid.scale32, b_grid.scale32), y_grid)

    return _pairwise(a, a_grid, b, b_grid, multiply)


def product_onto(exact: Array, scales: tuple[np.float32, np.float32], y_grid: Grid) -> Array:
    """Exact products of integers less their zero points on the grid of the result, as QLinearMul rounds."""
    with np.errstate(over="ignore", invalid="ignore"):
        ratio = scales[0] * scales[1] / y_grid.scale32
        return _saturate(exact.astype(np.float32) * ratio + np.float32(y_grid.zero_point), y_grid)


def qlinear_concat(arrays: Sequence[Array], grids: Sequence[Grid], y_grid: Grid, axis: int) -> Array:
    """Concatenate stored arrays, each rescaled onto the result's grid. Source: QLinearConcat."""
    parts = [rescale(q, grid, y_grid) for q, grid in zip(arrays, grids, strict=True)]
    return np.concatenate(parts, axis)


def qlinear_where(
    condition: Array, chosen: tuple[Array, Grid], other: tuple[Array, Grid], y_grid: Grid
) -> Array:
    """Choose between stored arrays, each rescaled onto the result's grid. Source: QLinearWhere."""
    return np.where(condition, rescale(*chosen, y_grid), rescale(*other, y_grid))


def qlinear_sigmoid(x: Array, x_grid: Grid, y_grid: Grid) -> Array:
    """The logistic function by table. Source: com.microsoft.QLinearSigmoid; MLAS logistic kernel for FMA3."""
    return _by_table(x, x_grid, y_grid, logistic)


def qlinear_leaky_relu(x: Array, x_grid: Grid, y_grid: Grid, alpha: float = 0.01) -> Array:
    """LeakyRelu by table: `alpha * x` in float32 below zero. Source: com.microsoft.QLinearLeakyRelu."""
    slope = np.float32(alpha)
    return _by_table(x, x_grid, y_grid, lambda real: np.where(real >= 0, real, slope * real))


def logistic(x: Float32Array) -> Float32Array:
    """The logistic function in float32, as the FMA3 kernel approximates it, on [-18, 18] and flat outside."""
    value = np.clip(x, np.float32(-18), np.float32(18))
    square = value * value
    odd = _polynomial(square, _NUMERATOR) * value
    even = _polynomial(square, _DENOMINATOR)
    return np.asarray(np.maximum(odd / even + np.float32(0.5), np.float32(0)))


def _polynomial(square: Float32Array, coefficients: Sequence[float]) -> Float32Array:
    total: Float32Array = np.full(square.shape, coefficients[0], np.float32)
    for coefficient in coefficients[1:]:
        total = fused_multiply_add(total, square, np.float32(coefficient))
    return total


def _add(a: Array, a_grid: Grid, b: Array, b_grid: Grid, y_grid: Grid) -> Array:
    with np.errstate(over="ignore", invalid="ignore"):
        a_ratio, b_ratio = a_grid.scale32 / y_grid.scale32, b_grid.scale32 / y_grid.scale32
        b_offset = b_ratio * np.float32(b_grid.zero_point)
        offset = fused_multiply_add(a_ratio, np.float32(a_grid.zero_point), b_offset)
        fixed = np.float32(y_grid.zero_point) - offset
    inner = fused_multiply_add(b.astype(np.float32), b_ratio, fixed)
    return _saturate(fused_multiply_add(a.astype(np.float32), a_ratio, inner), y_grid)


def _saturate(value: Float32Array, grid: Grid) -> Array:
    return np.asarray(np.clip(to_int32(value), grid.qmin, grid.qmax).astype(grid.dtype))


def _by_table(
    x: Array, x_grid: Grid, y_grid: Grid, function: Callable[[Float32Array], Float32Array]
) -> Array:
    real = dequantize_linear(x_grid.stored(), x_grid.scale32, x_grid.zero_point)
    table = quantize_linear(function(real), y_grid.scale32, y_grid.zero_point, y_grid.qmin, y_grid.qmax)
    return look_up(x, table, x_grid.qmin)


def _pairwise(
    a: Array, a_grid: Grid, b: Array, b_grid: Grid, function: Callable[[Array, Array], Array]
) -> Array:
    """Apply `function` to pairs, through a table of all pairs where that is less work."""
    columns = b_grid.qmax - b_grid.qmin + 1
    entries = (a_grid.qmax - a_grid.qmin + 1) * columns
    if entries > _TABLE_ENTRIES or np.broadcast(a, b).size < entries:
        return function(a, b)
    table = function(a_grid.stored()[:, None], b_grid.stored()[None, :]).reshape(-1)
    rows = (a.astype(np.int32) - a_grid.qmin) * columns
    return np.asarray(np.take(table, rows + (b.astype(np.int32) - b_grid.qmin)))


def has_scalar_rows(a_shape: Sequence[int], b_shape: Sequence[int]) -> bool:
    """Whether broadcasting repeats single elements of `a` along the innermost axis that is not 1 in both."""
    sizes = zip_longest(reversed(a_shape), reversed(b_shape), fillvalue=1)
    innermost = next(((a, b) for a, b in sizes if (a, b) != (1, 1)), (1, 1))
    return innermost[0] == 1 and innermost[1] != 1

"""Pooling on stored integers: MaxPool, QLinearAveragePool, QLinearGlobalAveragePool; channels first.

Bit for bit ONNX Runtime's CPU kernels on x86. Global averages sum integers and requantize once; other
averages sum dequantized float32 values in the kernel's order, divide, and quantize, so they round otherwise.
On Arm the global average uses an integer multiplier and may differ by one step. There is no kernel for
QLinearReduceMean. Source: the two contrib operators, read for their order of operations.
"""

from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import numpy as np

from planner.interpreter.requantize import (
    Array,
    Float32Array,
    Grid,
    dequantize_linear,
    requantize_float32,
    to_int32,
)
from planner.ops.geometry.windows import PoolGeometry, pooled_sizes, window_counts


def max_pool(x: Array, geometry: PoolGeometry) -> Array:
    """The maximum of each window; padding never wins.

    Args:
      x: integers (N, C, *spatial).
      geometry: kernel, strides, dilations, pads, ceil_mode.

    Returns:
      Integers (N, C, *output), in `x`'s dtype.
    """
    shape = geometry.filled()
    sizes = pooled_sizes(x.shape[2:], shape)
    result = np.full((*x.shape[:2], *sizes), np.iinfo(x.dtype).min, x.dtype)
    for window in _windows(x, np.iinfo(x.dtype).min, sizes, shape):
        np.maximum(result, window, out=result)
    return result


def qlinear_average_pool(
    x: Array, x_grid: Grid, y_grid: Grid, geometry: PoolGeometry, *, count_include_pad: bool = False
) -> Array:
    """The average of each window, onto another grid.

    Args:
      x: stored integers of `x_grid`, (N, C, *spatial).
      x_grid: 8-bit scale, zero point and storage.
      y_grid: of the same storage.
      geometry: kernel, strides, pads, ceil_mode; no dilations.
      count_include_pad: divide by the kernel's size, not by the pixels inside the input.

    Returns:
      Stored integers (N, C, *output), in `y_grid`'s dtype.
    """
    shape = geometry.filled()
    sizes = pooled_sizes(x.shape[2:], shape)
    if x.shape[2:] == shape.kernel and not any(shape.pads):
        return qlinear_global_average_pool(x, x_grid, y_grid)
    real = dequantize_linear(x, x_grid.scale32, x_grid.zero_point)
    total: Float32Array = np.zeros((*x.shape[:2], *sizes), np.float32)
    for window in _windows(real, 0, sizes, shape):
        total += window
    counts = window_counts(x.shape[2:], shape).astype(np.float32)
    if count_include_pad:  # what ceil_mode adds too
        counts = np.full(counts.shape, prod(shape.kernel), np.float32)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        quotient: Float32Array = total / counts / y_grid.scale32 + np.float32(y_grid.zero_point)
    return np.clip(to_int32(quotient), y_grid.qmin, y_grid.qmax).astype(y_grid.dtype)


def qlinear_global_average_pool(x: Array, x_grid: Grid, y_grid: Grid) -> Array:
    """The average over all spatial axes, onto another grid: (N, C, *spatial) to (N, C, 1, ...)."""
    pixels = prod(x.shape[2:])
    total = x.sum(axis=tuple(range(2, x.ndim)), keepdims=True, dtype=np.int64) - x_grid.zero_point * pixels
    multiplier = x_grid.scale32 / (y_grid.scale32 * np.float32(pixels))
    return requantize_float32(total, multiplier, y_grid.zero_point, y_grid.qmin, y_grid.qmax)


def _windows(x: Array, fill: float, sizes: tuple[int, ...], shape: PoolGeometry) -> Iterator[Array]:
    """For each kernel tap, in row-major order, the elements that windows read there."""
    rank = len(sizes)
    widths = [(0, 0), (0, 0)]
    for i in range(rank):
        last = (sizes[i] - 1) * shape.strides[i] + shape.dilations[i] * (shape.kernel[i] - 1) + 1
        widths.append((shape.pads[i], max(0, last - shape.pads[i] - x.shape[2 + i])))
    padded = np.pad(x, widths, constant_values=fill) if any(map(any, widths)) else x
    for tap in product(*map(range, shape.kernel)):
        index: tuple[Any, ...] = (...,)
        for i in range(rank):
            start = tap[i] * shape.dilations[i]
            index += (slice(start, start + (sizes[i] - 1) * shape.strides[i] + 1, shape.strides[i]),)
        yield padded[index]


def window_sums(x: Array, geometry: PoolGeometry) -> Array:
    """Sums over each window, (N, C, *output) int64; places outside the input count as 0."""
    shape = geometry.filled()
    sizes = pooled_sizes(x.shape[2:], shape)
    total = np.zeros((*x.shape[:2], *sizes), np.int64)
    for window in _windows(x, 0, sizes, shape):
        total += window
    return total

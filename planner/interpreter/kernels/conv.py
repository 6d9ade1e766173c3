"""Conv: exact integer accumulators of Conv and ConvTranspose, any rank, groups, strides and dilations.

Sums of products of (stored - zero point) through im2col and a float GEMM that a bound on the actual weights
and activations proves exact (`matmul.exact_dtype`); depthwise goes tap by tap. Padding is with the zero
point, that is with real zero. No scales: `requantize` follows. Layout is ONNX's, channels first.
"""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.interpreter.kernels.matmul import accumulator_dtype, exact_dtype, largest, shifted
from planner.ops.geometry.windows import ConvGeometry, output_sizes

Array = npt.NDArray[Any]

_BLOCK: Final = 1 << 23


def conv_accumulate(
    x: Array,
    x_zero_point: int,
    w: Array,
    w_zero_point: int | Array = 0,
    bias: Array | None = None,
    *,
    geometry: ConvGeometry | None = None,
) -> Array:
    """The accumulators of a convolution, exact.

    Args:
      x: stored integers (N, C, *spatial), any integer type.
      x_zero_point: stored; padding has this value.
      w: stored integers (C_out, C / group, *kernel).
      w_zero_point: stored, one number or (C_out,).
      bias: int32 (C_out,); None: no bias.
      geometry: strides, dilations, pads, group; None: the defaults.

    Returns:
      (N, C_out, *spatial), int32 where no sum can leave 32 bits, else int64 (ONNX Runtime wraps there).
    """
    rank = x.ndim - 2
    shape = (geometry or ConvGeometry()).filled(rank)
    weights = shifted(w, _per_channel(w_zero_point, 0, w.ndim), np.int64)
    bound = largest(x, x_zero_point) * int(np.abs(weights).reshape(len(w), -1).sum(1).max(initial=0))
    dtype = exact_dtype(bound)
    real = _pad(shifted(x, x_zero_point, dtype), shape.pads)
    kernel = weights.astype(dtype)
    is_depthwise = w.shape[1] == 1 and shape.group == len(w) == x.shape[1]
    acc = _depthwise(real, kernel, shape) if is_depthwise else _grouped(real, kernel, shape)
    return _with_bias(acc, bias, bound)


def conv_transpose_accumulate(
    x: Array,
    x_zero_point: int,
    w: Array,
    w_zero_point: int | Array = 0,
    bias: Array | None = None,
    *,
    geometry: ConvGeometry | None = None,
) -> Array:
    """The accumulators of a transposed convolution, exact.

    Args:
      x: stored integers (N, C, *spatial), any integer type.
      x_zero_point: stored.
      w: stored integers (C, C_out / group, *kernel).
      w_zero_point: stored, one number or (C_out / group,), along axis 1.
      bias: int32 (C_out,); None: no bias.
      geometry: strides, dilations, pads, group, output_padding; None: the defaults.

    Returns:
      (N, C_out, *spatial), int32 where no sum can leave 32 bits, else int64.
    """
    rank = x.ndim - 2
    shape = (geometry or ConvGeometry()).filled(rank)
    weights = shifted(w, _per_channel(w_zero_point, 1, w.ndim), np.int64)
    # Every output element reads each (channel, tap) at most once.
    bound = largest(x, x_zero_point) * largest(weights) * (w.shape[0] // shape.group) * prod(w.shape[2:])
    dtype = exact_dtype(bound)
    columns = _transposed_columns(shifted(x, x_zero_point, dtype), weights.astype(dtype), shape.group)
    return _with_bias(_scatter(columns, x.shape[2:], w.shape[2:], shape), bias, bound)


def _per_channel(zero_point: int | Array, axis: int, ndim: int) -> Array:
    zero = np.asarray(zero_point)
    if zero.ndim == 0:
        return zero
    return zero.reshape([-1 if i == axis else 1 for i in range(ndim)])


def _pad(real: Array, pads: tuple[int, ...]) -> Array:
    rank = len(pads) // 2
    if not any(pads):
        return real
    widths = [(0, 0), (0, 0), *((pads[i], pads[rank + i]) for i in range(rank))]
    return np.pad(real, widths)


def _window(tap: Sequence[int], sizes: Sequence[int], shape: ConvGeometry) -> tuple[Any, ...]:
    """The strided slice of the padded input that one kernel tap reads."""
    starts = [t * d for t, d in zip(tap, shape.dilations, strict=True)]
    spans = zip(starts, sizes, shape.strides, strict=True)
    return (..., *(slice(start, start + stride * (size - 1) + 1, stride) for start, size, stride in spans))


def _padded_sizes(real: Array, kernel: Array, shape: ConvGeometry) -> tuple[int, ...]:
    unpadded = ConvGeometry(shape.strides, shape.dilations, (0,) * len(shape.pads))
    return output_sizes(real.shape[2:], kernel.shape[2:], unpadded)


def _depthwise(real: Array, kernel: Array, shape: ConvGeometry) -> Array:
    sizes = _padded_sizes(real, kernel, shape)
    acc = np.zeros((*real.shape[:2], *sizes), real.dtype)
    for tap in product(*map(range, kernel.shape[2:])):
        at: tuple[Any, ...] = (slice(None), 0, *tap)
        factor = kernel[at].reshape(-1, *(1 for _ in sizes))
        acc += real[_window(tap, sizes, shape)] * factor
    return acc


def _grouped(real: Array, kernel: Array, shape: ConvGeometry) -> Array:
    batch, channels = real.shape[:2]
    sizes = _padded_sizes(real, kernel, shape)
    out_channels, taps = kernel.shape[0], list(product(*map(range, kernel.shape[2:])))
    matrix = kernel.reshape(shape.group, out_channels // shape.group, -1)
    acc = np.empty((batch, shape.group, out_channels // shape.group, prod(sizes)), real.dtype)
    rows = max(1, _BLOCK // max(1, channels * len(taps) * prod(sizes[1:])))
    for image, first in product(range(batch), range(0, sizes[0], rows)):
        count = min(rows, sizes[0] - first)
        columns = _columns(real[image], taps, (first, count, *sizes[1:]), shape)
        inner = prod(sizes[1:])
        span = slice(first * inner, (first + count) * inner)
        acc[image, :, :, span] = np.matmul(matrix, columns.reshape(shape.group, matrix.shape[2], -1))
    return acc.reshape(batch, out_channels, *sizes)


def _columns(image: Array, taps: list[tuple[int, ...]], rows: tuple[int, ...], shape: ConvGeometry) -> Array:
    """im2col of output rows [first, first + count): (C, taps, count, *sizes[1:])."""
    first, sizes = rows[0], rows[1:]
    part = image[:, first * shape.strides[0] :]
    columns = np.empty((len(image), len(taps), *sizes), image.dtype)
    for index, tap in enumerate(taps):
        columns[:, index] = part[_window(tap, sizes, shape)]
    return columns


def _transposed_columns(real: Array, kernel: Array, group: int) -> Array:
    """Products of every input pixel with every tap: (N, C_out, taps, pixels)."""
    batch, channels = real.shape[:2]
    per_group, taps = kernel.shape[1], prod(kernel.shape[2:])
    matrix = kernel.reshape(group, channels // group, per_group * taps).transpose(0, 2, 1)
    products = np.matmul(matrix, real.reshape(batch, group, channels // group, -1))
    return np.asarray(products).reshape(batch, group * per_group, taps, -1)


def _scatter(columns: Array, spatial: Sequence[int], kernel: Sequence[int], shape: ConvGeometry) -> Array:
    rank = len(kernel)
    full = tuple(
        shape.strides[i] * (spatial[i] - 1)
        + shape.dilations[i] * (kernel[i] - 1)
        + 1
        + shape.output_padding[i]
        for i in range(rank)
    )
    acc = np.zeros((*columns.shape[:2], *full), columns.dtype)
    for index, tap in enumerate(product(*map(range, kernel))):
        acc[_window(tap, spatial, shape)] += columns[:, :, index].reshape(*columns.shape[:2], *spatial)
    keep: tuple[Any, ...] = (...,)
    keep += tuple(slice(shape.pads[i], full[i] - shape.pads[rank + i]) for i in range(rank))
    return np.asarray(acc[keep])


def _with_bias(acc: Array, bias: Array | None, bound: int) -> Array:
    if bias is None:
        return acc.astype(accumulator_dtype(bound))
    total = accumulator_dtype(bound + largest(bias))
    return np.asarray(acc.astype(total) + bias.astype(total).reshape(-1, *(1 for _ in acc.shape[2:])))

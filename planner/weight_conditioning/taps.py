"""Taps: number of elements, not padding, that each position of a convolution's kernel meets.

Axes are independent, so a tap's share is the product of its shares along each spatial axis.
Source: ONNX Conv and ConvTranspose.
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from planner.ir.graph import Dim, Op, Shape
from planner.ops.geometry.windows import ConvGeometry, conv_geometry


def tap_shares(op: Op, shape: Shape, kernel: Sequence[int]) -> np.ndarray:
    """Elements of the input that each tap of a kernel meets, per element of the output.

    Args:
      op: Conv or ConvTranspose.
      shape: of its input; along a spatial axis of unknown size no border is seen.
      kernel: sizes of the weight's spatial axes.

    Returns:
      Shape `kernel`: all 1.0 for a Conv without padding.
    """
    sizes = tuple(size if isinstance(size, int) else 0 for size in shape[2:])
    geometry = conv_geometry(op.attributes, sizes, kernel).filled(len(kernel))
    axes = [_axis_shares(op, axis, shape[2 + axis], kernel, geometry) for axis in range(len(kernel))]
    shares: np.ndarray = reduce(np.multiply.outer, axes)
    return shares


def _axis_shares(op: Op, axis: int, size: Dim, kernel: Sequence[int], geometry: ConvGeometry) -> np.ndarray:
    taps, stride, dilation = kernel[axis], geometry.strides[axis], geometry.dilations[axis]
    begin, end = geometry.pads[axis], geometry.pads[len(kernel) + axis]
    spread = op.type == "ConvTranspose"
    if not isinstance(size, int) or (spread and op.attributes.get("auto_pad", "NOTSET") != "NOTSET"):
        # Without borders a tap meets an element at every output of a Conv, at one in `stride` of a
        # ConvTranspose.
        return np.full(taps, 1 / stride if spread else 1.0)
    offsets = np.arange(taps) * dilation - begin
    if spread:
        outputs = (
            (size - 1) * stride + dilation * (taps - 1) + 1 - begin - end + geometry.output_padding[axis]
        )
        # A ConvTranspose scatters: input i reaches output i * stride + offset, if that is not cropped away.
        reached, limit = np.arange(size) * stride + offsets[:, None], outputs
    else:
        outputs = (size + begin + end - dilation * (taps - 1) - 1) // stride + 1
        limit = size
        reached = np.arange(outputs) * stride + offsets[:, None]
    shares: np.ndarray = np.count_nonzero((reached >= 0) & (reached < limit), axis=1) / max(1, outputs)
    return shares

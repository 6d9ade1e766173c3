"""Geometry: strides, dilations and pads of ONNX's convolutions and poolings, `auto_pad` resolved.

Source: ONNX Conv, AveragePool and MaxPool; onnxruntime's reading of SAME_UPPER and SAME_LOWER.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from planner.interpreter.kernels.conv import ConvGeometry
from planner.interpreter.kernels.pooling import PoolGeometry


def conv_geometry(
    attributes: Mapping[str, Any], spatial: Sequence[int], kernel: Sequence[int]
) -> ConvGeometry:
    """Geometry of a Conv or ConvTranspose.

    Args:
      attributes: of the op.
      spatial: sizes of the input's spatial axes.
      kernel: sizes of the weight's.
    """
    strides, dilations = _steps(attributes, "strides", kernel), _steps(attributes, "dilations", kernel)
    return ConvGeometry(
        strides,
        dilations,
        _pads(attributes, spatial, kernel, (strides, dilations)),
        int(attributes.get("group", 1)),
        tuple(attributes.get("output_padding", ())),
    )


def pool_geometry(attributes: Mapping[str, Any], spatial: Sequence[int]) -> PoolGeometry:
    """Geometry of an AveragePool or MaxPool over an input of these spatial sizes."""
    kernel = tuple(attributes["kernel_shape"])
    strides, dilations = _steps(attributes, "strides", kernel), _steps(attributes, "dilations", kernel)
    return PoolGeometry(
        kernel,
        strides,
        dilations,
        _pads(attributes, spatial, kernel, (strides, dilations)),
        bool(attributes.get("ceil_mode", 0)),
    )


def _steps(attributes: Mapping[str, Any], key: str, kernel: Sequence[int]) -> tuple[int, ...]:
    return tuple(attributes.get(key) or (1,) * len(kernel))


def _pads(
    attributes: Mapping[str, Any],
    spatial: Sequence[int],
    kernel: Sequence[int],
    steps: tuple[tuple[int, ...], tuple[int, ...]],
) -> tuple[int, ...]:
    mode = attributes.get("auto_pad", "NOTSET")
    if mode == "NOTSET":
        return tuple(attributes.get("pads") or (0,) * (2 * len(kernel)))
    if mode == "VALID":
        return (0,) * (2 * len(kernel))
    begins, ends = [], []
    for size, width, stride, dilation in zip(spatial, kernel, *steps, strict=True):
        outputs = -(-size // stride)
        needed = max(0, (outputs - 1) * stride + dilation * (width - 1) + 1 - size)
        begin = (needed + (mode == "SAME_LOWER")) // 2
        begins.append(begin)
        ends.append(needed - begin)
    return (*begins, *ends)

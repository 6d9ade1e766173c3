"""Windows: strides, dilations and pads of convolutions and pools, `auto_pad` resolved, and what lies in them.

Source: ONNX Conv, AveragePool and MaxPool; onnxruntime's reading of SAME_UPPER and SAME_LOWER.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class ConvGeometry:
    """Strides, dilations, pads and groups of a convolution, per spatial axis, as in ONNX.

    `pads` are all begins, then all ends; empty tuples mean 1, 1 and 0. `output_padding` is ConvTranspose's.
    """

    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    group: int = 1
    output_padding: tuple[int, ...] = ()

    def filled(self, rank: int) -> "ConvGeometry":
        """The same with the defaults written out for `rank` spatial axes."""
        return ConvGeometry(
            self.strides or (1,) * rank,
            self.dilations or (1,) * rank,
            self.pads or (0,) * (2 * rank),
            self.group,
            self.output_padding or (0,) * rank,
        )


@dataclass(frozen=True, slots=True)
class PoolGeometry:
    """Kernel, strides, dilations and pads of a pooling, per spatial axis; `pads`: begins, then ends."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    ceil_mode: bool = False

    def filled(self) -> "PoolGeometry":
        """The same with the defaults written out."""
        rank = len(self.kernel)
        ones = (1,) * rank
        return PoolGeometry(
            self.kernel,
            self.strides or ones,
            self.dilations or ones,
            self.pads or (0,) * (2 * rank),
            self.ceil_mode,
        )


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


def output_sizes(spatial: Sequence[int], kernel: Sequence[int], geometry: ConvGeometry) -> tuple[int, ...]:
    """Spatial sizes of a convolution's output; `geometry` with its defaults filled in."""
    rank = len(kernel)
    return tuple(
        (
            spatial[i]
            + geometry.pads[i]
            + geometry.pads[rank + i]
            - geometry.dilations[i] * (kernel[i] - 1)
            - 1
        )
        // geometry.strides[i]
        + 1
        for i in range(rank)
    )


def pooled_sizes(spatial: Sequence[int], shape: PoolGeometry) -> tuple[int, ...]:
    """Spatial sizes of a pooling's output; `shape` with its defaults filled in."""
    return tuple(_pooled_size(spatial[i], i, shape) for i in range(len(spatial)))


def window_counts(
    spatial: Sequence[int], geometry: PoolGeometry, *, includes_padding: bool = False
) -> npt.NDArray[np.int64]:
    """Pixels that each window averages, (*output): of the input, and of its padding where that counts.

    Pixels that `ceil_mode` adds behind the padding never count.
    """
    shape, counts = geometry.filled(), np.ones((), np.int64)
    for i, windows in enumerate(pooled_sizes(spatial, shape)):
        begin, end = shape.pads[i :: len(spatial)] if includes_padding else (0, 0)
        taps = np.arange(shape.kernel[i]) * shape.dilations[i]
        places = np.arange(windows)[:, None] * shape.strides[i] - shape.pads[i] + taps
        counts = counts[..., None] * ((places >= -begin) & (places < spatial[i] + end)).sum(1)
    return np.asarray(counts)


def _pooled_size(size: int, i: int, shape: PoolGeometry) -> int:
    begin, end = shape.pads[i], shape.pads[len(shape.kernel) + i]
    free = size + begin + end - shape.dilations[i] * (shape.kernel[i] - 1) - 1
    if not shape.ceil_mode:
        return free // shape.strides[i] + 1
    count = -(-free // shape.strides[i]) + 1
    # A last window that would start in the end padding is left out.
    return count - 1 if (count - 1) * shape.strides[i] >= size + begin else count


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

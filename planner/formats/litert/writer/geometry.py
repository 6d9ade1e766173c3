"""Geometry: windows of convolutions and pools as LiteRT says them: SAME, VALID, or a PAD in front of VALID.

SAME has as many windows as steps fit the input, and the smaller half of the padding in front; VALID has no
padding. Pixels behind the last window are left out by both, as ONNX leaves them out.
Source: TensorFlow Lite, ComputeOutSize and ComputePaddingHeightWidth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from planner.formats.litert.writer.operations import Options, Program, Tensor
from planner.ir.types.qtypes import Uniform

SAME: Final = 0
VALID: Final = 1


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over the two spatial axes of a tensor stored channels last.

    Attributes:
      pads: begins, then ends.
      count: windows along each axis.
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    count: tuple[int, int]

    @property
    def reach(self) -> tuple[int, int]:
        """Pixels that a window spans along each axis."""
        return (
            (self.kernel[0] - 1) * self.dilations[0] + 1,
            (self.kernel[1] - 1) * self.dilations[1] + 1,
        )

    def padding(self, spatial: Sequence[int]) -> int | None:
        """SAME or VALID, where one of them gives these windows on an input of these sizes."""
        if all(self._is_valid(i, size) for i, size in enumerate(spatial)):
            return VALID
        if all(self._is_same(i, size) for i, size in enumerate(spatial)):
            return SAME
        return None

    def missing(self, spatial: Sequence[int]) -> tuple[int, int, int, int]:
        """Begins and ends of what has to be put around an input, for VALID to give these windows."""
        ends = [
            max(0, (self.count[i] - 1) * self.strides[i] + self.reach[i] - size - self.pads[i])
            for i, size in enumerate(spatial)
        ]
        return (self.pads[0], self.pads[1], ends[0], ends[1])

    def options(self, padding: int) -> Options:
        """As options of a convolution."""
        steps = {"StrideH": self.strides[0], "StrideW": self.strides[1]}
        more = {"DilationHFactor": self.dilations[0], "DilationWFactor": self.dilations[1]}
        return {"Padding": padding, **steps, **more}

    def pool_options(self, padding: int) -> Options:
        """As options of a pool."""
        steps = {"StrideH": self.strides[0], "StrideW": self.strides[1]}
        return {"Padding": padding, **steps, "FilterHeight": self.kernel[0], "FilterWidth": self.kernel[1]}

    def _is_valid(self, i: int, size: int) -> bool:
        count = (size - self.reach[i]) // self.strides[i] + 1
        return self.pads[i] == 0 and count == self.count[i]

    def _is_same(self, i: int, size: int) -> bool:
        count = -(-size // self.strides[i])
        total = max(0, (count - 1) * self.strides[i] + self.reach[i] - size)
        return self.count[i] == count and self.pads[i] == total // 2


def windows_over(
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    count: Sequence[int],
) -> Windows:
    """Windows over two spatial axes; those over one get a first axis of size 1."""
    if len(kernel) == 1:
        begin, end = pads
        return Windows((1, kernel[0]), (1, strides[0]), (1, dilations[0]), (0, begin, 0, end), (1, count[0]))
    first, second = kernel
    four = (pads[0], pads[1], pads[2], pads[3])
    return Windows(
        (first, second), (strides[0], strides[1]), (dilations[0], dilations[1]), four, (count[0], count[1])
    )


def padded(program: Program, x: Tensor, amounts: Mapping[int, tuple[int, int]], stem: str) -> Tensor:
    """A tensor with real zeros put around stored axes: (before, behind) each."""
    return _padded(program, x, amounts, None, stem)


def padded_with(
    program: Program, x: Tensor, amounts: Mapping[int, tuple[int, int]], fill: float, stem: str
) -> Tensor:
    """A tensor with a stored number put around stored axes."""
    number = program.constant(np.asarray([fill]), x.element, f"{stem}_fill", kind=x.kind)
    return _padded(program, x, amounts, number, stem)


def _padded(
    program: Program, x: Tensor, amounts: Mapping[int, tuple[int, int]], fill: Tensor | None, stem: str
) -> Tensor:
    pairs = [amounts.get(i, (0, 0)) for i in range(len(x.shape))]
    if not any(map(any, pairs)):
        return x
    shape = tuple(size + sum(pair) for size, pair in zip(x.shape, pairs, strict=True))
    sizes = program.constant(np.asarray(pairs, np.int32), "i32", "paddings")
    like = replace(x, shape=shape)
    if fill is None:
        return program.emit("PAD", [x, sizes], like, f"{stem}_pad", ("PadOptions", {}))
    return program.emit("PADV2", [x, sizes, fill], like, f"{stem}_pad", ("PadV2Options", {}))


def lowest(kind: Uniform | None) -> float:
    """The stored number that no maximum takes: padding of a MaxPool."""
    return -float("inf") if kind is None else -(1 << (kind.storage.bits - 1))

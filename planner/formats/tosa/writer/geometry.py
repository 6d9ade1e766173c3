"""Geometry: windows of convolutions and pools as TOSA takes them: every pixel counted, nothing left over.

TOSA refuses a stride that does not divide what is there, where ONNX leaves the rest out: the padding behind
shrinks, or the input is cut. Source: TOSA 1.0, ERROR_IF of CONV2D, AVG_POOL2D and MAX_POOL2D.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.formats.mlir.generic import array_text
from planner.formats.tosa.writer.operations import Program, Tensor
from planner.ops.geometry.windows import ConvGeometry


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows over two or three spatial axes.

    Attributes:
      pads: begins, then ends, as in ONNX.
    """

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]

    def rests(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """Pixels behind the last window of each axis, padding included."""
        return tuple(self._free(i, size) % self.strides[i] for i, size in enumerate(spatial))

    def sizes(self, spatial: Sequence[int]) -> tuple[int, ...]:
        """Windows along each axis."""
        return tuple(self._free(i, size) // self.strides[i] + 1 for i, size in enumerate(spatial))

    def fitted(self, spatial: Sequence[int]) -> "Windows":
        """The same with so little padding behind that nothing is left over."""
        rank, rests = len(self.kernel), self.rests(spatial)
        ends = (end - rest for end, rest in zip(self.pads[rank:], rests, strict=True))
        return replace(self, pads=(*self.pads[:rank], *ends))

    def attributes(self, *, is_pool: bool = False) -> dict[str, str]:
        """As attributes of an operator: pads by axis, begin and end."""
        rank = len(self.kernel)
        pads = [self.pads[i + side] for i in range(rank) for side in (0, rank)]
        found = {"pad": array_text(pads), "stride": array_text(self.strides)}
        if is_pool:
            return {"kernel": array_text(self.kernel), **found}
        return {**found, "dilation": array_text(self.dilations)}

    def _free(self, i: int, size: int) -> int:
        padded = size + self.pads[i] + self.pads[i + len(self.kernel)]
        return padded - 1 - (self.kernel[i] - 1) * self.dilations[i]


def windows_of(geometry: ConvGeometry, kernel: Sequence[int]) -> Windows:
    """Windows of a convolution; one spatial axis becomes two."""
    filled = geometry.filled(len(kernel))
    found = Windows(tuple(kernel), filled.strides, filled.dilations, filled.pads)
    return flat(found) if len(kernel) == 1 else found


def flat(windows: Windows) -> Windows:
    """Windows over one axis as windows over two, the first of size 1."""
    begin, end = windows.pads
    return Windows((1, *windows.kernel), (1, *windows.strides), (1, *windows.dilations), (0, begin, 0, end))


def trimmed(program: Program, x: Tensor, windows: Windows) -> Tensor:
    """The input without the pixels that no window reads and no padding could give up."""
    rank = len(windows.kernel)
    rests = windows.rests(x.sizes[2:])
    cut = [max(0, rest - windows.pads[rank + i]) for i, rest in enumerate(rests)]
    if not any(cut):
        return x
    shape = list(x.shape)
    for i, count in enumerate(cut):
        shape[x.at(2 + i)] -= count
    operands = (x, program.shape([0] * len(shape)), program.shape(shape))
    return program.emit("slice", operands, replace(x, shape=tuple(shape)), f"{x.name}_cut")

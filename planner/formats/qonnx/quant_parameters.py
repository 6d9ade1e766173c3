"""Quant parameters: a planned type as the operands and attributes of a QONNX Quant, and which types have one.

A storage range is a width, a sign and a narrowness; widths may be fractional, and one per slice. Source:
QONNX operator pages, Quant and BipolarQuant; docs/qonnx.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from planner.constants.quantize import dequantize_array, quantize_array
from planner.formats.onnx.quantized.dialect import BIPOLAR, QUANT
from planner.formats.onnx.quantized.formulas import Array, quant
from planner.formats.onnx.quantized.quantizers import attributes_of_ends
from planner.ir.types.qtypes import Uniform

QONNX: Final = "qonnx.custom_op.general"
QUANT_NAME: Final = QUANT.rpartition("::")[2]
BIPOLAR_NAME: Final = BIPOLAR.rpartition("::")[2]


@dataclass(frozen=True, slots=True, eq=False)
class Quant:
    """Parameters of a Quant, as they broadcast against its tensor; float32."""

    scale: Array
    zero_point: Array
    bits: Array
    signed: bool
    narrow: bool

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Of the node."""
        return {"narrow": int(self.narrow), "rounding_mode": "ROUND", "signed": int(self.signed)}

    def of(self, x: Array) -> Array:
        """The result of the node for a tensor."""
        return quant(x, self.scale, self.zero_point, self.bits, signed=self.signed, narrow=self.narrow)


def range_problem(kind: Uniform) -> str:
    """Why no Quant has this storage range; "" where one does."""
    found = [attributes_of_ends(low, high) for low, high in dict.fromkeys(kind.slice_ranges)]
    if any(item is None for item in found):
        return f"no width has the storage range {kind.storage.qmin}:{kind.storage.qmax}"
    if len({item[1:] for item in found if item is not None}) > 1:
        return "its slices differ in sign or narrowness"
    return ""


def quant_of(kind: Uniform, shape: tuple[int, ...] | None, rank: int | None) -> Quant | None:
    """Parameters of the Quant of a type; None where none has it, or where they cannot be shaped.

    Args:
      kind: the type.
      shape: of the tensor; needed for scales per block.
      rank: of the tensor; needed for scales per axis.
    """
    if range_problem(kind) or (kind.axis is not None and rank is None) or (kind.grid and shape is None):
        return None
    found = {ends: attributes_of_ends(*ends) for ends in dict.fromkeys(kind.slice_ranges)}
    _, signed, narrow = next(item for item in found.values() if item is not None)
    bits = [item[0] for ends in kind.slice_ranges if (item := found[ends]) is not None]
    arrays = (
        np.asarray(kind.scales, np.float32),
        _one_of(np.asarray(kind.zero_points, np.float32)),
        _one_of(np.asarray(bits, np.float32)),
    )
    scale, zero, width = (array if array.ndim == 0 else _shaped(array, kind, shape, rank) for array in arrays)
    return Quant(scale, zero, width, signed, narrow)


def constant_of(array: Array, kind: Uniform, quant_node: Quant | None) -> tuple[Array, bool]:
    """A constant's reals in the file, and whether a Quant of them gives the planned numbers.

    They are the model's own where a Quant makes the planned numbers of those, else the planned numbers.
    """
    real = dequantize_array(quantize_array(array, kind), kind)
    if quant_node is None:
        return real, False
    with np.errstate(all="ignore"):
        own = array.astype(np.float32)
        if np.array_equal(quant_node.of(own), real):
            return own, True
        return real, np.array_equal(quant_node.of(real), real)


def _one_of(values: Array) -> Array:
    """A scalar where all numbers are one: FINN takes no array, not even of zeros, for a zero point."""
    return values[0] if np.all(values == values[0]) else values


def _shaped(values: Array, kind: Uniform, shape: tuple[int, ...] | None, rank: int | None) -> Array:
    if values.size == 1 and kind.axis is None:
        return values.reshape(())
    if kind.axis is not None:
        return values.reshape([-1 if i == kind.axis else 1 for i in range(rank or 0)])
    wide, blocks = values.reshape(kind.grid), dict(kind.blocks)
    for axis, (count, size) in enumerate(zip(kind.grid, shape or (), strict=True)):
        if count > 1:
            wide = np.repeat(wide, blocks[axis], axis=axis).take(range(size), axis=axis)
    return wide

"""Tensors of a StableHLO program: names, static shapes, element types; quantized types as text.

Unsigned storage is `ui8` here, not `u8`. Source: StableHLO specification, "Types"; docs/specification.md,
section 9.7.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from planner.errors import UnsupportedExport
from planner.formats.mlir.generic import tensor_text
from planner.formats.mlir.text.elements import COMPLEX
from planner.ir.types.qtypes import Uniform, float_text

_WIDTHS: Final = (2, 4, 8, 16, 32)
ELEMENTS: Final = {
    "bool": "i1",
    **{name: name for name in ("f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "i4", "i2")},
    **{f"u{bits}": f"ui{bits}" for bits in (2, 4, 8, 16, 32, 64)},
    **{name: text for text, name in COMPLEX.items()},
}
"""Element types by the graph's names."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A tensor of the program.

    Attributes:
      name: SSA name without %.
      element: element type as text.
      kind: the quantized type where the element type is one.
    """

    name: str
    shape: tuple[int, ...]
    element: str
    kind: Uniform | None = None

    @property
    def type(self) -> str:
        """Its type as text."""
        return tensor_text(self.shape, self.element)

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def is_float(self) -> bool:
        """Whether its elements are plain floats."""
        return self.kind is None and self.element in ("f16", "bf16", "f32", "f64")


def plain(shape: tuple[int, ...], element: str) -> Tensor:
    """A nameless tensor of plain elements, as the description of a result."""
    return Tensor("", shape, element)


def quantized(shape: tuple[int, ...], kind: Uniform) -> Tensor:
    """A nameless tensor of quantized elements, as the description of a result."""
    return Tensor("", shape, quantized_text(kind), kind)


def storage_width(kind: Uniform) -> int:
    """The least width of StableHLO's storages that holds a type's: 2, 4, 8, 16 or 32 bits, else 64."""
    return next((width for width in _WIDTHS if kind.storage.bits <= width), 64)


def storage_element(kind: Uniform) -> str:
    """Element type of a type's stored integers: `i8`, `ui8`."""
    return f"{'i' if kind.storage.signed else 'ui'}{storage_width(kind)}"


@lru_cache(maxsize=4096)
def quantized_text(kind: Uniform) -> str:
    """A quantized element type: `!quant.uniform<ui8:f32, 0.1:3>`.

    Ranges per slice are written as their hull: only constants have them, and keep to them.

    Raises:
      UnsupportedExport: scales per block, or storage above 32 bits.
    """
    if kind.grid or kind.storage.bits > 32 or kind.storage.float_name:
        raise UnsupportedExport(
            f"StableHLO has no quantized type for {str(kind)[:120]}; "
            "it accepts integers of at most 32 bits, per tensor or per axis"
        )
    store, width = kind.storage, storage_width(kind)
    low = -(1 << width - 1) if store.signed else 0
    is_full = (store.qmin, store.qmax) == (low, low + (1 << width) - 1)
    head = storage_element(kind) + ("" if is_full else f"<{store.qmin}:{store.qmax}>")
    pairs = ",".join(
        float_text(scale) + (f":{zero}" if zero else "")
        for scale, zero in zip(kind.scales, kind.zero_points, strict=True)
    )
    if kind.axis is None:
        return f"!quant.uniform<{head}:f32, {pairs}>"
    return f"!quant.uniform<{head}:f32:{kind.axis}, {{{pairs}}}>"

"""Calls: the operands of one ONNX op for its StableHLO form, as tensors, or as numbers where known.

The same functions serve floats, stored integers and quantized elements; only fills differ.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from planner.errors import UnsupportedExport
from planner.formats.stablehlo.writer.function import Array, Program
from planner.formats.stablehlo.writer.tensors import Tensor
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.ops.operands import Operands, reduced_axes

Maker: TypeAlias = "Callable[[Call], tuple[Tensor, ...]]"


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One ONNX op to write.

    Attributes:
      tensor_of: the tensor of an operand.
      known_of: the numbers of an operand, None where they come at run time.
      kind: the type whose stored integers the op moves; None: plain numbers.
      left_open: what the model's inputs leave open, and how to size it (`common.known_shapes`).
    """

    p: Program
    op: Op
    tensor_of: Callable[[int], Tensor]
    known_of: Callable[[int], Array | None]
    kind: Uniform | None = None
    left_open: tuple[str, str] = ("", "")

    @property
    def attributes(self) -> Mapping[str, Any]:
        """Of the op."""
        return self.op.attributes

    @property
    def x(self) -> Tensor:
        """The first operand."""
        return self.tensor_of(0)

    def has(self, index: int) -> bool:
        """Whether an optional operand is there."""
        return index < len(self.op.inputs) and bool(self.op.inputs[index])

    def known(self, index: int, attribute: str = "") -> Array | None:
        """Numbers of an operand, or of the attribute that older operator sets have; None where absent.

        Raises:
          UnsupportedExport: they come at run time.
        """
        if not self.has(index):
            value = self.attributes.get(attribute) if attribute else None
            return None if value is None else np.asarray(value)
        found = self.known_of(index)
        if found is None:
            raise self.refusal(f"operand {index} ({self.op.inputs[index]!r}) is known only at run time")
        return found

    def integers(self, index: int, attribute: str = "") -> tuple[int, ...] | None:
        """The same as integers."""
        found = self.known(index, attribute)
        return None if found is None else tuple(int(item) for item in found.reshape(-1))

    def operands(self) -> Operands:
        """The operands for the op's definition; numbers that come at run time are refused."""
        places = {name: i for i, name in reversed(list(enumerate(self.op.inputs)))}
        return Operands(
            self.op,
            lambda name: self.tensor_of(places[name]).shape if name in places else None,
            lambda name: self.known(places[name]),
        )

    def axes(self) -> tuple[int, ...]:
        """The axes that the op reduces; those that come at run time are refused."""
        return reduced_axes(self.operands(), self.x.rank) or ()

    def fill(self, value: float) -> Tensor:
        """A scalar of the first operand's elements: real 0, or an end of their range."""
        x, kind = self.x, self.kind
        if kind is None:
            return self.p.number(_finite(value, x.element), x.element)
        stored = kind.zero_point
        if value:
            stored = kind.storage.qmin if value < 0 else kind.storage.qmax
        if x.kind is None:
            return self.p.number(stored, x.element)
        return self.p.stored_constant(np.asarray(stored), kind)

    def refusal(self, problem: str) -> UnsupportedExport:
        """Make the refusal of this op."""
        return UnsupportedExport(
            f"{self.p.place}: {self.op.type} at {self.op.name!r}: {problem}",
            hint=f"{self.left_open[1] or 'fold it into a constant'}, or use an ONNX format",
        )


def _finite(value: float, element: str) -> float:
    """Ends of an integer type in place of infinities."""
    if not math.isinf(value) or "f" in element:
        return value
    info = np.iinfo(
        "i" + str(int(element.strip("ui")) // 8) if element[0] != "u" else f"u{int(element[2:]) // 8}"
    )
    return int(info.min if value < 0 else info.max)

"""Calls: one op of a planned region as a writer of LiteRT operators sees it.

A writer takes stored integers and floats alike: the types of the operands and of the result say which.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from planner.formats.common.layouts import Order, channels_last
from planner.formats.litert.writer.operations import Options, Tensor
from planner.formats.litert.writer.program_builder import ProgramBuilder, element_of
from planner.ir.graph import Op
from planner.ir.types.qtypes import Uniform
from planner.plans.records import PortTyped

NONE: Final = 0
"""No activation inside an operator."""


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """An op to write.

    Attributes:
      kinds: the type of each operand that is a port, by index.
      y: the type of the result; None: float, or no float at all.
      bias: the operand of another op that is added to a product: (value, type).
      activation: fused into the operator that writes the result, where that can.
    """

    builder: ProgramBuilder
    op: Op
    kinds: Mapping[int, PortTyped]
    y: Uniform | None
    bias: tuple[str, PortTyped] | None = None
    activation: int = NONE

    @property
    def stem(self) -> str:
        """Name of the result."""
        return self.op.outputs[0]

    def has(self, index: int) -> bool:
        """Whether an operand is there."""
        return len(self.op.inputs) > index and bool(self.op.inputs[index])

    def kind(self, index: int) -> Uniform | None:
        """The quantized type of an operand; None: float."""
        found = self.kinds.get(index)
        return found if isinstance(found, Uniform) else None

    def tensor(self, index: int, order: Order | None = None) -> Tensor:
        """An operand; a constant is stored in an order."""
        return self.builder.operand(self.op.inputs[index], self.kinds.get(index), order)

    def last(self, index: int = 0) -> Tensor:
        """An operand with its axis 1 stored last."""
        rank = len(self.builder.sizes(self.op.inputs[index]))
        order = channels_last(rank)
        return self.builder.program.ordered(self.tensor(index, order), order)

    def image(self) -> Tensor:
        """The first operand with its channels last, one spatial axis made two."""
        return self.builder.program.image(self.last())

    def like(self, shape: Sequence[int], order: Order, element: str = "") -> Tensor:
        """A result of this type: of an element type of its own, if it is no quantized or float one."""
        plain = "f32" if self.y is None else element_of(self.y)
        return Tensor(-1, tuple(shape), element or plain, order, self.y)

    def emit(
        self, operator: str, operands: Sequence[Tensor | None], like: Tensor, table: str, options: Options
    ) -> Tensor:
        """Append the operator that computes the result."""
        return self.builder.program.emit(operator, operands, like, self.stem, (table, options))


Writer: TypeAlias = Callable[[Call], Sequence[Tensor] | None]
"""The results of an op; None where LiteRT has no operators that compute them."""

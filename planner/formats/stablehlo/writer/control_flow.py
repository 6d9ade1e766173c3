"""Control flow: branches as `if`, loops as `while`, in either form; values that cross a border keep their
types.

A branch whose condition is known before running is written as if the other were not there. A loop carries a
count, its condition where that is not always true, what one trip hands to the next, and the results it
collects, a slice a trip. Source: ONNX If, Loop and Scan; docs/specification.md, section 5.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from planner.formats.common.control_flow import Item
from planner.formats.common.loop_language import Language, Trips, Turn
from planner.formats.common.walk import Walk
from planner.formats.mlir.generic import Block as Region
from planner.formats.mlir.generic import Operation
from planner.formats.stablehlo.writer.function import Program
from planner.formats.stablehlo.writer.loops import COUNT, counted, filled, is_before, placed, renamed, sliced
from planner.formats.stablehlo.writer.operations import binary, convert, reshape
from planner.formats.stablehlo.writer.program_builder import ProgramBuilder
from planner.formats.stablehlo.writer.tensors import Tensor
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.lowering.bodies import Border, Choice, Cycle
from planner.plans.records import PortTyped

Writer: TypeAlias = Callable[[ProgramBuilder, Block], None]
Operations: TypeAlias = Sequence[Operation]


def write_items(builder: ProgramBuilder, items: Sequence[Item], write: Writer) -> None:
    """Write blocks in order, with `write`, and the bodies that stand among them."""
    Walk(builder.values, _Language(builder, write, builder.form.name)).write(items)


class _Language(Language[Tensor]):
    """StableHLO's operations for loops and branches; see `loop_language`."""

    builder: ProgramBuilder

    @property
    def p(self) -> Program:
        return self.builder.p

    @property
    def place(self) -> str:
        return self.p.place

    def start(self, item: Border | Choice | Cycle) -> None:
        if not isinstance(item, Border):
            self.p.start(item.scope.owner, item.place)

    def shape(self, value: str) -> tuple[int, ...]:
        return self.builder.shape(value)

    def text(self, tensor: Tensor) -> str:
        return str(tensor.type)

    def read(self, value: str, kind: PortTyped, _like: Tensor | None = None) -> Tensor:
        values = self.builder.values
        return values.integers(value, kind) if isinstance(kind, Uniform) else values.real(value)

    def flag(self, value: str) -> Tensor:
        return self.condition(self.builder.values.real(value))

    def choose(
        self, _choice: Choice, flag: Tensor, made: Sequence[tuple[Operations, list[Tensor]]]
    ) -> Sequence[Tensor]:
        regions = tuple(self.p.closed((), *body) for body in made)
        return self.p.emit_many("if", [flag], made[0][1], regions)

    def number(self, count: int) -> Tensor:
        return counted(self.p, count)

    def more(self, count: Tensor) -> Tensor:
        return binary(self.p, "add", count, counted(self.p, 1))

    def from_end(self, count: Tensor, slices: int) -> Tensor:
        return binary(self.p, "subtract", counted(self.p, slices - 1), count)

    def true(self) -> Tensor:
        return self.p.number(1, "i1")

    def condition(self, tensor: Tensor) -> Tensor:
        return reshape(self.p, tensor, ())

    def bounded(self, loop: Trips, first: Callable[[], list[Tensor]]) -> tuple[Tensor | None, list[Tensor]]:
        """The number of trips stands in front of the loop, known or computed: its bodies see it there."""
        entering = first()
        if loop.trips is not None:
            return counted(self.p, loop.trips), entering
        if not loop.bound:
            return None, entering
        return self.condition(convert(self.p, self.builder.values.real(loop.bound), COUNT)), entering

    def arguments(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return list(renamed(self.p, tensors, "in"))

    def sliced(
        self, _body: Operations, rows: Tensor, at: Tensor, axis: int, _shape: tuple[int, ...], _stem: str
    ) -> Tensor:
        return sliced(self.p, rows, at, axis)

    def buffer(self, _border: Border, part: Tensor, axis: int, trips: int) -> Tensor:
        shape = (*part.shape[:axis], trips, *part.shape[axis:])
        return renamed(self.p, [replace(part, shape=shape)], "in")[0]

    def placed(self, rows: Tensor, part: Tensor, at: Tensor, axis: int, _stem: str) -> Tensor:
        return placed(self.p, rows, part, at, axis)

    def empty(self, border: Border, rows: Tensor) -> Tensor:
        if isinstance(border.kind, Uniform):
            zero = self.builder.form.constant(self.p, np.asarray(border.kind.zero_point), border.kind)
        else:
            zero = self.p.number(0, rows.element)
        return filled(self.p, zero, rows.shape)

    def loop(self, turn: Turn[Tensor]) -> Sequence[Tensor]:
        body = self.p.closed(turn.seen, turn.body, turn.after)
        return self.p.emit_many("while", turn.entering, turn.entering, (self._going(turn), body))

    def _going(self, turn: Turn[Tensor]) -> Region:
        """Whether there is another trip; a condition is carried right behind the count."""
        p, going = self.p, None
        seen = renamed(p, turn.entering, "in")
        with p.inside() as operations:
            if turn.bound is not None:
                going = is_before(p, seen[0], turn.bound)
            if not turn.loop.is_steady:
                going = seen[1] if going is None else binary(p, "and", going, seen[1])
        assert going is not None  # noqa: S101 - `Cycle.check` saw an end
        return p.closed(seen, operations, [going])

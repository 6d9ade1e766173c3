"""Control flow: branches as COND_IF, loops as WHILE_LOOP; values that cross a border keep their types.

A body sees nothing but its arguments, so what it reads from around it is handed in, and in a loop on. Slices
of a trip are taken by GATHER and put down by SCATTER, along the first axis of three.
Source: TOSA 1.0, control flow operators (EXT-CONTROLFLOW); ONNX If, Loop and Scan.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Final, TypeAlias

import numpy as np

from planner.formats.common.control_flow import Item
from planner.formats.common.layouts import plain
from planner.formats.common.loop_language import OrderedLanguage, Trips, Turn
from planner.formats.common.walk import Walk
from planner.formats.tosa.writer.operations import Body, Program, Tensor
from planner.formats.tosa.writer.program_builder import ProgramBuilder, held
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.lowering.bodies import Border, Choice

Writer: TypeAlias = Callable[[ProgramBuilder, Block], None]
Tensors: TypeAlias = Sequence[Tensor]

_COUNT: Final = Tensor("count", (), "i32", ())
_MOVED: Final = ("f32", "i16", "i32", "i8")
"""Elements that GATHER and SCATTER take."""


def write_items(builder: ProgramBuilder, items: Sequence[Item], write: Writer) -> None:
    """Write blocks in order, with `write`, and the bodies that stand among them."""
    Walk(builder.values, _Language(builder, write, "tosa")).write(items)


class _Language(OrderedLanguage[Tensor]):
    """TOSA's operators for loops and branches; see `loop_language`."""

    builder: ProgramBuilder

    @property
    def program(self) -> Program:
        return self.builder.program

    def flag(self, value: str) -> Tensor:
        return self.condition(self.builder.real(value))

    def choose(self, _choice: Choice, flag: Tensor, made: Sequence[tuple[Body, list[Tensor]]]) -> Tensors:
        program = self.program
        outside = {name: pair[0] for body, _ in made for name, pair in body.captured.items()}
        regions = tuple(
            program.closed([program.captured(body, each) for each in outside.values()], body, results)
            for body, results in made
        )
        return program.emit_bodies("cond_if", [flag, *outside.values()], made[0][1], regions)

    def number(self, count: int) -> Tensor:
        return count_of(self.program, count)

    def more(self, count: Tensor) -> Tensor:
        return plus(self.program, count, 1)

    def from_end(self, count: Tensor, slices: int) -> Tensor:
        return from_end(self.program, count, slices)

    def true(self) -> Tensor:
        return Tensor(self.program.constant(np.asarray(True), "i1"), (), "i1", ())

    def condition(self, tensor: Tensor) -> Tensor:
        return self.program.reshaped(tensor, ())

    def bounded(self, loop: Trips, first: Callable[[], list[Tensor]]) -> tuple[Tensor | None, list[Tensor]]:
        bound = self.condition(self.builder.real(loop.bound)) if loop.bound else None
        return bound, first()

    def rows(self, border: Border, whole: Tensor, axis: int) -> Tensor:
        """The slices, stored as (1, slices, elements of one)."""
        self._refuse_element(border, whole)
        order = (axis, *(i for i in range(len(whole.shape)) if i != axis))
        shape = (1, whole.shape[axis], prod(whole.shape) // whole.shape[axis])
        return self.program.reshaped(self.program.ordered(whole, order), shape)

    def sliced(
        self, body: Body, rows: Tensor, at: Tensor, _axis: int, shape: tuple[int, ...], stem: str
    ) -> Tensor:
        program, rows = self.program, self.program.captured(body, rows)
        like = replace(rows, shape=(1, 1, rows.shape[2]))
        found = program.emit("gather", [rows, program.reshaped(at, (1, 1))], like, stem)
        return program.reshaped(found, shape)

    def grown(self, border: Border, part: Tensor, _axis: int, trips: int) -> Tensor:
        self._refuse_element(border, part)
        return Tensor(border.value, (1, trips, prod(part.shape)), part.element, plain(3))

    def placed(self, rows: Tensor, part: Tensor, at: Tensor, _axis: int, stem: str) -> Tensor:
        program = self.program
        row = program.reshaped(part, (1, 1, rows.shape[2]))
        return program.emit("scatter", [rows, program.reshaped(at, (1, 1)), row], rows, stem)

    def empty(self, border: Border, rows: Tensor) -> Tensor:
        zero = held(border.kind).zero_point if isinstance(border.kind, Uniform) else 0
        return replace(rows, name=self.program.constant(np.full(rows.shape, zero), rows.element))

    def collected(self, rows: Tensor, shape: tuple[int, ...], axis: int) -> Tensor:
        order = (axis, *(i for i in range(len(shape) + 1) if i != axis))
        return self.program.reshaped(rows, (rows.shape[1], *shape), order)

    def loop(self, turn: Turn[Tensor]) -> Tensors:
        parts = turn.entering, turn.seen, turn.after
        return looped(self.program, turn.loop, turn.bound, turn.body, *parts)

    def _refuse_element(self, border: Border, tensor: Tensor) -> None:
        if tensor.element not in _MOVED:
            raise self.builder.refuse(
                f"slices of {border.value!r} are {tensor.element}; tosa accepts {', '.join(_MOVED)}"
            )


def looped(  # noqa: PLR0917
    program: Program,
    loop: Trips,
    bound: Tensor | None,
    body: Body,
    entering: Tensors,
    seen: Tensors,
    after: Tensors,
) -> tuple[Tensor, ...]:
    """The loop; what its body reads from around it is handed on as it is."""
    if bound is not None:
        program.captured(body, bound)
    outside = [pair[0] for pair in body.captured.values()]
    inside = [pair[1] for pair in body.captured.values()]
    given = [*entering, *outside]
    asked = [program.twin(tensor) for tensor in given]
    with program.inside() as question:
        going = None
        if loop.trips is not None or bound is not None:
            end = count_of(program, loop.trips or 0)
            if bound is not None:
                end = asked[len(entering) + list(body.captured).index(bound.name)]
            going = program.emit("greater", [end, asked[0]], replace(_COUNT, element="i1"), "going")
        if not loop.is_steady:
            going = (
                asked[1] if going is None else program.emit("logical_and", [going, asked[1]], going, "going")
            )
    assert going is not None  # noqa: S101 - `Cycle.check` saw an end
    regions = (
        program.closed(asked, question, [going]),
        program.closed([*seen, *inside], body, [*after, *inside]),
    )
    return program.emit_bodies("while_loop", given, given, regions)[: len(entering)]


def count_of(program: Program, number: int) -> Tensor:
    """A count of trips."""
    return replace(_COUNT, name=program.constant(np.asarray(number), "i32"))


def plus(program: Program, count: Tensor, number: int) -> Tensor:
    """A count and a number."""
    return program.emit("add", [count, count_of(program, number)], count, "count")


def from_end(program: Program, count: Tensor, slices: int) -> Tensor:
    """The place of a trip's slice where the last comes first."""
    return program.emit("sub", [count_of(program, slices - 1), count], count, "at")

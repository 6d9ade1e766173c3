"""Control flow: branches as IF, loops as WHILE, their bodies as subgraphs; borders keep their types.

A subgraph sees nothing but its arguments and constants, so what it reads from around it is handed in, and in
a loop on. The slice of a trip is a GATHER; results are put into a tensor of their whole size, slice by slice,
by DYNAMIC_UPDATE_SLICE.
Source: TensorFlow Lite, kernels of IF and WHILE; ONNX If, Loop and Scan.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from planner.formats.common.control_flow import Item
from planner.formats.common.layouts import plain
from planner.formats.common.loop_language import OrderedLanguage, Trips, Turn
from planner.formats.common.walk import Walk
from planner.formats.litert.writer.operations import Body, Operator, Options, Program, Tensor
from planner.formats.litert.writer.program_builder import ProgramBuilder
from planner.lowering.blocks import Block
from planner.lowering.bodies import Border, Choice
from planner.plans.records import PortTyped

Writer: TypeAlias = Callable[[ProgramBuilder, Block], None]
Operators: TypeAlias = Sequence[Operator]

_COUNT: Final = Tensor(-1, (), "i32", ())
_FLAG: Final = Tensor(-1, (1,), "bool", (0,))
_INT32: Final = 2
_MOST: Final = (1 << 31) - 1
_INT64: Final = 4


def write_items(builder: ProgramBuilder, items: Sequence[Item], write: Writer) -> None:
    """Write blocks in order, with `write`, and the bodies that stand among them."""
    Walk(builder.values, _Language(builder, write, "litert")).write(items)


class _Language(OrderedLanguage[Tensor]):
    """LiteRT's operators for loops and branches; see `loop_language`."""

    builder: ProgramBuilder

    @property
    def program(self) -> Program:
        return self.builder.program

    def read(self, value: str, kind: PortTyped, like: Tensor | None = None) -> Tensor:
        tensor = self.made(value, kind)
        is_like = like is not None and len(like.order) == len(tensor.order)
        return self.program.ordered(tensor, like.order if like and is_like else plain(len(tensor.shape)))

    @contextmanager
    def trip(self) -> Iterator[Operators]:
        self.builder.loops += 1
        try:
            with self.builder.inside() as operators:
                yield operators
        finally:
            self.builder.loops -= 1

    def flag(self, value: str) -> Tensor:
        return self.builder.real(value)

    def choose(
        self, choice: Choice, flag: Tensor, made: Sequence[tuple[Operators, list[Tensor]]]
    ) -> Sequence[Tensor]:
        program = self.program
        names = [f"{choice.scope.owner}/{word}" for word in ("then", "else")]
        bodies = [
            program.closed(name, *parts[:1], (), parts[1]) for name, parts in zip(names, made, strict=True)
        ]
        outside = tuple(dict.fromkeys(index for body in bodies for index in program.captured(body)))
        bodies = [replace(body, arguments=outside) for body in bodies]
        return program.emit_bodies(
            "IF",
            (flag.index, *outside),
            [(join.value, tensor) for join, tensor in zip(choice.joins, made[0][1], strict=True)],
            "IfOptions",
            dict(zip(("ThenSubgraphIndex", "ElseSubgraphIndex"), bodies, strict=True)),
        )

    def number(self, count: int) -> Tensor:
        return self.program.constant(np.asarray(count), "i32", "number")

    def more(self, count: Tensor) -> Tensor:
        return self.program.emit("ADD", [count, self.number(1)], _COUNT, "count", ("AddOptions", {}))

    def from_end(self, count: Tensor, slices: int) -> Tensor:
        return self.program.emit("SUB", [self.number(slices - 1), count], count, "place", ("SubOptions", {}))

    def index(self, count: Tensor) -> Tensor:
        return _cast(self.program, count, "i64")

    def true(self) -> Tensor:
        return self.program.constant(np.asarray([True]), "bool", "yes")

    def condition(self, tensor: Tensor) -> Tensor:
        return self.program.reshaped(tensor, (1,))

    def bounded(self, loop: Trips, first: Callable[[], list[Tensor]]) -> tuple[Tensor | None, list[Tensor]]:
        bound = _bound(self.program, self.builder.real(loop.bound)) if loop.bound else None
        return bound, first()

    def sliced(
        self, _body: Operators, rows: Tensor, at: Tensor, axis: int, shape: tuple[int, ...], stem: str
    ) -> Tensor:
        like = replace(rows, shape=shape, order=plain(len(shape)))
        return self.program.emit("GATHER", [rows, at], like, stem, ("GatherOptions", {"Axis": axis}))

    def grown(self, _border: Border, part: Tensor, axis: int, trips: int) -> Tensor:
        whole = (*part.shape[:axis], trips, *part.shape[axis:])
        return replace(part, shape=whole, order=plain(len(whole)))

    def placed(self, rows: Tensor, part: Tensor, at: Tensor, axis: int, stem: str) -> Tensor:
        program, rank = self.program, len(rows.shape)
        along = program.numbers([int(i == axis) for i in range(rank)], "along")
        starts = program.emit("MUL", [along, at], along, "starts", ("MulOptions", {}))
        sizes = (*part.shape[:axis], 1, *part.shape[axis:])
        operands = [rows, program.reshaped(part, sizes), starts]
        return program.emit("DYNAMIC_UPDATE_SLICE", operands, rows, stem)

    def empty(self, _border: Border, rows: Tensor) -> Tensor:
        zero = rows.kind.zero_point if rows.kind is not None else 0
        return self.program.constant(np.full(rows.shape, zero), rows.element, "empty", kind=rows.kind)

    def loop(self, turn: Turn[Tensor]) -> Sequence[Tensor]:
        """The loop; what its body or its question reads from around it is handed on as it is."""
        program, entering = self.program, turn.entering
        body = program.closed(f"{turn.cycle.scope.owner}/body", turn.body, turn.seen, turn.after)
        outside = program.captured(body)
        if turn.bound is not None and turn.bound.index not in outside:
            outside = (*outside, turn.bound.index)
        asked = [program.twin(tensor) for tensor in entering]
        with program.inside() as operators:
            going = self._going(turn, asked)
        arguments = (*(tensor.index for tensor in asked), *outside)
        question = Body(f"{body.name}/going", tuple(operators), arguments, (going.index,))
        run = replace(body, arguments=(*body.arguments, *outside), results=(*body.results, *outside))
        given = (*(tensor.index for tensor in entering), *outside)
        likes = [
            *zip(turn.names, turn.seen, strict=True),
            *((program.entries[index].name, program.named(index)) for index in outside),
        ]
        bodies = {"CondSubgraphIndex": question, "BodySubgraphIndex": run}
        return program.emit_bodies("WHILE", given, likes, "WhileOptions", bodies)[: len(entering)]

    def _going(self, turn: Turn[Tensor], asked: Sequence[Tensor]) -> Tensor:
        """Whether there is another trip."""
        program, loop, going = self.program, turn.loop, None
        if loop.trips is not None or turn.bound is not None:
            # Counts have 32 bits here; a larger one, of a loop that its condition ends, is never reached.
            end = self.number(min(loop.trips or 0, _MOST)) if turn.bound is None else turn.bound
            like = replace(end, index=-1, element="bool")
            going = program.emit("LESS", [asked[0], end], like, "going", ("LessOptions", {}))
        if not loop.is_steady:
            both = None if going is None else [going, asked[1]]
            options: tuple[str, Options] = ("LogicalAndOptions", {})
            going = program.emit("LOGICAL_AND", both, _FLAG, "going", options) if both else asked[1]
        assert going is not None  # noqa: S101 - `Cycle.check` saw an end
        return going


def _bound(program: Program, tensor: Tensor) -> Tensor:
    """A computed number of trips in 32 bits; a larger one is never reached."""
    if tensor.element != "i64":
        return _cast(program, tensor, "i32")
    most = program.constant(np.asarray(_MOST), "i64", "most")
    least = program.emit(
        "MINIMUM", [tensor, most], replace(tensor, index=-1), "most", ("MaximumMinimumOptions", {})
    )
    return _cast(program, least, "i32")


def _cast(program: Program, tensor: Tensor, element: str) -> Tensor:
    """Plain integers in another width."""
    if tensor.element == element:
        return tensor
    codes = {"i32": _INT32, "i64": _INT64}
    options = {"InDataType": codes[tensor.element], "OutDataType": codes[element]}
    like = replace(tensor, element=element)
    return program.emit("CAST", [tensor], like, "count", ("CastOptions", options))

"""Control flow: branches as COND_IF, loops as WHILE_LOOP; what crosses a border keeps its type.

A body sees nothing but its arguments, so what it reads from around it is handed in, and in a loop on. Slices
of a trip are taken by GATHER and put down by SCATTER, along the first axis of three.
Source: TOSA 1.0, control flow operators (EXT-CONTROLFLOW); ONNX If, Loop and Scan.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Final, TypeAlias

import numpy as np

from planner.exporters.common.blocks import Block
from planner.exporters.common.control_flow import Border, Choice, Cycle, Item
from planner.exporters.common.layouts import plain
from planner.exporters.common.walk import Trips, Walk, Writers
from planner.exporters.tosa.operations import Body, Program, Tensor
from planner.exporters.tosa.program_builder import ProgramBuilder, held
from planner.interpreter.bodies import border_arithmetic
from planner.ir.types.qtypes import Uniform
from planner.plans.records import PortTyped

Writer: TypeAlias = Callable[[ProgramBuilder, Block], None]
Tensors: TypeAlias = Sequence[Tensor]

_COUNT: Final = Tensor("count", (), "i32", ())
_MOVED: Final = ("f32", "i16", "i32", "i8")
"""Elements that GATHER and SCATTER take."""


def write_items(builder: ProgramBuilder, items: Sequence[Item], write: Writer) -> None:
    """Write blocks in order, with `write`, and the bodies that stand among them."""
    own = Writers(
        "tosa",
        partial(write, builder),
        partial(_start, builder),
        partial(_read, builder),
        partial(_choose, builder),
        partial(_repeat, builder),
        builder.sizes,
    )
    Walk(builder.values, own).write(items)


def _start(builder: ProgramBuilder, item: Border | Choice | Cycle) -> None:
    builder.address = item.op.name if isinstance(item, Border) else item.place
    builder.values.arithmetic = border_arithmetic(builder.plan)


def _read(builder: ProgramBuilder, value: str, kind: PortTyped) -> Tensor:
    """The tensor that a border hands over, stored as the model has it."""
    tensor = builder.operand(value, kind) if isinstance(kind, Uniform) else builder.real(value)
    return builder.program.ordered(tensor, plain(len(tensor.shape)))


def _choose(builder: ProgramBuilder, walk: Walk[Tensor], choice: Choice) -> Tensors:
    flag = builder.program.reshaped(builder.real(choice.condition), ())
    made: list[tuple[Body, list[Tensor]]] = []
    for index in range(len(choice.branches)):
        with builder.inside() as body:
            made.append((body, walk.finish_branch(choice, index)))
    for join, a, b in zip(choice.joins, made[0][1], made[1][1], strict=True):
        walk.refuse_change(builder.address, f"its branches give {join.value!r}", _text(a), _text(b))
    outside = {name: pair[0] for body, _ in made for name, pair in body.captured.items()}
    regions = tuple(
        builder.program.closed(
            [builder.program.captured(body, each) for each in outside.values()], body, results
        )
        for body, results in made
    )
    return builder.program.emit_bodies("cond_if", [flag, *outside.values()], made[0][1], regions)


def _text(tensor: Tensor) -> str:
    return f"{tensor.element}{list(tensor.shape)}"


def _repeat(builder: ProgramBuilder, walk: Walk[Tensor], cycle: Cycle, loop: Trips) -> Tensors:
    program = builder.program
    bound = program.reshaped(builder.real(loop.bound), ()) if loop.bound else None
    entering = [count_of(program, 0), *(_first(program, walk, cycle, begin) for begin, _ in loop.pairs)]
    slabs = [_slab(builder, cycle, begin, walk.read(begin)) for begin in cycle.slices]
    seen = [program.twin(tensor) for tensor in entering]
    with builder.inside() as body:
        _enter(builder, walk, cycle, loop, seen)
        for begin, slab in zip(cycle.slices, slabs, strict=True):
            at = place(program, seen[0], slab.size, is_back=cycle.is_back("input", begin.index))
            rows = program.captured(body, slab.rows)
            walk.define(begin, _sliced(program, replace(slab, rows=rows), at, begin.value))
        walk.write(cycle.items)
        _start(builder, cycle)
        after = [plus(program, seen[0], 1)]
        after += [_given(program, cycle, begin, walk.read(end)) for begin, end in loop.pairs]
        grown = [
            _collect(builder, cycle, end, walk.read(end), seen[0], loop.trips or 0) for end in cycle.collected
        ]
    for (begin, _), a, b in zip(loop.pairs, entering[1:], after[1:], strict=True):
        walk.refuse_change(builder.address, f"a trip takes and leaves {begin.value!r}", _text(a), _text(b))
    entering += [
        _empty(program, end, slab.rows) for end, (slab, _) in zip(cycle.collected, grown, strict=True)
    ]
    found = looped(
        program,
        loop,
        bound,
        body,
        entering,
        [*seen, *(slab.rows for slab, _ in grown)],
        [*after, *(filled for _, filled in grown)],
    )
    count = 1 + len(loop.pairs)
    collected = [
        program.reshaped(
            rows, tuple(slab.size if i == slab.order[0] else slab.sizes[i] for i in slab.order), slab.order
        )
        for (slab, _), rows in zip(grown, found[count:], strict=True)
    ]
    return [*found[1:count], *collected]


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


def _given(program: Program, cycle: Cycle, begin: Border, tensor: Tensor) -> Tensor:
    """A tensor as a trip takes it: a condition is a scalar."""
    return program.reshaped(tensor, ()) if cycle.is_condition(begin) else tensor


def _first(program: Program, walk: Walk[Tensor], cycle: Cycle, begin: Border) -> Tensor:
    """The tensor that the first trip takes; the condition that a Loop leaves out holds."""
    if not begin.source:
        return Tensor(program.constant(np.asarray(True), "i1"), (), "i1", ())
    return _given(program, cycle, begin, walk.read(begin))


def _enter(builder: ProgramBuilder, walk: Walk[Tensor], cycle: Cycle, loop: Trips, seen: Tensors) -> None:
    """Define what a trip sees: the count of a Loop, and what is handed to it."""
    for begin in cycle.begins:
        if cycle.is_count(begin):
            builder.values.define_real(begin.value, seen[0])
    for (begin, _), tensor in zip(loop.pairs, seen[1:], strict=True):
        walk.define(begin, tensor)


@dataclass(frozen=True, slots=True, eq=False)
class _Slab:
    """A tensor with the slices of all trips.

    Attributes:
      rows: stored as (1, slices, elements of one).
      sizes: by the model's axes, 1 for that of the slices.
      order: that axis first.
    """

    rows: Tensor
    sizes: tuple[int, ...]
    order: tuple[int, ...]

    @property
    def size(self) -> int:
        """How many slices there are."""
        return self.rows.shape[1]


def _slab(builder: ProgramBuilder, cycle: Cycle, begin: Border, whole: Tensor) -> _Slab:
    """The operand that a Scan takes slice by slice."""
    program = builder.program
    _refuse_element(builder, begin, whole)
    axis = cycle.axis("input", begin.index, len(whole.shape))
    order = (axis, *(i for i in range(len(whole.shape)) if i != axis))
    shape = (1, whole.shape[axis], prod(whole.shape) // whole.shape[axis])
    rows = program.reshaped(program.ordered(whole, order), shape)
    return _Slab(rows, tuple(1 if i == axis else n for i, n in enumerate(whole.shape)), order)


def _sliced(program: Program, slab: _Slab, at: Tensor, stem: str) -> Tensor:
    """The slice of a trip, without the axis of slices."""
    like = replace(slab.rows, shape=(1, 1, slab.rows.shape[2]))
    found = program.emit("gather", [slab.rows, program.reshaped(at, (1, 1))], like, stem)
    return program.reshaped(found, [slab.sizes[i] for i in slab.order[1:]])


def _collect(  # noqa: PLR0917
    builder: ProgramBuilder, cycle: Cycle, end: Border, tensor: Tensor, count: Tensor, trips: int
) -> tuple[_Slab, Tensor]:
    """The slices of the trips before, an argument of the body, and the same with that of this trip."""
    program = builder.program
    if not trips:
        raise builder.refuse(
            f"{end.value!r} has a slice of each of 0 trips; tosa accepts tensors with elements"
        )
    _refuse_element(builder, end, tensor)
    rank = len(tensor.shape) + 1
    axis = cycle.axis("output", end.index, rank)
    sizes = (*tensor.shape[:axis], 1, *tensor.shape[axis:])
    elements = prod(tensor.shape)
    rows = program.twin(Tensor(end.value, (1, trips, elements), tensor.element, plain(3)))
    at = place(program, count, trips, is_back=cycle.is_back("output", end.index))
    row = program.reshaped(tensor, (1, 1, elements))
    filled = program.emit("scatter", [rows, program.reshaped(at, (1, 1)), row], rows, end.value)
    return _Slab(rows, sizes, (axis, *(i for i in range(rank) if i != axis))), filled


def _empty(program: Program, end: Border, rows: Tensor) -> Tensor:
    """The tensor that collects slices, all zero before the first trip."""
    zero = held(end.kind).zero_point if isinstance(end.kind, Uniform) else 0
    return replace(rows, name=program.constant(np.full(rows.shape, zero), rows.element))


def _refuse_element(builder: ProgramBuilder, border: Border, tensor: Tensor) -> None:
    if tensor.element not in _MOVED:
        raise builder.refuse(
            f"slices of {border.value!r} are {tensor.element}; tosa accepts {', '.join(_MOVED)}"
        )


def place(program: Program, count: Tensor, slices: int, *, is_back: bool) -> Tensor:
    """The index of a trip's slice."""
    if not is_back:
        return count
    return program.emit("sub", [count_of(program, slices - 1), count], count, "at")

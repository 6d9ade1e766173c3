"""Control flow: branches as COND_IF, loops as WHILE_LOOP; what crosses a border keeps its type.

A body sees nothing but its arguments, so what it reads from around it is handed in, and in a loop on. Slices
of a trip are taken by GATHER and put down by SCATTER, along the first axis of three.
Source: TOSA 1.0, control flow operators (EXT-CONTROLFLOW); ONNX If, Loop and Scan.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final, TypeAlias

import numpy as np

from planner.errors import UnsupportedExport
from planner.exporters.common.blocks import BORDER_ARITHMETIC, Block
from planner.exporters.common.control_flow import Border, Choice, Cycle, Item
from planner.exporters.common.layouts import plain
from planner.exporters.tosa.operations import Body, Program, Tensor
from planner.exporters.tosa.program_builder import ProgramBuilder, held
from planner.ir.types.qtypes import Uniform

Writer: TypeAlias = Callable[[ProgramBuilder, Block], None]
Tensors: TypeAlias = Sequence[Tensor]

_COUNT: Final = Tensor("count", (), "i32", ())
_MOVED: Final = ("f32", "i16", "i32", "i8")
"""Elements that GATHER and SCATTER take."""


def write_items(builder: ProgramBuilder, items: Sequence[Item], write: Writer) -> None:
    """Write blocks in order, with `write`, and the bodies that stand among them."""
    for item in items:
        match item:
            case Block():
                write(builder, item)
            case Border():
                _hand_over(builder, item)
            case Choice():
                _choose(builder, item, write)
            case Cycle():
                _repeat(builder, item, write)


def _start(builder: ProgramBuilder, place: str) -> None:
    builder.address, builder.values.arithmetic = place, BORDER_ARITHMETIC


def _hand_over(builder: ProgramBuilder, border: Border) -> None:
    known = builder.values.known(border.source)
    if known is not None and not isinstance(border.kind, Uniform):
        builder.values.numbers[border.value] = known
        return
    _start(builder, border.op.name)
    _define(builder, border, _read(builder, border, border.source))


def _read(builder: ProgramBuilder, border: Border, source: str) -> Tensor:
    """The tensor that a border hands over, stored as the model has it."""
    kind = border.kind
    tensor = builder.operand(source, kind) if isinstance(kind, Uniform) else builder.real(source)
    return builder.program.ordered(tensor, plain(len(tensor.shape)))


def _define(builder: ProgramBuilder, border: Border, tensor: Tensor) -> None:
    if isinstance(border.kind, Uniform):
        builder.values.define_stored(border.value, border.kind, tensor)
    else:
        builder.values.define_real(border.value, tensor)


def _choose(builder: ProgramBuilder, choice: Choice, write: Writer) -> None:
    index = choice.taken(builder.values.known)
    if index is not None:
        taken = choice.branches[index]
        write_items(builder, (*taken.begins, *taken.items), write)
        for join in choice.joins:
            _start(builder, choice.place)
            _define(builder, join, _read(builder, join, join.branch(index)))
        return
    for branch in choice.branches:
        write_items(builder, branch.begins, write)
    _start(builder, choice.place)
    flag = builder.program.reshaped(builder.real(choice.condition), ())
    made: list[tuple[Body, list[Tensor]]] = []
    for index, branch in enumerate(choice.branches):
        with builder.inside() as body:
            write_items(builder, branch.items, write)
            _start(builder, choice.place)
            made.append((body, [_read(builder, join, join.branch(index)) for join in choice.joins]))
    for join, a, b in zip(choice.joins, made[0][1], made[1][1], strict=True):
        _refuse_change(builder, f"its branches give {join.value!r}", a, b)
    outside = {name: pair[0] for body, _ in made for name, pair in body.captured.items()}
    regions = tuple(
        builder.program.closed(
            [builder.program.captured(body, each) for each in outside.values()], body, results
        )
        for body, results in made
    )
    found = builder.program.emit_bodies("cond_if", [flag, *outside.values()], made[0][1], regions)
    for join, tensor in zip(choice.joins, found, strict=True):
        _define(builder, join, tensor)


def _refuse_change(builder: ProgramBuilder, what: str, a: Tensor, b: Tensor) -> None:
    if (a.shape, a.element) != (b.shape, b.element):
        shapes = " and as ".join(f"{each.element}{list(each.shape)}" for each in (a, b))
        raise UnsupportedExport(
            f"{builder.address}: {what} as {shapes}; tosa accepts one shape",
            hint="give the model's inputs fixed sizes, or use an ONNX format",
        )


def _repeat(builder: ProgramBuilder, cycle: Cycle, write: Writer) -> None:
    write_items(builder, cycle.unchanged, write)
    _start(builder, cycle.place)
    program, loop = builder.program, _trips(builder, cycle)
    entering = [count_of(program, 0), *(_first(builder, cycle, begin) for begin, _ in loop.pairs)]
    slabs = [_slab(builder, cycle, begin) for begin in cycle.slices]
    seen = [program.twin(tensor) for tensor in entering]
    with builder.inside() as body:
        _enter(builder, cycle, loop, seen)
        for begin, slab in zip(cycle.slices, slabs, strict=True):
            at = place(program, seen[0], slab.size, is_back=cycle.is_back("input", begin.index))
            rows = program.captured(body, slab.rows)
            _define(builder, begin, _sliced(program, replace(slab, rows=rows), at, begin.value))
        write_items(builder, cycle.items, write)
        _start(builder, cycle.place)
        after = [plus(program, seen[0], 1)]
        after += [_given(program, cycle, begin, _read(builder, end, end.source)) for begin, end in loop.pairs]
        grown = [_collect(builder, cycle, end, seen[0], loop.trips or 0) for end in cycle.collected]
    for (begin, _), a, b in zip(loop.pairs, entering[1:], after[1:], strict=True):
        _refuse_change(builder, f"a trip takes and leaves {begin.value!r}", a, b)
    entering += [
        _empty(program, end, slab.rows) for end, (slab, _) in zip(cycle.collected, grown, strict=True)
    ]
    found = looped(
        program,
        loop,
        body,
        entering,
        [*seen, *(slab.rows for slab, _ in grown)],
        [*after, *(filled for _, filled in grown)],
    )
    for (_, end), tensor in zip(loop.pairs, found[1:], strict=False):
        _define(builder, end, tensor)
    for end, (slab, _), rows in zip(cycle.collected, grown, found[1 + len(loop.pairs) :], strict=True):
        shape = tuple(slab.size if i == slab.order[0] else slab.sizes[i] for i in slab.order)
        _define(builder, end, program.reshaped(rows, shape, slab.order))


@dataclass(frozen=True, slots=True, eq=False)
class Trips:
    """The trips of a loop, and the values handed from one to the next.

    Attributes:
      pairs: where what one trip hands to the next enters and leaves, a condition first.
      trips: how many there are, where that is known.
      bound: the number of trips at most, where it is computed.
      is_steady: whether the first pair is no condition.
    """

    pairs: tuple[tuple[Border, Border], ...]
    trips: int | None
    bound: Tensor | None
    is_steady: bool


def _trips(builder: ProgramBuilder, cycle: Cycle) -> Trips:
    is_steady, trips = cycle.is_steady(builder.values.known), cycle.trips(builder.values.known, builder.sizes)
    cycle.check("tosa", trips, is_steady=is_steady)
    bound = None
    if trips is None and cycle.scope.operands[0]:
        bound = builder.program.reshaped(builder.real(cycle.scope.operands[0]), ())
    return Trips(cycle.pairs(is_steady=is_steady), trips, bound, is_steady)


def looped(  # noqa: PLR0917
    program: Program, loop: Trips, body: Body, entering: Tensors, seen: Tensors, after: Tensors
) -> tuple[Tensor, ...]:
    """The loop; what its body reads from around it is handed on as it is."""
    if loop.bound is not None:
        program.captured(body, loop.bound)
    outside = [pair[0] for pair in body.captured.values()]
    inside = [pair[1] for pair in body.captured.values()]
    given = [*entering, *outside]
    asked = [program.twin(tensor) for tensor in given]
    with program.inside() as question:
        going = None
        if loop.trips is not None or loop.bound is not None:
            end = count_of(program, loop.trips or 0)
            if loop.bound is not None:
                end = asked[len(entering) + list(body.captured).index(loop.bound.name)]
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


def _first(builder: ProgramBuilder, cycle: Cycle, begin: Border) -> Tensor:
    """The tensor that the first trip takes; the condition that a Loop leaves out holds."""
    if not begin.source:
        yes = builder.program.constant(np.asarray(True), "i1")
        return Tensor(yes, (), "i1", ())
    return _given(builder.program, cycle, begin, _read(builder, begin, begin.source))


def _enter(builder: ProgramBuilder, cycle: Cycle, loop: Trips, seen: Tensors) -> None:
    """Define what a trip sees: what steers a Loop, and what is handed to it."""
    for begin in cycle.begins:
        if cycle.is_count(begin):
            builder.values.define_real(begin.value, seen[0])
        elif loop.is_steady and cycle.is_condition(begin):
            yes = builder.program.constant(np.asarray(True), "i1")
            builder.values.define_real(begin.value, Tensor(yes, (), "i1", ()))
    for (begin, _), tensor in zip(loop.pairs, seen[1:], strict=True):
        _define(builder, begin, tensor)


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


def _slab(builder: ProgramBuilder, cycle: Cycle, begin: Border) -> _Slab:
    """The operand that a Scan takes slice by slice."""
    whole, program = _read(builder, begin, begin.source), builder.program
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


def _collect(
    builder: ProgramBuilder, cycle: Cycle, end: Border, count: Tensor, trips: int
) -> tuple[_Slab, Tensor]:
    """The slices of the trips before, an argument of the body, and the same with that of this trip."""
    tensor, program = _read(builder, end, end.source), builder.program
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

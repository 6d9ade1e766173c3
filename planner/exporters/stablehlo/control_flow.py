"""Control flow: branches as `if`, loops as `while`, in either form; what crosses a border keeps its type.

A branch whose condition is known before running is written as if the other were not there. A loop carries a
count, its condition where that is not always true, what one trip hands to the next, and the results it
collects, a slice a trip. Source: ONNX If, Loop and Scan; design 01, section 5.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from planner.errors import UnsupportedExport
from planner.exporters.common.blocks import Block
from planner.exporters.common.control_flow import Border, Choice, Cycle, Item
from planner.exporters.stablehlo.loops import COUNT, counted, filled, is_before, placed, renamed, sliced
from planner.exporters.stablehlo.operations import binary, convert, reshape
from planner.exporters.stablehlo.program_builder import ProgramBuilder
from planner.exporters.stablehlo.tensors import Tensor
from planner.ir.types.qtypes import Uniform
from planner.mlir.generic import Block as Region

Writer: TypeAlias = Callable[[ProgramBuilder, Block], None]


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


def _hand_over(builder: ProgramBuilder, border: Border) -> None:
    known = builder.values.known(border.source)
    if known is not None and not isinstance(border.kind, Uniform):
        builder.values.numbers[border.value] = known
    else:
        _define(builder, border, _read(builder, border, border.source))


def _read(builder: ProgramBuilder, border: Border, source: str) -> Tensor:
    return (
        builder.values.integers(source, border.kind)
        if isinstance(border.kind, Uniform)
        else builder.values.real(source)
    )


def _define(builder: ProgramBuilder, border: Border, tensor: Tensor) -> None:
    if isinstance(border.kind, Uniform):
        builder.values.define_stored(border.value, border.kind, tensor)
    else:
        builder.values.define_real(border.value, tensor)


def _start(builder: ProgramBuilder, kernel: Choice | Cycle) -> None:
    builder.p.start(kernel.scope.owner, kernel.place)


def _choose(builder: ProgramBuilder, choice: Choice, write: Writer) -> None:
    index = choice.taken(builder.values.known)
    if index is not None:
        taken = choice.branches[index]
        write_items(builder, (*taken.begins, *taken.items), write)
        for join in choice.joins:
            _start(builder, choice)
            _define(builder, join, _read(builder, join, join.branch(index)))
        return
    condition = reshape(builder.p, builder.values.real(choice.condition), ())
    for branch in choice.branches:
        write_items(builder, branch.begins, write)
    bodies = []
    for index, branch in enumerate(choice.branches):
        with builder.inside() as operations:
            write_items(builder, branch.items, write)
            _start(builder, choice)
            results = [_read(builder, join, join.branch(index)) for join in choice.joins]
        bodies.append((operations, results))
    first, second = (results for _, results in bodies)
    for join, a, b in zip(choice.joins, first, second, strict=True):
        _refuse_change(builder, f"its branches give {join.value!r}", a, b)
    regions = tuple(builder.p.closed((), *body) for body in bodies)
    found = builder.p.emit_many("if", [condition], first, regions)
    for join, tensor in zip(choice.joins, found, strict=True):
        _define(builder, join, tensor)


def _refuse_change(builder: ProgramBuilder, what: str, a: Tensor, b: Tensor) -> None:
    if a.type != b.type:
        raise UnsupportedExport(
            f"{builder.p.place}: {what} as {a.type} and as {b.type}; {builder.form.name} accepts one shape",
            hint="give the model's inputs fixed sizes, or use an ONNX format",
        )


def _repeat(builder: ProgramBuilder, cycle: Cycle, write: Writer) -> None:
    p = builder.p
    for begin in cycle.unchanged:
        _hand_over(builder, begin)
    _start(builder, cycle)
    is_steady, trips = cycle.is_steady(builder.values.known), cycle.trips(builder.values.known, builder.shape)
    cycle.check(builder.form.name, trips, is_steady=is_steady)
    pairs = cycle.pairs(is_steady=is_steady)
    entering = [counted(p, 0), *(_first(builder, cycle, begin) for begin, _ in pairs)]
    bound = _bound(builder, cycle, trips)
    slices = [(begin, _read(builder, begin, begin.source)) for begin in cycle.slices]
    seen = renamed(p, entering, "in")
    with builder.inside() as operations:
        _enter(builder, cycle, seen[0], is_steady=is_steady)
        for (begin, _), tensor in zip(pairs, seen[1:], strict=True):
            _define(builder, begin, tensor)
        for begin, whole in slices:
            _define(builder, begin, _slice(builder, cycle, begin, whole, seen[0]))
        write_items(builder, cycle.items, write)
        _start(builder, cycle)
        after = [binary(p, "add", seen[0], counted(p, 1))]
        after += [_given(builder, cycle, begin, _read(builder, end, end.source)) for begin, end in pairs]
        grown = [_collect(builder, cycle, end, seen[0], trips or 0) for end in cycle.collected]
    for (begin, _), a, b in zip(pairs, entering[1:], after[1:], strict=True):
        _refuse_change(builder, f"a trip takes and leaves {begin.value!r}", a, b)
    buffers = [buffer for buffer, _ in grown]
    entering += [_empty(builder, end, each) for end, each in zip(cycle.collected, buffers, strict=True)]
    body = p.closed((*seen, *buffers), operations, [*after, *(filled_up for _, filled_up in grown)])
    going = _going(builder, entering, bound, has_condition=any(cycle.is_condition(b) for b, _ in pairs))
    found = p.emit_many("while", entering, entering, (going, body))
    for end, tensor in zip((*(end for _, end in pairs), *cycle.collected), found[1:], strict=True):
        _define(builder, end, tensor)


def _bound(builder: ProgramBuilder, cycle: Cycle, trips: int | None) -> Tensor | None:
    """The number of trips at most; None where only the condition ends them."""
    if trips is not None:
        return counted(builder.p, trips)
    most = cycle.scope.operands[0]
    return reshape(builder.p, convert(builder.p, builder.values.real(most), COUNT), ()) if most else None


def _given(builder: ProgramBuilder, cycle: Cycle, begin: Border, tensor: Tensor) -> Tensor:
    """A tensor as a trip takes it: a condition is a scalar here, and may be a vector of one in ONNX."""
    return reshape(builder.p, tensor, ()) if cycle.is_condition(begin) else tensor


def _first(builder: ProgramBuilder, cycle: Cycle, begin: Border) -> Tensor:
    """The tensor that the first trip takes; the condition that a Loop leaves out holds."""
    if not begin.source:
        return builder.p.number(1, "i1")
    return _given(builder, cycle, begin, _read(builder, begin, begin.source))


def _enter(builder: ProgramBuilder, cycle: Cycle, count: Tensor, *, is_steady: bool) -> None:
    """Define what steers a Loop as a trip sees it."""
    for begin in cycle.begins:
        if cycle.is_count(begin):
            builder.values.define_real(begin.value, count)
        elif is_steady and cycle.is_condition(begin):
            builder.values.numbers[begin.value] = np.asarray(True)


def _slice(builder: ProgramBuilder, cycle: Cycle, begin: Border, whole: Tensor, count: Tensor) -> Tensor:
    """The slice of an operand that a trip of a Scan takes."""
    axis = cycle.axis("input", begin.index, whole.rank)
    at = _place(builder, count, whole.shape[axis], is_back=cycle.is_back("input", begin.index))
    return sliced(builder.p, whole, at, axis)


def _collect(
    builder: ProgramBuilder, cycle: Cycle, end: Border, count: Tensor, trips: int
) -> tuple[Tensor, Tensor]:
    """The slices of the trips before, an argument of the body, and the same with that of this trip."""
    tensor = _read(builder, end, end.source)
    axis = cycle.axis("output", end.index, tensor.rank + 1)
    shape = (*tensor.shape[:axis], trips, *tensor.shape[axis:])
    (buffer,) = renamed(builder.p, [replace(tensor, shape=shape)], "in")
    at = _place(builder, count, trips, is_back=cycle.is_back("output", end.index))
    return buffer, placed(builder.p, buffer, tensor, at, axis)


def _empty(builder: ProgramBuilder, end: Border, buffer: Tensor) -> Tensor:
    """The tensor that collects slices, all zero before the first trip."""
    if isinstance(end.kind, Uniform):
        zero = builder.form.constant(builder.p, np.asarray(end.kind.zero_point), end.kind)
    else:
        zero = builder.p.number(0, buffer.element)
    return filled(builder.p, zero, buffer.shape)


def _place(builder: ProgramBuilder, count: Tensor, trips: int, *, is_back: bool) -> Tensor:
    """The index of a trip's slice."""
    if not is_back:
        return count
    return binary(builder.p, "subtract", counted(builder.p, trips - 1), count)


def _going(
    builder: ProgramBuilder, carried: Sequence[Tensor], bound: Tensor | None, *, has_condition: bool
) -> Region:
    """Whether there is another trip; a condition is carried right behind the count."""
    p = builder.p
    seen = renamed(p, carried, "in")
    with p.inside() as operations:
        going = None if bound is None else is_before(p, seen[0], bound)
        if has_condition:
            going = seen[1] if going is None else binary(p, "and", going, seen[1])
    assert going is not None  # noqa: S101 - `Cycle.check` saw an end
    return p.closed(seen, operations, [going])

"""Control flow: branches as `if`, loops as `while`, in either form; what crosses a border keeps its type.

A branch whose condition is known before running is written as if the other were not there. A loop carries a
count, its condition where that is not always true, what one trip hands to the next, and the results it
collects, a slice a trip. Source: ONNX If, Loop and Scan; docs/specification.md, section 5.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import numpy as np

from planner.exporters.common.blocks import Block
from planner.exporters.common.control_flow import Border, Choice, Cycle, Item
from planner.exporters.common.walk import Trips, Walk, Writers
from planner.exporters.stablehlo.loops import COUNT, counted, filled, is_before, placed, renamed, sliced
from planner.exporters.stablehlo.operations import binary, convert, reshape
from planner.exporters.stablehlo.program_builder import ProgramBuilder
from planner.exporters.stablehlo.tensors import Tensor
from planner.ir.types.qtypes import Uniform
from planner.mlir.generic import Block as Region
from planner.plans.records import PortTyped

Writer: TypeAlias = Callable[[ProgramBuilder, Block], None]


def write_items(builder: ProgramBuilder, items: Sequence[Item], write: Writer) -> None:
    """Write blocks in order, with `write`, and the bodies that stand among them."""
    own = Writers(
        builder.form.name,
        partial(write, builder),
        partial(_start, builder),
        partial(_read, builder),
        partial(_choose, builder),
        partial(_repeat, builder),
        builder.shape,
    )
    Walk(builder.values, own).write(items)


def _read(builder: ProgramBuilder, value: str, kind: PortTyped) -> Tensor:
    return builder.values.integers(value, kind) if isinstance(kind, Uniform) else builder.values.real(value)


def _start(builder: ProgramBuilder, item: Border | Choice | Cycle) -> None:
    if not isinstance(item, Border):
        builder.p.start(item.scope.owner, item.place)


def _choose(builder: ProgramBuilder, walk: Walk[Tensor], choice: Choice) -> Sequence[Tensor]:
    condition = reshape(builder.p, builder.values.real(choice.condition), ())
    bodies = []
    for index in range(len(choice.branches)):
        with builder.inside() as operations:
            results = walk.finish_branch(choice, index)
        bodies.append((operations, results))
    first, second = (results for _, results in bodies)
    for join, a, b in zip(choice.joins, first, second, strict=True):
        walk.refuse_change(builder.p.place, f"its branches give {join.value!r}", f"{a.type}", f"{b.type}")
    regions = tuple(builder.p.closed((), *body) for body in bodies)
    return builder.p.emit_many("if", [condition], first, regions)


def _repeat(builder: ProgramBuilder, walk: Walk[Tensor], cycle: Cycle, loop: Trips) -> Sequence[Tensor]:
    p = builder.p
    entering = [counted(p, 0), *(_first(builder, walk, cycle, begin) for begin, _ in loop.pairs)]
    bound = _bound(builder, loop)
    slices = [(begin, walk.read(begin)) for begin in cycle.slices]
    seen = renamed(p, entering, "in")
    with builder.inside() as operations:
        for begin in cycle.begins:
            if cycle.is_count(begin):
                builder.values.define_real(begin.value, seen[0])
        for (begin, _), tensor in zip(loop.pairs, seen[1:], strict=True):
            walk.define(begin, tensor)
        for begin, whole in slices:
            walk.define(begin, _slice(builder, cycle, begin, whole, seen[0]))
        walk.write(cycle.items)
        _start(builder, cycle)
        after = [binary(p, "add", seen[0], counted(p, 1))]
        after += [_given(builder, cycle, begin, walk.read(end)) for begin, end in loop.pairs]
        grown = [
            _collect(builder, cycle, end, walk.read(end), seen[0], loop.trips or 0) for end in cycle.collected
        ]
    for (begin, _), a, b in zip(loop.pairs, entering[1:], after[1:], strict=True):
        walk.refuse_change(p.place, f"a trip takes and leaves {begin.value!r}", f"{a.type}", f"{b.type}")
    buffers = [buffer for buffer, _ in grown]
    entering += [_empty(builder, end, each) for end, each in zip(cycle.collected, buffers, strict=True)]
    body = p.closed((*seen, *buffers), operations, [*after, *(filled_up for _, filled_up in grown)])
    going = _going(builder, entering, bound, has_condition=not loop.is_steady)
    return p.emit_many("while", entering, entering, (going, body))[1:]


def _bound(builder: ProgramBuilder, loop: Trips) -> Tensor | None:
    """The number of trips at most; None where only the condition ends them."""
    if loop.trips is not None:
        return counted(builder.p, loop.trips)
    if not loop.bound:
        return None
    return reshape(builder.p, convert(builder.p, builder.values.real(loop.bound), COUNT), ())


def _given(builder: ProgramBuilder, cycle: Cycle, begin: Border, tensor: Tensor) -> Tensor:
    """A tensor as a trip takes it: a condition is a scalar here, and may be a vector of one in ONNX."""
    return reshape(builder.p, tensor, ()) if cycle.is_condition(begin) else tensor


def _first(builder: ProgramBuilder, walk: Walk[Tensor], cycle: Cycle, begin: Border) -> Tensor:
    """The tensor that the first trip takes; the condition that a Loop leaves out holds."""
    if not begin.source:
        return builder.p.number(1, "i1")
    return _given(builder, cycle, begin, walk.read(begin))


def _slice(builder: ProgramBuilder, cycle: Cycle, begin: Border, whole: Tensor, count: Tensor) -> Tensor:
    """The slice of an operand that a trip of a Scan takes."""
    axis = cycle.axis("input", begin.index, whole.rank)
    at = _place(builder, count, whole.shape[axis], is_back=cycle.is_back("input", begin.index))
    return sliced(builder.p, whole, at, axis)


def _collect(  # noqa: PLR0917
    builder: ProgramBuilder, cycle: Cycle, end: Border, tensor: Tensor, count: Tensor, trips: int
) -> tuple[Tensor, Tensor]:
    """The slices of the trips before, an argument of the body, and the same with that of this trip."""
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

"""Bodies: branches as `if`, loops as `while`, in either form; what crosses a border keeps its type.

A branch whose condition is known before running is written as if the other were not there. A loop carries a
count, its condition where that is not always true, what one trip hands to the next, and the results it
collects, a slice a trip. Source: ONNX If, Loop and Scan; design 01, section 5.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from planner.errors import UnsupportedExport
from planner.exporters.blocks import Block
from planner.exporters.nested import Border, Choice, Cycle, Item
from planner.exporters.stablehlo.loops import COUNT, counted, filled, is_before, placed, renamed, sliced
from planner.exporters.stablehlo.operations import binary, convert, reshape
from planner.exporters.stablehlo.sheet import Sheet
from planner.exporters.stablehlo.tensors import Tensor
from planner.ir.qtypes import Uniform
from planner.mlir.generic import Block as Region

Writer: TypeAlias = Callable[[Sheet, Block], None]


def write_items(sheet: Sheet, items: Sequence[Item], write: Writer) -> None:
    """Write blocks in order, with `write`, and the bodies that stand among them."""
    for item in items:
        match item:
            case Block():
                write(sheet, item)
            case Border():
                _hand_over(sheet, item)
            case Choice():
                _choose(sheet, item, write)
            case Cycle():
                _repeat(sheet, item, write)


def _hand_over(sheet: Sheet, border: Border) -> None:
    known = sheet.known(border.source)
    if known is not None and not isinstance(border.kind, Uniform):
        sheet.define_known(border.value, known)
    else:
        _define(sheet, border, _read(sheet, border, border.source))


def _read(sheet: Sheet, border: Border, source: str) -> Tensor:
    return sheet.stored(source, border.kind) if isinstance(border.kind, Uniform) else sheet.real(source)


def _define(sheet: Sheet, border: Border, tensor: Tensor) -> None:
    if isinstance(border.kind, Uniform):
        sheet.define_stored(border.value, border.kind, tensor)
    else:
        sheet.define_real(border.value, tensor)


def _start(sheet: Sheet, kernel: Choice | Cycle) -> None:
    sheet.p.start(kernel.scope.owner, kernel.place)


def _choose(sheet: Sheet, choice: Choice, write: Writer) -> None:
    index = choice.taken(sheet.known)
    if index is not None:
        taken = choice.branches[index]
        write_items(sheet, (*taken.begins, *taken.items), write)
        for join in choice.joins:
            _start(sheet, choice)
            _define(sheet, join, _read(sheet, join, join.branch(index)))
        return
    condition = reshape(sheet.p, sheet.real(choice.condition), ())
    for branch in choice.branches:
        write_items(sheet, branch.begins, write)
    bodies = []
    for index, branch in enumerate(choice.branches):
        with sheet.inside() as operations:
            write_items(sheet, branch.items, write)
            _start(sheet, choice)
            results = [_read(sheet, join, join.branch(index)) for join in choice.joins]
        bodies.append((operations, results))
    first, second = (results for _, results in bodies)
    for join, a, b in zip(choice.joins, first, second, strict=True):
        _refuse_change(sheet, f"its branches give {join.value!r}", a, b)
    regions = tuple(sheet.p.closed((), *body) for body in bodies)
    found = sheet.p.emit_many("if", [condition], first, regions)
    for join, tensor in zip(choice.joins, found, strict=True):
        _define(sheet, join, tensor)


def _refuse_change(sheet: Sheet, what: str, a: Tensor, b: Tensor) -> None:
    if a.type != b.type:
        raise UnsupportedExport(
            f"{sheet.p.place}: {what} as {a.type} and as {b.type}; {sheet.form.name} accepts one shape",
            hint="give the model's inputs fixed sizes, or use an ONNX format",
        )


def _repeat(sheet: Sheet, cycle: Cycle, write: Writer) -> None:
    p = sheet.p
    for begin in cycle.unchanged:
        _hand_over(sheet, begin)
    _start(sheet, cycle)
    is_steady, trips = cycle.is_steady(sheet.known), cycle.trips(sheet.known, sheet.shape)
    cycle.check(sheet.form.name, trips, is_steady=is_steady)
    pairs = cycle.pairs(is_steady=is_steady)
    entering = [counted(p, 0), *(_first(sheet, cycle, begin) for begin, _ in pairs)]
    bound = _bound(sheet, cycle, trips)
    slices = [(begin, _read(sheet, begin, begin.source)) for begin in cycle.slices]
    seen = renamed(p, entering, "in")
    with sheet.inside() as operations:
        _enter(sheet, cycle, seen[0], is_steady=is_steady)
        for (begin, _), tensor in zip(pairs, seen[1:], strict=True):
            _define(sheet, begin, tensor)
        for begin, whole in slices:
            _define(sheet, begin, _slice(sheet, cycle, begin, whole, seen[0]))
        write_items(sheet, cycle.items, write)
        _start(sheet, cycle)
        after = [binary(p, "add", seen[0], counted(p, 1))]
        after += [_given(sheet, cycle, begin, _read(sheet, end, end.source)) for begin, end in pairs]
        grown = [_collect(sheet, cycle, end, seen[0], trips or 0) for end in cycle.collected]
    for (begin, _), a, b in zip(pairs, entering[1:], after[1:], strict=True):
        _refuse_change(sheet, f"a trip takes and leaves {begin.value!r}", a, b)
    buffers = [buffer for buffer, _ in grown]
    entering += [_empty(sheet, end, each) for end, each in zip(cycle.collected, buffers, strict=True)]
    body = p.closed((*seen, *buffers), operations, [*after, *(filled_up for _, filled_up in grown)])
    going = _going(sheet, entering, bound, has_condition=any(cycle.is_condition(b) for b, _ in pairs))
    found = p.emit_many("while", entering, entering, (going, body))
    for end, tensor in zip((*(end for _, end in pairs), *cycle.collected), found[1:], strict=True):
        _define(sheet, end, tensor)


def _bound(sheet: Sheet, cycle: Cycle, trips: int | None) -> Tensor | None:
    """The number of trips at most; None where only the condition ends them."""
    if trips is not None:
        return counted(sheet.p, trips)
    most = cycle.scope.operands[0]
    return reshape(sheet.p, convert(sheet.p, sheet.real(most), COUNT), ()) if most else None


def _given(sheet: Sheet, cycle: Cycle, begin: Border, tensor: Tensor) -> Tensor:
    """What a trip is given; a condition as a scalar, which ONNX allows to be a vector of one."""
    return reshape(sheet.p, tensor, ()) if cycle.is_condition(begin) else tensor


def _first(sheet: Sheet, cycle: Cycle, begin: Border) -> Tensor:
    """What the first trip is given; the condition that a Loop leaves out holds."""
    if not begin.source:
        return sheet.p.number(1, "i1")
    return _given(sheet, cycle, begin, _read(sheet, begin, begin.source))


def _enter(sheet: Sheet, cycle: Cycle, count: Tensor, *, is_steady: bool) -> None:
    """Define what steers a Loop as a trip sees it."""
    for begin in cycle.begins:
        if cycle.is_count(begin):
            sheet.define_real(begin.value, count)
        elif is_steady and cycle.is_condition(begin):
            sheet.define_known(begin.value, np.asarray(True))


def _slice(sheet: Sheet, cycle: Cycle, begin: Border, whole: Tensor, count: Tensor) -> Tensor:
    """What a trip of a Scan takes of an operand."""
    axis = cycle.axis("input", begin.index, whole.rank)
    at = _place(sheet, count, whole.shape[axis], is_back=cycle.is_back("input", begin.index))
    return sliced(sheet.p, whole, at, axis)


def _collect(sheet: Sheet, cycle: Cycle, end: Border, count: Tensor, trips: int) -> tuple[Tensor, Tensor]:
    """The slices of the trips before, an argument of the body, and the same with that of this trip."""
    tensor = _read(sheet, end, end.source)
    axis = cycle.axis("output", end.index, tensor.rank + 1)
    shape = (*tensor.shape[:axis], trips, *tensor.shape[axis:])
    (buffer,) = renamed(sheet.p, [replace(tensor, shape=shape)], "in")
    at = _place(sheet, count, trips, is_back=cycle.is_back("output", end.index))
    return buffer, placed(sheet.p, buffer, tensor, at, axis)


def _empty(sheet: Sheet, end: Border, buffer: Tensor) -> Tensor:
    """What slices are put into, all zero."""
    if isinstance(end.kind, Uniform):
        zero = sheet.form.constant(sheet.p, np.asarray(end.kind.zero_point), end.kind)
    else:
        zero = sheet.p.number(0, buffer.element)
    return filled(sheet.p, zero, buffer.shape)


def _place(sheet: Sheet, count: Tensor, trips: int, *, is_back: bool) -> Tensor:
    """Where the slice of a trip is."""
    if not is_back:
        return count
    return binary(sheet.p, "subtract", counted(sheet.p, trips - 1), count)


def _going(sheet: Sheet, carried: Sequence[Tensor], bound: Tensor | None, *, has_condition: bool) -> Region:
    """Whether there is another trip; a condition is carried right behind the count."""
    p = sheet.p
    seen = renamed(p, carried, "in")
    with p.inside() as operations:
        going = None if bound is None else is_before(p, seen[0], bound)
        if has_condition:
            going = seen[1] if going is None else binary(p, "and", going, seen[1])
    assert going is not None  # noqa: S101 - `Cycle.check` saw an end
    return p.closed(seen, operations, [going])

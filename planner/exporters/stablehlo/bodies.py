"""Bodies: branches as `if`, loops as `while`, in either form; what crosses a border keeps its type.

A branch whose condition is known before running is written as if the other were not there. A loop carries a
count, its condition where that is not always true, what one trip hands to the next, and the results it
collects, a slice a trip. Source: ONNX If, Loop and Scan; design 01, section 5.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

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

_PASSING: Final = frozenset({"Cast", "Identity"})


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
    sheet.p.start(kernel.scope.owner, f"{kernel.scope.owner} ({kernel.scope.type})")


def _choose(sheet: Sheet, choice: Choice, write: Writer) -> None:
    known = sheet.known(choice.condition)
    if known is not None:
        taken = choice.branches[0 if bool(known.reshape(-1)[0]) else 1]
        write_items(sheet, (*taken.begins, *taken.items), write)
        for join in choice.joins:
            source = join.branch(choice.branches.index(taken))
            _start(sheet, choice)
            _define(sheet, join, _read(sheet, join, source))
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


@dataclass(frozen=True, slots=True, eq=False)
class _Loop:
    """A loop, its borders told apart.

    Attributes:
      pairs: where what one trip hands to the next enters and leaves; the condition first, if it may change.
      slices: borders that take another slice in every trip, each with the whole tensor.
      collected: results with a slice of every trip.
      trips: how many there are, where that is known; a condition that changes may end it earlier.
      is_steady: whether there is no condition but the number of trips.
    """

    cycle: Cycle
    pairs: tuple[tuple[Border, Border], ...]
    slices: tuple[tuple[Border, Tensor], ...]
    collected: tuple[Border, ...]
    trips: int | None
    is_steady: bool


def _repeat(sheet: Sheet, cycle: Cycle, write: Writer) -> None:
    p = sheet.p
    loop = _loop_of(sheet, cycle)
    entering = [counted(p, 0), *(_first(sheet, cycle, begin) for begin, _ in loop.pairs)]
    bound = _bound(sheet, loop)
    seen = renamed(p, entering, "in")
    with sheet.inside() as operations:
        _enter(sheet, loop, seen)
        write_items(sheet, cycle.items, write)
        _start(sheet, cycle)
        after = [binary(p, "add", seen[0], counted(p, 1))]
        after += [_given(sheet, cycle, begin, _read(sheet, end, end.source)) for begin, end in loop.pairs]
        buffers = []
        for end in loop.collected:
            buffer, filled_up = _collect(sheet, loop, end, seen[0])
            buffers.append(buffer)
            after.append(filled_up)
    for (begin, _), a, b in zip(loop.pairs, entering[1:], after[1:], strict=False):
        _refuse_change(sheet, f"a trip takes and leaves {begin.value!r}", a, b)
    entering += [_empty(sheet, end, tensor) for end, tensor in zip(loop.collected, buffers, strict=True)]
    body = p.closed((*seen, *buffers), operations, after)
    going = _going(sheet, loop, entering, bound)
    found = p.emit_many("while", entering, entering, (going, body))
    ends = (*(end for _, end in loop.pairs), *loop.collected)
    for end, tensor in zip(ends, found[1:], strict=True):
        _define(sheet, end, tensor)


def _loop_of(sheet: Sheet, cycle: Cycle) -> _Loop:
    """Tell the borders of a loop apart; what enters unchanged is handed over here."""
    scope, begins = cycle.scope, cycle.begins
    last = _states(cycle) + int(scope.attributes["num_scan_inputs"]) if scope.type == "Scan" else 1
    varying = [b for b in begins if b.carried < 0 and b.index < last]
    for begin in begins:
        if begin.carried < 0 and begin.index >= last:
            _hand_over(sheet, begin)
    _start(sheet, cycle)
    is_steady = scope.type == "Scan" or _is_steady(sheet, cycle)
    left = {end.carried: end for end in cycle.ends if end.carried >= 0}
    pairs = tuple(
        (begin, left[begin.index])
        for begin in begins
        if begin.carried >= 0 and not (is_steady and _is_condition(cycle, begin))
    )
    slices = tuple((b, _read(sheet, b, b.source)) for b in varying if scope.type == "Scan")
    collected = tuple(end for end in cycle.ends if end.carried < 0)
    trips = _trips(sheet, cycle, slices)
    if collected and (trips is None or not is_steady):
        raise UnsupportedExport(
            f"{sheet.p.place}: {collected[0].value!r} has a slice of every trip, and their number is known "
            f"only at run time; {sheet.form.name} accepts a constant number of trips and no other end",
            hint="give the loop a constant number of trips, or use an ONNX format",
        )
    return _Loop(cycle, pairs, slices, collected, trips, is_steady)


def _is_condition(cycle: Cycle, begin: Border) -> bool:
    return cycle.scope.type == "Loop" and begin.index == 1


def _is_steady(sheet: Sheet, cycle: Cycle) -> bool:
    """Whether the condition of a Loop always holds: it is given as true, and handed on as it is."""
    given = next((begin for begin in cycle.begins if begin.index == 1), None)
    made = next((end for end in cycle.ends if end.index == 0), None)
    if given is None or made is None:
        return True
    known = sheet.known(given.source) if given.source else np.asarray(True)
    steps = [op for item in cycle.items if isinstance(item, Block) for op in item.region.ops]
    source = {op.outputs[0]: op.inputs[0] for op in steps if op.type in _PASSING}
    name = made.source
    while name in source:
        name = source[name]
    ends = known if name == given.value else sheet.known(name)
    return all(part is not None and bool(part.reshape(-1)[0]) for part in (known, ends))


def _trips(sheet: Sheet, cycle: Cycle, slices: Sequence[tuple[Border, Tensor]]) -> int | None:
    if cycle.scope.type == "Scan":
        begin, whole = slices[0]
        return whole.shape[_axis(cycle, "input", begin.index, whole.rank)]
    most = cycle.scope.operands[0]
    known = sheet.known(most) if most else None
    return None if known is None else max(0, int(known.reshape(-1)[0]))


def _bound(sheet: Sheet, loop: _Loop) -> Tensor | None:
    """The number of trips at most; None where only the condition ends them."""
    if loop.trips is not None:
        return counted(sheet.p, loop.trips)
    most = loop.cycle.scope.operands[0]
    if most:
        return reshape(sheet.p, convert(sheet.p, sheet.real(most), COUNT), ())
    if loop.is_steady:
        raise UnsupportedExport(f"{sheet.p.place}: nothing ends it", hint="give it a number of trips")
    return None


def _given(sheet: Sheet, cycle: Cycle, begin: Border, tensor: Tensor) -> Tensor:
    """What a trip is given; a condition as a scalar, which ONNX allows to be a vector of one."""
    return reshape(sheet.p, tensor, ()) if _is_condition(cycle, begin) else tensor


def _first(sheet: Sheet, cycle: Cycle, begin: Border) -> Tensor:
    """What the first trip is given; the condition that a Loop leaves out holds."""
    if not begin.source:
        return sheet.p.number(1, "i1")
    return _given(sheet, cycle, begin, _read(sheet, begin, begin.source))


def _enter(sheet: Sheet, loop: _Loop, seen: Sequence[Tensor]) -> None:
    """Define what a trip sees: count and condition, what is handed to it, its slices."""
    for begin in loop.cycle.begins:
        if loop.cycle.scope.type == "Loop" and begin.index == 0:
            sheet.define_real(begin.value, seen[0])
        elif loop.is_steady and _is_condition(loop.cycle, begin):
            sheet.define_known(begin.value, np.asarray(True))
    for (begin, _), tensor in zip(loop.pairs, seen[1:], strict=True):
        _define(sheet, begin, tensor)
    for begin, whole in loop.slices:
        axis = _axis(loop.cycle, "input", begin.index, whole.rank)
        at = _place(sheet, loop, seen[0], is_back=_is_back(loop.cycle, "input", begin.index))
        _define(sheet, begin, sliced(sheet.p, whole, at, axis))


def _collect(sheet: Sheet, loop: _Loop, end: Border, count: Tensor) -> tuple[Tensor, Tensor]:
    """The slices of the trips before, an argument of the body, and the same with that of this trip."""
    tensor, cycle = _read(sheet, end, end.source), loop.cycle
    axis = _axis(cycle, "output", end.index, tensor.rank + 1)
    shape = (*tensor.shape[:axis], loop.trips or 0, *tensor.shape[axis:])
    (buffer,) = renamed(sheet.p, [replace(tensor, shape=shape)], "in")
    at = _place(sheet, loop, count, is_back=_is_back(cycle, "output", end.index))
    return buffer, placed(sheet.p, buffer, tensor, at, axis)


def _empty(sheet: Sheet, end: Border, buffer: Tensor) -> Tensor:
    """What slices are put into, all zero."""
    zero = sheet.p.number(0, buffer.element) if buffer.kind is None else None
    if isinstance(end.kind, Uniform):
        zero = sheet.form.constant(sheet.p, np.asarray(end.kind.zero_point), end.kind)
    assert zero is not None  # noqa: S101 - quantized elements have a type
    return filled(sheet.p, zero, buffer.shape)


def _place(sheet: Sheet, loop: _Loop, count: Tensor, *, is_back: bool) -> Tensor:
    if not is_back:
        return count
    return binary(sheet.p, "subtract", counted(sheet.p, (loop.trips or 1) - 1), count)


def _going(sheet: Sheet, loop: _Loop, carried: Sequence[Tensor], bound: Tensor | None) -> Region:
    p = sheet.p
    seen = renamed(p, carried, "in")
    with p.inside() as operations:
        reasons = [] if bound is None else [is_before(p, seen[0], bound)]
        reasons += [
            tensor
            for (begin, _), tensor in zip(loop.pairs, seen[1:], strict=False)
            if _is_condition(loop.cycle, begin)
        ]
        going = reasons[0] if len(reasons) == 1 else binary(p, "and", reasons[0], reasons[1])
    return p.closed(seen, operations, [going])


def _axis(cycle: Cycle, side: str, index: int, rank: int) -> int:
    """The axis of a slice: of a Loop the first, of a Scan what it says."""
    axes = cycle.scope.attributes.get(f"scan_{side}_axes")
    return int(axes[index - _states(cycle)]) % rank if axes else 0


def _is_back(cycle: Cycle, side: str, index: int) -> bool:
    ways = cycle.scope.attributes.get(f"scan_{side}_directions")
    return bool(ways[index - _states(cycle)]) if ways else False


def _states(cycle: Cycle) -> int:
    """How many values a Scan hands on; its slices come behind them, on both sides."""
    return sum(begin.carried >= 0 for begin in cycle.begins)

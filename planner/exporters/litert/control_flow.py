"""Control flow: branches as IF, loops as WHILE, their bodies as subgraphs; borders keep their types.

A subgraph sees nothing but its arguments and constants, so what it reads from around it is handed in, and in
a loop on. The slice of a trip is a GATHER; results are put into a tensor of their whole size, slice by slice,
by DYNAMIC_UPDATE_SLICE.
Source: TensorFlow Lite, kernels of IF and WHILE; ONNX If, Loop and Scan.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from planner.exporters.common.blocks import Block
from planner.exporters.common.control_flow import Border, Choice, Cycle, Item
from planner.exporters.common.layouts import plain
from planner.exporters.common.walk import Trips, Walk, Writers
from planner.exporters.litert.operations import Body, Operator, Options, Program, Tensor
from planner.exporters.litert.program_builder import ProgramBuilder
from planner.interpreter.bodies import border_arithmetic
from planner.ir.types.qtypes import Uniform
from planner.plans.records import PortTyped

Writer: TypeAlias = Callable[[ProgramBuilder, Block], None]

_COUNT: Final = Tensor(-1, (), "i32", ())
_FLAG: Final = Tensor(-1, (1,), "bool", (0,))
_INT32: Final = 2
_MOST: Final = (1 << 31) - 1
_INT64: Final = 4


def write_items(builder: ProgramBuilder, items: Sequence[Item], write: Writer) -> None:
    """Write blocks in order, with `write`, and the bodies that stand among them."""
    own = Writers(
        "litert",
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


def _read(builder: ProgramBuilder, value: str, kind: PortTyped, like: Tensor | None = None) -> Tensor:
    """The tensor that a border hands over, stored as the model has it, or as another one is."""
    tensor = builder.operand(value, kind) if isinstance(kind, Uniform) else builder.real(value)
    is_like = like is not None and len(like.order) == len(tensor.order)
    return builder.program.ordered(tensor, like.order if like and is_like else plain(len(tensor.shape)))


def _choose(builder: ProgramBuilder, walk: Walk[Tensor], choice: Choice) -> Sequence[Tensor]:
    program, flag = builder.program, builder.real(choice.condition)
    made: list[tuple[Sequence[Operator], list[Tensor]]] = []
    for index in range(len(choice.branches)):
        with builder.inside() as operators:
            made.append((operators, walk.finish_branch(choice, index)))
    for join, a, b in zip(choice.joins, made[0][1], made[1][1], strict=True):
        walk.refuse_change(builder.address, f"its branches give {join.value!r}", _text(a), _text(b))
    names = [f"{choice.scope.owner}/{word}" for word in ("then", "else")]
    bodies = [program.closed(name, *parts[:1], (), parts[1]) for name, parts in zip(names, made, strict=True)]
    outside = tuple(dict.fromkeys(index for body in bodies for index in program.captured(body)))
    bodies = [replace(body, arguments=outside) for body in bodies]
    return program.emit_bodies(
        "IF",
        (flag.index, *outside),
        [(join.value, tensor) for join, tensor in zip(choice.joins, made[0][1], strict=True)],
        "IfOptions",
        dict(zip(("ThenSubgraphIndex", "ElseSubgraphIndex"), bodies, strict=True)),
    )


def _text(tensor: Tensor) -> str:
    return f"{tensor.element}{list(tensor.shape)}"


def _repeat(builder: ProgramBuilder, walk: Walk[Tensor], cycle: Cycle, loop: Trips) -> Sequence[Tensor]:
    program = builder.program
    bound = _bound(program, builder.real(loop.bound)) if loop.bound else None
    entering = [_number(program, 0), *(_first(builder, walk, cycle, begin) for begin, _ in loop.pairs)]
    wholes = [walk.read(begin) for begin in cycle.slices]
    seen = [program.twin(tensor) for tensor in entering]
    with builder.inside() as operators:
        _enter(builder, walk, cycle, loop, seen)
        for begin, whole in zip(cycle.slices, wholes, strict=True):
            walk.define(begin, _sliced(builder, cycle, begin, whole, seen[0]))
        builder.loops += 1
        walk.write(cycle.items)
        builder.loops -= 1
        _start(builder, cycle)
        after = [program.emit("ADD", [seen[0], _number(program, 1)], _COUNT, "count", ("AddOptions", {}))]
        for (begin, end), given in zip(loop.pairs, seen[1:], strict=True):
            after.append(_read(builder, end.source, end.kind, given))
            if cycle.is_condition(begin):
                after[-1] = program.reshaped(after[-1], (1,))
        grown = [
            _collected(builder, cycle, end, walk.read(end), seen[0], loop.trips or 0)
            for end in cycle.collected
        ]
    for (begin, _), a, b in zip(loop.pairs, entering[1:], after[1:], strict=True):
        walk.refuse_change(builder.address, f"a trip takes and leaves {begin.value!r}", _text(a), _text(b))
    entering += [_empty(program, rows) for rows, _ in grown]
    arguments = [*seen, *(rows for rows, _ in grown)]
    body = program.closed(
        f"{cycle.scope.owner}/body", operators, arguments, [*after, *(filled for _, filled in grown)]
    )
    ends = [(begin.value, tensor) for (begin, _), tensor in zip(loop.pairs, seen[1:], strict=True)]
    ends += [(end.value, rows) for end, (rows, _) in zip(cycle.collected, grown, strict=True)]
    return _looped(program, loop, bound, body, entering, [("count", _COUNT), *ends])[1:]


def _looped(  # noqa: PLR0917
    program: Program,
    loop: Trips,
    bound: Tensor | None,
    body: Body,
    entering: Sequence[Tensor],
    ends: Sequence[tuple[str, Tensor]],
) -> tuple[Tensor, ...]:
    """The loop; what its body or its question reads from around it is handed on as it is."""
    outside = program.captured(body)
    if bound is not None and bound.index not in outside:
        outside = (*outside, bound.index)
    asked = [program.twin(tensor) for tensor in entering]
    with program.inside() as operators:
        going = None
        if loop.trips is not None or bound is not None:
            # Counts have 32 bits here; a larger one, of a loop that its condition ends, is never reached.
            end = _number(program, min(loop.trips or 0, _MOST)) if bound is None else bound
            like = replace(end, index=-1, element="bool")
            going = program.emit("LESS", [asked[0], end], like, "going", ("LessOptions", {}))
        if not loop.is_steady:
            both = None if going is None else [going, asked[1]]
            options: tuple[str, Options] = ("LogicalAndOptions", {})
            going = program.emit("LOGICAL_AND", both, _FLAG, "going", options) if both else asked[1]
    assert going is not None  # noqa: S101 - `Cycle.check` saw an end
    arguments = (*(tensor.index for tensor in asked), *outside)
    question = Body(f"{body.name}/going", tuple(operators), arguments, (going.index,))
    run = replace(body, arguments=(*body.arguments, *outside), results=(*body.results, *outside))
    given = (*(tensor.index for tensor in entering), *outside)
    likes = [*ends, *((program.entries[index].name, program.named(index)) for index in outside)]
    bodies = {"CondSubgraphIndex": question, "BodySubgraphIndex": run}
    return program.emit_bodies("WHILE", given, likes, "WhileOptions", bodies)[: len(entering)]


def _bound(program: Program, tensor: Tensor) -> Tensor:
    """A computed number of trips in 32 bits; a larger one is never reached."""
    if tensor.element != "i64":
        return _cast(program, tensor, "i32")
    most = program.constant(np.asarray(_MOST), "i64", "most")
    least = program.emit(
        "MINIMUM", [tensor, most], replace(tensor, index=-1), "most", ("MaximumMinimumOptions", {})
    )
    return _cast(program, least, "i32")


def _number(program: Program, number: int) -> Tensor:
    """A count of trips."""
    return program.constant(np.asarray(number), "i32", "number")


def _cast(program: Program, tensor: Tensor, element: str) -> Tensor:
    """Plain integers in another width."""
    if tensor.element == element:
        return tensor
    codes = {"i32": _INT32, "i64": _INT64}
    options = {"InDataType": codes[tensor.element], "OutDataType": codes[element]}
    like = replace(tensor, element=element)
    return program.emit("CAST", [tensor], like, "count", ("CastOptions", options))


def _first(builder: ProgramBuilder, walk: Walk[Tensor], cycle: Cycle, begin: Border) -> Tensor:
    """The tensor that the first trip takes; the condition that a Loop leaves out holds."""
    if not begin.source:
        return builder.program.constant(np.asarray([True]), "bool", "yes")
    tensor = walk.read(begin)
    return builder.program.reshaped(tensor, (1,)) if cycle.is_condition(begin) else tensor


def _enter(
    builder: ProgramBuilder, walk: Walk[Tensor], cycle: Cycle, loop: Trips, seen: Sequence[Tensor]
) -> None:
    """Define what a trip sees: the count of a Loop, and what is handed to it."""
    for begin in cycle.begins:
        if cycle.is_count(begin):
            builder.values.define_real(begin.value, _cast(builder.program, seen[0], "i64"))
    for (begin, _), tensor in zip(loop.pairs, seen[1:], strict=True):
        walk.define(begin, tensor)


def _place(program: Program, count: Tensor, slices: int, *, is_back: bool) -> Tensor:
    """The index of a trip's slice."""
    if not is_back:
        return count
    return program.emit("SUB", [_number(program, slices - 1), count], count, "place", ("SubOptions", {}))


def _sliced(builder: ProgramBuilder, cycle: Cycle, begin: Border, whole: Tensor, count: Tensor) -> Tensor:
    """The slice of a trip, without the axis of slices."""
    program, axis = builder.program, cycle.axis("input", begin.index, len(whole.shape))
    at = _place(program, count, whole.shape[axis], is_back=cycle.is_back("input", begin.index))
    shape = tuple(size for i, size in enumerate(whole.shape) if i != axis)
    like = replace(whole, shape=shape, order=plain(len(shape)))
    return program.emit("GATHER", [whole, at], like, begin.value, ("GatherOptions", {"Axis": axis}))


def _collected(  # noqa: PLR0917
    builder: ProgramBuilder, cycle: Cycle, end: Border, tensor: Tensor, count: Tensor, trips: int
) -> tuple[Tensor, Tensor]:
    """The slices of the trips before, an argument of the body, and the same with that of this trip."""
    program = builder.program
    if not trips:
        raise builder.refuse(
            f"{end.value!r} has a slice of each of 0 trips; litert accepts tensors with elements"
        )
    rank = len(tensor.shape) + 1
    axis = cycle.axis("output", end.index, rank)
    sizes = (*tensor.shape[:axis], 1, *tensor.shape[axis:])
    whole = tuple(trips if i == axis else size for i, size in enumerate(sizes))
    rows = program.twin(replace(tensor, shape=whole, order=plain(rank)))
    at = _place(program, count, trips, is_back=cycle.is_back("output", end.index))
    along = program.numbers([int(i == axis) for i in range(rank)], "along")
    starts = program.emit("MUL", [along, at], along, "starts", ("MulOptions", {}))
    operands = [rows, program.reshaped(tensor, sizes), starts]
    return rows, program.emit("DYNAMIC_UPDATE_SLICE", operands, rows, end.value)


def _empty(program: Program, rows: Tensor) -> Tensor:
    """The tensor that collects slices, all zero before the first trip."""
    zero = rows.kind.zero_point if rows.kind is not None else 0
    return program.constant(np.full(rows.shape, zero), rows.element, "empty", kind=rows.kind)

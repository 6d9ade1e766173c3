"""Bodies: a plan with loops and branches as the interpreter runs it, items inside items.

A body runs when its turn comes: a branch if its condition chose it, a loop trip by trip. A value that
crosses a border keeps the type of its port. Nothing here computes. Source: docs/specification.md, section 5;
ONNX If, Loop and Scan.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from typing import TypeAlias

import numpy as np

from planner.constants.quantize import stored_dtype
from planner.errors import ModelError
from planner.interpreter.blocks import Stage, stages_of
from planner.interpreter.memory import Memory
from planner.interpreter.requantize import Array
from planner.ir.borders import border_op, closed_scope, inner_scope
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Graph, Region
from planner.ir.structure import BEGIN, END, JOIN, Scope
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import needed_regions
from planner.lowering.bodies import Border, Cycle, border_arithmetic
from planner.plans.plan import Plan


@dataclass(frozen=True, slots=True, eq=False)
class Body(Cycle):
    """A loop or a branch in its place; its items are all that runs in it, its own ends left out.

    Attributes:
      runs: number of trips, where the model alone says it.
    """

    runs: int


Item: TypeAlias = Stage | Border | Body
Run: TypeAlias = Callable[[Memory, Sequence[Item]], None]


def items_of(
    graph: Graph,
    plan: Plan,
    arithmetic: str | None,
    pinned: Mapping[str, object],
    regions: Sequence[Region] | None = None,
) -> tuple[Item, ...]:
    """Everything that runs, or some regions with whole bodies, in order; see `blocks.stages_of`."""
    needed = needed_regions(plan) if regions is None else regions
    scopes = plan.graph.scopes
    if not scopes:
        return stages_of(graph, plan, arithmetic, pinned, needed)
    borders = {r.name: _border(plan, r, arithmetic) for r in needed if border_op(r) is not None}

    def inside(regions: Sequence[Region], path: str) -> Iterator[Item]:
        for child, group in groupby(regions, lambda region: inner_scope(scopes, region.scope, path)):
            members = list(group)
            if child:
                yield _body(scopes, child, tuple(inside(members, child)), borders.values())
                continue
            for is_border, run in groupby(members, lambda region: region.name in borders):
                if is_border:
                    yield from (borders[region.name] for region in run)
                else:
                    yield from stages_of(graph, plan, arithmetic, pinned, tuple(run))

    return tuple(inside(needed, ""))


def _body(scopes: Mapping[str, Scope], path: str, items: Sequence[Item], borders: Iterable[Border]) -> Body:
    scope = scopes[path]
    around = scopes.get(closed_scope(scopes, scope.parent))
    own = [border for border in borders if border.body == path]
    begins, ends = (tuple(border for border in own if border.op.type == side) for side in (BEGIN, END))
    inner = tuple(item for item in items if item not in ends)
    return Body(scope, begins, inner, ends, scope.trips // (around.trips if around else 1))


def cross(memory: Memory, border: Border, taken: Mapping[str, int]) -> None:
    """Hand a value over a border; `taken`: the branch that ran, by the name of the kernel."""
    source = border.branch(taken[border.body]) if border.op.type == JOIN else border.source
    if source:
        _give(memory, border.value, border, _take(memory, source, border))


def choose(memory: Memory, body: Body) -> int:
    """The branch that a condition chooses: the first where it holds."""
    return 0 if bool(np.asarray(memory.real(body.scope.operands[0])).reshape(-1)[0]) else 1


def run_loop(memory: Memory, body: Body, run: Run) -> None:
    """Run a loop trip by trip.

    Raises:
      ModelError: no trip at all, where a result collects slices of unknown size.
    """
    collected: dict[int, list[Array]] = {border.index: [] for border in body.ends}
    for begin in body.begins:
        if not begin.source:
            # A Loop may leave its condition out: it holds.
            memory.define(begin.value, np.asarray(True))
    for trip in _trips(memory, body):
        _vary(memory, body, trip)
        run(memory, body.items)
        made = {border.index: _take(memory, border.source, border) for border in body.ends}
        for index, array in made.items():
            collected[index].append(array)
        for end in body.ends:
            carrier = _carrier(body, end)
            if carrier is not None:
                _give(memory, carrier.value, carrier, made[end.index])
        if body.scope.type == "Loop" and 0 in made and not bool(np.asarray(made[0]).reshape(-1)[0]):
            break
    for end in body.ends:
        _give(memory, end.value, end, _result(memory, body, end, collected[end.index]))


def _border(plan: Plan, region: Region, arithmetic: str | None) -> Border:
    kernel = plan.kernels.get(region.name)
    kind = kernel.outputs[0].type if kernel is not None and kernel.outputs else None
    return Border(region.ops[0], kind, arithmetic or border_arithmetic(plan))


def _take(memory: Memory, name: str, border: Border) -> Array:
    if isinstance(border.kind, Uniform):
        return memory.stored(name, border.kind, border.arithmetic)
    return memory.real(name)


def _give(memory: Memory, name: str, border: Border, array: Array) -> None:
    if isinstance(border.kind, Uniform):
        memory.define_stored(name, border.kind, array, border.arithmetic)
    else:
        memory.define(name, array)


def _carrier(body: Body, end: Border) -> Border | None:
    """The begin that a result feeds in the next trip."""
    return next((begin for begin in body.begins if end.carried >= 0 and begin.index == end.carried), None)


def _trips(memory: Memory, body: Body) -> Iterator[int]:
    if body.scope.type == "Scan":
        first = body.slices[0]
        whole = _take(memory, first.source, first)
        return iter(range(whole.shape[body.axis("input", first.index, whole.ndim)]))
    if body.scope.type != "Loop":
        return iter(range(body.runs))
    most, going = body.scope.operands[0], body.scope.operands[1]
    if going and not bool(np.asarray(memory.real(going)).reshape(-1)[0]):
        return iter(())
    return iter(range(int(np.asarray(memory.real(most)).reshape(-1)[0]))) if most else count()


def _vary(memory: Memory, body: Body, trip: int) -> None:
    """Define values that differ in every trip: the count of a Loop, the slices of a Scan."""
    for begin in body.begins:
        if body.is_count(begin):
            memory.define(begin.value, np.asarray(trip, np.int64))
    for begin in body.slices:
        whole = _take(memory, begin.source, begin)
        axis = body.axis("input", begin.index, whole.ndim)
        at = whole.shape[axis] - 1 - trip if body.is_back("input", begin.index) else trip
        _give(memory, begin.value, begin, np.take(whole, at, axis))


def _without_slices(memory: Memory, body: Body, end: Border) -> Array:
    """The collected result of a loop that makes no trip: no slices, of the size that one would have."""
    value = memory.graph.values[end.source]
    sizes = [size for size in value.shape or () if isinstance(size, int)]
    if value.shape is None or len(sizes) < len(value.shape):
        raise ModelError(f"{body.scope.owner!r} made no trip, so {end.value!r} has no shape")
    dtype = stored_dtype(end.kind.storage) if isinstance(end.kind, Uniform) else NUMPY[value.dtype]
    sizes.insert(body.axis("output", end.index, len(sizes) + 1), 0)
    return np.zeros(sizes, dtype)


def _result(memory: Memory, body: Body, end: Border, made: Sequence[Array]) -> Array:
    """A result of a loop: the last trip's, or those of all of them."""
    begin = _carrier(body, end)
    if begin is not None and not made and not begin.source:
        return np.asarray(True)  # a condition that is left out
    if begin is not None:
        return made[-1] if made else _take(memory, begin.source, begin)
    if body.scope.type not in ("Loop", "Scan"):
        return made[-1]
    if not made:
        return _without_slices(memory, body, end)
    axis = body.axis("output", end.index, made[0].ndim + 1)
    return np.stack(list(reversed(made)) if body.is_back("output", end.index) else made, axis)

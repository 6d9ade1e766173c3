"""Bodies: a plan with loops and branches as the interpreter runs it, items inside items.

A body runs when its turn comes: a branch if its condition chose it, a loop trip by trip. A value that
crosses a border keeps the type of its port. Nothing here computes. Source: docs/specification.md, section 5;
ONNX If, Loop and Scan.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from typing import Final, TypeAlias

import numpy as np

from planner.constants.quantize import stored_dtype
from planner.errors import ModelError
from planner.interpreter.blocks import Stage, stages_of
from planner.interpreter.memory import Memory
from planner.interpreter.requantize import Array
from planner.ir.borders import border_op, closed_scope, inner_scope
from planner.ir.dtypes import NUMPY
from planner.ir.graph import Graph, Op, Region
from planner.ir.structure import BEGIN, BORDERS, END, JOIN, Scope
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import needed_regions
from planner.plans.plan import Plan
from planner.plans.records import PortTyped

_DEFAULT: Final = "float32_even"


@dataclass(frozen=True, slots=True)
class Border:
    """A kernel that hands a value into a body, out of it, or on from the branch that ran."""

    op: Op
    kind: PortTyped
    arithmetic: str

    @property
    def body(self) -> str:
        """Path of the body; of a join, name of the kernel that branched."""
        return str(self.op.attributes["body"])

    @property
    def index(self) -> int:
        """Index among the operands or results of the kernel."""
        return int(self.op.attributes["index"])


@dataclass(frozen=True, slots=True, eq=False)
class Body:
    """A loop or a branch in its place.

    Attributes:
      items: everything that runs in it, its own ends left out.
      begins, ends: of a loop.
      trips: number of runs, where the model alone says it.
    """

    path: str
    scope: Scope
    items: tuple["Item", ...]
    begins: tuple[Border, ...]
    ends: tuple[Border, ...]
    trips: int


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
    ends = tuple(border for border in borders if border.op.type == END and border.body == path)
    return Body(
        path,
        scope,
        tuple(item for item in items if item not in ends),
        tuple(border for border in borders if border.op.type == BEGIN and border.body == path),
        ends,
        scope.trips // (around.trips if around else 1),
    )


def cross(memory: Memory, border: Border, taken: Mapping[str, int]) -> None:
    """Hand a value over a border; `taken`: the branch that ran, by the name of the kernel."""
    source = border.op.inputs[0]
    if border.op.type == JOIN:
        source = border.op.inputs[1 + taken[border.body]]
    if source:
        _give(memory, border.op.outputs[0], border, _take(memory, source, border))


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
        if not begin.op.inputs[0]:
            # A Loop may leave its condition out: it holds.
            memory.define(begin.op.outputs[0], np.asarray(True))
    for trip in _trips(memory, body):
        _vary(memory, body, trip)
        run(memory, body.items)
        made = {border.index: _take(memory, border.op.inputs[0], border) for border in body.ends}
        for index, array in made.items():
            collected[index].append(array)
        for end in body.ends:
            carrier = _carrier(body, end)
            if carrier is not None:
                _give(memory, carrier.op.outputs[0], carrier, made[end.index])
        if body.scope.type == "Loop" and 0 in made and not bool(np.asarray(made[0]).reshape(-1)[0]):
            break
    for end in body.ends:
        _give(memory, end.op.outputs[0], end, _result(memory, body, end, collected[end.index]))


def _border(plan: Plan, region: Region, arithmetic: str | None) -> Border:
    kernel = plan.kernels.get(region.name)
    kind = kernel.outputs[0].type if kernel is not None and kernel.outputs else None
    return Border(region.ops[0], kind, arithmetic or border_arithmetic(plan))


def border_arithmetic(plan: Plan) -> str:
    """The arithmetic of a rescale at the border of a body: that of the rows which serve borders."""
    served = (row.requantize for row in plan.target.rows.values() if row.kernel in BORDERS)
    return next(served, _DEFAULT)


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
    carried = end.op.attributes["carried"]
    return next((begin for begin in body.begins if carried >= 0 and begin.index == carried), None)


def _trips(memory: Memory, body: Body) -> Iterator[int]:
    if body.scope.type == "Scan":
        first = _slices(body)[0]
        axis, _ = _direction(body, first.index)
        return iter(range(_take(memory, first.op.inputs[0], first).shape[axis]))
    if body.scope.type != "Loop":
        return iter(range(body.trips))
    most, going = body.scope.operands[0], body.scope.operands[1]
    if going and not bool(np.asarray(memory.real(going)).reshape(-1)[0]):
        return iter(())
    return iter(range(int(np.asarray(memory.real(most)).reshape(-1)[0]))) if most else count()


def _vary(memory: Memory, body: Body, trip: int) -> None:
    """Define values that differ in every trip: the count of a Loop, the slices of a Scan."""
    for begin in body.begins:
        if body.scope.type == "Loop" and begin.index == 0:
            memory.define(begin.op.outputs[0], np.asarray(trip, np.int64))
        elif begin in _slices(body):
            whole = _take(memory, begin.op.inputs[0], begin)
            axis, backwards = _direction(body, begin.index)
            at = whole.shape[axis] - 1 - trip if backwards else trip
            _give(memory, begin.op.outputs[0], begin, np.take(whole, at, axis))


def _slices(body: Body) -> tuple[Border, ...]:
    """Operands that a Scan takes slice by slice; behind them come captures of its body."""
    if body.scope.type != "Scan":
        return ()
    last = _states(body) + int(body.scope.attributes["num_scan_inputs"])
    return tuple(b for b in body.begins if b.op.attributes["carried"] < 0 and b.index < last)


def _states(body: Body) -> int:
    """Number of values that one trip hands to the next."""
    return sum(begin.op.attributes["carried"] >= 0 for begin in body.begins)


def _direction(body: Body, index: int) -> tuple[int, bool]:
    """Axis and direction of an operand of a Scan."""
    at = index - _states(body)
    axes, ways = (body.scope.attributes.get(f"scan_input_{word}") for word in ("axes", "directions"))
    return (int(axes[at]) if axes else 0), bool(ways[at]) if ways else False


def _without_slices(memory: Memory, body: Body, end: Border) -> Array:
    """The collected result of a loop that makes no trip: no slices, of the size that one would have."""
    value = memory.graph.values[end.op.inputs[0]]
    sizes = [size for size in value.shape or () if isinstance(size, int)]
    if value.shape is None or len(sizes) < len(value.shape):
        raise ModelError(f"{body.scope.owner!r} made no trip, so {end.op.outputs[0]!r} has no shape")
    dtype = stored_dtype(end.kind.storage) if isinstance(end.kind, Uniform) else NUMPY[value.dtype]
    sizes.insert(_along(body, end)[0] % (len(sizes) + 1), 0)
    return np.zeros(sizes, dtype)


def _along(body: Body, end: Border) -> tuple[int, bool]:
    """Axis and direction of a result with the slices of all trips: of a Loop the first, forward."""
    states = sum(other.op.attributes["carried"] >= 0 for other in body.ends)
    axes, ways = (body.scope.attributes.get(f"scan_output_{word}") for word in ("axes", "directions"))
    at = end.index - states
    return (int(axes[at]) if axes else 0), bool(ways[at]) if ways else False


def _result(memory: Memory, body: Body, end: Border, made: Sequence[Array]) -> Array:
    """A result of a loop: the last trip's, or those of all of them."""
    begin = _carrier(body, end)
    if begin is not None and not made and not begin.op.inputs[0]:
        return np.asarray(True)  # a condition that is left out
    if begin is not None:
        return made[-1] if made else _take(memory, begin.op.inputs[0], begin)
    if body.scope.type not in ("Loop", "Scan"):
        return made[-1]
    if not made:
        return _without_slices(memory, body, end)
    axis, is_back = _along(body, end)
    return np.stack(list(reversed(made)) if is_back else made, axis)

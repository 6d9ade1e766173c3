"""Needs of kernels: the part of its operands' ranges that a computing kernel can distinguish.

An op's definition says what it needs, and the need is handed on to the operands of the sums, differences and
products in front of it, so that a mask of -3.4e38 does not decide their scales. An unknown need is the whole
range. `Around` says what is known of values: planning has a network there, the checker a plan.
Source: docs/specification.md, section 10; cases 59 to 64.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from planner.ir.graph import Graph, Op, Region
from planner.ir.roles import is_movement
from planner.ir.types.intervals import ALL, Interval, hull
from planner.ops import OPERATORS, defined
from planner.ops import needs as rules

BY_RATIO: Final = frozenset(name for name, one in OPERATORS.items() if one.is_singular)
"""Ops to which a small float is as good as a large one."""
HANDING: Final = frozenset(name for name, one in OPERATORS.items() if one.needed in rules.HANDING)
"""Ops that need less than everything only where less is needed of their result, or a gate is multiplied."""
STARTING: Final = frozenset(name for name, one in OPERATORS.items() if one.needed) - HANDING
"""Ops that need less than everything by themselves."""


@dataclass(frozen=True, slots=True)
class Around:
    """Facts around a kernel.

    Attributes:
      graph: with the numbers of its constants.
      extent: the range of a value by name, of one inside the kernel too; None where it is not known.
      levels: steps of the storage in which the kernel reads a value; None in float, and inside the kernel.
      step: step of the storage of a result, in reals; None in float.
      maker: the op that writes a value, None where none of a kernel does.
      readers: the ops that read a value, of any kernel.
    """

    graph: Graph
    extent: Callable[[str], Interval | None]
    levels: Callable[[str], int | None]
    step: Callable[[str], float | None]
    maker: Callable[[str], Op | None]
    readers: Callable[[str], Sequence[Op]]


def asks(region: Region, kept: Iterable[Interval | None]) -> bool:
    """Whether an op of a kernel may need less than everything.

    Args:
      kept: what is asked of its results.
    """
    types = {op.type for op in region.ops if defined(op.type).needed is not None}
    # Of most nets all sums are needed whole, and there is nothing to hand on.
    if not types <= HANDING - {"Mul"}:
        return True
    # Data movement that a row says computes needs of its operands what is needed of its result all the same.
    hands_on = bool(types) or all(defined(op.type).moves is not None for op in region.ops)
    return hands_on and any(one is not None and one != ALL for one in kept)


def needs_of(region: Region, kept: Mapping[str, Interval], around: Around) -> Mapping[str, Interval]:
    """Return the range that a kernel needs of each value it reads, by name, in reals; others it needs whole.

    Args:
      kept: what is asked of each of its results.
    """
    asked: dict[str, list[Interval]] = {name: [one] for name, one in kept.items()}
    inside = {name for op in region.ops for name in op.outputs} - kept.keys()
    for op in reversed(region.ops):
        if inside.issuperset(op.outputs) and not any(name in asked for name in op.outputs):
            continue  # a gate that only its own product reads
        ask = rules.Ask(
            around.graph,
            op,
            hull(one for name in op.outputs for one in asked.get(name, ())) or ALL,
            around.step(op.outputs[0]),
            tuple(around.extent(name) if name else None for name in op.inputs),
            tuple(around.levels(name) for name in op.inputs),
            dict(_gates(op, around)) if op.type == "Mul" else {},
            partial(_is_read_by_ratio, op.outputs[0], around),
        )
        gates = {op.inputs[i] for i in ask.gates}
        for name, needed in zip(op.inputs, _needed(ask), strict=True):
            if name not in gates & inside:
                asked.setdefault(name, []).append(needed)
    found = ((name, hull(asked.get(name, ()))) for name in region.inputs)
    return {name: needed for name, needed in found if name and needed is not None and needed != ALL}


def _needed(ask: rules.Ask) -> Iterator[Interval]:
    """The range that an op needs of each operand."""
    rule, graph = defined(ask.op.type).needed, ask.graph
    floats = all(graph.values[name].is_float for name in ask.op.outputs if name)
    if rule is None and floats and is_movement(ask.op, graph):
        yield from (ask.kept for _ in ask.op.inputs)
    else:
        yield from (ALL if rule is None else rule(ask, i) for i in range(len(ask.op.inputs)))


def _is_read_by_ratio(result: str, around: Around) -> bool:
    """Whether a consumer of a float result, past data movement, distinguishes small numbers: Log, divisor."""
    waiting, seen = [result], set[str]()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        readers = around.readers(name)
        if any(op.type in BY_RATIO for op in readers):
            return True
        moved = (op for op in readers if is_movement(op, around.graph))
        waiting += [n for op in moved for n in op.outputs if n not in seen]
    return False


def _gates(op: Op, around: Around) -> Iterator[tuple[int, rules.Gate]]:
    """The operands of a product that are gates of the other one."""
    for i, name in enumerate(op.inputs):
        maker = around.maker(name)
        gate = None if maker is None else defined(maker.type).gate
        if maker is not None and gate is not None and maker.inputs[0] == op.inputs[1 - i]:
            yield i, (maker, gate)

"""Op index: the ops of a graph by the keys of look-ups, and the ways that patterns fit there.

In: a graph. Out: records that `match` and `products` work on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from planner.ir.graph import Graph, Op
from planner.ir.roles import port_inputs
from planner.ir.topology import readers, writers
from planner.target.patterns import Literal

LITERAL_TOLERANCE: Final = 1e-3
TINY: Final = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class OpIndex:
    """The ops of a graph by the keys of look-ups; all numbers are indices into `ops`.

    Attributes:
      operands: values at the ports of each op.
      before: type of the op that writes each of them, "" for none.
      results: the model's outputs, and values that are to stay between kernels.
    """

    graph: Graph
    ops: tuple[Op, ...]
    writer: Mapping[str, int]
    readers: Mapping[str, Sequence[int]]
    by_type: Mapping[str, Sequence[int]]
    operands: tuple[tuple[str, ...], ...]
    before: tuple[tuple[str, ...], ...]
    results: frozenset[str]


@dataclass(frozen=True, slots=True)
class Fit:
    """One way a tree fits: the values at its variables, and (depth, op) pairs in the pattern's order."""

    bound: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    steps: tuple[tuple[int, int], ...] = ()

    @property
    def members(self) -> tuple[int, ...]:
        """The ops it takes, ascending, each once."""
        return tuple(sorted({op for _, op in self.steps}))

    @property
    def deepest(self) -> int:
        """The op furthest from the result, the first such in the pattern."""
        return max(self.steps, key=lambda step: step[0])[1]


def index_ops(graph: Graph, kept: frozenset[str] = frozenset()) -> OpIndex:
    """Index the ops of a graph; linear in operands.

    Args:
      kept: values that count as results, whoever reads them.
    """
    by_type: dict[str, list[int]] = {}
    for i, op in enumerate(graph.ops):
        by_type.setdefault(op.type, []).append(i)
    operands = tuple(port_inputs(op, graph) for op in graph.ops)
    written = {name: op.type for op in graph.ops for name in op.outputs if name}
    return OpIndex(
        graph=graph,
        ops=graph.ops,
        writer=writers(graph.ops),
        readers=readers(graph.ops),
        by_type=by_type,
        operands=operands,
        before=tuple(tuple(written.get(name, "") for name in names) for names in operands),
        results=kept.union(graph.outputs),
    )


def number_of(index: OpIndex, value: str) -> float | None:
    """The number that a constant repeats; None where it has several, or is none."""
    constant = index.graph.constants.get(value)
    if constant is None or constant.array is None or not constant.array.size:
        return None
    first = float(constant.array.reshape(-1)[0])
    return first if holds_only(index, value, Literal(first)) else None


def is_number(number: float, wanted: Literal) -> bool:
    """Whether a number is the required one, to a thousandth, or lies between the two."""
    slack = LITERAL_TOLERANCE * max(abs(wanted.value), TINY)
    return wanted.value - slack <= number <= (wanted.value if wanted.most is None else wanted.most) + slack


def holds_only(index: OpIndex, value: str, wanted: Literal) -> bool:
    """Whether a value is a constant that repeats one number; float16 and rounding constants count."""
    constant = index.graph.constants.get(value)
    if constant is None or constant.array is None or not constant.array.size:
        return False
    # Numbers such as sqrt(2) are written with few digits, or in float16: hence a relative tolerance.
    array = constant.array.astype(np.float64, copy=False)
    return is_number(float(array.min()), wanted) and is_number(float(array.max()), wanted)

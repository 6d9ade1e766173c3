"""Match: places in a graph where a pattern's tree of ops stands.

In: an index of the ops and one tree without optional ops. Out: the ways it fits behind an op, in the order
of the pattern. Whether a fit may become a kernel (uses outside it, predicates) is for `fuse` to say.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from planner.ir.graph import Graph, Op
from planner.ir.roles import port_inputs
from planner.ir.topology import readers, writers
from planner.target.patterns import COMMUTATIVE, Literal, Node, OpPattern, Variable

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


def fits(tree: OpPattern, root: int, index: OpIndex) -> Iterator[Fit]:
    """Yield the ways `tree` fits with its result written by op `root`."""
    if _may_fit(tree, root, index):
        yield from _op(tree, root, index, Fit(), 0)


def _may_fit(tree: OpPattern, root: int, index: OpIndex) -> bool:
    """Whether the ops right before `root` have the types asked for; most misses end here, cheaply."""
    before = index.before[root]
    either = index.ops[root].type in COMMUTATIVE
    for i, arg in enumerate(tree.args):
        if not isinstance(arg, OpPattern):
            continue
        if either:
            if not any(name in arg.types for name in before):
                return False
        elif i >= len(before) or before[i] not in arg.types:
            return False
    return True


def _op(tree: OpPattern, at: int, index: OpIndex, fit: Fit, depth: int) -> Iterator[Fit]:
    op = index.ops[at]
    if op.type not in tree.types or not index.operands[at]:
        return
    grown = Fit(fit.bound, (*fit.steps, (depth, at)))
    operands = index.operands[at]
    yield from _arguments(tree.args, operands, index, grown, depth)
    # Exporters write `x * s` and `s * x` alike; the written order is tried first, so fits have a fixed order.
    if op.type in COMMUTATIVE and len(tree.args) == len(operands) == 2:
        yield from _arguments(tree.args, operands[::-1], index, grown, depth)


def _arguments(
    args: tuple[Node, ...], operands: tuple[str, ...], index: OpIndex, fit: Fit, depth: int
) -> Iterator[Fit]:
    if not args:
        if not operands:
            yield fit
        return
    first, *rest = args
    if isinstance(first, Variable) and first.variadic:
        yield from _bind(first.name, operands, fit)
        return
    value = operands[0] if operands else ""
    for grown in _node(first, value, index, fit, depth + 1):
        yield from _arguments(tuple(rest), operands[1:], index, grown, depth)


def _node(node: Node, value: str, index: OpIndex, fit: Fit, depth: int) -> Iterator[Fit]:
    if isinstance(node, Variable):
        if value or node.optional:
            yield from _bind(node.name, value, fit)
        return
    if isinstance(node, Literal):
        if _holds_only(index, value, node.value):
            yield fit
        return
    at = index.writer.get(value)
    if at is not None and index.ops[at].outputs[0] == value:
        yield from _op(node, at, index, fit, depth)


def _holds_only(index: OpIndex, value: str, number: float) -> bool:
    """Whether a value is a constant that repeats one number; float16 and rounding constants count."""
    constant = index.graph.constants.get(value)
    if constant is None or constant.array is None or not constant.array.size:
        return False
    # Numbers such as sqrt(2) are written with few digits, or in float16: hence a relative tolerance.
    array = constant.array.astype(np.float64, copy=False)
    return bool(np.all(np.abs(array - number) <= LITERAL_TOLERANCE * max(abs(number), TINY)))


def _bind(name: str, value: str | tuple[str, ...], fit: Fit) -> Iterator[Fit]:
    if name not in fit.bound:
        yield Fit({**fit.bound, name: value}, fit.steps)
    # A variable named twice stands for one value, as x does in `Mul(x, Sigmoid(x))`.
    elif fit.bound[name] == value:
        yield fit

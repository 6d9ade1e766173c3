"""Match: places in a graph where a pattern's tree of ops stands.

In: an index of the ops and one tree without optional ops. Out: the ways it fits behind an op, in the order
of the pattern. Whether a fit may become a kernel (uses outside it, predicates) is for `fuse` to say.
"""

from collections.abc import Iterator

from planner.fusion.op_index import Fit, OpIndex, holds_only
from planner.fusion.products import Factors, spellings
from planner.target.patterns import (
    COMMUTATIVE,
    Either,
    Literal,
    Node,
    OpPattern,
    Variable,
    other_spellings,
    spelled_types,
)


def fits(tree: OpPattern, root: int, index: OpIndex) -> Iterator[Fit]:
    """Yield the ways `tree` fits with its result written by op `root`."""
    if tree.is_product:
        if index.ops[root].outputs and index.operands[root]:
            yield from Factors(index, _node).of(tree.args, index.ops[root].outputs[0], Fit(), 0)
    elif index.ops[root].type not in tree.types or _may_fit(tree, root, index):
        yield from _op(tree, root, index, Fit(), 0)


def _may_fit(tree: OpPattern, root: int, index: OpIndex) -> bool:
    """Whether the ops right before `root` have the required types; most misses end here, cheaply."""
    before = index.before[root]
    either = index.ops[root].type in COMMUTATIVE
    for i, arg in enumerate(tree.args):
        if not isinstance(arg, OpPattern) or arg.repeated or arg.is_product or arg.loose:
            continue
        if either:
            if not any(name in spelled_types(arg) for name in before):
                return False
        elif i >= len(before) or before[i] not in spelled_types(arg):
            return False
    return True


def _op(tree: OpPattern, at: int, index: OpIndex, fit: Fit, depth: int) -> Iterator[Fit]:
    op = index.ops[at]
    if op.type not in tree.types:
        for other in other_spellings(tree):
            if op.type in other.types:
                yield from _op(other, at, index, fit, depth)
        return
    if not index.operands[at]:
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
        if holds_only(index, value, node):
            yield fit
        return
    if isinstance(node, Either):
        for way in node.ways:
            yield from _node(way, value, index, fit, depth)
        return
    yield from _tree(node, value, index, fit, depth)


def _tree(node: OpPattern, value: str, index: OpIndex, fit: Fit, depth: int) -> Iterator[Fit]:
    at = index.writer.get(value)
    if at is None or index.ops[at].outputs[0] != value:
        if (node.optional or node.repeated) and value:
            yield from _node(node.args[0], value, index, fit, depth)
        return
    if node.is_product:
        yield from Factors(index, _node).of(node.args, value, fit, depth)
        return
    if node.repeated and index.ops[at].type in node.types and index.operands[at]:
        # The longest row of such ops first.
        grown = Fit(fit.bound, (*fit.steps, (depth, at)))
        yield from _tree(node, index.operands[at][0], index, grown, depth + 1)
    elif not node.repeated:
        yield from _op(node, at, index, fit, depth)
    if node.optional or node.repeated:
        yield from _node(node.args[0], value, index, fit, depth)
    for spelling in spellings(node):
        yield from _op(spelling, at, index, fit, depth)


def _bind(name: str, value: str | tuple[str, ...], fit: Fit) -> Iterator[Fit]:
    if name not in fit.bound:
        yield Fit({**fit.bound, name: value}, fit.steps)
    # A variable named twice stands for one value, as x does in `Mul(x, Sigmoid(x))`.
    elif fit.bound[name] == value:
        yield fit

"""Products: factors of a pattern, however a graph multiplies them.

`Product(a, b, 0.5)` fits `(a * b) * 0.5`, `b * (0.5 * a)` and `(a * b) / 2`; a factor that stands twice fits
a square by Pow. Constants that repeat one number are multiplied together and compared with the pattern's
number, 1 where it has none. A factor `Reciprocal(v)` fits a quotient too. Casts are looked through.
"""

from collections.abc import Callable, Iterator
from itertools import combinations
from math import prod
from typing import Final, TypeAlias

from planner.fusion.op_index import Fit, OpIndex, is_number, number_of
from planner.target.patterns import Either, Literal, Node, OpPattern, Variable

NodeFits: TypeAlias = Callable[[Node, str, OpIndex, Fit, int], Iterator[Fit]]
"""The ways a node of a pattern fits a value (`match`)."""
SEEN_THROUGH: Final = frozenset({"Cast", "Identity"})
MAX_DEPTH: Final = 12
"""Ops in a row of one product."""
_ONE: Final = Literal(1.0)


def spellings(node: OpPattern) -> tuple[OpPattern, ...]:
    """Other ways to write a reciprocal or a root: as a quotient, or as a power."""
    if not node.loose:
        return ()
    inner = node.args[0]
    if node.types[0] == "Sqrt":
        return (OpPattern(("Pow",), (inner, Literal(0.5))),)
    if node.types[0] != "Reciprocal":
        return ()
    roots = tuple(OpPattern(("Pow",), (squared, Literal(-0.5))) for squared in _under_a_root(inner))
    return (OpPattern(("Div",), (_ONE, inner)), *roots, OpPattern(("Pow",), (inner, Literal(-1.0))))


def _under_a_root(node: Node) -> tuple[Node, ...]:
    """The operand that a node is the square root of, views on the way left out."""
    if isinstance(node, Either):
        return tuple(squared for way in node.ways for squared in _under_a_root(way))
    if not isinstance(node, OpPattern):
        return ()
    if node.types == ("Sqrt",):
        return node.args
    return _under_a_root(node.args[0]) if node.repeated or node.optional else ()


class Factors:
    """Searches for factors in one graph."""

    def __init__(self, index: OpIndex, node_fits: NodeFits) -> None:
        self.index = index
        self.node_fits = node_fits

    def of(self, args: tuple[Node, ...], value: str, fit: Fit, depth: int) -> Iterator[Fit]:
        """Yield the ways a value is the product of `args`; an optional variable may be no factor."""
        numbers = [arg for arg in args if isinstance(arg, Literal)]
        wanted = numbers[0] if len(numbers) == 1 else Literal(prod(number.value for number in numbers))
        rest = tuple(arg for arg in args if not isinstance(arg, Literal))
        absent = tuple(arg for arg in rest if not (isinstance(arg, Variable) and arg.optional))
        for way in (rest,) if absent == rest else (rest, absent):
            for found, number in self.fits(way, value, fit, depth):
                if is_number(number, wanted):
                    yield found

    def fits(
        self, args: tuple[Node, ...], value: str, fit: Fit, depth: int, deep: int = 0
    ) -> Iterator[tuple[Fit, float]]:
        """Yield the ways a value is the product of some factors and a number, and the number."""
        if not args:
            number = number_of(self.index, value)
            if number is not None:
                yield fit, number
            return
        if len(args) == 1 and not self._is_one_number(args[0], value):
            for found in self.node_fits(args[0], value, self.index, fit, depth):
                yield found, 1.0
        at = self.index.writer.get(value)
        if at is None or deep > MAX_DEPTH or not self.index.operands[at]:
            return
        op, operands = self.index.ops[at], self.index.operands[at]
        grown = Fit(fit.bound, (*fit.steps, (depth, at)))
        if op.type in SEEN_THROUGH:
            yield from self.fits(args, operands[0], grown, depth + 1, deep + 1)
        elif op.type == "Neg":
            for found, number in self.fits(args, operands[0], grown, depth + 1, deep + 1):
                yield found, -number
        elif op.type == "Pow" and len(operands) == 2:
            yield from self._power(args, operands, grown, depth)
        elif op.type == "Mul" and len(operands) == 2:
            yield from self._split(args, operands, grown, depth, deep)
        elif op.type == "Div" and len(operands) == 2:
            yield from self._quotient(args, operands, grown, depth, deep)

    def _is_one_number(self, node: Node, value: str) -> bool:
        """Whether a variable would stand for a number, which is no factor of its own: the 1 of a quotient."""
        constant = self.index.graph.constants.get(value) if isinstance(node, Variable) else None
        return constant is not None and constant.array is not None and constant.array.size == 1

    def _power(
        self, args: tuple[Node, ...], operands: tuple[str, ...], fit: Fit, depth: int
    ) -> Iterator[tuple[Fit, float]]:
        """A factor as often as its exponent says."""
        if number_of(self.index, operands[1]) != len(args) or any(arg != args[0] for arg in args):
            return
        for found in self.node_fits(args[0], operands[0], self.index, fit, depth + 1):
            yield found, 1.0

    def _split(
        self, args: tuple[Node, ...], operands: tuple[str, ...], fit: Fit, depth: int, deep: int
    ) -> Iterator[tuple[Fit, float]]:
        """Some factors on the left, the others on the right; on one side alone beside a number."""
        constant = [number_of(self.index, name) is not None for name in operands]
        seen: set[tuple[Node, ...]] = set()
        for count in range(len(args) + 1):
            # Only a number has no factor of the pattern.
            if (count == 0 and not constant[0]) or (count == len(args) and not constant[1]):
                continue
            for chosen in combinations(range(len(args)), count):
                left = tuple(args[i] for i in chosen)
                if left in seen:
                    continue
                seen.add(left)
                right = tuple(arg for i, arg in enumerate(args) if i not in chosen)
                for found, number in self.fits(left, operands[0], fit, depth + 1, deep + 1):
                    for whole, other in self.fits(right, operands[1], found, depth + 1, deep + 1):
                        yield whole, number * other

    def _quotient(
        self, args: tuple[Node, ...], operands: tuple[str, ...], fit: Fit, depth: int, deep: int
    ) -> Iterator[tuple[Fit, float]]:
        """Factors over a number, or over what the pattern has a reciprocal of."""
        over = number_of(self.index, operands[1])
        if over:
            for found, number in self.fits(args, operands[0], fit, depth + 1, deep + 1):
                yield found, number / over
            return
        for i, arg in enumerate(args):
            if not isinstance(arg, OpPattern) or arg.types != ("Reciprocal",):
                continue
            rest = (*args[:i], *args[i + 1 :])
            for found, number in self.fits(rest, operands[0], fit, depth + 1, deep + 1):
                for whole in self.node_fits(arg.args[0], operands[1], self.index, found, depth + 1):
                    yield whole, number

"""Casts that a text has already: their results, and which of them an op may read.

Source: MLIR quant dialect, "Operations"; SSA dominance of the language reference.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from xdsl.ir import Block, Operation, SSAValue

from planner.formats.mlir.types import UniformType

Hops = tuple[UniformType | None, ...]
"""The types that a value goes through, as they are spelled; None for reals."""


@dataclass(slots=True)
class OwnCasts:
    """Results of the text's casts, by the value that they start from and the types between.

    Attributes:
      chains: of each result, that value and those types.
      results: the other way round, in the order of the text.
    """

    chains: dict[SSAValue, tuple[SSAValue, Hops]] = field(default_factory=dict)
    results: dict[tuple[SSAValue, Hops], list[SSAValue]] = field(default_factory=dict)
    places: dict[Block, dict[Operation, int]] = field(default_factory=dict)

    def start(self, value: SSAValue, hops: Hops) -> tuple[SSAValue, Hops]:
        """The value where the casts of a value begin, and all types from there, its own and some more."""
        first, before = self.chains.get(value, (value, ()))
        return first, (*before, *hops)

    def add(self, result: SSAValue, source: SSAValue, hops: Hops) -> None:
        """Note what a cast makes of its operand, in how many casts it may be."""
        chain = self.start(source, hops)
        self.chains[result] = chain
        self.results.setdefault(chain, []).append(result)

    def found(self, value: SSAValue, hops: Hops, op: Operation, index: int) -> tuple[SSAValue, int]:
        """The farthest that casts of the text bring a value on its way to an op, and how many types that is.

        The operand that the op has comes first among results of equal casts.
        """
        for count in range(len(hops), 0, -1):
            several = self.results.get(self.start(value, hops[:count]), [])
            if count == len(hops) and op.operands[index] in several:
                return op.operands[index], count
            best = next(self._before(op, several), None)
            if best is not None:
                return best, count
        return value, 0

    def _before(self, op: Operation, values: Iterable[SSAValue]) -> Iterator[SSAValue]:
        """Those of some results that stand in front of an op, in its block or one around it."""
        for value in values:
            block, around = value.owner.parent if isinstance(value.owner, Operation) else None, op
            while around.parent is not block and (outer := around.parent_op()) is not None:
                around = outer
            if block is None or around.parent is not block or not isinstance(value.owner, Operation):
                continue
            if block not in self.places:
                self.places[block] = {inner: i for i, inner in enumerate(block.ops)}
            if self.places[block][value.owner] < self.places[block][around]:
                yield value

"""Walk: the items of a plan written in order, for every format with loops and branches.

The order, what is known before running and what borders define are the same for all; how a format writes a
block, a choice and a loop it hands in (`Writers`). Source: docs/specification.md, section 5;
`common.control_flow`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np

from planner.errors import UnsupportedExport
from planner.exporters.common.blocks import Block
from planner.exporters.common.control_flow import Border, Choice, Cycle, Item
from planner.exporters.common.values import Values
from planner.ir.types.qtypes import Uniform
from planner.plans.records import PortTyped

Tensor = TypeVar("Tensor")


@dataclass(frozen=True, slots=True, eq=False)
class Trips:
    """The trips of a loop, and the values handed from one to the next.

    Attributes:
      pairs: where what one trip hands to the next enters and leaves, a condition first.
      trips: how many there are, where that is known.
      bound: the value with their number at most, where it is computed; else "".
      is_steady: whether the first pair is no condition.
    """

    pairs: tuple[tuple[Border, Border], ...]
    trips: int | None
    bound: str
    is_steady: bool


@dataclass(frozen=True, slots=True)
class Writers(Generic[Tensor]):
    """What a format hands in.

    Attributes:
      name: of the format, in refusals.
      block: writes one.
      start: what is written from here on belongs to a border, a choice or a loop.
      read: the tensor of a value as a border of a type hands it over.
      choose: writes a choice whose branches both stand, and gives a tensor for each of its joins.
      repeat: writes a loop, and gives a tensor for each second of its pairs, then for each collected result.
      shape: of a value, as it has been written.
    """

    name: str
    block: Callable[[Block], None]
    start: Callable[[Border | Choice | Cycle], None]
    read: Callable[[str, PortTyped], Tensor]
    choose: "Chooser[Tensor]"
    repeat: "Repeater[Tensor]"
    shape: Callable[[str], tuple[int, ...]]


class Walk(Generic[Tensor]):
    """The walk over a plan's items, and over those of the bodies among them."""

    def __init__(self, values: Values[Tensor], writers: Writers[Tensor]) -> None:
        """Start with the values written so far and a format's writers."""
        self.values, self._writers = values, writers

    def write(self, items: Sequence[Item]) -> None:
        """Write items in order.

        Raises:
          UnsupportedExport: of the format's writers; a loop without an end or with results of no fixed size.
        """
        for item in items:
            match item:
                case Block():
                    self._writers.block(item)
                case Border():
                    self._hand_over(item)
                case Choice():
                    self._choose(item)
                case Cycle():
                    self._repeat(item)

    def read(self, border: Border, source: str = "") -> Tensor:
        """The tensor that a border hands over: of its own source, or of one of a join's."""
        return self._writers.read(source or border.source, border.kind)

    def define(self, border: Border, tensor: Tensor) -> None:
        """Say which tensor is the value behind a border."""
        if isinstance(border.kind, Uniform):
            self.values.define_stored(border.value, border.kind, tensor)
        else:
            self.values.define_real(border.value, tensor)

    def finish_branch(self, choice: Choice, index: int) -> list[Tensor]:
        """Write what a branch runs, and give what the joins hand on from it."""
        self.write(choice.branches[index].items)
        self._writers.start(choice)
        return [self.read(join, join.branch(index)) for join in choice.joins]

    def refuse_change(self, place: str, what: str, a: str, b: str) -> None:
        """Refuse two tensors, as text, that have to be of one shape and element.

        Raises:
          UnsupportedExport: they differ.
        """
        if a != b:
            raise UnsupportedExport(
                f"{place}: {what} as {a} and as {b}; {self._writers.name} accepts one shape here",
                hint="give the model's inputs fixed sizes, or use an ONNX format",
            )

    def _hand_over(self, border: Border) -> None:
        known = self.values.known(border.source)
        if known is not None and not isinstance(border.kind, Uniform):
            self.values.numbers[border.value] = known
            return
        self._writers.start(border)
        self.define(border, self.read(border))

    def _choose(self, choice: Choice) -> None:
        index = choice.taken(self.values.known)
        if index is not None:
            # A branch whose condition is known stands as if the other were not there.
            self.write(choice.branches[index].begins)
            found: Sequence[Tensor] = self.finish_branch(choice, index)
        else:
            for branch in choice.branches:
                self.write(branch.begins)
            self._writers.start(choice)
            found = self._writers.choose(self, choice)
        for join, tensor in zip(choice.joins, found, strict=True):
            self.define(join, tensor)

    def _repeat(self, cycle: Cycle) -> None:
        self.write(cycle.unchanged)
        self._writers.start(cycle)
        is_steady = cycle.is_steady(self.values.known)
        trips = cycle.trips(self.values.known, self._writers.shape)
        cycle.check(self._writers.name, trips, is_steady=is_steady)
        bound = cycle.scope.operands[0] if trips is None else ""
        loop = Trips(cycle.pairs(is_steady=is_steady), trips, bound, is_steady)
        if is_steady:
            for begin in cycle.begins:
                if cycle.is_condition(begin):
                    self.values.numbers[begin.value] = np.asarray(True)
        found = self._writers.repeat(self, cycle, loop)
        for end, tensor in zip((*(end for _, end in loop.pairs), *cycle.collected), found, strict=True):
            self.define(end, tensor)


Chooser: TypeAlias = Callable[[Walk[Tensor], Choice], Sequence[Tensor]]
Repeater: TypeAlias = Callable[[Walk[Tensor], Cycle, Trips], Sequence[Tensor]]

"""Walk: the items of a plan written in order, for every format with loops and branches.

The order, what is known before running, what borders define, what a branch gives and a trip takes and leaves
are the same for all; `loop_language.Language` has a format's own operators. Source: docs/specification.md,
section 5; ONNX If, Loop and Scan; `common.control_flow`.
"""

from collections.abc import Sequence
from typing import Generic

import numpy as np

from planner.errors import UnsupportedExport
from planner.formats.common.control_flow import Item
from planner.formats.common.loop_language import Language, Tensor, Trips, Turn
from planner.formats.common.values import Values
from planner.ir.types.qtypes import Uniform
from planner.lowering.blocks import Block
from planner.lowering.bodies import Border, Choice, Cycle


class Walk(Generic[Tensor]):
    """The walk over a plan's items, and over those of the bodies among them."""

    def __init__(self, values: Values[Tensor], language: Language[Tensor]) -> None:
        """Start with the values written so far and a format's operators."""
        self.values, self._own = values, language

    def write(self, items: Sequence[Item]) -> None:
        """Write items in order.

        Raises:
          UnsupportedExport: of the format; a loop without an end or with results of no fixed size.
        """
        for item in items:
            match item:
                case Block():
                    self._own.write(self._own.builder, item)
                case Border():
                    self._hand_over(item)
                case Choice():
                    self._choose(item)
                case Cycle():
                    self._repeat(item)

    def _read(self, border: Border) -> Tensor:
        """The tensor that a border hands over."""
        return self._own.read(border.source, border.kind)

    def _define(self, border: Border, tensor: Tensor) -> None:
        """Say which tensor is the value behind a border."""
        if isinstance(border.kind, Uniform):
            self.values.define_stored(border.value, border.kind, tensor)
        else:
            self.values.define_real(border.value, tensor)

    def _refuse_change(self, what: str, a: Tensor, b: Tensor) -> None:
        """Refuse two tensors that have to be of one shape and element, and are not."""
        texts = self._own.text(a), self._own.text(b)
        if texts[0] != texts[1]:
            raise UnsupportedExport(
                f"{self._own.place}: {what} as {texts[0]} and as {texts[1]}; {self._own.name} accepts one "
                "shape here",
                hint="give the model's inputs fixed sizes, or use an ONNX format",
            )

    def _hand_over(self, border: Border) -> None:
        known = self.values.known(border.source)
        if known is not None and not isinstance(border.kind, Uniform):
            self.values.numbers[border.value] = known
            return
        self._own.start(border)
        self._define(border, self._read(border))

    def _choose(self, choice: Choice) -> None:
        index = choice.taken(self.values.known)
        if index is not None:
            # A branch whose condition is known stands as if the other were not there.
            self.write(choice.branches[index].begins)
            found: Sequence[Tensor] = self._branch(choice, index)
        else:
            for branch in choice.branches:
                self.write(branch.begins)
            self._own.start(choice)
            found = self._either(choice)
        for join, tensor in zip(choice.joins, found, strict=True):
            self._define(join, tensor)

    def _either(self, choice: Choice) -> Sequence[Tensor]:
        flag, made = self._own.flag(choice.condition), []
        for index in range(len(choice.branches)):
            with self._own.inside() as body:
                made.append((body, self._branch(choice, index)))
        for join, a, b in zip(choice.joins, made[0][1], made[1][1], strict=True):
            self._refuse_change(f"its branches give {join.value!r}", a, b)
        return self._own.choose(choice, flag, made)

    def _branch(self, choice: Choice, index: int) -> list[Tensor]:
        """Write what a branch runs, and give what the joins hand on from it."""
        self.write(choice.branches[index].items)
        self._own.start(choice)
        return [self._own.read(join.branch(index), join.kind) for join in choice.joins]

    def _repeat(self, cycle: Cycle) -> None:
        self.write(cycle.unchanged)
        self._own.start(cycle)
        is_steady = cycle.is_steady(self.values.known)
        trips = cycle.trips(self.values.known, self._own.shape)
        cycle.check(self._own.name, trips, is_steady=is_steady)
        bound = cycle.scope.operands[0] if trips is None else ""
        loop = Trips(cycle.pairs(is_steady=is_steady), trips, bound, is_steady)
        if is_steady:
            for begin in cycle.begins:
                if cycle.is_condition(begin):
                    self.values.numbers[begin.value] = np.asarray(True)
        found = self._turned(cycle, loop)
        for end, tensor in zip((*(end for _, end in loop.pairs), *cycle.collected), found, strict=True):
            self._define(end, tensor)

    def _turned(self, cycle: Cycle, loop: Trips) -> list[Tensor]:
        """Write a loop; a tensor for each second of its pairs, then for each collected result."""
        own = self._own
        bound, entering = own.bounded(
            loop, lambda: [own.number(0), *(self._first(cycle, begin) for begin, _ in loop.pairs)]
        )
        wholes = [self._whole(cycle, begin) for begin in cycle.slices]
        seen = own.arguments(entering)
        with own.trip() as body:
            self._enter(cycle, loop, seen)
            for begin, (rows, axis, shape) in zip(cycle.slices, wholes, strict=True):
                at = self._at(cycle, "input", begin, seen[0], shape[axis])
                rest = (*shape[:axis], *shape[axis + 1 :])
                self._define(begin, own.sliced(body, rows, at, axis, rest, begin.value))
            self.write(cycle.items)
            own.start(cycle)
            after = [own.more(seen[0])]
            for (begin, end), given in zip(loop.pairs, seen[1:], strict=True):
                handed = own.read(end.source, end.kind, given)
                after.append(own.condition(handed) if cycle.is_condition(begin) else handed)
            grown = [self._collect(cycle, end, seen[0], loop.trips or 0) for end in cycle.collected]
        for (begin, _), a, b in zip(loop.pairs, entering[1:], after[1:], strict=True):
            self._refuse_change(f"a trip takes and leaves {begin.value!r}", a, b)
        entering += [own.empty(end, rows) for end, (rows, *_) in zip(cycle.collected, grown, strict=True)]
        names = ("count", *(begin.value for begin, _ in loop.pairs), *(end.value for end in cycle.collected))
        seen += [rows for rows, *_ in grown]
        after += [filled for _, filled, *_ in grown]
        found = own.loop(Turn(cycle, loop, bound, body, names, tuple(entering), tuple(seen), tuple(after)))
        count = 1 + len(loop.pairs)
        results = [
            own.collected(rows, shape, axis)
            for (_, _, shape, axis), rows in zip(grown, found[count:], strict=True)
        ]
        return [*found[1:count], *results]

    def _first(self, cycle: Cycle, begin: Border) -> Tensor:
        """The tensor that the first trip takes; the condition that a Loop leaves out holds."""
        if not begin.source:
            return self._own.true()
        tensor = self._read(begin)
        return self._own.condition(tensor) if cycle.is_condition(begin) else tensor

    def _enter(self, cycle: Cycle, loop: Trips, seen: Sequence[Tensor]) -> None:
        """Define what a trip sees: the count of a Loop, and what is handed to it."""
        for begin in cycle.begins:
            if cycle.is_count(begin):
                self.values.define_real(begin.value, self._own.index(seen[0]))
        for (begin, _), tensor in zip(loop.pairs, seen[1:], strict=True):
            self._define(begin, tensor)

    def _whole(self, cycle: Cycle, begin: Border) -> tuple[Tensor, int, tuple[int, ...]]:
        """The tensor that a Scan takes slice by slice, its axis of slices, and its shape."""
        whole = self._read(begin)
        axis = cycle.axis("input", begin.index, len(whole.shape))
        return self._own.rows(begin, whole, axis), axis, whole.shape

    def _at(self, cycle: Cycle, side: str, border: Border, count: Tensor, slices: int) -> Tensor:
        """The place of a trip's slice."""
        return self._own.from_end(count, slices) if cycle.is_back(side, border.index) else count

    def _collect(
        self, cycle: Cycle, end: Border, count: Tensor, trips: int
    ) -> tuple[Tensor, Tensor, tuple[int, ...], int]:
        """Slices of the trips before, the same with that of this trip, its shape, and the axis of slices."""
        part = self._read(end)
        axis = cycle.axis("output", end.index, len(part.shape) + 1)
        rows = self._own.buffer(end, part, axis, trips)
        at = self._at(cycle, "output", end, count, trips)
        return rows, self._own.placed(rows, part, at, axis, end.value), part.shape, axis

"""Moves: the results of an op that only moves data, by a format's own operators for each kind of step.

For formats whose tensors say in which order their axes are stored (tosa, litert): there axes in another
order are no operator. A format writes an op itself where its own operators are better.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from math import prod
from typing import Any, Final, Generic, TypeAlias, TypeVar

import numpy as np

from planner.errors import ModelError
from planner.formats.common.layouts import order_after, plain, resized
from planner.formats.common.ordered import OrderedProgram
from planner.formats.common.values import Array, Values
from planner.formats.onnx.composites.basics import BASICS
from planner.ir.graph import Op
from planner.ops import OPERATORS, find_movements
from planner.ops.operands import Operands
from planner.ops.steps import Movement, Pick, PickOfAll, Step, Turn, View, is_filled

MOVED: Final = tuple(
    name for name, one in OPERATORS.items() if one.indices is not None and name not in BASICS
)
"""Operators that a format writes by their definition; others are written as several before."""
Tensor = TypeVar("Tensor")
Picker: TypeAlias = Callable[[Tensor, Mapping[int, Array], str], Tensor]
"""The elements of a tensor at places along axes of the model; the name of the result."""


@dataclass(frozen=True, slots=True)
class Lowering(Generic[Tensor]):
    """A format's operators for steps.

    Attributes:
      sizes_of: sizes of a value of the model, open ones as the file has them.
    """

    program: OrderedProgram[Tensor]
    values: Values[Tensor]
    sizes_of: Callable[[str], tuple[int, ...]]
    pick: Picker[Tensor]

    def moved(self, op: Op, x: Any) -> list[Tensor] | None:
        """The results of an op from its first operand; None where it cannot be followed.

        Raises:
          ModelError: no such elements in an operand of this size.
        """
        movements = movements_of(self.values, op, x.sizes)
        if movements is None or any(one.joined is not None or is_filled(one) for one in movements):
            return None
        return [self._made(op, one, x, name) for name, one in zip(op.outputs, movements, strict=False)]

    def _made(self, op: Op, movement: Movement, x: Any, name: str) -> Any:
        for is_pick, steps in groupby(movement.steps, lambda step: isinstance(step, Pick)):
            for step in [] if is_pick else steps:
                x = self._stepped(x, step, name)
            if is_pick:
                picks = {step.axis: step.places for step in steps if isinstance(step, Pick)}
                if any(places is None for places in picks.values()):
                    raise ModelError(f"{op.type} at {op.name!r} reads elements that {list(x.sizes)} has not")
                x = self.pick(x, {axis: np.asarray(picks[axis]) for axis in sorted(picks)}, name)
        return x

    def _stepped(self, x: Any, step: Step, name: str) -> Any:
        if isinstance(step, Turn):
            return replace(x, order=tuple(step.order.index(axis) for axis in x.order))
        if isinstance(step, View):
            return self._viewed(x, step, name)
        flat = self.program.reshaped(self.program.ordered(x, plain(len(x.shape))), (prod(x.shape),))
        assert isinstance(step, PickOfAll)  # noqa: S101 - picks along an axis are taken together
        return self.program.reshaped(self.pick(flat, {0: step.places.reshape(-1)}, name), step.places.shape)

    def _viewed(self, x: Any, step: View, name: str) -> Any:
        """In the model's own order, or in any where only ones come and go."""
        sizes = tuple(size for size in step.shape or () if isinstance(size, int))
        if step.shape is None or len(sizes) < len(step.shape) or prod(sizes) != prod(x.shape):
            sizes = resized(self.sizes_of(name), prod(x.shape))
        kept = [size for size in x.sizes if size != 1]
        if kept == [size for size in sizes if size != 1] and len(kept) < len(x.shape) + len(sizes):
            order = order_after(x.order, x.sizes, sizes)
            return self.program.reshaped(x, [sizes[axis] for axis in order], order)
        return self.program.reshaped(self.program.ordered(x, plain(len(x.shape))), sizes)


def movements_of(values: Values[Any], op: Op, sizes: tuple[int, ...]) -> tuple[Movement, ...] | None:
    """The movements of an op on an operand of these sizes; None where they are not known before running."""
    return find_movements(Operands(op, {op.inputs[0]: sizes}.get, values.known))

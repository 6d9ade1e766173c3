"""Steps: where each element of a result comes from, described by axes without an index for every element.

A result of data movement is some operands, joined along an axis if they are several, and then steps in
order: the same elements in another shape, axes in another order, places picked along one axis, or places
picked of all elements. Code that asks about axes reads the steps; `apply` moves numbers. Nothing here knows
an operator.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Shape

Array: TypeAlias = npt.NDArray[Any]
Places: TypeAlias = range | npt.NDArray[np.int64]
FILLED: Final = -1
"""The place of an element that no operand holds: what the op fills with."""


@dataclass(frozen=True, slots=True)
class View:
    """The same elements in the same order.

    Attributes:
      shape: of the result; None where its rank is unknown.
    """

    shape: Shape | None


@dataclass(frozen=True, slots=True)
class Turn:
    """Axes in another order: axis `i` is axis `order[i]` of before."""

    order: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Pick:
    """Places along one axis, other axes whole.

    Attributes:
      places: a range where they are evenly apart by the op's own words; None where a size is open.
    """

    axis: int
    places: Places | None


@dataclass(frozen=True, slots=True, eq=False)
class PickOfAll:
    """Places among all elements in row-major order, in the shape of the result."""

    places: npt.NDArray[np.int64]


Step: TypeAlias = View | Turn | Pick | PickOfAll


@dataclass(frozen=True, slots=True)
class Movement:
    """The origin of one result of an op.

    Attributes:
      steps: after joining.
      operands: their places among the op's operands.
      joined: the axis along which several operands are joined, not negative; None of one operand.
    """

    steps: tuple[Step, ...] = ()
    operands: tuple[int, ...] = (0,)
    joined: int | None = None


def apply(movement: Movement, operands: Sequence[Array], filling: Any = 0) -> Array:
    """Move the elements of operands.

    Args:
      operands: those of the movement, in its order.
      filling: what stands where no operand has an element.

    Raises:
      ValueError: shapes that do not go together, or sizes that are open.
    """
    array = operands[0] if movement.joined is None else np.concatenate(operands, movement.joined)
    for step in movement.steps:
        array = _APPLIED[type(step)](step, array, filling)
    return array


def is_filled(movement: Movement) -> bool:
    """Whether a result has elements that no operand holds."""
    placed = (step.places for step in movement.steps if isinstance(step, Pick | PickOfAll))
    return any(isinstance(places, np.ndarray) and bool((places == FILLED).any()) for places in placed)


def keeps_all(movement: Movement) -> bool:
    """Whether a result has every element of its operands once."""
    return all(isinstance(step, View | Turn) for step in movement.steps)


def _view(step: Any, array: Array, _filling: Any) -> Array:
    if step.shape is None or not all(isinstance(size, int) for size in step.shape):
        raise ValueError(f"a view of open shape {step.shape}")
    viewed: Array = array.reshape(step.shape)
    return viewed


def _turn(step: Any, array: Array, _filling: Any) -> Array:
    turned: Array = array.transpose(step.order)
    return turned


def _pick(step: Any, array: Array, filling: Any) -> Array:
    places = step.places
    if places is None:
        raise ValueError(f"places along axis {step.axis} are not known")
    if isinstance(places, range):
        # An index below 0 would count from the end.
        part = slice(places.start, None if places.stop < 0 else places.stop, places.step)
        found: Array = array[(*(slice(None),) * step.axis, part if places else slice(0))]
        return found
    if not array.shape[step.axis] and (places == FILLED).all():
        return np.full(
            (*array.shape[: step.axis], len(places), *array.shape[step.axis + 1 :]), filling, array.dtype
        )
    found = array.take(np.maximum(places, 0), axis=step.axis)
    if (places == FILLED).any():
        along = (-1, *(1,) * (array.ndim - 1 - step.axis))
        found = np.where((places == FILLED).reshape(along), np.asarray(filling, array.dtype), found)
    return found


def _pick_of_all(step: Any, array: Array, filling: Any) -> Array:
    found = array.reshape(-1)[np.maximum(step.places, 0)]
    return np.where(step.places == FILLED, np.asarray(filling, array.dtype), found)


_APPLIED: Final[Mapping[type[Step], Callable[[Any, Array, Any], Array]]] = {
    View: _view,
    Turn: _turn,
    Pick: _pick,
    PickOfAll: _pick_of_all,
}

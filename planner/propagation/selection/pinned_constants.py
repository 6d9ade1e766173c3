"""Pinned constants: the numbers that a pin says, in the storage that a port has.

A pin is a grid: a scale, a zero point and the integers in use. Where a port stores other integers, and all
that are in use are among them, the same scale says the same numbers there: weights trained for 3 bits lose
nothing on a device of bytes. Source: docs/specification.md, sections 3 ("a constant is never rescaled at run
time") and 4 ("pinned constants rule rows out"); tests/cases, case 24.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Constant
from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.ranges import around
from planner.target.records import PortType

Reals = npt.NDArray[np.float64]
OFF_GRID: Final = 0.5
"""Steps that a number may lie beyond the pin's range and still round into it."""


def restored(pin: Uniform, spec: PortType, constant: Constant) -> Uniform:
    """A constant's pin in a port's storage; the pin itself where that cannot say the same numbers.

    Args:
      spec: what the port accepts; a wildcard stores the pin as it is, but for a zero point of its own.
    """
    store = spec.storage
    if store is None:
        return _around(pin, spec)
    if not isinstance(store, Storage) or store == pin.storage or store.float_name or pin.storage.float_name:
        return pin
    used = integers_in_use(pin, constant)
    if used is None:
        # What the pin cuts off is cut off in a storage of as many integers alone.
        around = _around(pin, spec)
        return around if around.storage == store else pin
    low, high = used
    old = np.asarray(pin.zero_points)
    for zeros in _zero_points(pin, spec):
        moved = np.asarray(zeros) - old
        if np.all(low + moved >= store.qmin) and np.all(high + moved <= store.qmax):
            return Uniform(store, pin.scales, zeros, pin.expressed, pin.axis, pin.blocks, pin.grid)
    return pin


def _around(pin: Uniform, spec: PortType) -> Uniform:
    """A pin around the zero point that a wildcard port asks for."""
    free = spec.zero_point is None and not spec.symmetric
    return pin if free else around(pin, spec.zero_point or 0)


def _zero_points(pin: Uniform, spec: PortType) -> list[tuple[int, ...]]:
    """Zero points to try, the pin's own first, within the port's storage."""
    store = spec.storage
    alike = [(zero,) * len(pin.scales) for zero in (0, spec.zero_point) if zero is not None]
    found = [pin.zero_points, *alike]
    if spec.zero_point is not None:
        found = alike[1:]
    elif spec.symmetric:
        found = alike[:1]
    if not isinstance(store, Storage):
        return []
    return [zeros for zeros in found if store.qmin <= min(zeros) and max(zeros) <= store.qmax]


def integers_in_use(pin: Uniform, constant: Constant) -> tuple[Reals, Reals] | None:
    """Least and greatest stored integer of each slice (or of all); None where the pin cuts some off."""
    ends = np.asarray(pin.slice_ranges, np.float64)
    extents = None if pin.blocks or pin.grid else _extents(pin, constant)
    if extents is None:
        # Of blocks and of constants without numbers the whole grid counts.
        return ends[:, 0], ends[:, 1]
    scales, zeros = np.asarray(pin.scales), np.asarray(pin.zero_points)
    low, high = extents[0] / scales + zeros, extents[1] / scales + zeros
    if np.any(low < ends[:, 0] - OFF_GRID) or np.any(high > ends[:, 1] + OFF_GRID):
        return None
    return np.clip(np.rint(low), *ends.T), np.clip(np.rint(high), *ends.T)


def lies_on(pin: Uniform, constant: Constant, *, within: float = 0.0) -> bool:
    """Whether every number of a constant is one of a type per tensor or axis.

    Args:
      within: share of a step that a number may be beside; 0.0 is to the last bit of float32.
    """
    array = constant.array
    if array is None or not array.size or pin.storage.float_name or pin.blocks or pin.grid:
        return False
    shape = [1] * array.ndim
    if pin.axis is not None:
        shape[pin.axis] = -1
    scales, zeros = (
        np.asarray(pin.scales, np.float32).reshape(shape),
        np.asarray(pin.zero_points).reshape(shape),
    )
    exact = array / scales.astype(np.float64)
    steps = np.rint(exact)
    low, high = (end.reshape(shape) - zeros for end in np.asarray(pin.slice_ranges).T)
    inside = bool(np.all((low <= steps) & (steps <= high)))
    if within:
        return inside and bool(np.all(np.abs(exact - steps) <= within))
    return inside and np.array_equal(steps.astype(np.float32) * scales, array)


def _extents(pin: Uniform, constant: Constant) -> tuple[Reals, Reals] | None:
    """Least and greatest real of each slice of the pin; None where they are not known."""
    array = constant.array
    if array is None:
        known = len(constant.lo) in (1, len(pin.scales))
        return (np.asarray(constant.lo), np.asarray(constant.hi)) if known else None
    if array.size == 0:
        return np.zeros(1), np.zeros(1)
    others = None if pin.axis is None else tuple(i for i in range(array.ndim) if i != pin.axis)
    # NaN and infinities are on no grid: they fail every comparison above.
    lo, hi = array.min(axis=others), array.max(axis=others)
    return np.atleast_1d(lo).astype(np.float64), np.atleast_1d(hi).astype(np.float64)

"""Numbers of a constant beside a fixed type: which of its integers are in use, and whether all lie on it.

Source: docs/specification.md, section 4; tests/cases, case 24.
"""

from typing import Final

import numpy as np
import numpy.typing as npt

from planner.ir.graph import Constant
from planner.ir.types.qtypes import Uniform

Reals = npt.NDArray[np.float64]
OFF_GRID: Final = 0.5
"""Steps that a number may lie beyond the range of a type and still round into it."""


def integers_in_use(pin: Uniform, constant: Constant) -> tuple[Reals, Reals] | None:
    """Least and greatest stored integer of each slice (or of all); None where the fixed type clips some."""
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
    """Least and greatest real of each slice of the fixed type; None where they are not known."""
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

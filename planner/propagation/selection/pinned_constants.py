"""Constants of fixed type: the numbers that the type says, in the storage that a port has.

A fixed type is a grid: a scale, a zero point and the integers in use. If a port stores other integers, and
all that are in use are among them, the same scale says the same numbers there: weights trained for 3 bits
lose nothing on a device of bytes. Source: docs/specification.md, sections 3 ("a constant is never rescaled at
run time") and 4 ("fixed constants rule rows out"); tests/cases, case 24.
"""

import numpy as np

from planner.ir.graph import Constant
from planner.ir.types.pinned_numbers import integers_in_use
from planner.ir.types.qtypes import Storage, Uniform
from planner.ir.types.ranges import around
from planner.target.records import PortType


def restored(pin: Uniform, spec: PortType, constant: Constant) -> Uniform:
    """Return a constant's fixed type in a port's storage; unchanged if that cannot say the same numbers.

    Args:
      spec: what the port accepts; a wildcard stores the type as it is, but for a zero point of its own.
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
    """A fixed type around the zero point that a wildcard port asks for."""
    free = spec.zero_point is None and not spec.symmetric
    return pin if free else around(pin, spec.zero_point or 0)


def _zero_points(pin: Uniform, spec: PortType) -> list[tuple[int, ...]]:
    """Zero points to try, the fixed type's own first, within the port's storage."""
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

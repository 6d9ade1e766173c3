"""Re-verify pinned constants independently: a port's type holds the numbers that the pin stands for.

The same scales, or those over 2^k where a bias asks for it, and every integer in use within both storages.
Needs the model's numbers; without them the scales alone are judged. Source: docs/specification.md, section 4;
tests/cases, cases 24, 36 and 65.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from planner.checker.kernel_ports import Served
from planner.ir.graph import Constant
from planner.ir.types.qtypes import Storage, Uniform

Reals = npt.NDArray[Any]


def keeps_pin(served: Served, position: int, pin: Uniform) -> bool:
    """Whether the type of a constant's port keeps its pin, in whatever storage, or gives way to its class."""
    port, pattern = served.ports[position], served.patterns[position]
    kind, joined = port.type, any(position in group for group in served.groups)
    if port.value not in served.graph.constants or not isinstance(kind, Uniform):
        return False
    own = [fact for fact in served.own_facts(port) if isinstance(fact, Uniform)]
    # A pin of the port itself overrules the one of the constant; a class has one type for all its members.
    if pin not in own and (joined or own):
        return True
    times = times_of(pin, kind)
    if pattern.name in served.reading.biases or times is None or _grid(kind) != _grid(pin):
        return False
    numbers = served.numbers.get(port.value)
    if len(set(kind.zero_points)) == 1 and _shifted(pin, kind.zero_point) == kind:
        return True  # as many integers, so that what the pin cuts off is cut off here
    return numbers is None or fits(pin, kind.storage, kind.zero_points, numbers, times)


def times_of(pin: Uniform, kind: Uniform) -> Reals | None:
    """The power of two by which the scale of each slice is finer than its pin's; None of any other factor."""
    if len(pin.scales) != len(kind.scales):
        return None
    times = np.asarray(pin.scales) / np.asarray(kind.scales)
    mantissas, _ = np.frexp(times)
    return times if np.all(times >= 1) and np.all(mantissas == 0.5) else None


def _grid(kind: Uniform) -> tuple[object, ...]:
    return kind.expressed, kind.axis, kind.blocks, kind.grid


def _shifted(pin: Uniform, zero: int) -> Uniform:
    """The same reals around another zero point, in the fewest bits; the pin itself where that is its own."""
    if set(pin.zero_points) == {zero}:
        return pin
    shifts = zero - np.asarray(pin.zero_points)
    ends = np.asarray(pin.slice_ranges) + shifts[:, None]
    low, high = int(ends.min()), int(ends.max())
    width = next(n for n in range(1, 65) if -(1 << n - 1) * (low < 0) <= low and high < 1 << n - (low < 0))
    zeros = (zero,) * len(pin.scales)
    store = Storage(width, low < 0, low, high)
    return Uniform(store, pin.scales, zeros, pin.expressed, pin.axis, pin.blocks, pin.grid)


def fits(
    pin: Uniform, store: Storage, zeros: tuple[int, ...], constant: Constant, times: Reals | float = 1.0
) -> bool:
    """Whether the integers that a pinned constant uses, so many `times`, lie within a storage.

    Args:
      zeros: zero points there, instead of the pin's.
    """
    # 8-bit floats have no zero point to shift by.
    if store.float_name or pin.storage.float_name:
        return False
    low, high = np.asarray(pin.slice_ranges, np.float64).T
    old = np.asarray(pin.zero_points, np.float64)
    reals = _reals(pin, constant)
    if reals is not None:
        least, most = (np.asarray(end, np.float64) / np.asarray(pin.scales) + old for end in reals)
        # Within half a step the numbers round onto the pin's grid; beyond it the pin clips them.
        if not (np.all(least >= low - 0.5) and np.all(most <= high + 0.5)):
            return False
        low, high = np.maximum(np.rint(least), low), np.minimum(np.rint(most), high)
    # A real is (q - zero) * scale: with the scale kept, moving the zero point moves every q as far.
    low, high = ((end - old) * times + np.asarray(zeros) for end in (low, high))
    return bool(np.all(low >= store.qmin) and np.all(high <= store.qmax))


def lies_on(pin: Uniform, array: Reals) -> bool:
    """Whether every number of a constant is a stored integer of a type, as float32 says it."""
    if pin.storage.float_name or pin.blocks or pin.grid or not array.size:
        return False
    shape = [-1 if i == pin.axis else 1 for i in range(array.ndim)]
    scales = np.asarray(pin.scales, np.float32).reshape(shape if pin.axis is not None else ())
    zeros = np.asarray(pin.zero_points).reshape(shape if pin.axis is not None else ())
    steps = np.rint(array.astype(np.float64) / scales)
    low, high = np.asarray(pin.slice_ranges).T
    ends = [end.reshape(zeros.shape) - zeros for end in (low, high)]
    inside = bool(np.all((ends[0] <= steps) & (steps <= ends[1])))
    return inside and np.array_equal(steps.astype(np.float32) * scales, array)


def _reals(pin: Uniform, constant: Constant) -> tuple[object, object] | None:
    array = constant.array
    if pin.blocks or pin.grid:
        return None
    if array is None:
        return (constant.lo, constant.hi) if len(constant.lo) in (1, len(pin.scales)) else None
    if not array.size:
        return 0.0, 0.0
    if pin.axis is None:
        return array.min(), array.max()
    rows = np.moveaxis(array, pin.axis, 0).reshape(array.shape[pin.axis], -1)
    return rows.min(axis=1), rows.max(axis=1)

"""Verify constants with a fixed type: a port's type holds the numbers that the fixed type stands for.

The same scales, or those over 2^k where a bias asks for it, and every integer in use within both storages.
Needs the model's numbers; without them the scales alone are verified. Source: docs/specification.md, section
4; tests/cases, cases 24, 36 and 65.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from planner.checker.kernel_ports import Served
from planner.ir.graph import Constant
from planner.ir.types.pinned_numbers import integers_in_use
from planner.ir.types.qtypes import Uniform
from planner.ir.types.ranges import around

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
    if len(set(kind.zero_points)) == 1 and around(pin, kind.zero_point) == kind:
        return True  # as many integers, so that what the pin cuts off is cut off here
    return numbers is None or _fits(pin, kind, numbers, times)


def times_of(pin: Uniform, kind: Uniform) -> Reals | None:
    """The power of two by which the scale of each slice is finer than its pin's; None of any other factor."""
    if len(pin.scales) != len(kind.scales):
        return None
    times = np.asarray(pin.scales) / np.asarray(kind.scales)
    mantissas, _ = np.frexp(times)
    return times if np.all(times >= 1) and np.all(mantissas == 0.5) else None


def _grid(kind: Uniform) -> tuple[object, ...]:
    return kind.expressed, kind.axis, kind.blocks, kind.grid


def _fits(pin: Uniform, kind: Uniform, constant: Constant, times: Reals) -> bool:
    """Whether the integers that a constant uses of its fixed type, so many `times`, lie within a storage."""
    store, used = kind.storage, integers_in_use(pin, constant)
    # 8-bit floats have no zero point to shift by.
    if store.float_name or pin.storage.float_name or used is None:
        return False
    # A real is (q - zero) * scale: with the scale kept, moving the zero point moves every q as far.
    low, high = ((end - np.asarray(pin.zero_points)) * times + np.asarray(kind.zero_points) for end in used)
    return bool(np.all(low >= store.qmin) and np.all(high <= store.qmax))

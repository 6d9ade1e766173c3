"""Verify facts: no port narrows an Any, breaks a None, or differs from a fixed type for it.

A constant keeps its fixed type with the same scales, or those over 2^k where a bias asks for it, and every
integer in use within both storages; without the model's numbers the scales alone are verified.
Source: docs/specification.md, sections 2 to 4; tests/cases, cases 24, 36 and 65.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from planner.checker.kernel_ports import NEAR, Served, own_facts, refuse
from planner.ir.graph import Constant, Facts
from planner.ir.types.pinned_numbers import integers_in_use
from planner.ir.types.qtypes import AnyType, Bipolar, FloatType, NoneType, Uniform
from planner.ir.types.ranges import around
from planner.ir.types.typetext import brief

Reals = npt.NDArray[Any]
LAYOUT: Final = ("expressed", "axis", "blocks", "grid")


def check_facts(served: Served, binding: frozenset[str]) -> None:
    """Check that no port narrows an Any, breaks a None, or differs from a fixed type that holds for it.

    Args:
      binding: values with such facts.
    """
    region = served.region
    plain = not region.input_facts and not region.output_facts
    if plain and (not binding or binding.isdisjoint(port.value for port in served.ports)):
        return
    for i, port in enumerate(served.ports):
        if not port.value or not isinstance(port.type, Uniform):
            continue
        facts = served.graph.values[port.value].facts
        # A rescale can stand between an activation's pin and a port, never between a constant and its port:
        # only there, or on the port itself, does a pin bind.
        constant = port.value in served.graph.constants
        if facts:
            _check_port_facts(served, i, facts, binding=constant)
        if not plain:
            _check_port_facts(served, i, own_facts(region, i), binding=True)


def _check_port_facts(served: Served, position: int, facts: Facts, *, binding: bool) -> None:
    port, kind = served.ports[position], served.ports[position].type
    if not isinstance(kind, Uniform):
        return
    for fact in facts:
        if isinstance(fact, AnyType) and kind.storage.range_bits < fact.bits:
            refuse(
                port.address,
                f"is {brief(kind)}, {port.value!r} carries {fact}; "
                f"accepted: {fact.bits} bits or more, or float",
                served.row,
            )
        if binding and isinstance(fact, NoneType | FloatType):
            refuse(port.address, f"is {brief(kind)}, the model keeps it in float ({fact})", served.row)
        if binding and isinstance(fact, Bipolar) and not _is_signs(kind, fact.scale):
            refuse(port.address, f"is {brief(kind)}, the model has {fact} there: -1 and 1", served.row)
        if (
            binding
            and isinstance(fact, Uniform)
            and fact != kind
            and not _derived_near(served, position, fact)
            and not keeps_pin(served, position, fact)
        ):
            refuse(port.address, f"is {brief(kind)}, the model fixes it to {brief(fact)}", served.row)


def _is_signs(kind: Uniform, scale: float) -> bool:
    # Bipolar is {-scale, +scale}: it survives storage whose zero point is 0 and whose range has both signs.
    signs = Uniform(kind.storage, (scale,) * len(kind.scales), kind.zero_points, axis=kind.axis)
    times = times_of(signs, kind)
    return times is not None and not any(kind.zero_points) and kind.storage.qmin < 0 < kind.storage.qmax


def _derived_near(served: Served, position: int, pin: Uniform) -> bool:
    """Whether a rule computes this port and agrees with its fact to 1e-6; a row's fixed ports overrule it."""
    name, kind = served.patterns[position].name, served.ports[position].type
    rules = {rule.kind for rule in served.row.rules if rule.args.get("port") == name}
    # Under `bias_pins: derive` the pin of a bias gives way to the product of its factors' scales.
    if served.derives_bias and name in served.reading.biases:
        return True
    if "fixed_scale" in rules or not isinstance(kind, Uniform):
        return bool(rules)
    # The product of two float32 scales rounds differently in every tool, hence a tolerance, not equality.
    scales = np.broadcast_to(pin.scales, len(kind.scales)) if len(pin.scales) == 1 else np.asarray(pin.scales)
    if not rules or len(scales) != len(kind.scales) or pin.storage != kind.storage:
        return False
    return bool(np.allclose(scales, kind.scales, rtol=NEAR, atol=0.0)) and not any(pin.zero_points)


def keeps_pin(served: Served, position: int, pin: Uniform) -> bool:
    """Whether the type of a constant's port keeps the fixed one, in any storage, or yields to its class."""
    port, pattern = served.ports[position], served.patterns[position]
    kind, joined = port.type, any(position in group for group in served.groups)
    if port.value not in served.graph.constants or not isinstance(kind, Uniform):
        return False
    own = [fact for fact in served.own_facts(port) if isinstance(fact, Uniform)]
    # A pin of the port itself overrules the one of the constant; a class has one type for all its members.
    if pin not in own and (joined or own):
        return True
    times = times_of(pin, kind)
    laid_alike = all(getattr(kind, one) == getattr(pin, one) for one in LAYOUT)
    if pattern.name in served.reading.biases or times is None or not laid_alike:
        return False
    if np.any(times > 1) and not served.reading.has_bias:
        return False
    numbers = served.numbers.get(port.value)
    if len(set(kind.zero_points)) == 1 and around(pin, kind.zero_point) == kind:
        return True  # as many integers, so that what the pin cuts off is cut off here
    return numbers is None or _fits(pin, kind, numbers, times)


def times_of(pin: Uniform, kind: Uniform) -> Reals | None:
    """The power of two by which each slice's scale is finer than the fixed one; None of any other factor."""
    if len(pin.scales) != len(kind.scales):
        return None
    times = np.asarray(pin.scales) / np.asarray(kind.scales)
    mantissas, _ = np.frexp(times)
    return times if np.all(times >= 1) and np.all(mantissas == 0.5) else None


def _fits(pin: Uniform, kind: Uniform, constant: Constant, times: Reals) -> bool:
    """Whether the integers that a constant uses of its fixed type, so many `times`, lie within a storage."""
    store, used = kind.storage, integers_in_use(pin, constant)
    # 8-bit floats have no zero point to shift by.
    if store.float_name or pin.storage.float_name or used is None:
        return False
    # A real is (q - zero) * scale: with the scale kept, moving the zero point moves every q as far.
    low, high = ((end - np.asarray(pin.zero_points)) * times + np.asarray(kind.zero_points) for end in used)
    return bool(np.all(low >= store.qmin) and np.all(high <= store.qmax))

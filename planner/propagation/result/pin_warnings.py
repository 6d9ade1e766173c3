"""Warnings about values whose types facts fix: where a port or a format has another grid for them.

Each is said at a port, after labelling. Source: docs/specification.md, section 3; tests/cases, cases 12 to
14.
"""

import math
from collections.abc import Iterator

from planner.errors import quantity
from planner.ir.types.held_pins import centring, same_numbers
from planner.ir.types.qtypes import Uniform
from planner.ir.types.typetext import brief
from planner.plans.rescales import SAME_SCALE, kind_of
from planner.propagation.network.ports import Kernel, Port, Value, base_of
from planner.propagation.parameters.typed import Typing


def of_near_scales(network: Typing, port: Port, address: str) -> Iterator[str]:
    """Warn of a consumer whose scale is another number than the value's and yet counts as the same."""
    value = network.values[port.value]
    kind = network.types[port.id]
    if kind is None:
        return
    made = network.types[value.definition] if value.definition >= 0 else None
    start = made if value.pin is None else base_of(network, value)
    near = start is not None and start.scales != kind.scales
    if start is not None and near and kind_of(start, kind, network.target.costs) is None:
        yield f"{address} reads {value.name!r} of {brief(start)} as {brief(kind)}: 1e-6 apart, one label"


def of_multiplied(kernel: Kernel, kind: Uniform | None, value: Value, address: str) -> Iterator[str]:
    """Warn of a fixed type beside a port of a kernel that shifts: between their scales a shift may not do."""
    row, pin = kernel.choice.row, value.pin
    if row is None or row.requantize != "power_of_two" or pin is None or kind in (None, pin):
        return
    if len({math.frexp(scale)[0] for one in (pin, kind) if one is not None for scale in one.scales}) > 1:
        yield (
            f"{address} is {brief(kind)}, {value.name!r} has the fixed type {brief(pin)}: no shift leads "
            "from one to the other, so the device has to multiply"
        )


def of_fewer_steps(
    kernel: Kernel, port: Port, kind: Uniform | None, value: Value, address: str
) -> Iterator[str]:
    """A port whose storage has fewer and wider steps than the type that its value is fixed to."""
    pin = value.pin
    if pin is None or kind is None or not (pin.is_per_tensor and kind.is_per_tensor):
        return
    # What moves data hands on the numbers that it reads, whatever finer grid they are on from there.
    is_rounded = port.side[0] == "in" or not kernel.moves
    has_fewer = kind.storage.steps < pin.storage.steps and kind.scale > pin.scale * (1 + SAME_SCALE)
    if is_rounded and has_fewer and port.fixed is None:
        yield f"{address} is {brief(kind)}, and {value.name!r} is fixed to {brief(pin)}: it is rounded there"


def of_replaced_pin(network: Typing, port: Port, value: Value, address: str) -> Iterator[str]:
    """A value whose fixed type has numbers that a format lacks, where it is defined."""
    pin, base = value.pin, base_of(network, value)
    if port.side[0] == "in" or pin is None or base is None or same_numbers(pin, base):
        return
    form = centring(base.storage, network.formats)
    yield (
        f"{address}: {value.name!r} is fixed to {brief(pin)}, and {form} stores "
        f"{quantity(base.storage.bits, 'bit')} with zero point 0 alone: {brief(base)} takes its place"
    )

"""Reach: kernels whose types ask for a factor that their row's integer multipliers do not get to.

A mask of -3.4e38 that is added to scores of 5 is the usual one: a step of it is 1e36, a step of the result
0.003. Such a kernel leaves its row, and runs in float where no other row reaches. Labels have to be known, so
this looks at an outcome. Source: TOSA 1.0, RESCALE; docs/specification.md, section 8.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Final

from planner.ir.arithmetic.multipliers import beyond_of, least_of
from planner.ir.types.qtypes import Uniform
from planner.propagation.network.ports import Port, base_of
from planner.propagation.parameters.typed import Typed, Typing
from planner.propagation.selection.choice import Choice

TOO_FAR: Final = "no integer multiplier gets from its inputs' scales to its result's"
NARROW: Final = 16
"""Bits of ports that are operands; wider ones are accumulators, whose scale is a product anyway."""

Kind = Uniform | None


def too_far(network: Typed) -> list[int]:
    """Numbers of the kernels that no multiplier serves."""
    choices = network.chosen.choices
    arithmetics = {choice.row.requantize for choice in choices if choice.row}
    ends = {name: (least_of(name), beyond) for name in arithmetics if (beyond := beyond_of(name)) is not None}
    scales = _scales(network.types) if ends else []
    if not scales:
        return []
    # Factors of the shipped arithmetics are seldom so large: then no kernel has to be looked at.
    most = max(scales) / min(scales)
    if most < min(beyond for _, beyond in ends.values()) and not any(least for least, _ in ends.values()):
        return []
    return [
        number
        for number, (choice, kinds) in enumerate(zip(choices, _kinds(network), strict=True))
        if choice.row is not None
        and (reach := ends.get(choice.row.requantize)) is not None
        and (_is_too_far(choice, kinds, *reach) or any(_steps_too_far(network, number, kinds, *reach)))
    ]


def read_as(network: Typing, port: Port) -> Kind:
    """The type that a port's value comes in, before a rescale on its edge."""
    value = network.values[port.value]
    made = network.types[value.definition] if value.definition >= 0 else None
    return made if value.pin is None else base_of(network, value)


def _steps_too_far(
    network: Typed, number: int, kinds: Sequence[Kind], least: float, beyond: float
) -> Iterator[bool]:
    """Whether rescales in front of a kernel are out of reach: the device multiplies there as well."""
    for p, kind in zip(network.kernels[number].inputs, kinds, strict=False):
        came = read_as(network, network.ports[p]) if kind is not None and p >= 0 else None
        if came == kind:
            # No step: of a pinned weight the channels alone may lie so far apart.
            continue
        if kind is not None and came is not None and max(came.storage.bits, kind.storage.bits) <= NARROW:
            yield not least * min(kind.scales) <= max(came.scales) < beyond * min(kind.scales)


def _scales(kinds: Sequence[Kind]) -> list[float]:
    narrow = [kind.scales for kind in kinds if kind is not None and kind.storage.bits <= NARROW]
    return [*chain.from_iterable(narrow)]


def _kinds(network: Typed) -> Iterator[list[Kind]]:
    """The types at the ports of each kernel; of one that a float label leaves in float none."""
    for kernel in network.kernels:
        at = (*kernel.inputs, *kernel.outputs)
        floats = network.moves_in_float(kernel)
        yield [network.types[p] if p >= 0 and not floats else None for p in at]


def _is_too_far(choice: Choice, kinds: Sequence[Kind], least: float, beyond: float) -> bool:
    """Whether the coarsest input, or the product of those multiplied, is out of the finest result's reach.

    Or so fine that the multiplier is 0 for every channel: of one that is dead it may be.
    """
    layout, row = choice.layout, choice.row
    if layout is None or row is None:
        return False
    of = {name for rule in row.rules if rule.kind == "multiplier_scale" for name in rule.args["of"]}
    product, most, finest = 1.0 if of else 0.0, 0.0, math.inf
    reads = len(layout.inputs)
    for i, (pattern, kind) in enumerate(zip((*layout.inputs, *layout.outputs), kinds, strict=True)):
        if kind is None or kind.storage.bits > NARROW:
            continue
        if i >= reads:
            finest = min(finest, *kind.scales, math.inf)
        elif pattern.name in of:
            product *= max(kind.scales)
        else:
            most = max(most, *kind.scales, 0.0)
    coarsest = max(most, product)
    return finest < math.inf and coarsest > 0.0 and not least * finest <= coarsest < beyond * finest

"""Reach: kernels whose types ask for a factor that their row's integer multipliers do not get to.

A mask of -3.4e38 that is added to scores of 5 is the usual one: a step of it is 1e36, a step of the result
0.003. Such a kernel leaves its row, and runs in float where no other row reaches. Labels have to be known, so
this looks at an outcome. Source: TOSA 1.0, RESCALE; design 01, section 8.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from planner.ir.rescaling import BEYOND, BEYOND_16
from planner.ir.types.qtypes import Uniform
from planner.propagation.network.ports import Network, Port
from planner.propagation.result.outcome import Outcome
from planner.propagation.selection.rows import Choice
from planner.target.records import Row

TOO_FAR: Final = "no integer multiplier gets from its inputs' scales to its result's"
MULTIPLIERS: Final[Mapping[str, float]] = {
    "gemmlowp": BEYOND,
    "litert": BEYOND,
    "litert_16": BEYOND_16,
    "tosa_double": BEYOND,
    "tosa_single": BEYOND,
}
"""Arithmetics of integer multipliers, and the least factor that is out of their reach."""
NARROW: Final = 16
"""Bits of ports that are operands; wider ones are accumulators, whose scale is a product anyway."""

Kind = Uniform | None


def too_far(outcome: Outcome) -> list[int]:
    """Numbers of the kernels that no multiplier serves."""
    choices = outcome.choices
    reach = [MULTIPLIERS[c.row.requantize] for c in choices if c.row and c.row.requantize in MULTIPLIERS]
    if not reach:
        return []
    scales = _scales([port.type for port in outcome.network.ports])
    if not scales or max(scales) < min(reach) * min(scales):
        return []
    return [
        number
        for number, (choice, kinds) in enumerate(zip(choices, _kinds(outcome), strict=True))
        if choice.row is not None
        and choice.row.requantize in MULTIPLIERS
        and (_is_too_far(choice, kinds) or any(_steps_too_far(outcome, number, choice.row, kinds)))
    ]


def read_as(network: Network, port: Port) -> Kind:
    """The type that a port's value comes in, before a rescale on its edge."""
    value = network.values[port.value]
    made = network.ports[value.definition].type if value.definition >= 0 else None
    return value.pin if value.pin is not None else made


def _steps_too_far(outcome: Outcome, number: int, row: Row, kinds: Sequence[Kind]) -> Iterator[bool]:
    """Whether rescales in front of a kernel are out of reach: the device multiplies there as well."""
    network = outcome.network
    for p, kind in zip(network.kernels[number].inputs, kinds, strict=False):
        came = read_as(network, network.ports[p]) if kind is not None and p >= 0 else None
        if came == kind:
            # No step: of a pinned weight the channels alone may lie so far apart.
            continue
        if kind is not None and came is not None and max(came.storage.bits, kind.storage.bits) <= NARROW:
            yield max(came.scales) >= MULTIPLIERS[row.requantize] * min(kind.scales)


def _scales(kinds: Sequence[Kind]) -> list[float]:
    narrow = [kind.scales for kind in kinds if kind is not None and kind.storage.bits <= NARROW]
    return [*chain.from_iterable(narrow)]


def _kinds(outcome: Outcome) -> Iterator[list[Kind]]:
    """The types at the ports of each kernel; of one that a mover's float label leaves in float none."""
    ports = outcome.network.ports
    for kernel in outcome.network.kernels:
        at = (*kernel.inputs, *kernel.outputs)
        floats = outcome.moves_in_float(kernel)
        yield [ports[p].type if p >= 0 and not floats else None for p in at]


def _is_too_far(choice: Choice, kinds: Sequence[Kind]) -> bool:
    """Whether the coarsest input, or the product of those multiplied, is out of the finest result's reach."""
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
    return max(most, product) >= MULTIPLIERS[row.requantize] * finest

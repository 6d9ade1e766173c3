"""The types that ports of a row accept, and its `when`: read alike by planning and by the checker.

Source: docs/specification.md, section 4; docs/targets/reference.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from planner.errors import quantity
from planner.ir.graph import Facts, Graph, Region
from planner.ir.operators.standard_op import ops_to_run
from planner.ir.types.qtypes import AnyType, Bipolar, Storage, Uniform
from planner.ir.types.scales import holds_scales
from planner.target.predicates import BitsOfPort, failing
from planner.target.records import PortPattern, PortType, Row

BIAS_LIMIT: Final = float(1 << 30)
"""Steps of a bias of 32 bits; one bit stays free for the sums that it is added to."""


def parameter_problem(spec: PortType, kind: Uniform) -> str | None:
    """The reason why a port does not accept the scales or zero points of a type; None: it accepts them."""
    if spec.symmetric and any(kind.zero_points):
        return "its zero point is not 0"
    if spec.zero_point is not None and any(zero != spec.zero_point for zero in kind.zero_points):
        return f"its zero point is not {spec.zero_point}"
    return scale_problem(spec, kind.scales)


def scale_problem(spec: PortType, scales: Sequence[float]) -> str | None:
    """The reason why a port does not accept scales; None: it accepts them."""
    # frexp gives a fraction in [0.5, 1), and exactly 0.5 for powers of two: no logarithm, no rounding.
    if spec.power_of_two and any(np.frexp(scale)[0] != 0.5 for scale in scales):
        return "its scale is no power of two"
    if spec.scales != "f32" and not holds_scales(scales, spec.scales):
        return f"its scales are no values of {spec.scales}"
    # Scales are float32: a limit that is not would refuse itself once rounded down.
    if spec.scale_min is not None and min(scales) < float(np.float32(spec.scale_min)):
        return f"its scale is below {spec.scale_min!r}"
    if spec.scale_max is not None and max(scales) > spec.scale_max:
        return f"its scale is above {spec.scale_max!r}"
    return None


def has_blocks_of(spec: PortType, kind: Uniform) -> bool:
    """Whether a port takes the blocks of a type: some are of its sizes, all others of one index."""
    sizes = {size for _, size in kind.blocks}
    return bool(sizes & {*spec.block_size}) and sizes <= {1, *spec.block_size}


def usable(store: Storage, spec: PortType) -> Storage:
    """The part of a storage that a port's arithmetic may use of a weight."""
    bits = spec.weight_bits_effective
    if bits is None or bits >= store.bits or not store.signed:
        return store
    top = (1 << bits - 1) - 1
    return Storage(store.bits, True, max(store.qmin, -top), min(store.qmax, top))


def bias_room(store: Storage, row: Row) -> float:
    """The most steps that a bias may have: of its storage, or of the accumulator where that is narrower."""
    if row.accumulator is not None and row.accumulator.bits < store.bits:
        store = row.accumulator
    return BIAS_LIMIT if store.bits == 32 else float(store.qmax) / 2


def broken_when(
    row: Row,
    patterns: Sequence[PortPattern],
    region: Region,
    graph: Graph,
    bits: BitsOfPort,
    *,
    numbers: bool = True,
) -> str | None:
    """Say the first predicate of a row that a kernel does not meet; None where it meets all.

    Args:
      patterns: the row's entry for each port of the region, inputs first.
      bits: those that facts and requests ask for at each value of a port.
      numbers: whether the numbers of constants are at hand.
    """
    for port, least in row.when.get("min_bits", {}).items():
        if max(bits(port), default=0) < least:
            return f"port {port} needs a fact of at least {quantity(least, 'bit')}"
    return failing(
        row.when,
        ports=_values_by_port(row, patterns, (*region.inputs, *region.outputs)),
        ops=ops_to_run(region),
        attributes=region.attributes,
        graph=graph,
        bits=bits,
        place=(row.source, f"when of {row.kernel}"),
        numbers=numbers,
    )


def _values_by_port(
    row: Row, patterns: Sequence[PortPattern], names: Sequence[str]
) -> Mapping[str, str | tuple[str, ...]]:
    """The value at each port of the row, "" where it is absent, all of them at a variadic one."""
    found = dict[str, str | tuple[str, ...]]()
    for entry in (*row.inputs, *row.outputs):
        there = [
            name for name, pattern in zip(names, patterns, strict=True) if name and pattern.name == entry.name
        ]
        found[entry.name] = tuple(there) if entry.variadic else "".join(there)
    return found


def bits_of(facts: Facts) -> int:
    """The width that facts ask for; 0 where none does."""
    return max(_bits_of(facts), default=0)


def _bits_of(facts: Facts) -> Iterator[int]:
    for fact in facts:
        if isinstance(fact, AnyType):
            yield fact.bits
        elif isinstance(fact, Bipolar):
            yield 1
        elif isinstance(fact, Uniform):
            yield fact.storage.bits

"""Demands of a row on its ports, for the checker; read once for all kernels with the same ports present.

A row is read as data, without regard to how it was chosen. Source: docs/specification.md, section 4;
docs/targets/reference.md.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from planner.ir.graph import Region
from planner.target.records import PortId, PortPattern, PortType, Row
from planner.target.rules import expand_ports, same_scale_groups, storage_groups


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """A row beside ports, inputs first, absent ones too.

    Attributes:
      patterns: the row's entry for each port.
      places: positions of the present ports by the row's name for them.
      simple: by position, whether the port takes every scale and zero point, one of them a tensor.
      groups: positions that same_scale rules join.
      wild: positions with one storage, by same_scale or same_storage, where some port takes any.
      ruled: positions whose parameters a rule or a group decides.
      biases: names of the ports that have the product of their factors' scales.
    """

    row: Row
    patterns: tuple[PortPattern, ...]
    places: Mapping[str, tuple[int, ...]]
    simple: tuple[bool, ...]
    groups: tuple[tuple[int, ...], ...]
    wild: tuple[tuple[int, ...], ...]
    ruled: frozenset[int]
    biases: frozenset[str]

    @property
    def has_bias(self) -> bool:
        """Whether a bias is present, which can coarsen the scales of its weight."""
        return not self.biases.isdisjoint(self.places)


def read_row(row: Row, region: Region) -> Reading | None:
    """The row's reading for kernels with a region's ports; None where it takes other ports."""
    inputs, outputs = expand_ports(row.inputs, region.inputs), expand_ports(row.outputs, region.outputs)
    if inputs is None or outputs is None:
        return None
    patterns, n_in, n_out = (*inputs, *outputs), len(inputs), len(outputs)
    places: dict[str, tuple[int, ...]] = {}
    for i, name in enumerate((*region.inputs, *region.outputs)):
        if name:
            places[patterns[i].name] = (*places.get(patterns[i].name, ()), i)
    groups = _positions(same_scale_groups(row, n_in, n_out), n_in)
    stored = _positions(storage_groups(row, n_in, n_out), n_in)
    decided = {rule.args.get("port") for rule in row.rules}
    # Code may decide any port of the row, so none of them is verified by its own numbers.
    codes = any(rule.kind == "fn" for rule in row.rules)
    ruled = {i for i, entry in enumerate(patterns) if codes or entry.name in decided}
    biases = [rule.args["port"] for rule in row.rules if rule.kind == "multiplier_accumulator_scale"]
    return Reading(
        row,
        patterns,
        places,
        tuple([_is_simple(entry.type) for entry in patterns]),
        groups,
        tuple([group for group in stored if any(patterns[i].type.storage is None for i in group)]),
        frozenset(ruled.union(*groups)),
        frozenset(biases),
    )


def _positions(groups: Iterable[tuple[PortId, ...]], n_in: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(i if side == "in" else n_in + i for side, i in group) for group in groups)


def _is_simple(spec: PortType) -> bool:
    return (
        spec.granularity == "tensor"
        and not spec.symmetric
        and not spec.power_of_two
        and spec.zero_point is None
        and spec.scale_min is None
        and spec.scale_max is None
    )

"""Demands of a row on its ports, for the checker; read once for all kernels with the same ports present.

A row is read as data, without regard to how propagation chose it. Source: docs/specification.md, section 4;
docs/targets/reference.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.ir.graph import Region
from planner.target.records import PortPattern, PortType, Row, Rule


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
      derived: by position, the rule that derives the port's type, None where none does.
      fixed: positions whose scale a rule fixes.
    """

    row: Row
    patterns: tuple[PortPattern, ...]
    places: Mapping[str, tuple[int, ...]]
    simple: tuple[bool, ...]
    groups: tuple[tuple[int, ...], ...]
    wild: tuple[tuple[int, ...], ...]
    ruled: frozenset[int]
    biases: frozenset[str]
    derived: tuple[Rule | None, ...]
    fixed: frozenset[int]

    @property
    def has_bias(self) -> bool:
        """Whether a bias is present, which can coarsen the scales of its weight."""
        return not self.biases.isdisjoint(self.places)


def read_row(row: Row, region: Region) -> Reading | str:
    """The row's reading for kernels with a region's ports; or the misfit as a text."""
    inputs = spread(row.inputs, region.inputs, "inputs")
    outputs = spread(row.outputs, region.outputs, "outputs")
    if isinstance(inputs, str) or isinstance(outputs, str):
        return inputs if isinstance(inputs, str) else str(outputs)
    patterns = (*inputs, *outputs)
    places: dict[str, tuple[int, ...]] = {}
    for i, name in enumerate((*region.inputs, *region.outputs)):
        if name:
            places[patterns[i].name] = (*places.get(patterns[i].name, ()), i)
    joined = [set(rule.args["ports"]) for rule in row.rules if rule.kind == "same_scale"]
    groups = _groups(joined, patterns) if joined else ()
    alike = [set(rule.args["ports"]) for rule in row.rules if rule.kind == "same_storage"]
    stored = _groups([*joined, *alike], patterns) if alike else groups
    decided = {rule.args.get("port") for rule in row.rules}
    # Code may decide any port of the row, so none of them is judged by its own numbers.
    codes = any(rule.kind == "fn" for rule in row.rules)
    ruled = {i for i, entry in enumerate(patterns) if codes or entry.name in decided}
    fixed = {rule.args["port"] for rule in row.rules if rule.kind == "fixed_scale"}
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
        tuple([_derived(row, entry.name) for entry in patterns]),
        frozenset(i for i, entry in enumerate(patterns) if entry.name in fixed),
    )


def _derived(row: Row, name: str) -> Rule | None:
    """The first rule about a port, or code, which may decide any port."""
    return next((rule for rule in row.rules if rule.args.get("port") == name or rule.kind == "fn"), None)


def spread(patterns: tuple[PortPattern, ...], names: tuple[str, ...], what: str) -> list[PortPattern] | str:
    """The row's entry for each port of one side; or the misfit as a text."""
    found: list[PortPattern] = []
    for i, name in enumerate(names):
        if i < len(patterns):
            entry = patterns[i]
        elif patterns and patterns[-1].variadic:
            entry = patterns[-1]
        else:
            return f"there are {len(names)} {what}, the row takes {len(patterns)}"
        if not name and not (entry.optional or entry.variadic):
            return f"{what[:-1]} {i} is absent, the row needs {entry.name!r}"
        found.append(entry)
    for entry in patterns[len(names) :]:
        if not (entry.optional or entry.variadic):
            return f"there are {len(names)} {what}, the row needs {entry.name!r} too"
    return found


def _groups(joined: list[set[str]], patterns: tuple[PortPattern, ...]) -> tuple[tuple[int, ...], ...]:
    """Positions that names join, two or more each, those that overlap made one."""
    groups: list[set[int]] = []
    for names in joined:
        group = {i for i, entry in enumerate(patterns) if entry.name in names}
        # same_scale is an equivalence: rules that share a port join their classes, as union-find would.
        for other in [other for other in groups if other & group]:
            group |= other
            groups.remove(other)
        groups.append(group)
    return tuple(tuple(sorted(group)) for group in groups if len(group) > 1)


def _is_simple(spec: PortType) -> bool:
    return (
        spec.granularity == "tensor"
        and not spec.symmetric
        and not spec.power_of_two
        and spec.zero_point is None
        and spec.scale_min is None
        and spec.scale_max is None
    )

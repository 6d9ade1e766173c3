"""Verify the ports of a kernel against the row that serves it: storage, scales, zero points, granularity.

A row is read as data, once for all kernels with the same ports present, without regard to how it was chosen.
Rules and numbers come later. Source: docs/specification.md, sections 2, 4 and 6; docs/targets/reference.md.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from planner.errors import PlanInvalid, QTypeError, quantity
from planner.ir.graph import Constant, Facts, Graph, Region
from planner.ir.types.fit import has_short_block
from planner.ir.types.qtypes import Bipolar, FloatType, Storage, Uniform
from planner.ir.types.scales import check_scales
from planner.ir.types.typetext import brief
from planner.plans.records import KernelPlan, Port, PortTyped
from planner.target.ports.accepts import has_blocks_of, parameter_problem
from planner.target.ports.axes import axis_of_scales
from planner.target.records import PortId, PortPattern, PortType, PortView, Row
from planner.target.rules import expand_ports, same_scale_groups, storage_groups

NEAR: Final = 1e-6


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
    asked = (spec.symmetric, spec.power_of_two, spec.zero_point, spec.scale_min, spec.scale_max)
    return spec.granularity == "tensor" and asked == (False, False, None, None, None)


@dataclass(frozen=True, slots=True)
class Served:
    """One kernel beside its row.

    Attributes:
      reading: its row.
      ports: inputs, then outputs, absent ones too.
      numbers: the model's constants, {} where no model was given.
      max_clip: the most that a type may cut off of a range.
      derives_bias: whether the plan's policy is to derive a bias whatever its fixed type.
    """

    kernel: KernelPlan
    region: Region
    reading: Reading
    ports: tuple[Port, ...]
    graph: Graph
    numbers: Mapping[str, Constant]
    max_clip: float
    derives_bias: bool = False

    @property
    def row(self) -> Row:
        """The row that serves the kernel."""
        return self.reading.row

    @property
    def patterns(self) -> tuple[PortPattern, ...]:
        """The row's entry for each port."""
        return self.reading.patterns

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Positions in `ports` that same_scale rules join."""
        return self.reading.groups

    def named(self, name: str) -> list[Port]:
        """Present ports that the row calls `name`."""
        return [self.ports[i] for i in self.reading.places.get(name, ())]

    @property
    def views(self) -> tuple[tuple[PortView, ...], tuple[PortView, ...]]:
        """The present ports as rules see them, a wildcard in the storage that it has."""
        sides: dict[str, list[PortView]] = {"in": [], "out": []}
        for i, (port, pattern) in enumerate(zip(self.ports, self.patterns, strict=True)):
            if port.value:
                kind, spec = port.type if isinstance(port.type, Uniform) else None, pattern.type
                if spec.storage is None and kind is not None:
                    spec = replace(spec, storage=kind.storage)
                side = self.side_of(i)
                sides[side[0]].append(PortView(side, pattern.name, spec, kind))
        return tuple(sides["in"]), tuple(sides["out"])

    def side_of(self, position: int) -> PortId:
        """Side and index of a port by its position."""
        read = len(self.kernel.inputs)
        return ("in", position) if position < read else ("out", position - read)

    def pinned(self, port: Port) -> bool:
        """Whether the model fixes this port's type, by its value or by itself."""
        facts = self.graph.values[port.value].facts
        if self.region.input_facts or self.region.output_facts:
            facts += self.own_facts(port)
        return any(isinstance(fact, Uniform | Bipolar) for fact in facts)

    def own_facts(self, port: Port) -> Facts:
        """Constraints on the port rather than on its value."""
        return own_facts(self.region, self.ports.index(port))


def own_facts(region: Region, position: int) -> Facts:
    """Constraints on a port by its position, inputs first."""
    side, index = region.input_facts, position
    if position >= len(region.inputs):
        side, index = region.output_facts, position - len(region.inputs)
    return side[index] if index < len(side) else ()


def refuse(port: str, problem: str, row: Row | None = None) -> NoReturn:
    """Raise the refusal of a plan at one port (or kernel, value or rescale)."""
    raise PlanInvalid(f"{port}: {problem}" if port else problem, port=port, row=row.source if row else "")


def check_signature(served: Served) -> None:
    """Every port's type is one that the row accepts there."""
    reading, inexact = served.reading, served.reading.row.float
    for i, port in enumerate(served.ports):
        kind = port.type
        if not port.value:
            if kind is not None:
                refuse(port.address, f"is absent and has the type {brief(kind)}; accepted: none", served.row)
            continue
        spec = reading.patterns[i].type
        if isinstance(kind, Uniform) and reading.simple[i] and kind.is_per_tensor:
            store = spec.storage
            if not inexact and (store is None or store is kind.storage or store == kind.storage):
                continue
        problem = _storage_problem(kind, spec, served.row)
        if problem is None and isinstance(kind, Uniform):
            problem = parameter_problem(spec, kind) or _granularity_problem(served, i, kind)
        if problem:
            refuse(
                port.address,
                f"is {brief(kind)}, {problem}; {served.row.source} accepts "
                f"{spec} at {reading.patterns[i].name!r}",
                served.row,
            )


def _storage_problem(kind: PortTyped, spec: PortType, row: Row) -> str | None:
    wanted = spec.storage
    if isinstance(wanted, FloatType) or row.float:
        name = row.float or str(wanted)
        # In a float row, a port without a type is f32; other floats are written out.
        accepted = kind is None if name == "f32" else kind == FloatType(name)
        return None if accepted else f"but this port runs in {name}"
    if not isinstance(kind, Uniform):
        return "but a kernel with a row stores integers here"
    if wanted is not None and kind.storage != wanted:
        return f"its storage is not {wanted}"
    return None


def _granularity_problem(served: Served, position: int, kind: Uniform) -> str | None:
    port, pattern = served.ports[position], served.patterns[position]
    spec = pattern.type
    if spec.granularity == "tensor" and kind.is_per_tensor:
        return None
    if pattern.name in served.reading.biases:
        return None
    if spec.granularity == "tensor":
        return None if spec.is_wildcard else "it has more than one scale"
    if spec.granularity == "block":
        if not has_blocks_of(spec, kind):
            return f"its blocks are not of {' or '.join(map(str, spec.block_size))}"
        short = not spec.short_block and has_short_block(kind, served.graph.values[port.value].shape)
        return "its last block is shorter" if short else None
    if kind.blocks:
        return "it has a scale per block"
    if kind.axis is None:
        # A pinned or computed tensor may have one scale: it is the special case of equal scales per slice.
        free = port.value in served.graph.constants and not served.pinned(port)
        return "it has one scale where the row has one per slice" if free else None
    wanted = axis_of_scales(served.graph, served.region, served.row, pattern.name, port.value)
    return None if wanted is None or wanted == kind.axis else f"its axis is {kind.axis}, not {wanted}"


def check_wildcards(served: Served) -> None:
    """A wildcard port has the storage of its class."""
    for group in served.reading.wild:
        given = [served.patterns[i].type.storage for i in group]
        accepted = [store for store in given if isinstance(store, Storage)]
        for i in group:
            kind = served.ports[i].type
            if served.patterns[i].type.storage is not None or not isinstance(kind, Uniform):
                continue
            accepted = accepted or [kind.storage]
            if kind.storage not in accepted:
                told = f"joins it to ports stored as {accepted[0]}; accepted: {accepted[0]}"
                address = served.ports[i].address
                refuse(address, f"is {brief(kind)}, {served.row.source} {told}", served.row)


def type_problem(kind: Uniform) -> str:
    """The flaw of a type in itself: a scale that its expressed type cannot hold, a zero point outside."""
    store = kind.storage
    if not store.qmin <= min(kind.zero_points) <= max(kind.zero_points) <= store.qmax:
        zero = next(zero for zero in kind.zero_points if not store.qmin <= zero <= store.qmax)
        return f"zero point {zero} lies outside the storage range {store.qmin}:{store.qmax}"
    if kind.blocks and math.prod(kind.grid) != len(kind.scales):
        return f"{quantity(len(kind.scales), 'scale')} in a grid of {kind.grid}"
    try:
        check_scales(kind.scales, kind.expressed)
    except QTypeError as error:
        return error.message
    return ""


def one_class(a: Uniform, b: Uniform) -> bool:
    """Whether two types have the same scales and, signedness apart, the same zero points."""
    if a is b:
        return True
    # u8 around 128 and i8 around 0 are the same reals: both count from the middle of their range.
    shift = b.storage.offset - a.storage.offset
    return (
        a.scales == b.scales
        and tuple(zero + shift for zero in a.zero_points) == b.zero_points
        and a.axis == b.axis
        and a.blocks == b.blocks
    )

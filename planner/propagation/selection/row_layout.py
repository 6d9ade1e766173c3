"""Layouts: a row's signature spread over as many ports as a kernel has; what kernels of one shape share.

Data and its one cache, which lives as long as its target: a model has thousands of kernels and
a dozen layouts. Source: docs/specification.md, section 4.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache

from planner.ir import roles
from planner.ir.graph import Graph, Region
from planner.ir.types.qtypes import FloatType, Storage
from planner.propagation.selection.reach import may_fall_short
from planner.target.circular_rules import circles
from planner.target.records import PortId, PortPattern, PortType, Row, Rule, Target
from planner.target.rules import expand_ports, same_scale_groups, storage_groups

COMPUTING_RULES = ("multiplier_accumulator_scale", "derive", "fn")
"""Rules that compute the type of a port from other ports'."""
DECIDING_RULES = ("fixed_scale", *COMPUTING_RULES)


@dataclass(frozen=True, slots=True)
class Layout:
    """One row over the present and absent ports of one kernel shape.

    Attributes:
      key: the row's.
      inputs, outputs: the row's entry for each port, absent ones too.
      specs: all ports in this order with their types.
      groups: ports that same_scale rules join.
      joined: all ports in `groups`.
      alike: ports that have one storage: those, and what same_storage rules join.
      derived: ports whose type a rule computes.
      deriving: rules that may compute something once labels are known.
      ranged: rules that bound the kernel's multipliers.
      fixing: rules that fix a port's type.
      calls: whether a function has a say, which may answer for any port.
      wild: whether a port takes any storage.
      joins_all: whether one same_scale group holds every present port.
      blocked: inputs with a scale per block.
      sparse: inputs that have to be sparse.
      circular: whether rules that derive ask for each other's results.
      hands_on_floats: whether integers are computed on, and the results are float.
      sums: inputs on the grid of a sum, whose type is the product of others': they need no range.
      bounded: ports of a free scale that may be unable to hold their range.
    """

    key: str
    inputs: tuple[PortPattern, ...]
    outputs: tuple[PortPattern, ...]
    specs: tuple[tuple[PortId, PortType], ...]
    groups: tuple[tuple[PortId, ...], ...]
    joined: frozenset[PortId]
    alike: tuple[tuple[PortId, ...], ...]
    derived: frozenset[PortId]
    deriving: tuple[Rule, ...]
    ranged: tuple[Rule, ...]
    fixing: tuple[Rule, ...]
    calls: bool
    wild: bool
    joins_all: bool
    blocked: tuple[int, ...] = ()
    bounded: tuple[PortId, ...] = ()
    sparse: tuple[int, ...] = ()
    circular: bool = False
    hands_on_floats: bool = False
    sums: frozenset[PortId] = frozenset()

    def ranged_values(self, region: Region, graph: Graph) -> Iterator[str]:
        """The values at ports that store integers whatever wildcards turn out to be, by a range of theirs."""
        for side, names, patterns in (
            ("in", region.inputs, self.inputs),
            ("out", region.outputs, self.outputs),
        ):
            for i, (name, pattern) in enumerate(zip(names, patterns, strict=True)):
                store = pattern.type.storage
                if (side, i) in self.sums and not has_numbers(graph, name):
                    continue
                if name and (isinstance(store, Storage) or (store is None and (side, i) in self.joined)):
                    yield name


@dataclass(slots=True)
class Layouts:
    """The layouts of one target's rows met so far."""

    known: dict[tuple[int, tuple[bool, ...], tuple[bool, ...]], Layout | None] = field(default_factory=dict)

    def of(self, row: Row, region: Region) -> Layout | None:
        """The layout of a row over a region's ports; None where the row takes other ports."""
        key = (id(row), tuple(map(bool, region.inputs)), tuple(map(bool, region.outputs)))
        if key not in self.known:
            self.known[key] = _layout(row, region)
        return self.known[key]


def moves_data(graph: Graph, region: Region, row: Row | None, layout: Layout | None) -> bool:
    """Whether data passes a kernel unchanged, from inputs to outputs."""
    if row is not None and row.computes:
        return False
    return roles.moves_data(graph, region, joins_all=layout is not None and layout.joins_all)


def has_numbers(graph: Graph, name: str) -> bool:
    """Whether a value is a constant whose numbers are known: without a range they are no finite ones."""
    constant = graph.constants.get(name)
    return constant is not None and constant.array is not None


@lru_cache(maxsize=32)
def layouts_of(target: Target) -> Layouts:
    """The layouts of a target, which is kept with its rows as long as they are."""
    del target
    return Layouts()


def _layout(row: Row, region: Region) -> Layout | None:
    inputs, outputs = expand_ports(row.inputs, region.inputs), expand_ports(row.outputs, region.outputs)
    if inputs is None or outputs is None:
        return None
    if row.float:
        inputs, outputs = (_running_in(side, FloatType(row.float)) for side in (inputs, outputs))
    patterns: dict[PortId, PortPattern] = {("in", i): pattern for i, pattern in enumerate(inputs)}
    patterns |= {("out", i): pattern for i, pattern in enumerate(outputs)}
    names = (*region.inputs, *region.outputs)
    present = {side: pattern for (side, pattern), name in zip(patterns.items(), names, strict=True) if name}
    groups = same_scale_groups(row, len(region.inputs), len(region.outputs))
    called = {pattern.name for pattern in present.values()}
    decided = {rule.args.get("port") for rule in row.rules if rule.kind in DECIDING_RULES}
    computed = {rule.args.get("port") for rule in row.rules if rule.kind in COMPUTING_RULES}
    return Layout(
        row.key,
        inputs,
        outputs,
        specs=tuple((side, pattern.type) for side, pattern in patterns.items()),
        groups=groups,
        joined=frozenset(side for group in groups for side in group),
        alike=storage_groups(row, len(region.inputs), len(region.outputs)),
        derived=frozenset(side for side, pattern in present.items() if pattern.name in computed),
        deriving=tuple(rule for rule in row.rules if _may_act(rule, called)),
        ranged=tuple(
            rule
            for rule in row.rules
            if rule.kind == "multiplier_scale" and rule.args.get("range") is not None
        ),
        fixing=tuple(
            rule for rule in row.rules if rule.kind == "fixed_scale" and rule.args["port"] in called
        ),
        calls=any(rule.kind == "fn" for rule in row.rules),
        wild=any(pattern.type.storage is None for pattern in present.values()),
        joins_all=len(groups) == 1 and len(groups[0]) >= len(present),
        blocked=tuple(
            i for i, pattern in enumerate(inputs) if region.inputs[i] and pattern.type.granularity == "block"
        ),
        bounded=tuple(
            side
            for side, pattern in present.items()
            if pattern.name not in decided and may_fall_short(pattern.type)
        ),
        sparse=tuple(i for i, pattern in enumerate(inputs) if region.inputs[i] and pattern.type.sparsity),
        circular=bool(circles(row)),
        hands_on_floats=row.hands_on_floats,
        sums=frozenset(
            side
            for side, pattern in present.items()
            if side[0] == "in"
            and any(
                rule.kind == "multiplier_accumulator_scale" and rule.args.get("port") == pattern.name
                for rule in row.rules
            )
        ),
    )


def _running_in(patterns: tuple[PortPattern, ...], float_type: FloatType) -> tuple[PortPattern, ...]:
    """The ports of a row that runs its kernel in a float."""
    return tuple(replace(pattern, type=PortType(float_type)) for pattern in patterns)


def _may_act(rule: Rule, present: set[str]) -> bool:
    """Whether a rule says anything about these ports once their neighbours have types."""
    if rule.kind in ("multiplier_accumulator_scale", "derive"):
        return rule.args["port"] in present
    return rule.kind == "fn"

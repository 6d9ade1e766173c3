"""Groups of a plan: which edges share a scale, and how it may move. A pure function of the plan.

Edges are tied where a `same_scale` rule joins their ports, and where a value is made and read on one grid: a
scale that moved alone would be a rescale more. Source: docs/howto/train-under-a-plan.md.
"""

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Final, TypeAlias

from planner.errors import InputError, unknown_name
from planner.ir.graph import BOUNDARY, Graph
from planner.ir.roles import is_movement
from planner.ir.types.qtypes import Uniform
from planner.plans.plan import Plan, require_plan
from planner.plans.records import KernelPlan, PortTyped
from planner.target.expressions import parse_expression, references
from planner.target.records import PortPattern, PortType, Row, Rule
from planner.target.rules import expand_ports, in_storage, same_scale_groups
from planner.training.spec import Bias, Edge, Group, TrainedConstant, TrainingSpec

Key: TypeAlias = tuple[str, Uniform]
"""A value in a type: one edge."""
WEIGHTS_KEPT: Final = ("sparsity", "weight_pairs", "weight_bits_effective")


@dataclass(slots=True)
class _Draft:
    """An edge in the making."""

    made_by: str = ""
    consumers: list[str] = field(default_factory=list)
    specs: list[tuple[PortType, Row]] = field(default_factory=list)
    own: bool = False


@dataclass(slots=True)
class _Ties:
    """Sets of edges that share a scale, and the reasons of those that do not move."""

    parent: dict[Key, Key] = field(default_factory=dict)
    fixed: dict[Key, tuple[str, str]] = field(default_factory=dict)

    def find(self, key: Key) -> Key:
        # No recursion: a chain of ties may be as long as the model.
        root = key
        while (parent := self.parent.setdefault(root, root)) != root:
            root = parent
        while key != root:
            self.parent[key], key = root, self.parent[key]
        return root

    def join(self, keys: Iterable[Key]) -> None:
        first, *others = [self.find(key) for key in keys]
        for other in others:
            self.parent[self.find(other)] = self.find(first)

    def fix(self, key: Key, why: str, row: str = "") -> None:
        self.fixed.setdefault(key, (why, row))


def training_spec(plan: Plan, *, keep: Collection[str] = ()) -> TrainingSpec:
    """Return the constraints of a plan on training: edges, ties, constants, biases, and limits of scales.

    Args:
      keep: names or globs of values whose scales stay as they are.

    Raises:
      InputError: a plan with bodies of loops or branches, with kernels that quantize while they run, or of a
        constant in two types.
      UnknownName: a name or glob in `keep` that matches no quantized value.

    Example:
      >>> model = planner.load_model("examples/digits/digits.onnx")
      >>> stats = planner.calibrate(model, "examples/digits/calibration.npz")
      >>> plan = planner.plan(planner.annotate(model, stats=stats), "litert-int8")
      >>> spec = planner.training_spec(plan)
      >>> spec.groups["probabilities"].moves
      'fixed'
    """
    require_plan(plan)
    _refuse(plan)
    keep = (keep,) if isinstance(keep, str) else keep
    drafts, ties = _edges_of(plan)
    biases = _rules_of(plan, ties)
    _tie_values(plan, drafts, ties)
    _hold(plan, drafts, ties, keep)
    ends = frozenset(plan.graph.outputs), frozenset(plan.graph.constants)
    return _spec(plan, _Found(drafts, ties, biases, *ends))


def _refuse(plan: Plan) -> None:
    if plan.graph.scopes:
        raise InputError(
            f"model {plan.graph.name!r} has loops or branches, where a value has no type of its own",
            hint="train the model without them",
        )
    for kernel in plan.kernels_in_order:
        row = plan.row_of(kernel.name)
        if row is not None and row.dynamic is not None:
            raise InputError(
                f"kernel {kernel.name!r} quantizes while it runs ({row.source}): "
                "each input has its own scale",
                hint="train under a plan of a target with static activations",
            )


def _bases(plan: Plan) -> Mapping[str, PortTyped]:
    """The type that the consumers of each value start from: its fixed type, else that of its port."""
    pinned = plan.stored_pins
    found: dict[str, PortTyped] = {name: pinned.get(name) for name in plan.graph.inputs}
    for kernel in plan.kernels_in_order:
        for port in kernel.outputs:
            if port.value:
                found[port.value] = pinned.get(port.value, port.type)
    return found


def _edges_of(plan: Plan) -> tuple[dict[Key, _Draft], _Ties]:
    """One draft for each value and type, in plan order."""
    drafts: dict[Key, _Draft] = {}
    ties, bases = _Ties(), _bases(plan)
    for name in plan.graph.inputs:
        kind = bases[name]
        if isinstance(kind, Uniform):
            drafts[name, kind] = _Draft(BOUNDARY, own=True)
    for kernel in plan.kernels_in_order:
        row, patterns = plan.row_of(kernel.name), _patterns(plan, kernel)
        for address, value, kind, pattern, is_made in _ports(kernel, patterns):
            key = value, kind
            draft = drafts.setdefault(key, _Draft())
            draft.own |= bases.get(value) == kind
            if is_made:
                draft.made_by = address
            else:
                draft.consumers.append(address)
            if pattern is not None and row is not None:
                draft.specs.append((pattern.type, row))
    for name, kind in bases.items():
        if isinstance(kind, Uniform):
            drafts.setdefault((name, kind), _Draft()).own = True
    return drafts, ties


def _patterns(plan: Plan, kernel: KernelPlan) -> tuple[PortPattern, ...] | None:
    row = plan.row_of(kernel.name)
    if row is None:
        return None
    inputs = expand_ports(row.inputs, tuple(port.value for port in kernel.inputs))
    outputs = expand_ports(row.outputs, tuple(port.value for port in kernel.outputs))
    return None if inputs is None or outputs is None else (*inputs, *outputs)


def _ports(
    kernel: KernelPlan, patterns: tuple[PortPattern, ...] | None
) -> Iterator[tuple[str, str, Uniform, PortPattern | None, bool]]:
    """Quantized ports: address, value, type, what the row calls it, whether it is a result."""
    for i, port in enumerate((*kernel.inputs, *kernel.outputs)):
        if port.value and isinstance(port.type, Uniform):
            pattern = None if patterns is None else patterns[i]
            yield port.address, port.value, port.type, pattern, i >= len(kernel.inputs)


def _rules_of(plan: Plan, ties: _Ties) -> dict[Key, tuple[tuple[Key, ...], Row]]:
    """Tie and fix edges as the rows of their kernels say; return biases with what makes their grid."""
    biases: dict[Key, tuple[tuple[Key, ...], Row]] = {}
    for kernel in plan.kernels_in_order:
        row, patterns = plan.row_of(kernel.name), _patterns(plan, kernel)
        if row is None or patterns is None:
            continue
        ports = (*kernel.inputs, *kernel.outputs)
        for members in same_scale_groups(row, len(kernel.inputs), len(kernel.outputs)):
            sides = {"in": kernel.inputs, "out": kernel.outputs}
            typed = [sides[side][i] for side, i in members if sides[side][i].value]
            _join([(port.value, port.type) for port in typed if isinstance(port.type, Uniform)], row, ties)
        named: dict[str, list[Key]] = {}
        for port, pattern in zip(ports, patterns, strict=True):
            if port.value and isinstance(port.type, Uniform):
                named.setdefault(pattern.name, []).append((port.value, port.type))
        for rule in row.rules:
            _rule(rule, row, named, ties, biases)
    return biases


def _join(keys: list[Key], row: Row, ties: _Ties) -> None:
    """Tie the ports of a class; slices that move to other places keep their scales."""
    for first, other in itertools.pairwise(keys):
        if in_storage(first[1], other[1].storage) == other[1] or first[1].scales == other[1].scales:
            ties.join([first, other])
        else:
            for key in (first, other):
                ties.fix(key, "its slices move between ports", row.source)


def _rule(
    rule: Rule,
    row: Row,
    named: Mapping[str, list[Key]],
    ties: _Ties,
    biases: dict[Key, tuple[tuple[Key, ...], Row]],
) -> None:
    concerned = named.get(str(rule.args.get("port")), [])
    if rule.kind == "fixed_scale":
        for key in concerned:
            ties.fix(key, "fixed_scale", row.source)
    elif rule.kind == "derive" and concerned:
        texts = [str(rule.args.get(key, 0)) for key in ("scale", "zero_point")]
        asked = {ref.port for text in texts for ref in references(parse_expression(text))}
        for key in (*concerned, *(key for name in asked for key in named.get(name, ()))):
            ties.fix(key, "derive", row.source)
    elif rule.kind == "fn":
        for key in (key for keys in named.values() for key in keys):
            ties.fix(key, "fn", row.source)
    elif rule.kind == "multiplier_accumulator_scale":
        factors = [named.get(name, [None])[0] for name in rule.args["of"]]
        of = tuple(key for key in factors if key is not None)
        if len(of) == len(factors):
            biases.update(dict.fromkeys(concerned, (of, row)))


def _tie_values(plan: Plan, drafts: Mapping[Key, _Draft], ties: _Ties) -> None:
    """Tie edges of one value that need no requantize between them."""
    bases = _bases(plan)
    for value, kind in drafts:
        base = bases.get(value)
        if isinstance(base, Uniform) and base != kind and in_storage(base, kind.storage) == kind:
            ties.join([(value, base), (value, kind)])


def _hold(plan: Plan, drafts: Mapping[Key, _Draft], ties: _Ties, keep: Collection[str]) -> None:
    """Fix the scales that no fact could say again, that rows store coarsely, or that the caller keeps."""
    graph, pinned = plan.graph, plan.stored_pins
    border = {*graph.inputs, *graph.outputs}
    for key, draft in drafts.items():
        value, kind = key
        if value in border and isinstance(pinned.get(value), Uniform):
            ties.fix(key, "the model stores it so at its border")
        for spec, row in draft.specs:
            if spec.scales != "f32":
                ties.fix(key, f"scales are stored in {spec.scales}", row.source)
            if any(getattr(spec, name) for name in WEIGHTS_KEPT):
                ties.fix(key, "the row limits the weight itself", row.source)
        if kind.storage.float_name or kind.ranges:
            ties.fix(key, "its storage has no steps of one size")
    for wanted in keep:
        matched = [key for key in drafts if key[0] == wanted or fnmatchcase(key[0], wanted)]
        if not matched:
            raise unknown_name("quantized value", wanted, {value for value, _ in drafts})
        for key in matched:
            ties.fix(key, "kept")
    _hold_loose(graph, drafts, ties)


def _hold_loose(graph: Graph, drafts: Mapping[Key, _Draft], ties: _Ties) -> None:
    """Fix sets that no value has as its own type, where the range of one value cannot say their scale."""
    owners = {ties.find(key) for key, draft in drafts.items() if draft.own or key[0] in graph.constants}
    loose: dict[str, set[Key]] = {}
    for key in drafts:
        if ties.find(key) not in owners and key[0] not in graph.constants:
            loose.setdefault(key[0], set()).add(ties.find(key))
    for value, kind in drafts:
        root = ties.find((value, kind))
        if value not in loose or root not in loose[value]:
            continue
        others = [key for key in drafts if ties.find(key) == root and key[0] != value]
        base = [key for key, draft in drafts.items() if key[0] == value and draft.own]
        moved = _moved_from(graph, value)
        if len(loose[value]) > 1 or others or base or moved:
            ties.fix((value, kind), "its range says its type, and others' too")
            for key in drafts:
                if key in base or key[0] in moved:
                    ties.fix(key, "consumers have a type of its range")


def _moved_from(graph: Graph, value: str) -> set[str]:
    """The values that data-movement operators hand on as a value: their ranges are its range."""
    makers = {name: region for region in graph.regions for name in region.outputs}
    found: set[str] = set()
    waiting = [value]
    while waiting:
        region = makers.get(waiting.pop())
        if region is None or not all(is_movement(op, graph) for op in region.ops):
            continue
        read = {name for name in region.inputs if name and name not in graph.constants} - found
        found |= read
        waiting += read
    return found


@dataclass(frozen=True, slots=True)
class _Found:
    """All edges with their ties, the sets that these make, and a name for each set.

    Attributes:
      biases: edges whose scales are a product of others'.
      outputs, constants: of the model, by name.
      sets: edges that share a scale, by one of them.
      names: of these sets.
    """

    drafts: Mapping[Key, _Draft]
    ties: _Ties
    biases: Mapping[Key, tuple[tuple[Key, ...], Row]]
    outputs: frozenset[str]
    constants: frozenset[str]
    sets: dict[Key, list[Key]] = field(default_factory=dict)
    names: dict[Key, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for key in self.drafts:
            self.sets.setdefault(self.ties.find(key), []).append(key)
        taken: set[str] = set()
        for root, members in self.sets.items():
            # The first value of a set names it; a value in two types is in two sets.
            name = members[0][0]
            count = itertools.count(1)
            while name in taken:
                name = f"{members[0][0]}#{next(count)}"
            taken.add(name)
            self.names[root] = name

    def name(self, key: Key) -> str:
        """The name of the set that an edge is in."""
        return self.names[self.ties.find(key)]


def _spec(plan: Plan, found: _Found) -> TrainingSpec:
    edges: list[Edge] = []
    kept: list[TrainedConstant] = []
    derived: list[Bias] = []
    for key, draft in found.drafts.items():
        edge = _edge(key, draft, found.name(key))
        if key[0] not in plan.graph.constants:
            edges.append(edge)
        elif key in found.biases:
            of, row = found.biases[key]
            accumulator = "" if row.accumulator is None else str(row.accumulator)
            derived.append(Bias(edge, tuple(map(found.name, of)), accumulator))
        else:
            store = key[1].storage
            narrow = store.signed and store.qmin > -(1 << store.bits - 1)
            limits = any(getattr(spec, name) for spec, _ in draft.specs for name in WEIGHTS_KEPT)
            kept.append(TrainedConstant(edge, narrow, trained=not limits))
    _refuse_two_types(kept)
    target = f"{plan.target.id} {plan.target.version}"
    groups = {group.name: group for members in found.sets.values() for group in [_group(members, found)]}
    return TrainingSpec(plan.model, plan.key, target, groups, tuple(edges), tuple(kept), tuple(derived))


def _refuse_two_types(constants: Iterable[TrainedConstant]) -> None:
    seen: dict[str, Edge] = {}
    for item in constants:
        other = seen.setdefault(item.edge.value, item.edge)
        if other is not item.edge:
            places = ", ".join((*other.consumers, *item.edge.consumers))
            raise InputError(
                f"constant {other.value!r} is quantized to two types ({places}), which no fact of it can say",
                hint="give each kernel a constant of its own",
            )


def _edge(key: Key, draft: _Draft, group: str) -> Edge:
    value, kind = key
    return Edge(
        value,
        draft.made_by,
        tuple(draft.consumers),
        kind.storage,
        group,
        kind.zero_points,
        kind.axis,
        kind.blocks,
        kind.grid,
        kind.expressed,
        symmetric=any(spec.symmetric or spec.zero_point == 0 for spec, _ in draft.specs),
        own=draft.own,
    )


def _group(members: list[Key], found: _Found) -> Group:
    start = Group(found.name(members[0]), members[0][1].scales)
    grids = [found.biases[key] for key in members if key in found.biases]
    reasons = [found.ties.fixed[key] for key in members if key in found.ties.fixed]
    if grids and not reasons:
        of, row = grids[0]
        why = "multiplier_accumulator_scale"
        return replace(start, moves="derived", why=why, of=tuple(map(found.name, of)), row=row.source)
    specs = [entry for key in members for entry in found.drafts[key].specs]
    limiting = [row.source for spec, row in specs if spec.power_of_two or spec.scale_min or spec.scale_max]
    is_owned = any(found.drafts[key].own for key in members)
    said = {key[0]: None for key in members if not is_owned or key[0] in found.outputs}
    why, row_of = reasons[0] if reasons else ("", limiting[0] if limiting else "")
    return replace(
        start,
        moves="fixed" if reasons else "free",
        why=why,
        power_of_two=any(spec.power_of_two for spec, _ in specs),
        scale_min=max((s.scale_min for s, _ in specs if s.scale_min is not None), default=None),
        scale_max=min((s.scale_max for s, _ in specs if s.scale_max is not None), default=None),
        row=row_of,
        anchors=tuple(name for name in said if name not in found.constants),
    )

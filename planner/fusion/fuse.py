"""Fuse: source ops into regions, the logical kernels of one target.

In: a Graph of ops, a Target's fusions. Out: the same Graph as regions in topological order, every op in
exactly one. Patterns and groups with most ops first, then file order; a kernel's inner values are read by
nothing outside it. An op that no fusion took is a region of its own type and says why. Source:
docs/targets/reference.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, TypeAlias

from planner.fusion.groups import Group, groups_of, is_group, ports_of_group, reenters
from planner.fusion.legalize import legalize
from planner.fusion.match import fits
from planner.fusion.op_index import Fit, OpIndex, index_ops
from planner.fusion.products import SEEN_THROUGH
from planner.ir.borders import closed_scope
from planner.ir.graph import Graph, Op, Region
from planner.ir.operators.standard_op import spelling_of
from planner.ir.roles import port_outputs
from planner.ir.topology import live, topological
from planner.ir.unknowns import reason_of_unknown
from planner.ops import defined
from planner.target.patterns import (
    OpPattern,
    Pattern,
    count_ops,
    needed_types,
    op_types,
    parse_pattern,
    spelled_types,
    variants,
)
from planner.target.predicates import PortValues, failing
from planner.target.records import Fusion, Target

MOST_OBJECTIONS: Final = 4
MAX_LEAD: Final = 16
"""Ops between the rarest op of a block and its last one."""
UNUSED: Final = "none of its results is used"

Barred: TypeAlias = frozenset[tuple[str, tuple[str, ...], frozenset[str]]]
"""Kernels that are not to be made: their name in the target, what they read, and their ops by name."""


@dataclass(frozen=True, slots=True)
class _Variant:
    """One tree of one fusion's pattern, and what is asked of the tree for every graph.

    Attributes:
      size: its ops.
      roots: types of ops that may write its result.
      needed: sets of op types of each of which a model has to have one.
    """

    fusion: Fusion
    pattern: Pattern
    tree: OpPattern
    names: tuple[str, ...]
    size: int
    roots: tuple[str, ...]
    needed: frozenset[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Book:
    """The fusions of a target, read: in order, by the type of the last op, and the op types they name."""

    target: str
    kernels: frozenset[str]
    ordered: tuple[_Variant, ...]
    groups: tuple[tuple[Fusion, Pattern], ...]
    by_root: Mapping[str, list[_Variant]]
    named: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Taken:
    """Decisions so far: the kernel of each op ("" for none), and the region behind each last op."""

    owner: list[str]
    regions: dict[int, Region]
    names: set[str]
    barred: Barred = frozenset()
    kept: frozenset[str] = frozenset()


def fuse(graph: Graph, target: Target) -> Graph:
    """Group the ops of a graph into the kernels that the target names.

    A graph that has regions already keeps them, but for those that the target legalizes. Region names come
    from the op furthest from the result; ports are the pattern's variables in order of appearance.

    Raises:
      TargetError: a pattern or predicate of the target that cannot be read.
    """
    fused = graph if graph.regions else replace(graph, ops=(), regions=regions_of(graph, target))
    return legalize(fused, target, regions_of) if target.legalize else fused


def regions_of(
    graph: Graph, target: Target, barred: Barred = frozenset(), kept: frozenset[str] = frozenset()
) -> tuple[Region, ...]:
    """Group the ops of a graph that has no regions into kernels, in topological order.

    Ops without a used result are left out first, so that none of them keeps a kernel apart; each is a region
    of its own, which nothing runs.

    Args:
      barred: kernels that are not to be made.
      kept: values that are to stay between kernels.
    """
    alive = live(graph)
    dead = tuple(op for op in graph.ops if op.name not in alive)
    if dead:
        index = index_ops(replace(graph, ops=tuple(op for op in graph.ops if op.name in alive)), kept)
    else:
        index = index_ops(graph, kept)
    book = _read(target)
    taken = _Taken([""] * len(index.ops), {}, set(), barred, kept)
    groups = [(group, fusion, p) for fusion, p in book.groups for group in groups_of(p, index)]
    groups.sort(key=lambda found: -len(found[0].members))
    for variant in book.ordered:
        while groups and len(groups[0][0].members) > variant.size:
            _take_group(*groups.pop(0), index, taken)
        for root in _roots(variant, index):
            fit = None if taken.owner[root] else _best(variant, root, index, taken)
            if fit is not None:
                _take(variant, fit, index, taken)
    for found in groups:
        _take_group(*found, index, taken)
    for i, owner in enumerate(taken.owner):
        if not owner:
            taken.regions[i] = _alone(i, _reason(i, book, index, taken), index, taken)
    made = [taken.regions[i] for i in sorted(taken.regions)]
    if dead:
        rest = index_ops(replace(graph, ops=dead))
        made += [_alone(i, UNUSED, rest, taken) for i in range(len(dead))]
    return topological(tuple(made))


@lru_cache(maxsize=32)
def _read(target: Target) -> _Book:
    found = []
    groups = []
    for fusion in (*target.fusions, *_blocks(target)):
        patterns = [parse_pattern(text, fusion.parts) for text in fusion.patterns]
        groups += [(fusion, pattern) for pattern in patterns if is_group(pattern)]
        names = tuple(dict.fromkeys(v.name for pattern in patterns for v in pattern.variables))
        found += [_variant(fusion, p, tree, names) for p in patterns for tree in variants(p)]
    # More ops first: a fusion of Conv and Relu must not lose its Conv to the one of Conv alone. The sort is
    # stable, so the file decides among equals.
    ordered = tuple(sorted(found, key=lambda variant: -variant.size))
    by_root: dict[str, list[_Variant]] = {}
    for variant in ordered:
        for name in () if variant.fusion.whole else variant.roots:
            by_root.setdefault(name, []).append(variant)
    # An op that stays alone is told of the fusions that came near: a norm is none for every Add.
    fusions = (variant for variant in ordered if not variant.fusion.whole)
    named = frozenset(name for variant in fusions for name in op_types(variant.pattern))
    return _Book(target.id, frozenset(target.rows), ordered, tuple(groups), by_root, named)


def _variant(fusion: Fusion, pattern: Pattern, tree: OpPattern, names: tuple[str, ...]) -> _Variant:
    return _Variant(fusion, pattern, tree, names, count_ops(tree), spelled_types(tree), needed_types(tree))


def _blocks(target: Target) -> Iterator[Fusion]:
    """The blocks that are looked for: those that are no more than their parts need a row of their own."""
    for block in target.blocks:
        if block.whole or block.kernel in target.rows or block.kernel in target.legalize:
            yield block


def _roots(variant: _Variant, index: OpIndex) -> list[int]:
    """Ops that may write a tree's result, ascending."""
    if index.by_type.keys().isdisjoint(variant.roots):  # most variants end here
        return []
    if not variant.fusion.parts:
        return sorted(i for name in set(variant.roots) for i in index.by_type.get(name, ()))
    count = {types: sum(len(index.by_type.get(name, ())) for name in types) for types in variant.needed}
    if not count or min(count.values()) == 0:
        return []
    # Every Add might be the last op of a norm: only those count that the tree's rarest op leads to.
    rarest = min(count, key=lambda types: (count[types], types))
    return _led_to([i for name in rarest for i in index.by_type[name]], variant, index)


def _led_to(begin: Sequence[int], variant: _Variant, index: OpIndex) -> list[int]:
    """Ops that may write a tree's result, and that ops of the tree lead to through its own kinds of ops."""
    roots, inner = set(variant.roots), op_types(variant.pattern) | SEEN_THROUGH | {"Div", "Mul", "Pow"}
    found: set[int] = set()
    seen, now = set(begin), list(begin)
    for _ in range(MAX_LEAD):
        found.update(i for i in now if index.ops[i].type in roots)
        behind = {r for i in now for name in index.ops[i].outputs for r in index.readers.get(name, ())}
        now = [i for i in behind - seen if index.ops[i].type in inner]
        seen.update(now)
    return sorted(found)


def _best(variant: _Variant, root: int, index: OpIndex, taken: _Taken) -> Fit | None:
    for fit in fits(variant.tree, root, index):
        if _objection(variant, fit, root, index, taken) is None:
            return fit
    return None


def _objection(variant: _Variant, fit: Fit, root: int, index: OpIndex, taken: _Taken) -> str | None:
    """Say why a fit may not become a kernel; None if it may."""
    members = fit.members
    inside = frozenset(members)
    for i in members if taken.kept else ():
        if i != root and not taken.kept.isdisjoint(index.ops[i].outputs):
            return f"{index.ops[i].outputs[0]!r} has a type of its own"
    for i in members:
        # A fused kernel writes only its last result: nobody else may need what is computed on the way.
        outside = None if i == root else _outside(i, inside, index)
        if outside:
            return outside
    setting = _open_setting(members, index) if len(members) > 1 else None
    if setting:
        return setting
    for value in _bound(fit):
        # An operand from within would make the kernel wait for itself.
        if index.writer.get(value) in inside:
            return f"{value!r} is written inside it"
    ports = {"out": index.ops[root].outputs} | {name: fit.bound.get(name, "") for name in variant.names}
    ops = tuple(index.ops[i] for i in members)
    problem = _unmet(variant.fusion, ports, ops, index)
    if problem:
        return problem
    if taken.barred and (variant.fusion.kernel, _inputs(variant, fit), _named(ops)) in taken.barred:
        return "no row serves it"
    # Last, so that the reason of an op that stays alone names a fault of the fit rather than its rival.
    owned = next((i for i in members if taken.owner[i]), None)
    return None if owned is None else f"{index.ops[owned].name!r} is part of {taken.owner[owned]!r}"


def _unmet(fusion: Fusion, ports: PortValues, ops: tuple[Op, ...], index: OpIndex) -> str | None:
    """The first predicate of a fusion that does not hold."""
    place = (fusion.source, f"where of {fusion.kernel}")
    return failing(fusion.where, ports=ports, ops=ops, attributes={}, graph=index.graph, place=place)


def _outside(at: int, inside: frozenset[int], index: OpIndex) -> str | None:
    for value in index.ops[at].outputs:
        if value in index.results:
            return f"{value!r} is a model output too"
        for reader in index.readers.get(value, ()):
            if reader not in inside:
                return f"{value!r} is read by {index.ops[reader].name!r} too"
    return None


def _open_setting(members: tuple[int, ...], index: OpIndex) -> str | None:
    """Name a clip bound or the like that is no constant: a kernel of several ops has nowhere to put it."""
    for i in members:
        op = index.ops[i]
        for at in defined(op.type).parameters:
            name = op.inputs[at] if at < len(op.inputs) else ""
            if name and name not in index.graph.constants:
                return f"{name!r} of {op.name!r} is not a constant"
    return None


def _bound(fit: Fit) -> Iterator[str]:
    for bound in fit.bound.values():
        yield from (bound,) if isinstance(bound, str) else bound


def _take(variant: _Variant, fit: Fit, index: OpIndex, taken: _Taken) -> None:
    members = fit.members
    name = _name(index.ops[fit.deepest].name, taken)
    for i in members:
        taken.owner[i] = name
    made = Region(
        name=name,
        kernel=variant.fusion.kernel,
        inputs=_inputs(variant, fit),
        outputs=port_outputs(index.ops[members[-1]], index.graph),
        ops=tuple(index.ops[i] for i in members),
        **_standing(members, index),
    )
    if variant.fusion.parts:
        made = replace(made, attributes=spelling_of(made, index.graph))
    taken.regions[members[-1]] = made


def _inputs(variant: _Variant, fit: Fit) -> tuple[str, ...]:
    """The inputs that a kernel would have, in the order of its pattern's variables."""
    inputs: list[str] = []
    for variable in variant.pattern.variables:
        bound = fit.bound.get(variable.name, "")
        inputs += [bound] if isinstance(bound, str) else bound
    return tuple(inputs)


def _named(ops: Sequence[Op]) -> frozenset[str]:
    return frozenset(op.name for op in ops)


def identity(region: Region) -> tuple[str, tuple[str, ...], frozenset[str]]:
    """Return the key that tells a kernel from others that could be made of the same ops."""
    return region.kernel, region.inputs, _named(region.ops)


def _standing(members: Sequence[int], index: OpIndex) -> dict[str, Any]:
    """The scope of a kernel, that of all its ops, and its trip count."""
    if not index.graph.scopes:
        return {}
    found = {index.ops[i].scope for i in members}
    # Ops of several calls fuse across them, as calls are
    # no border; the kernel then stands in the loop around.
    scope = found.pop() if len(found) == 1 else closed_scope(index.graph.scopes, found.pop())
    return {"scope": scope, "trip_count": index.graph.scopes[scope].runs} if scope else {}


def _take_group(group: Group, fusion: Fusion, pattern: Pattern, index: OpIndex, taken: _Taken) -> None:
    """Make a kernel of a group, unless an op of it is taken, or its predicates or its shape forbid it."""
    members = group.members
    inputs, outputs = ports_of_group(group, index)
    if any(taken.owner[i] for i in members) or not outputs or reenters(group, index):
        return
    ops = tuple(index.ops[i] for i in members)
    if taken.kept and not taken.kept.isdisjoint(
        name for op in ops for name in op.inputs if name not in inputs
    ):
        return
    first = (*inputs[:1], "")[0]
    named = {v.name: inputs[len(pattern.variables) - 1 :] if v.variadic else first for v in pattern.variables}
    ports = {"out": outputs} | named
    if _unmet(fusion, ports, ops, index):
        return
    if (fusion.kernel, inputs, _named(ops)) in taken.barred:
        return
    name = _name(group.name, taken)
    for i in members:
        taken.owner[i] = name
    taken.regions[members[-1]] = Region(
        name, fusion.kernel, inputs, outputs, ops, **_standing(members, index)
    )


def _alone(at: int, reason: str, index: OpIndex, taken: _Taken) -> Region:
    op = index.ops[at]
    return Region(
        name=_name(op.name, taken),
        kernel=op.type,
        inputs=index.operands[at],
        outputs=port_outputs(op, index.graph),
        ops=(op,),
        reason=reason,
        **_standing((at,), index),
    )


def _name(wanted: str, taken: _Taken) -> str:
    """Keep the op's name; `kernel_N` where it has none."""
    name, n = wanted, len(taken.regions)
    while not name or name in taken.names:
        name, n = f"kernel_{n}", n + 1
    taken.names.add(name)
    return name


def _reason(at: int, book: _Book, index: OpIndex, taken: _Taken) -> str:
    """Say why no fusion took an op."""
    op = index.ops[at]
    if unknown := reason_of_unknown(index.graph, (op,)):
        return unknown
    if not index.operands[at] and not port_outputs(op, index.graph):
        return f"{op.type} has no float operand or result"
    if op.type not in book.named:
        also = "" if op.type in book.kernels else " and no row is called so"
        return f"no fusion of {book.target!r} names {op.type}{also}"
    objections: dict[str, dict[str, None]] = {}
    for variant in book.by_root.get(op.type, ()):
        for fit in fits(variant.tree, at, index):
            text = _objection(variant, fit, at, index, taken)
            if text:
                objections.setdefault(text, {})[variant.fusion.kernel] = None
    told = [f"{text} ({', '.join(kernels)})" for text, kernels in objections.items()]
    if told:
        return f"no fusion of {book.target!r} takes {op.type}: {'; '.join(told[:MOST_OBJECTIONS])}"
    return f"no fusion of {book.target!r} takes {op.type} of these operands"

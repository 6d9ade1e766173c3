"""Split: a kernel becomes smaller ones, made of its ops without the pattern that made it.

For one of two reasons: no row serves it, or a type stands on a value inside it that its result would miss.
Down to single ops, as far as that leads to a row; where it does for no part that does the work, the kernel
stays whole. Constraints on its ports go to the ports that take their place. Source: docs/targets/patterns.md.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TypeAlias

from planner.fusion.fuse import Barred, identity, regions_of
from planner.fusion.legalize import facts_of, with_facts_of
from planner.ir.graph import Graph, Region
from planner.ir.types.qtypes import FloatType, NoneType
from planner.target.records import Target

Serves: TypeAlias = Callable[[Region], bool]


def can_be_apart(region: Region) -> bool:
    """Whether a fusion made a kernel, of ops that no request keeps in float."""
    fused = len(region.ops) > 1 or any(op.type != region.kernel for op in region.ops)
    own = (fact for facts in (*region.input_facts, *region.output_facts) for fact in facts)
    return fused and region.structure is None and not any(isinstance(f, FloatType | NoneType) for f in own)


def taken_apart(
    region: Region,
    graph: Graph,
    target: Target,
    *,
    is_served: Serves,
    accepts: Callable[[Sequence[Region]], bool],
    taken: Collection[str],
    tried: Sequence[Region],
    kept: frozenset[str] = frozenset(),
) -> tuple[Region, ...]:
    """The parts of a kernel; () where it is as well left whole.

    Args:
      is_served: whether some row takes a region.
      accepts: whether the kernel is better run as some parts than whole.
      taken: names of the other kernels.
      tried: the kernel, and those that it is a part of.
      kept: inner values that are to stand between the parts.
    """
    # Two patterns may make kernels of the same ops: neither comes again out of the other.
    parts = _parts(region, graph, target, (frozenset(map(identity, tried)), kept), is_served)
    if not accepts(parts):
        return ()
    names = set(taken)
    found = []
    for part in parts:
        name, n = part.name, 0
        while name in names:
            name, n = f"{part.name}_{n}", n + 1
        names.add(name)
        found.append(with_facts_of(replace(part, name=name), facts_of(region)))
    return tuple(found)


def _parts(
    region: Region, graph: Graph, target: Target, limits: tuple[Barred, frozenset[str]], is_served: Serves
) -> Sequence[Region]:
    barred, kept = limits[0] | {identity(region)}, limits[1]
    found: list[Region] = []
    for part in regions_of(_inside(region, graph), target, barred, kept):
        smaller = (
            ()
            if is_served(part) or not can_be_apart(part)
            else _parts(part, graph, target, (barred, kept), is_served)
        )
        found += smaller if any(map(is_served, smaller)) else [part]
    return found


def _inside(region: Region, graph: Graph) -> Graph:
    """The ops of a region as a graph; what is no float may be read anywhere."""
    written = [name for op in region.ops for name in op.outputs if name]
    others = [name for name in written if not graph.values[name].is_float]
    return replace(graph, ops=region.ops, regions=(), outputs=(*filter(None, region.outputs), *others))

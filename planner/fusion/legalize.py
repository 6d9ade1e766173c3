"""Legalize: a region coarser than the device's kernels becomes several that it has.

In: a Graph with regions, a target's `legalize` table (kernel -> the kernels it is made of). Out: the same
graph with each such region's own ops fused again, by those kernels' fusions alone. Constraints on the ports
of the coarse region stand on the ports that took their place, so the types inside follow from them, or from
facts on the values inside. Source: docs/targets/patterns.md; docs/specification.md, section 6 (`restore`,
`fuse`).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from planner.ir.graph import Facts, Graph, Region
from planner.ir.topology import topological
from planner.ir.types.qtypes import NoneType, Uniform
from planner.plans.plan import Plan
from planner.plans.records import Port
from planner.target.records import Target

Fuser: TypeAlias = Callable[[Graph, Target], tuple[Region, ...]]
Sides: TypeAlias = tuple[Mapping[str, Facts], Mapping[str, Facts]]


def legalize(graph: Graph, target: Target, fuser: Fuser) -> Graph:
    """Split the regions that `target.legalize` lists and no row of the target serves.

    Args:
      fuser: groups the ops of a graph into regions (`fuse.regions_of`).
    """
    coarse = {
        region.name
        for region in graph.regions
        if region.kernel in target.legalize and region.kernel not in target.rows and region.ops
    }
    return _split(graph, target, coarse, {}, fuser) if coarse else graph


def legalize_planned(plan: Plan, graph: Graph, target: Target, fuser: Fuser) -> Graph:
    """Split every region that `target.legalize` lists, its ports fixed to the types of a plan.

    Args:
      plan: a plan of `graph` on a target that serves the coarse kernels whole.
      graph: the model's graph, with the regions of the plan.
      target: the target whose kernels take their place.
      fuser: groups the ops of a graph into regions (`fuse.regions_of`).

    Returns:
      A graph to plan again; the types inside follow from the ports.
    """
    coarse = {region.name for region in graph.regions if region.kernel in target.legalize and region.ops}
    # A kernel that no row served says nothing of types: it need not stay float on another target.
    pins = {
        name: (_pins(kernel.inputs), _pins(kernel.outputs))
        for name, kernel in plan.kernels.items()
        if name in coarse and kernel.row is not None
    }
    return _split(graph, target, coarse, pins, fuser)


def _pins(ports: tuple[Port, ...]) -> Mapping[str, Facts]:
    # A port that the plan left float stays float.
    return {
        port.value: (port.type if isinstance(port.type, Uniform) else NoneType(),)
        for port in ports
        if port.value
    }


def _split(
    graph: Graph,
    target: Target,
    coarse: set[str],
    pins: Mapping[str, Sides],
    fuser: Fuser,
) -> Graph:
    taken = {region.name for region in graph.regions}
    regions: list[Region] = []
    for region in graph.regions:
        if region.name not in coarse:
            regions.append(region)
            continue
        into = frozenset(target.legalize[region.kernel])
        fine = replace(target, fusions=tuple(f for f in target.fusions if f.kernel in into))
        inside = replace(graph, ops=region.ops, regions=(), outputs=_outputs(region, graph))
        facts = pins.get(region.name) or facts_of(region)
        for part in fuser(inside, fine):
            regions.append(_placed(part, region, taken, facts))
            taken.add(regions[-1].name)
    return replace(graph, regions=topological(tuple(regions)))


def _outputs(region: Region, graph: Graph) -> tuple[str, ...]:
    """Results of a region that are read outside: float ones, and integers that others or the model read."""
    written = {name for op in region.ops for name in op.outputs if name}
    read = {name for other in graph.regions if other is not region for op in other.ops for name in op.inputs}
    outer = written & (read | set(graph.outputs))
    return tuple(dict.fromkeys((*(name for name in region.outputs if name), *sorted(outer))))


def facts_of(region: Region) -> Sides:
    """The constraints of a region's ports by value: of its inputs, of its outputs."""
    inputs = zip(region.inputs, region.input_facts, strict=False)
    outputs = zip(region.outputs, region.output_facts, strict=False)
    return {name: own for name, own in inputs if name}, {name: own for name, own in outputs if name}


def with_facts_of(part: Region, facts: Sides) -> Region:
    """A part with the constraints of the ports that its own take the place of."""
    sides = [
        tuple([known.get(value, ()) for value in names])
        for known, names in zip(facts, (part.inputs, part.outputs), strict=True)
    ]
    input_facts, output_facts = (side if any(side) else () for side in sides)
    return replace(part, input_facts=input_facts, output_facts=output_facts)


def _placed(part: Region, region: Region, taken: set[str], facts: Sides) -> Region:
    """A part with a name of its own and the constraints of the coarse region's ports."""
    return replace(
        with_facts_of(part, facts),
        name=next(name for name in _names(part, region) if name not in taken),
        trip_count=region.trip_count,
        scope=region.scope,
        attributes=part.attributes or region.attributes,
    )


def _names(part: Region, region: Region) -> Iterator[str]:
    yield f"{region.name}/{part.name.removeprefix(region.name).strip('/') or part.kernel}"
    n = 0
    while True:
        yield f"{region.name}/{part.kernel}_{n}"
        n += 1

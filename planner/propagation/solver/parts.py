"""Parts: a unit that is too large to solve is cut into runs of classes, each with its border free.

What a part costs on its own is what the unit pays there at least, so the sum over all parts is a lower bound.
Source: docs/specification.md, section 5; dual decomposition with the multipliers left at zero.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from planner.propagation.solver.components import Edge, Unit
from planner.propagation.solver.ways import Loss, Way

PART: Final = 240
"""Classes of one part."""


def free_parts(unit: Unit) -> Iterator[Unit]:
    """Cut a unit into runs of its classes; what crosses a cut is left out, so parts cost no more than it."""
    # Canonical order is by depth: a run of it is a slice of the network.
    home = {c: i // PART for i, c in enumerate(unit.classes)}
    edges: list[list[Edge]] = [[] for _ in range(0, len(unit.classes), PART)]
    for edge in unit.edges:
        for number, cut in _cut(edge, home):
            edges[number].append(cut)
    # The last part that each class or way has to do with: there a loss is counted.
    last = dict(home)
    for way, (members, _) in unit.ways.items():
        last[way] = max(last[member] for member in members)
    losses: list[list[Loss]] = [[] for _ in edges]
    for loss in unit.losses:
        losses[max(last[member] for member in loss.upstream)].append(loss)
    place = {way: i for i, way in enumerate(unit.ways)}
    for number, own in enumerate(edges):
        mine = set(_behind(losses[number], unit.ways, last, number))
        ways = {
            way: Way(_kept(unit.ways[way].members, mine), unit.ways[way].constant)
            for way in sorted((way for way in mine if way < 0), key=place.__getitem__)
        }
        known = [replace(loss, upstream=_kept(loss.upstream, mine)) for loss in losses[number]]
        yield Unit([], unit.classes[number * PART : (number + 1) * PART], own, known, ways)


def _cut(edge: Edge, home: Mapping[int, int]) -> Iterator[tuple[int, Edge]]:
    """An edge in the part where it is defined, or, of a given type, in each part that uses it."""
    if edge.definition is not None:
        number = home[edge.definition[0]]
        yield number, replace(edge, uses=[use for use in edge.uses if home.get(use.group, number) == number])
        return
    parts = dict.fromkeys(home[c] for c in edge.groups())
    for number in parts:
        # Parts that want one type share its rescale: each pays its share.
        uses = [use for use in edge.uses if home.get(use.group) == number]
        yield number, replace(edge, uses=uses, elements=edge.elements // len(parts))


def _behind(
    losses: Iterable[Loss], ways: Mapping[int, Way], last: Mapping[int, int], number: int
) -> Iterator[int]:
    """The classes and ways of one part that these losses know."""
    met, waiting = set[int](), [member for loss in losses for member in loss.upstream]
    while waiting:
        member = waiting.pop()
        if last[member] == number and member not in met:
            met.add(member)
            yield member
            if member < 0:
                waiting += ways[member].members


def _kept(members: Iterable[int], mine: Collection[int]) -> tuple[int, ...]:
    return tuple([member for member in members if member in mine])

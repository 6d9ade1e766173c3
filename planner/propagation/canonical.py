"""Canonical order: classes by depth, then by their own content and their neighbours', listing order last.

Equal prices must not depend on how a model lists or names its kernels. Colours are refined as in
Weisfeiler and Leman's test. Source: design 01, section 5, the price, item 6.
"""

from collections.abc import Sequence
from typing import Any, Final

from planner.propagation.components import Unit
from planner.propagation.labels import LabelClass

ROUNDS: Final = 8


def in_canonical_order(unit: Unit, classes: Sequence[LabelClass]) -> None:
    """Sort a unit's classes, edges and losses in place."""
    rank = _ranked({c: _content(classes[c]) for c in unit.classes})
    for _ in range(ROUNDS):
        finer = _refined(unit, rank)
        if len(set(finer.values())) == len(set(rank.values())):
            break
        rank = finer
    unit.classes.sort(key=lambda c: (rank[c], c))
    place = {c: i for i, c in enumerate(unit.classes)}
    unit.edges.sort(
        key=lambda edge: (sorted(place[c] for c in edge.groups()), edge.elements, str(edge.start))
    )
    unit.losses.sort(key=lambda loss: (sorted(place[c] for c in loss.upstream), loss.elements, loss.own))


def _content(entry: LabelClass) -> tuple[Any, ...]:
    ports = [(port.side, str(port.spec), port.required or ()) for port in entry.ports]
    return entry.depth, repr((entry.content, ports, entry.labels))


def _refined(unit: Unit, rank: dict[int, int]) -> dict[int, int]:
    around: dict[int, list[Any]] = {c: [] for c in unit.classes}
    for edge in unit.edges:
        start = (rank[edge.definition[0]], str(edge.definition[1])) if edge.definition else str(edge.start)
        uses = sorted((rank.get(group, -1), str(store), str(goal), t) for group, store, goal, t in edge.uses)
        for c in edge.groups():
            around[c].append(repr(("edge", edge.elements, start, uses)))
    for loss in unit.losses:
        upstream = sorted(rank[c] for c in loss.upstream)
        text = repr(("loss", loss.elements, loss.constant, loss.own, loss.unavoidable, upstream))
        for c in loss.upstream:
            around[c].append(text)
    return _ranked({c: (rank[c], sorted(around[c])) for c in unit.classes})


def _ranked(keys: dict[int, Any]) -> dict[int, int]:
    numbers = {key: i for i, key in enumerate(sorted({_hashable(key) for key in keys.values()}))}
    return {c: numbers[_hashable(key)] for c, key in keys.items()}


def _hashable(key: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tuple(part) if isinstance(part, list) else part for part in key)

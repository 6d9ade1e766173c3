"""Canonical order: classes by depth, then by their own content and their neighbours', listing order last.

Equal prices must not depend on how a model lists or names its kernels. Colours are refined as in
Weisfeiler and Leman's test. Source: design 01, section 5, the price, item 6.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from planner.ir.types.qtypes import Storage, Uniform
from planner.propagation.solver.classes import LabelClass
from planner.propagation.solver.components import Edge, Loss, Unit, Use
from planner.target.records import PortType

ROUNDS: Final = 8

Key = tuple[Any, ...]


def in_canonical_order(unit: Unit, classes: Sequence[LabelClass]) -> None:
    """Sort a unit's classes, components, edges and losses in place."""
    rank = _ranked({c: _content(classes[c]) for c in unit.classes})
    count = max(rank.values()) + 1
    for _ in range(ROUNDS if count < len(rank) else 0):
        finer = _refined(unit, rank)
        before, count = count, max(finer.values()) + 1
        if count == before:
            break
        rank = finer
    unit.classes.sort(key=lambda c: (rank[c], c))
    place = {c: i for i, c in enumerate(unit.classes)}
    unit.components.sort(key=lambda part: min(place[c] for c in part.classes))
    for edge in unit.edges:
        if len(edge.uses) > 1:
            edge.uses.sort(key=lambda use: _use_key(use, place))
    unit.edges.sort(key=lambda edge: _edge_key(edge, place))
    for loss in unit.losses:
        loss.upstream = tuple(sorted(loss.upstream, key=place.__getitem__))
    unit.losses.sort(key=lambda loss: _loss_key(loss, place))


def _use_key(use: Use, place: Mapping[int, int]) -> Key:
    return place.get(use.group, -1), _written(use.store), _written(use.goal), use.trips, use.outer


def _edge_key(edge: Edge, place: Mapping[int, int]) -> Key:
    defined = place[edge.definition[0]] if edge.definition is not None else -1
    uses = tuple(_use_key(use, place) for use in edge.uses)
    return defined, _written(edge.start), edge.elements, uses


def _loss_key(loss: Loss, place: Mapping[int, int]) -> Key:
    upstream = tuple(place[c] for c in loss.upstream)
    return upstream, loss.elements, loss.own, loss.constant, loss.unavoidable


def _content(entry: LabelClass) -> Key:
    ports = tuple((port.side, _written(port.spec), port.required or ()) for port in entry.ports)
    return entry.depth, entry.content, ports, tuple(label or () for label in entry.labels)


def _refined(unit: Unit, rank: Mapping[int, int]) -> dict[int, int]:
    """Split the ranks by what is around each class: edges and losses, and its part in them."""
    around: dict[int, list[Key]] = {c: [] for c in unit.classes}
    for edge in unit.edges:
        store = _written(edge.definition[1]) if edge.definition is not None else ""
        defined = rank[edge.definition[0]] if edge.definition is not None else -1
        uses = tuple(sorted(_use_key(use, rank) for use in edge.uses))
        key = (defined, store, _written(edge.start), edge.elements, uses)
        if edge.definition is not None:
            around[edge.definition[0]].append(("makes", key))
        for use in edge.uses:
            if use.group >= 0:
                around[use.group].append(("reads", key))
    for loss in unit.losses:
        upstream = tuple(sorted(rank[c] for c in loss.upstream))
        told = (loss.elements, loss.own, loss.constant, loss.unavoidable, upstream)
        for c in loss.upstream:
            around[c].append(("loses", told))
    return _ranked({c: (rank[c], tuple(sorted(around[c]))) for c in unit.classes})


def _ranked(keys: Mapping[int, Key]) -> dict[int, int]:
    numbers = {key: i for i, key in enumerate(sorted(set(keys.values())))}
    return {c: numbers[key] for c, key in keys.items()}


@lru_cache(maxsize=1 << 12)
def _written(kind: Storage | Uniform | PortType | None) -> str:
    return str(kind)

"""Canonical order: classes by depth, then by their own content and their neighbours', listing order last.

Equal prices must not depend on how a model lists or names its kernels. Colours are refined as in
Weisfeiler and Leman's test. Source: docs/specification.md, section 5, the price, item 6.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from planner.ir.types.qtypes import Storage, Uniform
from planner.propagation.solver.classes import LabelClass, Offered
from planner.propagation.solver.components import Edge, Unit, Use
from planner.propagation.solver.ways import Loss, Way
from planner.target.ports.labels import Label
from planner.target.records import PortType

ROUNDS: Final = 8

Key = tuple[Any, ...]


def in_canonical_order(unit: Unit, classes: Sequence[LabelClass], offered: Offered) -> None:
    """Sort a unit's classes, components, edges and losses in place."""
    # Start from what a class is by itself, then refine by what is around it until nothing splits further.
    rank = _ranked({c: _content(classes[c], offered[c]) for c in unit.classes})
    count = max(rank.values()) + 1
    for _ in range(ROUNDS if count < len(rank) else 0):
        finer = _refined(unit, rank)
        before, count = count, max(finer.values()) + 1
        if count == before:
            break
        rank = finer
    # Classes of one colour are most likely symmetric; then listing order changes names only.
    unit.classes.sort(key=lambda c: (rank[c], c))
    place = {c: i for i, c in enumerate(unit.classes)}
    unit.components.sort(key=lambda part: min(place[c] for c in part.classes))
    for edge in unit.edges:
        if len(edge.uses) > 1:
            edge.uses.sort(key=lambda use: _use_key(use, place))
    unit.edges.sort(key=lambda edge: _edge_key(edge, place))
    _sort_ways(unit, place)
    for loss in unit.losses:
        loss.upstream = tuple(sorted(loss.upstream, key=place.__getitem__))
    unit.losses.sort(key=lambda loss: _loss_key(loss, place))


def _sort_ways(unit: Unit, place: dict[int, int]) -> None:
    """Sort ways by their height, so that each stays behind what it is made of, then by their members."""
    heights: dict[int, int] = {}
    levels: list[list[int]] = []
    for number, (members, _) in unit.ways.items():
        heights[number] = height = 1 + max((heights[member] for member in members if member < 0), default=-1)
        levels.extend([] for _ in range(height + 1 - len(levels)))
        levels[height].append(number)
    found: dict[int, Way] = {}
    for level in levels:
        for number in level:
            members, constant = unit.ways[number]
            found[number] = Way(tuple(sorted(members, key=place.__getitem__)), constant)
        level.sort(key=lambda number: ([place[member] for member in found[number].members], -number))
        for number in level:
            place[number] = len(place)
    unit.ways = {number: found[number] for level in levels for number in level}


def _use_key(use: Use, place: Mapping[int, int]) -> Key:
    return place.get(use.group, -1), _written(use.store), _written(use.goal), use.trips, use.outer


def _edge_key(edge: Edge, place: Mapping[int, int]) -> Key:
    defined = place[edge.definition[0]] if edge.definition is not None else -1
    uses = tuple(_use_key(use, place) for use in edge.uses)
    return defined, _written(edge.start), edge.elements, uses


def _loss_key(loss: Loss, place: Mapping[int, int]) -> Key:
    upstream = tuple(place[c] for c in loss.upstream)
    return upstream, loss.elements, loss.own, loss.constant, loss.unavoidable


def _content(entry: LabelClass, labels: Sequence[Label | None]) -> Key:
    ports = tuple((port.side, _written(port.spec), entry.required[port.id] or ()) for port in entry.ports)
    return entry.depth, entry.content, ports, tuple(label or () for label in labels)


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
    # Colours of ways go up from their members and down from their readers, as those of classes do.
    made: dict[int, str] = {c: str(number) for c, number in rank.items()}
    for number, (members, constant) in unit.ways.items():
        made[number] = _digest((constant, *sorted(made[member] for member in members)))
    below: dict[int, list[str]] = {way: [] for way in unit.ways}
    for loss in unit.losses:
        upstream = tuple(sorted(made[member] for member in loss.upstream))
        told = (loss.elements, loss.own, loss.constant, loss.unavoidable, upstream)
        for member in loss.upstream:
            if member >= 0:
                around[member].append(("loses", told))
            else:
                below[member].append(repr(told))
    # Digests, as a way stands for a tree: written out, that of a long chain would be quadratic.
    for number, (members, _) in reversed(unit.ways.items()):
        colour = _digest((made[number], *sorted(below[number])))
        for member in members:
            if member >= 0:
                around[member].append(("leads to", (colour,)))
            else:
                below[member].append(colour)
    return _ranked({c: (rank[c], tuple(sorted(around[c]))) for c in unit.classes})


def _digest(parts: Key) -> str:
    return blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _ranked(keys: Mapping[int, Key]) -> dict[int, int]:
    numbers = {key: i for i, key in enumerate(sorted(set(keys.values())))}
    return {c: numbers[key] for c, key in keys.items()}


@lru_cache(maxsize=1 << 12)
def _written(kind: Storage | Uniform | PortType | None) -> str:
    return str(kind)

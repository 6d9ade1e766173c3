"""Canonical order: classes by depth, then by their own content and their neighbours', listing order last.

Equal prices must not depend on how a model lists or names its kernels. Colours are refined as in
Weisfeiler and Leman's test. Source: design 01, section 5, the price, item 6.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from planner.propagation.components import Edge, Loss, Unit, Use
from planner.propagation.labels import LabelClass

ROUNDS: Final = 8


def in_canonical_order(unit: Unit, classes: Sequence[LabelClass]) -> None:
    """Sort a unit's classes, components, edges and losses in place."""
    rank = _ranked({c: _content(classes[c]) for c in unit.classes})
    for _ in range(ROUNDS):
        finer = _refined(unit, rank)
        if len(set(finer.values())) == len(set(rank.values())):
            break
        rank = finer
    unit.classes.sort(key=lambda c: (rank[c], c))
    place = {c: i for i, c in enumerate(unit.classes)}
    unit.components.sort(key=lambda part: min(place[c] for c in part.classes))
    for edge in unit.edges:
        edge.uses.sort(key=lambda use: _use_key(use, place))
    unit.edges.sort(key=lambda edge: _edge_key(edge, place))
    for loss in unit.losses:
        loss.upstream = tuple(sorted(loss.upstream, key=place.__getitem__))
    unit.losses.sort(key=lambda loss: _loss_key(loss, place))


def _use_key(use: Use, place: Mapping[int, int]) -> tuple[Any, ...]:
    return place.get(use.group, -1), str(use.store), str(use.goal), use.trips, use.outer


def _edge_key(edge: Edge, place: Mapping[int, int]) -> tuple[Any, ...]:
    defined = place[edge.definition[0]] if edge.definition is not None else -1
    uses = tuple(_use_key(use, place) for use in edge.uses)
    return defined, str(edge.start), edge.elements, uses


def _loss_key(loss: Loss, place: Mapping[int, int]) -> tuple[Any, ...]:
    upstream = tuple(place[c] for c in loss.upstream)
    return upstream, loss.elements, loss.own, loss.constant, loss.unavoidable


def _content(entry: LabelClass) -> tuple[Any, ...]:
    ports = [(port.side, str(port.spec), port.required or ()) for port in entry.ports]
    return entry.depth, repr((entry.content, ports, entry.labels))


def _refined(unit: Unit, rank: Mapping[int, int]) -> dict[int, int]:
    """Split the ranks by what is around each class: edges and losses, and its part in them."""
    around: dict[int, list[str]] = {c: [] for c in unit.classes}
    for edge in unit.edges:
        store = str(edge.definition[1]) if edge.definition is not None else ""
        defined = rank[edge.definition[0]] if edge.definition is not None else -1
        uses = sorted(_use_key(use, rank) for use in edge.uses)
        text = repr((defined, store, str(edge.start), edge.elements, uses))
        if edge.definition is not None:
            around[edge.definition[0]].append(f"makes {text}")
        for use in edge.uses:
            if use.group >= 0:
                around[use.group].append(f"reads {text}")
    for loss in unit.losses:
        upstream = sorted(rank[c] for c in loss.upstream)
        text = repr((loss.elements, loss.own, loss.constant, loss.unavoidable, upstream))
        for c in loss.upstream:
            around[c].append(f"loses {text}")
    return _ranked({c: (rank[c], tuple(sorted(around[c]))) for c in unit.classes})


def _ranked(keys: Mapping[int, tuple[Any, ...]]) -> dict[int, int]:
    numbers = {key: i for i, key in enumerate(sorted(set(keys.values())))}
    return {c: numbers[key] for c, key in keys.items()}

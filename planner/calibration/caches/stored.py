"""Caches stored in few bits: each pair of `past` and `present` pinned to one type.

The type comes from the range of both, per tensor, or per head from samples. It is a fact on the two values,
so everybody who reads facts knows it: plan, log, checker, exporters. Source: design 01, sections 1 and 5.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias

from planner.calibration.caches.names import Pair, cache_pairs
from planner.errors import AnnotationError
from planner.ir.graph import Graph, Value
from planner.ir.types.qtypes import Calibrated, Storage, Uniform, storage
from planner.ir.types.ranges import uniform_from_range

ByHead: TypeAlias = Callable[[tuple[Pair, ...], Storage], Mapping[Pair, Uniform]]
"""A type of each pair with a scale for each head, made of runs of the model."""


def tie_caches(
    model: Graph,
    stored: str | Storage | None,
    *,
    names: Mapping[str, str] | None = None,
    by_head: ByHead | None = None,
) -> Graph:
    """Give both values of each pair one type, from `by_head` or from the model's ranges.

    Raises:
      AnnotationError: no caches, or a cache without a range.
    """
    pairs = cache_pairs(model, names)
    if not pairs:
        raise AnnotationError(
            f"model {model.name!r} has no caches: no input comes back as an output by its name",
            hint="name them, such as {'past_*': 'present_*'}",
        )
    store = storage(stored) if isinstance(stored, str) else stored
    heads = {} if by_head is None or store is None else by_head(pairs, store)
    values, notes = dict(model.values), list(model.notes)
    for past, present in pairs:
        given = [kind for name in (past, present) if (kind := _pin(values[name])) is not None]
        kind = given[0] if given else heads.get((past, present))
        if kind is None and store is not None:
            kind = _of_ranges(values[past], values[present], store)
        if kind is None:
            continue
        for name in (past, present):
            # Two pins that differ are a conflict, which planning tells with its facts.
            if _pin(values[name]) is None:
                values[name] = replace(values[name], facts=(*values[name].facts, kind))
        notes.append(f"{present!r} comes back as {past!r}: one cache, {kind}")
    return replace(model, values=values, caches=pairs, notes=tuple(notes))


def _pin(value: Value) -> Uniform | None:
    return next((fact for fact in value.facts if isinstance(fact, Uniform)), None)


def _of_ranges(past: Value, present: Value, store: Storage) -> Uniform:
    ranges = [fact for value in (past, present) for fact in value.facts if isinstance(fact, Calibrated)]
    if not ranges:
        raise AnnotationError(
            f"the cache {past.name!r} has no range", hint="calibrate the model, or pin the cache to a type"
        )
    lo, hi = min(min(fact.los) for fact in ranges), max(max(fact.his) for fact in ranges)
    return uniform_from_range(lo, hi, store, expressed=ranges[0].expressed)

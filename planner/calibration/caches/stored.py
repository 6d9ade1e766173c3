"""Caches stored in few bits: each pair of `past` and `present` has one fixed type.

The type comes from the range of both, per tensor; per head where heads have ranges, or from samples. It is a
fact on the two values, so all code that reads facts uses it: plan, log, checker, exporters. Source:
docs/specification.md, sections 1 and 5.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from planner.calibration.caches.names import Pair, cache_pairs
from planner.errors import AnnotationError
from planner.ir.graph import Graph, Value
from planner.ir.types.qtypes import Calibrated, Storage, Uniform, storage, uniform
from planner.ir.types.ranges import affine, uniform_from_range

Ends: TypeAlias = npt.NDArray[Any]
HEADS: Final = 1
"""The dimension of heads in a cache: (batch, heads, rows, head)."""
ByHead: TypeAlias = Callable[[tuple[Pair, ...], Storage], Mapping[Pair, Uniform]]
"""A type of each pair with a scale for each head, made of runs of the model."""


def tie_caches(
    model: Graph,
    stored: str | Storage | None,
    *,
    names: Mapping[str, str] | None = None,
    by_head: ByHead | None = None,
) -> Graph:
    """Give both values of each pair one type, from `by_head` or from ranges, of heads if there are any.

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


def of_heads(los: Ends, his: Ends, store: Storage) -> Uniform:
    """A type with a scale and zero point for each head, from the ranges of heads."""
    grids = [affine(float(lo), float(hi), store) for lo, hi in zip(los, his, strict=True)]
    return uniform(store, [scale for scale, _ in grids], [zero for _, zero in grids], axis=HEADS)


def _pin(value: Value) -> Uniform | None:
    return next((fact for fact in value.facts if isinstance(fact, Uniform)), None)


def _of_ranges(past: Value, present: Value, store: Storage) -> Uniform:
    ranges = [fact for value in (past, present) for fact in value.facts if isinstance(fact, Calibrated)]
    if not ranges:
        raise AnnotationError(
            f"the cache {past.name!r} has no range",
            hint="calibrate the model, or give the cache a fixed type",
        )
    heads = [fact for fact in ranges if fact.axis == HEADS]
    if heads:
        # A range of the whole says nothing of a head, so where heads have ranges they alone count.
        los, his = (np.asarray([getattr(fact, ends) for fact in heads]) for ends in ("los", "his"))
        return of_heads(los.min(axis=0), his.max(axis=0), store)
    lo, hi = min(min(fact.los) for fact in ranges), max(max(fact.his) for fact in ranges)
    return uniform_from_range(lo, hi, store, expressed=ranges[0].expressed)

"""Caches stored in few bits: each pair of `past` and `present` pinned to one type.

The type comes from the range of both, per tensor, or per head from samples. It is a fact on the two values,
so everybody who reads facts knows it: plan, log, checker, exporters. Source: design 01, sections 1 and 5.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from planner.calibration.caches.names import Pair, cache_pairs
from planner.calibration.samples import open_samples
from planner.errors import AnnotationError, SampleError
from planner.interpreter.reference import open_reference
from planner.ir.graph import Graph, Value
from planner.ir.types.qtypes import Calibrated, Storage, Uniform, storage, uniform
from planner.ir.types.ranges import affine, uniform_from_range

HEADS: Final = 1
"""The dimension of heads in a cache: (batch, heads, rows, head)."""

Samples = str | Path | Iterable[Mapping[str, np.ndarray]]


def with_caches(
    model: Graph,
    stored: str | Storage | None = "i8",
    *,
    samples: Samples | None = None,
    names: Mapping[str, str] | None = None,
) -> Graph:
    """The model with a type for each cache: a value that leaves it and comes back in the next run.

    Args:
      model: with ranges (`annotate` with statistics).
      stored: storage of the caches; None: their types are facts already, of one of a pair or of both.
      samples: one type per head, from the ranges of these; by default one per tensor, from the model's.
      names: of inputs to names of outputs, `*` for the same text in both (`{"past.*": "present.*"}`); by
        default as exporters name them (`caches.names.CONVENTIONS`).

    Returns:
      The model with `Graph.caches`, both values of a pair pinned to one type.

    Raises:
      AnnotationError: no caches, a cache without a range, or without a fixed number of heads.
    """
    pairs = cache_pairs(model, names)
    if not pairs:
        raise AnnotationError(
            f"model {model.name!r} has no caches: no input comes back as an output by its name",
            hint="name them, such as {'past_*': 'present_*'}",
        )
    store = storage(stored) if isinstance(stored, str) else stored
    by_head = {} if samples is None or store is None else _by_head(model, pairs, store, samples)
    values, notes = dict(model.values), list(model.notes)
    for past, present in pairs:
        given = [kind for name in (past, present) if (kind := _pin(values[name])) is not None]
        kind = given[0] if given else by_head.get((past, present))
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


def _by_head(model: Graph, pairs: tuple[Pair, ...], store: Storage, samples: Samples) -> dict[Pair, Uniform]:
    """A type of each pair, one scale and zero point a head, from what samples put in and get out."""
    for pair in pairs:
        shape = model.values[pair[0]].shape or ()
        if len(shape) <= HEADS or not isinstance(shape[HEADS], int):
            raise AnnotationError(f"the cache {pair[0]!r} of shape {shape} has no fixed number of heads")
    run = open_reference(model)
    ends: dict[Pair, tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]] = {}
    for feed in open_samples(samples, model).feeds:
        found = run(feed.name, feed.arrays, tuple(present for _, present in pairs))
        for pair in pairs:
            # What comes out holds what came in, and the new rows.
            for array in (feed.arrays[pair[0]], found[pair[1]]):
                _widen(ends, pair, array)
    if not ends:
        raise SampleError("no samples to see the ranges of heads in")
    return {pair: _of_heads(*ends[pair], store) for pair in pairs}


def _widen(ends: dict[Pair, tuple[Any, Any]], pair: Pair, array: np.ndarray[Any, Any]) -> None:
    axes = tuple(axis for axis in range(array.ndim) if axis != HEADS)
    lo, hi = array.min(axis=axes, initial=0.0), array.max(axis=axes, initial=0.0)
    known = ends.get(pair, (lo, hi))
    ends[pair] = np.minimum(known[0], lo), np.maximum(known[1], hi)


def _of_heads(los: np.ndarray[Any, Any], his: np.ndarray[Any, Any], store: Storage) -> Uniform:
    grids = [affine(float(lo), float(hi), store) for lo, hi in zip(los, his, strict=True)]
    return uniform(store, [scale for scale, _ in grids], [zero for _, zero in grids], axis=HEADS)

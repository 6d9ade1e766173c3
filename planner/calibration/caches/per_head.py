"""Caches of a model in few bits: the public function, and types per head from runs of the model.

`stored` ties the two ends; it reads no model files, so that the service can annotate without importing any
format.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from planner.calibration.caches.names import Pair
from planner.calibration.caches.stored import HEADS, of_heads, tie_caches
from planner.calibration.samples import open_samples
from planner.errors import AnnotationError, SampleError
from planner.interpreter.reference import open_reference
from planner.ir.graph import Graph
from planner.ir.types.qtypes import Storage, Uniform

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
        default as exporters name them: `past_key_values.*` with `present.*` or `present_key_values.*`,
        `past_*` with `present_*`, `past.*` with `present.*`.

    Returns:
      The model with `Graph.caches`, both values of a pair with one fixed type.

    Raises:
      AnnotationError: no caches, a cache without a range, or without a fixed number of heads.
    """
    by_head = None if samples is None else partial(_by_head, model, samples)
    return tie_caches(model, stored, names=names, by_head=by_head)


def _by_head(model: Graph, samples: Samples, pairs: tuple[Pair, ...], store: Storage) -> dict[Pair, Uniform]:
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
    return {pair: of_heads(*ends[pair], store) for pair in pairs}


def _widen(ends: dict[Pair, tuple[Any, Any]], pair: Pair, array: np.ndarray[Any, Any]) -> None:
    axes = tuple(axis for axis in range(array.ndim) if axis != HEADS)
    lo, hi = array.min(axis=axes, initial=0.0), array.max(axis=axes, initial=0.0)
    known = ends.get(pair, (lo, hi))
    ends[pair] = np.minimum(known[0], lo), np.maximum(known[1], hi)

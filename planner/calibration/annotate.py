"""Annotating: calibrated ranges and the user's constraints onto a Graph's values and ports.

A fact replaces an earlier one, except that a calibrated range stays until another comes.
Source: docs/specification.md, sections 1 and 2; docs/library.md.
"""

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from planner.calibration.annotations import Annotation, Annotations, CacheAnnotation, read_annotations
from planner.calibration.as_written import left_float
from planner.calibration.caches.stored import tie_caches
from planner.calibration.rows_seen import APART, reaching_softmax
from planner.calibration.sizes_seen import NO_RANK, SizesSeen
from planner.calibration.sources.encodings import as_annotations
from planner.calibration.statistics import (
    Statistics,
    ValueStats,
    calibration_digest,
    range_of,
    width_ranges,
)
from planner.calibration.statsjson import load_statistics
from planner.errors import AnnotationError, StatsError, nearest_names
from planner.factors.facts import scaled
from planner.ir.dims import COUNTED, named_sizes, odd_sizes, open_sizes, seen_text
from planner.ir.graph import Facts, Graph, Region, Value
from planner.ir.kernel_requests import names_kernels, refuse_unknown, with_wanted, without_wanted
from planner.ir.operators.movement import INFINITE
from planner.ir.structure import with_runs
from planner.ir.types.fit import misfit
from planner.ir.types.qtypes import EXPRESSED, AnyType, Calibrated, FloatType, NoneType, QType, RowMax
from planner.ir.types.scales import FORMATS
from planner.target.records import Target

_PORT: Final = re.compile(r"(.+)\.(in|out)\[(\d{1,9})\]")
GLOB_SIGNS: Final = frozenset("*?[")
_NOTED: Final = 5
_WIDE: Final = ("f64", "f80")
_F32_MAX: Final = FORMATS["f32"].most


def annotate(
    graph: Graph,
    *,
    stats: Statistics | str | Path | None = None,
    annotations: str | Path | Mapping[str, Any] | None = None,
    kernels: Mapping[str, Any] | None = None,
    target: Target | None = None,
) -> Graph:
    """Return the graph with facts on its values, statistics first, then annotations.

    Args:
      stats: from `calibrate`, or a file of them; they become calibrated ranges.
      annotations: a path, YAML text, the document itself, or encodings of AIMET or QNN. A name decides over
        a glob, a later glob over an earlier one; `remove` comes first and leaves calibrated ranges alone.
      kernels: requests for kernels, as the section `kernels` of annotations has them; after those.
      target: that the model is planned for. If its kernels hand on floats, inputs and outputs that a
        quantized model leaves float get no range, so they stay as written unless an annotation says more.

    Raises:
      StatsError: statistics of a value that is not there or cannot have them.
      AnnotationError: a name, glob or port that matches nothing, or a type that does not fit its tensor.
    """
    asked = None if annotations is None else read_annotations(as_annotations(annotations, graph))
    if stats is not None:
        read = stats if isinstance(stats, Statistics) else load_statistics(stats)
        left = _left_float(graph, asked, kernels or {}) if target is not None and _hands_on(target) else ()
        graph = _with_statistics(graph, read, left)
    if asked is not None:
        graph = _with_annotations(graph, asked)
    return graph if kernels is None else with_wanted(graph, kernels)


def annotated_values(
    graph: Graph, annotations: str | Path | Mapping[str, Any] | None = None
) -> frozenset[str]:
    """Names of the values that annotations say something of, ranges too."""
    if annotations is None:
        return frozenset()
    return frozenset(_assigned(graph, read_annotations(as_annotations(annotations, graph)).values))


def _hands_on(target: Target) -> bool:
    return any(row.hands_on_floats and not row.reads_table for rows in target.rows.values() for row in rows)


def _left_float(graph: Graph, annotations: Annotations | None, kernels: Mapping[str, Any]) -> frozenset[str]:
    """Values that a quantized model leaves float and that have no annotation."""
    ends = left_float(graph)
    if not ends:
        return frozenset()
    asked = [*kernels]
    if annotations is not None:
        asked += [_PORT.sub(r"\1", entry.key) for entry in (*annotations.values, *annotations.ports)]
        asked += [entry.key for entry in annotations.kernels]
    named = {
        name for op in graph.ops if any(fnmatchcase(op.name, key) for key in asked) for name in op.outputs
    }
    named |= {name for end in ends for name in end if any(fnmatchcase(name, key) for key in asked)}
    return frozenset().union(*(end for end in ends if not end & named))


def _with_statistics(graph: Graph, stats: Statistics, left: Collection[str]) -> Graph:
    values, graph = dict(graph.values), _noted(graph, left)
    masked = reaching_softmax(graph) if any(seen.below for seen in stats.values.values()) else frozenset()
    for given, seen in stats.values.items():
        name, factor = graph.scaled.get(given, (given, 1.0))
        # Of the numbers that a value has now the statistics may tell, too.
        if given in left or (name != given and (name in stats.values or math.isnan(factor))):
            continue
        value = graph.values.get(name)
        if value is None:
            hint = _nearest(name, graph.values)
            raise StatsError(f"statistics of {name!r}, which is no value of model {graph.name!r}", hint=hint)
        los, his = range_of(seen, stats.method)
        expressed = value.dtype if value.dtype in EXPRESSED else "f32"
        widest = max(map(abs, (*los, *his)), default=0.0)
        if expressed not in _WIDE and widest > _F32_MAX:
            raise StatsError(f"statistics of {name!r}: {widest!r} is beyond f32; accepted: up to {_F32_MAX}")
        widths = width_ranges(seen, stats.method)
        if seen.below and name in masked:
            # Minus infinity masks: as far as a mask goes, of which the softmax needs a part.
            los, widths = tuple(-INFINITE for _ in los), ()
        fact = Calibrated(
            los, his, expressed, seen.axis, _row_max(seen, value), seen.two_values, widths, seen.readers
        )
        problem = misfit(fact, value)
        if problem:
            raise StatsError(f"statistics of {name!r}: {problem}")
        fact = scaled(fact, factor) or fact
        others = tuple(old for old in value.facts if not isinstance(old, Calibrated))
        values[name] = replace(value, facts=(*others, fact))
    for name, sizes in stats.sizes.items():
        if name in values and values[name].is_open:
            values[name] = _with_sizes(values[name], sizes)
    if stats.sizes:
        values = named_sizes(values, graph.inputs)
    scopes = with_runs(graph.scopes, stats.trips)
    found = replace(graph, values=values, scopes=scopes)
    # A batch of one weighs as it does where nobody looked.
    weighs = any(size != 1 for name in graph.inputs for size in open_sizes(values[name]))
    sized = (f"{COUNTED}: {seen_text(found)}",) if weighs else ()
    notes = (note for note in graph.notes if not note.startswith(COUNTED))
    return replace(found, notes=(*notes, *sized, *_notes(graph, stats, masked)))


def _with_sizes(value: Value, seen: SizesSeen) -> Value:
    """The value with the sizes that samples showed; without any where these do not fit its shape."""
    found = replace(value, seen=seen.sizes, varies=seen.varies)
    return replace(value, seen=None, varies=()) if odd_sizes(found) or seen == NO_RANK else found


def _noted(graph: Graph, left: Collection[str]) -> Graph:
    """The graph with a note about inputs and outputs that keep float."""
    ends = [repr(name) for name in (*graph.inputs, *graph.outputs) if name in left]
    if not ends:
        return graph
    note = (
        f"the model's quantizers leave {', '.join(ends[:_NOTED])} float, so calibration quantizes nothing "
        'there (annotate "!quant.any<i8>" to have it)'
    )
    return replace(graph, notes=(*graph.notes, note))


def _row_max(seen: ValueStats, value: Value) -> tuple[RowMax, ...]:
    """Row maxima with the entries of a row where the value's shape leaves them open."""
    shape = value.shape or ()
    known = (rows for rows in seen.rows if rows.axis < len(shape))
    lengths = ((rows, isinstance(shape[rows.axis], int)) for rows in known)
    return tuple(RowMax(rows.axis, rows.least, None if fixed else rows.entries) for rows, fixed in lengths)


def mismatch(graph: Graph, stats: Statistics) -> str:
    """The warning for statistics that were taken of another model; "" where they were not."""
    digest = calibration_digest(graph)
    # With absorbed factors it is another graph of the same model.
    if stats.model == digest or graph.scaled:
        return ""
    return f"the statistics were taken of another model ({stats.model[:19]}, this is {digest[:19]})"


def _notes(graph: Graph, stats: Statistics, masked: Collection[str]) -> Iterable[str]:
    if text := mismatch(graph, stats):
        yield text
    odd = []
    for name, seen in stats.values.items():
        is_mask = seen.below and name in masked
        if count := seen.nan if is_mask else seen.nan + seen.inf:
            odd.append((name, count))
    if odd:
        shown = ", ".join(f"{name!r} ({count})" for name, count in odd[:_NOTED])
        more = ", ..." if len(odd) > _NOTED else ""
        yield f"calibration skipped NaN and infinite elements of {len(odd)} values: {shown}{more}"
    for name, seen in stats.values.items():
        for rows in seen.rows:
            if rows.apart:
                yield (
                    f"{rows.apart} rows of {name!r} lie more than {APART:g} below the others, in "
                    f"sample {rows.sample!r}: left out of the range of its softmax; are they padding?"
                )


def _with_annotations(graph: Graph, annotations: Annotations) -> Graph:
    values = dict(graph.values)
    regions = list(graph.regions)
    for entry in annotations.remove:
        if entry.key not in values and _PORT.fullmatch(entry.key):
            _set_port(graph, regions, entry)
            continue
        if names_kernels(graph, entry.key):
            graph = without_wanted(graph, entry.key)
            if not _names_values(graph, entry.key):
                continue
        for name in _matches(graph, entry):
            kept = tuple(fact for fact in values[name].facts if isinstance(fact, Calibrated))
            values[name] = replace(values[name], facts=kept)
    for name, entry in _assigned(graph, annotations.values).items():
        _check(entry, graph, name)
        values[name] = replace(values[name], facts=_joined(values[name].facts, entry.facts))
    for entry in annotations.ports:
        _set_port(graph, regions, entry)
    for asked in annotations.kernels:
        try:
            refuse_unknown(graph, asked.key)
        except AnnotationError as error:
            raise AnnotationError(f"{asked.place}: {error.message}", hint=error.hint) from None
    graph = with_wanted(graph, {asked.key: asked.wanted for asked in annotations.kernels})
    found = replace(graph, values=values, regions=tuple(regions))
    return found if annotations.caches is None else _with_caches(found, annotations.caches)


def _with_caches(graph: Graph, asked: CacheAnnotation) -> Graph:
    try:
        return tie_caches(graph, asked.stored, names=asked.names)
    except AnnotationError as error:
        raise AnnotationError(f"{asked.place}: {error.message}", hint=error.hint) from None


def _assigned(graph: Graph, entries: Iterable[Annotation]) -> dict[str, Annotation]:
    """The one annotation of each value: exact names after globs, so that they decide."""
    chosen: dict[str, Annotation] = {}
    for entry in sorted(entries, key=lambda entry: entry.key in graph.values):
        chosen.update(dict.fromkeys(_matches(graph, entry), entry))
    return chosen


def _names_values(graph: Graph, key: str) -> bool:
    return key in graph.values or any(fnmatchcase(name, key) for name in graph.values)


def _matches(graph: Graph, entry: Annotation) -> list[str]:
    """Values that an entry names: that one, or the float values that fit a glob."""
    if entry.key in graph.values:
        return [entry.key]
    if not GLOB_SIGNS.isdisjoint(entry.key):
        found = [n for n, value in graph.values.items() if value.is_float and fnmatchcase(n, entry.key)]
        if found:
            return found
        raise AnnotationError(
            f"{entry.place}: glob {entry.key!r} matches no float value of model {graph.name!r}",
            hint=_nearest(entry.key, graph.values),
        )
    if entry.key in graph.scaled:
        name, factor = graph.scaled[entry.key]
        if all(map(_says_no_numbers, entry.facts)):
            return [name]
        numbers = "" if factor == 1 or math.isnan(factor) else f", times {factor:g}"
        raise AnnotationError(
            f"{entry.place}: {entry.key!r} is {name!r}{numbers} since a factor was absorbed",
            hint=f"annotate {name!r}, or {entry.key!r} before or together with the statistics",
        )
    raise AnnotationError(
        f"{entry.place}: {entry.key!r} is no value of model {graph.name!r}",
        hint=_nearest(entry.key, graph.values),
    )


def _says_no_numbers(fact: QType) -> bool:
    """Whether a fact holds of a value whatever it is multiplied with."""
    return isinstance(fact, NoneType | FloatType) or (isinstance(fact, AnyType) and fact.trained is None)


def _joined(old: Facts, new: Facts) -> Facts:
    if any(isinstance(fact, Calibrated) for fact in new):
        return new
    return (*new, *(fact for fact in old if isinstance(fact, Calibrated)))


def _check(entry: Annotation, graph: Graph, name: str) -> None:
    for fact in entry.facts:
        problem = misfit(fact, graph.values[name])
        if problem:
            raise AnnotationError(f"{entry.place}: {problem}")


def _set_port(graph: Graph, regions: list[Region], entry: Annotation) -> None:
    """Replace the facts of the port an entry addresses, in place in `regions`."""
    match = _PORT.fullmatch(entry.key)
    if match is None:
        raise AnnotationError(f"{entry.place}: {entry.key!r} is no port", hint="a port reads conv1.in[0]")
    kernel, side, index = match[1], match[2], int(match[3])
    if not regions:
        raise AnnotationError(
            f"{entry.place}: model {graph.name!r} has no kernels yet, so no port {entry.key!r}",
            hint=_value_hint(graph, kernel, side, index),
        )
    at = next((k for k, region in enumerate(regions) if region.name == kernel), None)
    if at is None:
        hint = _nearest(kernel, [region.name for region in regions])
        raise AnnotationError(f"{entry.place}: {kernel!r} is no kernel of model {graph.name!r}", hint=hint)
    region = regions[at]
    ports = region.inputs if side == "in" else region.outputs
    if index >= len(ports) or not ports[index]:
        has = ", ".join(f"{side}[{k}]" for k, name in enumerate(ports) if name) or "none"
        raise AnnotationError(
            f"{entry.place}: kernel {kernel!r} has no port {side}[{index}]", hint=f"it has {has}"
        )
    _check(entry, graph, ports[index])
    facts = list(_port_facts(region, side) or ((),) * len(ports))
    facts[index] = entry.facts
    changed = tuple(facts) if any(facts) else ()
    if side == "in":
        regions[at] = replace(region, input_facts=changed)
    else:
        regions[at] = replace(region, output_facts=changed)


def _port_facts(region: Region, side: str) -> tuple[tuple[QType, ...], ...]:
    return region.input_facts if side == "in" else region.output_facts


def _value_hint(graph: Graph, kernel: str, side: str, index: int) -> str:
    for op in graph.ops:
        ports = op.inputs if side == "in" else op.outputs
        if op.name == kernel and index < len(ports) and ports[index]:
            return f"annotate the value {ports[index]!r} instead"
    return "annotate the value instead"


def _nearest(name: str, known: Collection[str]) -> str:
    near = nearest_names(name, known)
    if near:
        return "did you mean " + " or ".join(repr(item) for item in near) + "?"
    shown = ", ".join(repr(item) for item in sorted(known)[:8])
    return f"known: {shown}{', ...' if len(known) > 8 else ''}" if known else "there are none"

"""Requested rows: whether a row is the one requested of its kernel, and the conflict where none is.

A request is for the storages of results that a row computes, or has as written; a data-movement wildcard's
storage is its neighbours' matter. Source: docs/specification.md, section 11.
"""

from collections.abc import Iterator
from typing import Final

from planner.ir.graph import Facts, Graph, Region
from planner.ir.kernel_requests import Asked
from planner.ir.types.qtypes import AnyType, FloatType, Storage, Uniform
from planner.ir.types.wanted import Stored, Wanted, is_stored_in, row_text
from planner.propagation.selection.row_layout import Layout, moves_data
from planner.target.borders import rows_for
from planner.target.records import PortId, PortPattern, Row, Target

ANNOTATED: Final = "annotated: float"
"""The reason of a kernel that has to run in float by request."""
MOST_ROWS: Final = 8


def has_wanted(graph: Graph, region: Region, row: Row, layout: Layout, wanted: Wanted) -> bool:
    """Whether a row has the storages that are asked of its kernel, or quantizes at run time as is asked.

    Floats as results alone mean no row on request that quantizes at run time: others hand them on too.
    """
    if wanted.dynamic:
        return row.is_dynamic_at_will
    if row.is_on_request and row.dynamic is not None and wanted.result is not None:
        return False
    computes = not moves_data(graph, region, row, layout)
    sides = tuple(_wishes(region, row, layout, wanted))
    for side, pattern, asked in sides:
        store = None if pattern is None else pattern.type.storage or _joined(layout, side)
        if store is not None and not is_stored_in(asked, store):
            return False
        if pattern is None or (
            store is None and not _wildcard_takes(graph, region, side, asked, computes=computes)
        ):
            return False
    return bool(sides)


def _wishes(
    region: Region, row: Row, layout: Layout, wanted: Wanted
) -> Iterator[tuple[PortId, PortPattern | None, Stored]]:
    """Each port that something is asked of, with the row's entry; None where the row has no such port."""
    if wanted.result is not None:
        for i, name in enumerate(region.outputs):
            if name:
                yield ("out", i), layout.outputs[i], wanted.result
        return
    for i, store in enumerate(wanted.inputs):
        # A bias may be asked for where the kernel has none: the row is the same.
        known = (*layout.inputs, *row.inputs[len(layout.inputs) :])
        yield ("in", i), known[i] if i < len(known) else None, store
    for i, store in enumerate(wanted.outputs):
        known = (*layout.outputs, *row.outputs[len(layout.outputs) :])
        yield ("out", i), known[i] if i < len(known) else None, store


def _wildcard_takes(graph: Graph, region: Region, side: PortId, asked: Stored, *, computes: bool) -> bool:
    """Whether a wildcard can be stored as asked: one of a kernel that computes, if no fact says otherwise."""
    if asked is None:
        return True
    return (
        computes
        and isinstance(asked, Storage)
        and all(_leaves(fact, asked) for fact in _facts(graph, region, side))
    )


def _joined(layout: Layout, side: PortId) -> Stored:
    """The storage of a wildcard because a port of its scale is written so."""
    group = next((group for group in layout.groups if side in group), ())
    return next((spec.storage for other, spec in layout.specs if other in group and spec.storage), None)


def _facts(graph: Graph, region: Region, side: PortId) -> tuple[tuple[object, bool], ...]:
    """Facts at a port, each with whether it is the port's own."""
    names, own = (
        (region.inputs, region.input_facts) if side[0] == "in" else (region.outputs, region.output_facts)
    )
    if side[1] >= len(names) or not names[side[1]]:
        return ()
    given: Facts = own[side[1]] if own else ()
    return (
        *((fact, False) for fact in graph.values[names[side[1]]].facts),
        *((fact, True) for fact in given),
    )


def _leaves(told: tuple[object, bool], wanted: Storage) -> bool:
    """Whether a wildcard with this fact can still be stored as asked."""
    fact, own = told
    if isinstance(fact, AnyType):
        return fact.bits <= wanted.range_bits
    return not (own and isinstance(fact, Uniform)) or fact.storage == wanted


def list_rows(target: Target, kernel: str) -> str:
    """The storages of all rows of a kernel, as they can be requested."""
    rows = [row for row in rows_for(target, kernel) if row.dynamic is None or row.is_dynamic_at_will]
    texts = dict.fromkeys(f"{row_text(_stores(row, row.inputs), _stores(row, row.outputs))}" for row in rows)
    shown = list(texts)[:MOST_ROWS]
    more = f" and {len(texts) - MOST_ROWS} more" if len(texts) > MOST_ROWS else ""
    return f"{target.id} has {', '.join(shown)}{more}" if shown else f"{target.id} has no row for {kernel}"


def _stores(row: Row, patterns: tuple[PortPattern, ...]) -> tuple[Stored, ...]:
    return tuple(FloatType(row.float) if row.float else pattern.type.storage for pattern in patterns)


def asked_text(name: str, asked: Asked) -> str:
    """`kernel 'conv1': i16`, with the key it was asked under where that is another."""
    return f"kernel {name!r}: {asked.wanted}" + ("" if asked.key == name else f", by {asked.key!r}")

"""Demotions: kernels with a row that cannot keep it, each with the choice in its place, by number.

That is float, or a row with float results. Each function looks at one network; `decide` asks them in turn.
Source: docs/specification.md, sections 4 and 11.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np

from planner.ir.borders import carried_pairs
from planner.ir.graph import Graph, Region
from planner.ir.operators.movement import FAR, INFINITE
from planner.plans.records import BETWEEN_FLOATS
from planner.propagation.network.constant_ranges import oddity
from planner.propagation.network.float_islands import (
    ISLAND,
    float_islands,
    integer_islands,
)
from planner.propagation.network.float_results import read_in_float
from planner.propagation.network.ports import Ranged
from planner.propagation.selection.choice import NO_RANGE, Choice, in_float
from planner.propagation.selection.chosen import Chosen
from planner.propagation.selection.remedies import Left
from planner.propagation.selection.row_layout import moves_data
from planner.propagation.selection.rows import choose_rows, rows_with_float_results
from planner.propagation.selection.too_little import with_wanted_db
from planner.target.borders import rows_for

Moves: TypeAlias = Mapping[int, Choice]
UNBOUNDED: Final = "is infinite where it masks, and a consumer needs all of it"


def for_no_range(graph: Graph, choices: Sequence[Choice], rangeless: Collection[int]) -> Moves:
    """These kernels in float: a port of theirs has no range, or a constant has numbers without one."""
    return {
        i: in_float(choices[i], odd_constant(graph, choices[i].region) or NO_RANGE) for i in sorted(rangeless)
    }


def without_range(ranged: Ranged) -> Moves:
    """Kernels with a port without a range."""
    return for_no_range(ranged.chosen.graph, ranged.chosen.choices, ranged.rangeless)


def unranged_results(ranged: Ranged) -> Moves:
    """Kernels in float whose results alone lack a range: handed on in float, they need none."""
    chosen = ranged.chosen
    return with_float_results(chosen, read_in_float(ranged, unranged=True) - chosen.returned)


def at_run_time(ranged: Ranged) -> Moves:
    """Kernels without a range, where facts ask for bits and a row finds the range while the kernel runs."""
    chosen = ranged.chosen
    waiting: dict[int, Region] = {}
    left: dict[str, Mapping[str, Left]] = {}
    for i, one in enumerate(chosen.choices):
        region = one.region
        rows = rows_for(chosen.target, region.kernel) if one.reason == NO_RANGE else ()
        # Others have been chosen already: they need no range.
        others = [row for row in rows if row.dynamic is None or row.is_dynamic_at_will]
        if len(others) < len(rows):
            known = chosen.remedies.left.get(region.name, {})
            waiting[i], left[region.name] = region, {**{row.key: Left(NO_RANGE) for row in others}, **known}
    if not waiting:
        return {}
    target = with_wanted_db(chosen.target, chosen.request.costs)
    found = choose_rows(chosen.graph, waiting.values(), target, left)
    return {i: choice for i, choice in zip(waiting, found, strict=True) if choice.row is not None}


def stored_results(ranged: Ranged) -> Moves:
    """Those of them whose results something stores: another of them may read, and so store, them."""
    chosen = ranged.chosen
    if not chosen.returned:
        return {}
    read = read_in_float(ranged)
    gone = chosen.returned - read
    stored = [
        i
        for i, one in enumerate(chosen.choices)
        if one.row and one.row.dynamic is None and one.region.name in gone
    ]
    return for_no_range(chosen.graph, chosen.choices, stored)


def islands(ranged: Ranged) -> Moves:
    """Kernels without multiply-adds between float kernels, where the target has these in float."""
    found = integer_islands(ranged) if ranged.chosen.target.islands == "float" else ()
    return {i: in_float(ranged.chosen.choices[i], ISLAND) for i in found}


def between_floats(ranged: Ranged) -> Moves:
    """Data-movement kernels of several classes between float kernels."""
    found = float_islands(ranged)
    return {i: in_float(ranged.chosen.choices[i], BETWEEN_FLOATS) for i in found}


def infinite(ranged: Ranged) -> Moves:
    """Kernels that need all of infinities, of a constant or of a mask that is computed."""
    graph, choices = ranged.chosen.graph, ranged.chosen.choices
    return {
        i: in_float(choices[i], odd_constant(graph, choices[i].region) or f"{name!r} {UNBOUNDED}")
        for i, name in sorted(_unbounded(ranged).items())
    }


def read_by_floats(ranged: Ranged) -> Moves:
    """Kernels whose results nothing stores: a row with float results rounds them once less."""
    return with_float_results(ranged.chosen, read_in_float(ranged))


def with_float_results(chosen: Chosen, names: Collection[str]) -> Moves:
    """Rows with float results for the kernels of these names, where such a row serves and they have none."""
    waiting = {
        i: one
        for i, one in enumerate(chosen.choices)
        if one.region.name in names and not (one.layout is not None and one.layout.hands_on_floats)
    }
    if not waiting:
        return {}
    regions = [one.region for one in waiting.values()]
    target = with_wanted_db(chosen.target, chosen.request.costs)
    found = rows_with_float_results(chosen.graph, regions, target, chosen.remedies.left)
    return {i: found[one.region.name] for i, one in waiting.items() if one.region.name in found}


def out_of_reach(graph: Graph, choices: Sequence[Choice]) -> list[int]:
    """Kernels with a row that no range reaches, such as branches that never ran; found before the network is.

    No fact gives a range for their values, and nothing else is moved there. `find_ranges` finds these kernels
    too, and those that need a closer look: loops, types that rows fix, facts of ports.
    """
    blank = {name for name, value in graph.values.items() if not value.facts and value.is_float}
    blank -= graph.constants.keys()
    out = {name for name in blank.intersection(graph.inputs) if 0 not in (graph.values[name].shape or ())}
    carried = {name for pair in carried_pairs(graph) for name in pair} if blank else set()
    found = []
    for number, choice in enumerate(choices if blank else ()):
        region, layout = choice.region, choice.layout
        if blank.isdisjoint(region.outputs) and out.isdisjoint(region.inputs):
            continue
        if region.name in carried or region.input_facts or region.output_facts:
            continue
        if layout is not None and (layout.fixing or layout.calls):
            continue
        if not moves_data(graph, *choice[:3]) or out.issuperset(filter(None, region.inputs)):
            out |= blank.intersection(region.outputs)
        if layout is not None and not out.isdisjoint(layout.ranged_values(region, graph)):
            found.append(number)
    return found


def _unbounded(network: Ranged) -> dict[int, str]:
    """Return kernels with a row that need all of infinities, a constant's or a mask's, and the value."""
    found = dict[int, str]()
    for port, extent in zip(network.ports, network.required, strict=True):
        if extent is None or port.value in network.saturated:
            continue
        value = network.values[port.value]
        array = network.graph.constants[value.name].array if value.constant else None
        is_mask = FAR in (-extent[0], extent[1]) and array is not None and bool(np.isinf(array).any())
        if is_mask or -extent[0] == INFINITE:
            found.setdefault(port.kernel, value.name)
    return {k: name for k, name in found.items() if network.kernels[k].choice.row is not None}


def odd_constant(graph: Graph, region: Region) -> str:
    """Describe the NaN or infinite numbers of the first constant of a kernel that has any; "" for none."""
    found = (oddity(name, graph.constants[name]) for name in region.inputs if name in graph.constants)
    return next(filter(None, found), "")

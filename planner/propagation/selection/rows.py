"""Row selection: which row of the target's table serves each kernel, or why none does.

Rows are chosen by preference, not by price: `when`, None, Any and fixed types of constants rule rows out; of
the rest those that were requested of the kernel, of these those that can hold what facts say of ranges, of
these the one whose storages equal the most fixed types, then the one that takes the most of these at their
scales and zero points, then those that leave enough dB at the consumers (`too_little`), then file order. The
choice for one kernel looks at no other kernel, so it cannot depend on a visiting order. Rows with float
results are the exception: they come last, and are preferred once it is known that nothing stores what they
hand on (`network.float_results`). Rows that differ in signs alone are another (`signs`).
Source: docs/specification.md, sections 4 and 11.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from planner.errors import Conflict, quantity
from planner.ir.graph import Graph, Region
from planner.ir.kernel_requests import Asked, asked_of
from planner.ir.operators.standard_op import misses_its_name
from planner.ir.roles import function_of_one, is_product_of_rows, moves_alone
from planner.ir.types.qtypes import Calibrated, FloatType, Storage, Uniform
from planner.ir.types.wanted import Wanted
from planner.ir.unknowns import reason_of_unknown
from planner.propagation.selection.choice import (
    Choice,
    binding_facts,
    in_float,
    port_facts,
    shared_storage,
    sides_of,
)
from planner.propagation.selection.conflicts import Concession
from planner.propagation.selection.reach import holds, known_range
from planner.propagation.selection.refusals import (
    NOT_ASKED,
    refused_by_blocks,
    refused_by_facts,
    refused_by_when,
)
from planner.propagation.selection.remedies import Left
from planner.propagation.selection.row_layout import Layout, Layouts, layouts_of
from planner.propagation.selection.too_little import TOO_LITTLE, Short, shortfall
from planner.propagation.selection.wanted_rows import (
    ANNOTATED,
    asked_text,
    has_wanted,
    list_rows,
)
from planner.target.borders import rows_for
from planner.target.ports.accepts import parameter_problem
from planner.target.ports.axes import too_dense
from planner.target.records import Target

NO_ROWS: Final = (
    "at run time it quantizes an activation as it lies, times a constant weight, with explicit pads; per "
    "token, of matrices"
)
NO_FUNCTION: Final = "its table serves functions of one tensor, number by number"
OTHER_AXES: Final = "its ops are no operator of that name: other axes, or no gain of the last one"


def choose_rows(
    graph: Graph,
    regions: Iterable[Region],
    target: Target,
    left: Mapping[str, Mapping[str, Left]] | None = None,
    *,
    read_in_float: Collection[str] = (),
) -> list[Choice]:
    """Choose for each region, in order.

    Args:
      left: rows that kernels could not keep, by kernel and key.
      read_in_float: names of the regions whose results nothing stores.
    """
    layouts, gone = layouts_of(target), left or {}
    return [
        _choose(
            graph,
            region,
            target,
            layouts,
            gone.get(region.name, {}),
            plain=_is_plain(region, graph),
            asked=asked_of(graph, region),
            read_in_float=region.name in read_in_float,
        )
        for region in regions
    ]


def wanted_of(graph: Graph, choice: Choice) -> Wanted | None:
    """The storages that were asked of a kernel, if its row has them."""
    asked = asked_of(graph, choice.region)
    if asked is None or choice.row is None or choice.layout is None or not asked.wanted.is_row:
        return None
    has = has_wanted(graph, choice.region, choice.row, choice.layout, asked.wanted)
    return asked.wanted if has else None


def refuse_unmet(graph: Graph, choices: Iterable[Choice], target: Target, *, settled: bool = True) -> None:
    """Refuse to plan where a kernel cannot run in float, or one that was named not by a row, as was asked.

    Args:
      settled: whether rows with float results, which are chosen last, have been.

    Raises:
      Conflict: its row has other storages, or it has none; or the target runs nothing in float.
    """
    for choice in choices if graph.wanted else ():
        region, asked = choice.region, asked_of(graph, choice.region)
        if asked is not None and asked.wanted.float and target.on_no_kernel == "error":
            raise Conflict(
                f"{region.name!r} has to run in float, and {target.id} runs no kernel in float",
                facts=(asked_text(region.name, asked), f"{target.file}: on_no_kernel: error"),
                hint=f"drop {asked.key!r} from the requests for kernels",
                concession=Concession(wanted=((region.name, "float"),), keys=(asked.key,)),
            )
        if asked is None or not asked.by_name or not asked.wanted.is_row or wanted_of(graph, choice):
            continue
        results = (asked.wanted.result, *asked.wanted.outputs)
        if not settled and any(isinstance(store, FloatType) for store in results):
            continue
        raise Conflict(
            f"{region.name!r} has to run as {asked.wanted}, and no row of {region.kernel} does"
            + (f": {choice.reason}" if choice.reason else ""),
            facts=(asked_text(region.name, asked), f"kernel {region.name!r} is {region.kernel}"),
            hint=_follows(graph, region, target) or list_rows(target, region.kernel),
            concession=Concession(wanted=((region.name, str(asked.wanted)),), keys=(asked.key,)),
        )


def _follows(graph: Graph, region: Region, target: Target) -> str:
    """Advise on a kernel that moves data and is stored as its neighbours are."""
    results = [port for row in rows_for(target, region.kernel) for port in row.outputs]
    if not moves_alone(graph, region) or not all(port.type.is_wildcard for port in results):
        return ""
    names = " and ".join(map(repr, filter(None, region.inputs)))
    return (
        f"it only moves data, in the storage of its neighbours: request it of the kernel that writes {names}"
    )


def rows_with_float_results(
    graph: Graph, regions: Sequence[Region], target: Target, left: Mapping[str, Mapping[str, Left]]
) -> dict[str, Choice]:
    """Rows with float results for regions whose results nothing stores, by name; those that have one."""
    names = {region.name for region in regions}
    found = choose_rows(graph, regions, target, left, read_in_float=names)
    return {one.region.name: one for one in found if one.layout is not None and one.layout.hands_on_floats}


def refuse_floats(choices: Iterable[Choice], target: Target) -> None:
    """Refuse kernels without a row where the target does.

    Raises:
      Conflict: no row serves a kernel and the target says `on_no_kernel: error`.
    """
    for region, row, _, reason, *_ in choices if target.on_no_kernel == "error" else ():
        if row is None and any((*region.inputs, *region.outputs)):
            raise Conflict(
                f"no row of {target.id} serves {region.kernel} at {region.name!r}: {reason}",
                facts=(f"kernel {region.name!r} is {region.kernel}", f"{target.file}: on_no_kernel: error"),
                concession=Concession(floats=(region.name,)),
                about=next(filter(None, (*region.inputs, *region.outputs)), ""),
            )


def _is_plain(region: Region, graph: Graph) -> bool:
    """Whether no fact has a say in the row of this kernel: the first that takes its ports serves."""
    if region.input_facts or region.output_facts:
        return False
    values = (graph.values.get(name) for name in (*region.inputs, *region.outputs))
    # A range can neither rule a row out nor prefer one.
    return all(isinstance(fact, Calibrated) for value in values if value is not None for fact in value.facts)


def _choose(
    graph: Graph,
    region: Region,
    target: Target,
    layouts: Layouts,
    left: Mapping[str, Left],
    *,
    plain: bool,
    asked: Asked | None,
    read_in_float: bool,
) -> Choice:
    if not any((*region.inputs, *region.outputs)):
        return Choice(region, reason=reason_of_unknown(graph, region.ops) or "no float operands")
    if asked is not None and asked.wanted.float:
        return in_float(Choice(region), ANNOTATED)
    rows = rows_for(target, region.kernel)
    if not rows:
        return in_float(
            Choice(region), region.reason or f"{target.id} has no row for kernel {region.kernel!r}"
        )
    fit, refusals, missed = _fitting(
        graph, region, target, layouts, left, plain=plain, asked=asked, read_in_float=read_in_float
    )
    if not fit:
        return in_float(Choice(region), "; ".join(refusals))
    best = max(fit, key=_Fit.merit)  # of equal ones the first
    is_free = plain and asked is None and target.on_no_kernel == "float"
    if best.short and target.costs.wanted_float and is_free:
        whys = (f"{one.choice.row.source}: {one.short.why}" for one in fit if one.short and one.choice.row)
        return in_float(Choice(region), TOO_LITTLE + "; ".join(whys))
    chosen = best.choice._replace(short=tuple(_passed_over(fit, best)))
    return chosen._replace(reason="; ".join(missed)) if missed and not best.rank[1] else chosen


def equal_choices(graph: Graph, choice: Choice, target: Target, left: Mapping[str, Left]) -> list[Choice]:
    """Choices of the rows that are as good for a kernel as the one it has, that one too, in their order.

    Args:
      left: rows that the kernel could not keep, by key.
    """
    region, handing = choice.region, choice.layout is not None and choice.layout.hands_on_floats
    fit, _, _ = _fitting(
        graph,
        region,
        target,
        layouts_of(target),
        left,
        plain=False,
        asked=asked_of(graph, region),
        read_in_float=handing,
    )
    merit = next((one.merit() for one in fit if one.choice.row is choice.row), None)
    return [one.choice for one in fit if one.merit() == merit]


def _fitting(
    graph: Graph,
    region: Region,
    target: Target,
    layouts: Layouts,
    left: Mapping[str, Left],
    *,
    plain: bool,
    asked: Asked | None,
    read_in_float: bool,
) -> tuple[list["_Fit"], list[str], list[str]]:
    """The rows that fit a kernel; why others do not; why requested rows do not.

    A plain kernel is served by the first row that holds enough: the search ends there.
    """
    refusals: list[str] = []
    unasked: list[str] = []
    missed: list[str] = []
    fit: list[_Fit] = []
    rows = rows_for(target, region.kernel)
    floats = read_in_float and any(row.hands_on_floats for row in rows)
    for row in rows:
        layout = layouts.of(row, region)
        if layout is None:
            ports = (
                f"{quantity(sum(map(bool, region.inputs)), 'input')} and "
                f"{quantity(len(region.outputs), 'output')}"
            )
            refusals.append(f"{row.source} takes other ports than these {ports}")
            continue
        wanted = asked.wanted if asked and has_wanted(graph, region, row, layout, asked.wanted) else None
        choice = Choice(region, row, layout)
        refusal = left[layout.key].why if layout.key in left else None
        refusal = refusal or (None if plain else refused_by_facts(graph, choice))
        refusal = refusal or refused_by_when(graph, choice, row, wanted)
        refusal = refusal or (refused_by_blocks(graph, choice, row) if layout.blocked else None)
        dense = (
            too_dense(graph, region, row, layout.inputs[i], region.inputs[i])
            for i in (layout.sparse if refusal is None else ())
        )
        refusal = refusal or next(filter(None, dense), None)
        if refusal is None and row.table is not None and not function_of_one(region.ops, graph):
            refusal = NO_FUNCTION
        if refusal is None and misses_its_name(region):
            refusal = OTHER_AXES
        by = row.dynamic if refusal is None else None
        if by is not None and not is_product_of_rows(region.ops, graph, per_token=by.per_token):
            refusal = NO_ROWS
        if refusal:
            (unasked if refusal == NOT_ASKED else refusals).append(f"{row.source}: {refusal}")
            missed += refusals[-1:] if wanted else []
            continue
        held = not layout.bounded or _holds_ranges(graph, choice, layout, target.costs.max_clip)
        serves = read_in_float or not layout.hands_on_floats
        short = _shortfall(graph, choice, target.costs.wanted_db)
        first = plain and held and serves and not floats and (asked is None or wanted) and short is None
        pins = (0, 0) if plain else _pins_met(graph, choice)
        rank = (serves, wanted is not None, held, *pins)
        fit.append(_Fit(rank, short, serves and layout.hands_on_floats, choice))
        if first:
            break
    return fit, refusals or unasked, missed


class _Fit(NamedTuple):
    """A row that fits a kernel.

    `rank`: whether it can serve, was requested, holds what facts say of ranges, how many fixed types it
    meets, and how many of them as they are.
    """

    rank: tuple[bool, bool, bool, int, int]
    short: Short | None
    hands_on_floats: bool
    choice: Choice

    def merit(self) -> tuple[tuple[bool, bool, bool, int, int], float, bool]:
        """Return the key that rows are preferred by, the greatest first."""
        return self.rank, math.inf if self.short is None else self.short.db, self.hands_on_floats


def _passed_over(fit: Sequence[_Fit], best: _Fit) -> Iterable[tuple[str, str]]:
    """Key and shortfall of rows that would be preferred to the best, held they enough, and of that one."""
    place = fit.index(best)
    for k, one in enumerate(fit):
        is_before = one.rank > best.rank or (one.rank == best.rank and k <= place)
        if one.short and one.choice.layout and is_before and one.hands_on_floats == best.hands_on_floats:
            yield one.choice.layout.key, one.short.why


def _shortfall(graph: Graph, choice: Choice, wanted: float | None) -> Short | None:
    """The shortfall of a row whose ports' rounding leaves less than `wanted`; else None."""
    if wanted is None:
        return None
    region = choice.region
    ports = (
        (name, port_facts(graph, region, side, i), pattern.type.storage or shared_storage(choice, (side, i)))
        for side, i, name, pattern in sides_of(choice)
        if name not in graph.constants
    )
    return shortfall(graph, ports, wanted)


def _holds_ranges(graph: Graph, choice: Choice, layout: Layout, max_clip: float) -> bool:
    """Whether ports that cannot hold every range hold what facts say of theirs."""
    region = choice.region
    for side, i, name, pattern in sides_of(choice):
        store, extent = pattern.type.storage, known_range(graph, name)
        if extent is None or not isinstance(store, Storage) or (side, i) not in layout.bounded:
            continue
        if side == "in" and region.ops and region.ops[0].type == "Relu" and name in region.ops[0].inputs:
            extent = 0.0, max(extent[1], 0.0)  # it keeps nothing below 0
        if not holds(pattern.type, store, extent, max_clip):
            return False
    return True


def _pins_met(graph: Graph, choice: Choice) -> tuple[int, int]:
    """Fixed types whose storage, or a wider one, the row has there, and how many it takes as they are.

    A wildcard takes its value's storage.
    """
    met = as_they_are = 0
    for side, i, _, pattern in sides_of(choice):
        for fact in binding_facts(graph, choice.region, side, i):
            store = pattern.type.storage
            inside = store is None or (
                isinstance(store, Storage) and isinstance(fact, Uniform) and fact.storage.lies_in(store)
            )
            if isinstance(fact, Uniform) and inside:
                met += 1
                as_they_are += parameter_problem(pattern.type, fact) is None
            met += isinstance(fact, FloatType) and fact == store
    return met, as_they_are

"""Offers: the storages that the kernel variants of the target have, for what-if edits on the page.

In: a plan, and its target where it is at hand; else the variants in use. Out: for each kernel what may be
asked of it as a whole and of its ports, as an annotations file has it. Sizes are not looked at: planning
again says where a variant wants others.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from planner.errors import PlannerError
from planner.ir.graph import Graph, Region
from planner.ir.types.qtypes import Storage
from planner.ir.types.typetext import parse_storage
from planner.ir.types.wanted import DYNAMIC, Wanted
from planner.plans.plan import Plan, Planned
from planner.propagation.selection.row_layout import Layouts
from planner.propagation.selection.wanted_rows import has_wanted
from planner.target.borders import rows_for
from planner.target.load import load_target, target_ids
from planner.target.records import PortPattern, Row, Target

FLOAT: Final = "float"
MOST_BITS: Final = 16
"""Wider storages hold sums, which nobody chooses."""


@dataclass(frozen=True, slots=True)
class Offer:
    """The storages of one kind of kernel: of the whole kernel, and of each input and output, by name."""

    kernel: tuple[str, ...]
    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[tuple[str, ...], ...]


def offers(plan: Plan) -> dict[str, Offer]:
    """Find the offers of all kernels of a plan, by name; kernels of one kind and ports share one."""
    target = target_of(plan)
    rows = _rows_in_use(plan)
    stores = _storages([row for mine in (target.rows if target else rows).values() for row in mine])
    may_float = target is None or target.on_no_kernel != "error"
    layouts, known = Layouts(), dict[tuple[object, ...], Offer]()
    found = {}
    for region in plan.graph.regions:
        key = (region.kernel, tuple(map(bool, region.inputs)), tuple(map(bool, region.outputs)))
        if key not in known:
            mine = rows.get(region.kernel, ()) if target is None else rows_for(target, region.kernel)
            known[key] = _offer(plan.graph, region, mine, stores, layouts, may_float=may_float)
        found[region.name] = known[key]
    return found


def target_of(plan: Plan) -> Target | None:
    """The whole target of a plan: its own, or the built-in one that it names; None where neither is there."""
    if isinstance(plan, Planned):
        return plan.whole_target
    found = _built_in(plan.target.id) if plan.target.id in target_ids() else None
    return found if found is not None and found.digest == plan.target.digest else None


@cache
def _built_in(name: str) -> Target | None:
    try:
        return load_target(name)
    except PlannerError:
        return None


def _rows_in_use(plan: Plan) -> Mapping[str, tuple[Row, ...]]:
    found: dict[str, tuple[Row, ...]] = {}
    for row in plan.target.rows.values():
        found[row.kernel] = (*found.get(row.kernel, ()), row)
    return found


def _storages(rows: Sequence[Row]) -> list[Storage]:
    """Storages of activations and weights, whole, narrow ones first."""
    ports = (port.type.storage for row in rows for port in (*row.inputs, *row.outputs))
    names = {one.name for one in ports if isinstance(one, Storage) and one.bits <= MOST_BITS}
    return sorted(map(parse_storage, names), key=lambda one: (one.bits, not one.signed, one.name))


def _offer(
    graph: Graph, region: Region, rows: Sequence[Row], stores: Sequence[Storage], layouts: Layouts, *,
    may_float: bool,
) -> Offer:  # fmt: skip
    fitting = [(row, layout) for row in rows if (layout := layouts.of(row, region)) is not None]

    def serves(wanted: Wanted) -> bool:
        return any(has_wanted(graph, region, row, layout, wanted) for row, layout in fitting)

    kernel = [FLOAT] if may_float else []
    kernel += [DYNAMIC] if serves(Wanted(dynamic=True)) else []
    kernel += [one.name for one in stores if serves(Wanted(result=one))]
    inputs, outputs = (
        tuple(_of_port([getattr(layout, side)[i] for _, layout in fitting], stores) for i in range(many))
        for side, many in (("inputs", len(region.inputs)), ("outputs", len(region.outputs)))
    )
    return Offer(tuple(kernel), inputs, outputs)


def _of_port(patterns: Sequence[PortPattern], stores: Sequence[Storage]) -> tuple[str, ...]:
    """The storages that some variant has at a port; a wildcard takes all of the target's."""
    taken = {one.type.storage.name for one in patterns if isinstance(one.type.storage, Storage)}
    is_wild = any(pattern.type.is_wildcard for pattern in patterns)
    return tuple(one.name for one in stores if is_wild or one.name in taken)

"""Re-verify floors of dB independently: rows that leave too little at the readers of their values.

What rounding leaves is a fact of the value; here it is looked up, compared and worded anew. Source:
docs/specification.md, section 11.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from planner.checker.kernel_ports import Served, own_facts
from planner.ir.graph import Graph, Region, once_per_graph
from planner.ir.roles import is_mover
from planner.ir.types.qtypes import Calibrated, QType, Storage, Uniform
from planner.target.records import Costs, Target

NOTHING_HOLDS: Final = "no row holds enough: "


def with_floor(target: Target, costs: Costs) -> Target:
    """The target with the floor that a plan was made under."""
    own = target.costs
    same = own.wanted_db == costs.wanted_db and bool(own.wanted_float) == bool(costs.wanted_float)
    changed = replace(own, wanted_db=costs.wanted_db, wanted_float=costs.wanted_float)
    return target if same else replace(target, costs=changed)


def left_at_readers(served: Served, wanted: float | None) -> tuple[float, str]:
    """The least dB that a row leaves below what is wanted, and why in words; infinite where none is."""
    least, why = math.inf, ""
    for i, (port, pattern) in enumerate(zip(served.ports, served.patterns, strict=True)):
        if wanted is None or not port.value or port.value in served.graph.constants:
            continue
        store = pattern.type.storage or _by_group(served, i)
        facts = (*served.graph.values[port.value].facts, *own_facts(served.region, i))
        db = _db(facts, store) if isinstance(store, Storage) else math.inf
        if db < wanted and db < least:
            least = db
            why = f"in {store}, {port.value!r} leaves {db:g} dB at {_named(served, port.value)}"
    return least, why


def _db(facts: Sequence[QType], store: Storage) -> float:
    """What a storage leaves; infinite where nothing is known, and of a value that is pinned."""
    if store.float_name or any(isinstance(fact, Uniform) for fact in facts):
        return math.inf
    seen = (at for fact in facts if isinstance(fact, Calibrated) for at in fact.readers)
    return min((at.db for at in seen if at.bits == store.bits), default=math.inf)


def _by_group(served: Served, i: int) -> Storage | None:
    """The storage of a port that takes any, of a port whose scale it shares."""
    members = [k for group in served.groups if i in group for k in sorted(group)]
    stores = (served.patterns[k].type.storage for k in members)
    return next((store for store in stores if isinstance(store, Storage)), None)


def _named(served: Served, name: str) -> str:
    """Who computes with a value, past kernels that only move it."""
    graph = served.graph
    ends, queue, known = dict[str, None](), [name], {name}
    for value in queue:
        if value in graph.outputs:
            ends["the model's output"] = None
        for region, results in _uses(graph).get(value, ()):
            moved = results if _moves(served, region) else ()
            if not moved:
                ends[repr(region.name)] = None
            fresh = [result for result in moved if result not in known]
            queue.extend(fresh)
            known.update(fresh)
    first = next(iter(ends), "its readers")
    return first if len(ends) < 2 else f"{first} or {len(ends) - 1} more"


def _moves(served: Served, region: Region) -> bool:
    """Whether a kernel only moves data; the number that a pad fills with is the model's."""
    graph = served.graph
    if any(op.type == "Pad" for op in region.ops) and served.numbers:
        known = {
            name: served.numbers[name] for op in region.ops for name in op.inputs if name in served.numbers
        }
        graph = replace(graph, constants={**graph.constants, **known})
    return bool(region.ops) and all(is_mover(op, graph) for op in region.ops)


@once_per_graph
def _uses(graph: Graph) -> Mapping[str, Sequence[tuple[Region, Sequence[str]]]]:
    """Kernels that read each value, with their results."""
    uses: dict[str, list[tuple[Region, Sequence[str]]]] = {}
    for region in graph.regions:
        for name in {name: None for name in region.inputs if name}:
            uses.setdefault(name, []).append((region, [result for result in region.outputs if result]))
    return uses

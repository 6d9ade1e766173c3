"""Rows that hold too little: whether rounding at a row's ports leaves too few dB at a value's consumers.

The dB left were measured while calibrating and are a fact of the value, so the choice for one kernel still
looks at no other; only the words name consumers. Of a width without such a fact nothing is known, and nothing
is required. Source: docs/specification.md, section 11.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from planner.ir.graph import Facts, Graph, once_per_graph
from planner.ir.roles import moves_alone
from planner.ir.types.qtypes import Calibrated, FloatType, Storage, Uniform
from planner.target.records import Costs, Target

TOO_LITTLE: Final = "no row holds enough: "
"""The start of the reason of a kernel that runs in float for it."""


class Short(NamedTuple):
    """The port of a row that leaves the fewest dB at a value's consumers, too few: the dB, and in words."""

    db: float
    why: str


def shortfall(
    graph: Graph, ports: Iterable[tuple[str, Facts, Storage | FloatType | None]], wanted: float
) -> Short | None:
    """The worst port of a row, where one leaves fewer dB than required; the first of equal ones.

    Args:
      ports: of activations: the value, the facts that meet the port, and its storage, None for any.
    """
    worst: tuple[float, Storage, str] | None = None
    for name, facts, store in ports:
        if not isinstance(store, Storage) or store.float_name or any(isinstance(f, Uniform) for f in facts):
            continue
        known = (fact.at_readers(store.bits) for fact in facts if isinstance(fact, Calibrated))
        db = min((db for db in known if db is not None), default=wanted)
        if db < wanted and (worst is None or db < worst[0]):
            worst = db, store, name
    if worst is None:
        return None
    db, store, name = worst
    return Short(db, f"in {store}, {name!r} leaves {db:g} dB at {_list_consumers(graph, name)}")


def with_wanted_db(target: Target, costs: Costs) -> Target:
    """A target with the requested floor in dB, where that is not its own."""
    own = target.costs
    if (own.wanted_db, own.wanted_float) == (costs.wanted_db, costs.wanted_float):
        return target
    return replace(target, costs=replace(own, wanted_db=costs.wanted_db, wanted_float=costs.wanted_float))


def _list_consumers(graph: Graph, name: str) -> str:
    """The kernels that compute with a value, looked at past those that only move it."""
    readers, found, seen, waiting = _readers(graph), list[str](), {name}, [name]
    while waiting:
        value = waiting.pop(0)
        if value in graph.outputs:
            found.append("the model's output")
        for kernel, results in readers.get(value, ()):
            if not results:
                found.append(repr(kernel))
            waiting += [result for result in results if result not in seen]
            seen.update(results)
    named = list(dict.fromkeys(found))
    return (
        named[0] if len(named) == 1 else f"{named[0]} or {len(named) - 1} more" if named else "its consumers"
    )


@once_per_graph
def _readers(graph: Graph) -> Mapping[str, tuple[tuple[str, tuple[str, ...]], ...]]:
    """By value the kernels that read it, each with the results that it only moves; none: it computes."""
    found: dict[str, tuple[tuple[str, tuple[str, ...]], ...]] = {}
    for region in graph.regions:
        results = tuple(filter(None, region.outputs)) if moves_alone(graph, region) else ()
        for name in dict.fromkeys(filter(None, region.inputs)):
            found[name] = (*found.get(name, ()), (region.name, results))
    return found

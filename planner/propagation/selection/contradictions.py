"""Contradictions: facts that cannot both hold of one value, port or cache, whatever row is chosen.

Looked at before rows are. Source: docs/specification.md, section 4.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from planner.errors import Conflict
from planner.ir.graph import Facts, Graph, Region, port_address
from planner.ir.topology import reads, running, writes
from planner.ir.types.qtypes import AnyType, Bipolar, FloatType, QType, Uniform
from planner.propagation.selection.conflicts import HARD, Concession, Fact

STORED: Final = (Bipolar, FloatType, Uniform)
"""Facts that say how a value is stored at the model's border."""


def refuse_contradictions(graph: Graph) -> None:
    """Refuse facts that cannot both hold of a value or of a port.

    Raises:
      Conflict: two types, a type and a float, or a type that is narrower than an Any asks for.
    """
    alive = running(graph)
    dead = _unused(graph, alive) if len(alive) < len(graph.regions) else frozenset()
    for name, value in graph.values.items():
        if len(value.facts) > 1 and name not in dead:
            _refuse_pair(name, f"value {name!r}", repr(name), value.facts)
    for region in alive:
        for side, sides in (("in", region.input_facts), ("out", region.output_facts)):
            for i, facts in enumerate(sides):
                if len(facts) > 1:
                    address = port_address(region.name, side, i)
                    _refuse_pair(address, f"port {address}", address, facts)
    _refuse_unlike_caches(graph)


def _unused(graph: Graph, alive: Sequence[Region]) -> frozenset[str]:
    """Values at kernels that reach no output of the model, and at no others: they constrain nothing."""
    values = {name for region in graph.regions for name in (*reads(region), *writes(region))}
    used = {name for region in alive for name in (*reads(region), *writes(region))}
    return frozenset(values - used - {*graph.inputs, *graph.outputs})


def _refuse_unlike_caches(graph: Graph) -> None:
    """Refuse a cache that is stored in one type when it leaves, and read in another when it comes back."""
    for past, present in graph.caches:
        pins = [
            next((fact for fact in graph.values[name].facts if isinstance(fact, STORED)), None)
            for name in (past, present)
        ]
        if pins[0] == pins[1]:
            continue
        known = [(name, pin) for name, pin in zip((past, present), pins, strict=True) if pin is not None]
        raise Conflict(
            f"{present!r} leaves as {pins[1] or 'float'} and comes back as {past!r}: {pins[0] or 'float'}",
            facts=tuple(f"value {name!r}: {pin}" for name, pin in known),
            hint="give both one type",
            concession=Concession(facts=tuple(known)),
        )


def _refuse_pair(place: str, where: str, name: str, facts: Facts) -> None:
    hard = list(dict.fromkeys(fact for fact in facts if isinstance(fact, HARD)))
    wider = [fact for fact in facts if isinstance(fact, AnyType) and any(map(partial(narrows, fact), hard))]
    if len(hard) < 2 and not wider:
        return
    first, second = (hard[0], hard[1]) if len(hard) > 1 else (hard[0], wider[0])
    left_out: tuple[Fact, ...] = ((place, second),)
    raise Conflict(
        f"{name} cannot be both {first} and {second}",
        facts=(f"{where}: {first}", f"{where}: {second}"),
        hint="drop one of them",
        concession=Concession(facts=left_out),
    )


def narrows(wish: AnyType, kind: QType) -> bool:
    """Whether a type has fewer bits in use than an Any asks for."""
    if isinstance(kind, Bipolar):
        return wish.bits > 1
    return isinstance(kind, Uniform) and kind.storage.range_bits < wish.bits

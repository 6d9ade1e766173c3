"""Inner types: facts on values that no port of a kernel carries, and what becomes of them.

A kernel of several ops rounds once, at its end. A type on a value in between says that numbers are rounded
and cut there too. In front of a Relu or Clip the kernel's own clamp may give the same numbers; else the
kernel has to be split at that value, or the type has no effect.
Source: docs/specification.md, section 6, "facts inside a fused kernel".
"""

import math
from collections.abc import Iterator, Sequence
from typing import Final, TypeAlias

import numpy as np

from planner.ir.graph import Facts, Graph, Op, Region, once_per_graph
from planner.ir.topology import running
from planner.ir.types.qtypes import Bipolar, Calibrated, QType, Uniform

Interval: TypeAlias = tuple[float, float]

EVERYTHING: Final[Interval] = (-math.inf, math.inf)
MANY: Final = 2
UNCARRIED: Final = "no port of a kernel carries it"


@once_per_graph
def ineffective_facts(graph: Graph) -> tuple[tuple[str, QType, str], ...]:
    """Return the facts on values without any effect: the value, the fact and the reason.

    Ranges that calibration observed are hints and are left out. Constants that a live kernel reads beside its
    ports (bounds of a Clip) keep their numbers; whatever else is said of them has no effect.

    Args:
      graph: with regions, and with the numbers of its constants.
    """
    stated = [
        name
        for name, value in graph.values.items()
        if value.facts and any(not isinstance(fact, Calibrated) for fact in value.facts)
    ]
    return tuple(_ineffective(graph, stated)) if stated else ()


def _ineffective(graph: Graph, stated: Sequence[str]) -> Iterator[tuple[str, QType, str]]:
    alive = running(graph)
    carried = {*graph.inputs, *graph.outputs}
    for region in alive:
        carried.update(region.inputs, region.outputs)
    homes = {name: region for region in alive for op in region.ops for name in (*op.inputs, *op.outputs)}
    for name in stated:
        if name in carried:
            continue
        home = homes.get(name)
        why = UNCARRIED if home is None else f"it is inside kernel {home.name!r}"
        for fact in graph.values[name].facts:
            kept = home is not None and isinstance(fact, Uniform) and _clamp_keeps(home, graph, name, fact)
            if not kept and not isinstance(fact, Calibrated):
                yield name, fact, why


def unkept_types(region: Region, graph: Graph) -> tuple[tuple[str, Uniform | Bipolar], ...]:
    """Return the types inside a kernel, by value, whose rounding or range its result would miss."""
    if len(region.ops) < MANY or region.structure is not None:
        return ()
    read = {name for op in region.ops for name in (*op.inputs, *op.captures)}
    written = (name for op in region.ops for name in op.outputs if name and name not in region.outputs)
    return tuple(
        (name, fact)
        for name in written
        if name in read
        for fact in graph.values[name].facts
        if isinstance(fact, Bipolar)
        or (isinstance(fact, Uniform) and not _clamp_keeps(region, graph, name, fact))
    )


def _clamp_keeps(region: Region, graph: Graph, name: str, fact: Uniform) -> bool:
    """Whether the ops behind a value cut what the type of that value cuts, on the same grid.

    Rounding to a grid, cutting and rounding to the same grid again is cutting and rounding once, and the
    largest of rounded numbers is the largest, rounded. So the types before and behind have to have the same
    scales, and the first may cut nothing that passes the clamp and fits the second.
    """
    users = [op for op in region.ops if name in (*op.inputs, *op.captures)]
    if len(users) != 1 or users[0].inputs[0] != name or users[0].inputs.count(name) != 1:
        return False
    bounds = _bounds(users[0], graph)
    behind = None if bounds is None else _type_of(region, graph, users[0].outputs[0])
    if bounds is None or behind is None or not _is_same_grid(fact, behind):
        return False
    pairs = zip(intervals(fact), intervals(behind), fact.scales, strict=True)
    return all(passes(own, after, bounds, scale) for own, after, scale in pairs)


def _type_of(region: Region, graph: Graph, name: str) -> Uniform | None:
    """The type that facts give a value of a kernel, at its port or anywhere."""
    ports = zip(region.outputs, region.output_facts, strict=False)
    own: Facts = next((facts for port, facts in ports if port == name), ())
    return next((fact for fact in (*own, *graph.values[name].facts) if isinstance(fact, Uniform)), None)


def _is_same_grid(first: Uniform, other: Uniform) -> bool:
    """Whether two integer types have the same scales for the same slices."""
    is_integer = not first.storage.float_name and not other.storage.float_name
    slices = [(kind.scales, kind.axis, kind.blocks, kind.grid) for kind in (first, other)]
    return is_integer and slices[0] == slices[1]


def intervals(kind: Uniform) -> Iterator[Interval]:
    """The range of each slice in steps, counted from its zero point."""
    ranges = kind.ranges or ((kind.storage.qmin, kind.storage.qmax),) * len(kind.scales)
    for (low, high), zero in zip(ranges, kind.zero_points, strict=True):
        yield low - zero, high - zero


def passes(own: Interval, after: Interval, bounds: Interval, scale: float) -> bool:
    """Whether a type cuts nothing that a clamp to `bounds` and the type behind it leave."""
    low, high = (float(np.rint(np.float32(bound) / np.float32(scale))) for bound in bounds)
    return own[0] <= max(low, after[0]) and own[1] >= min(high, after[1])


def _bounds(op: Op, graph: Graph) -> Interval | None:
    """The bounds that an op cuts to; None where it does anything else, or its bounds are computed."""
    if op.type == "Relu":
        return 0.0, math.inf
    if op.type == "MaxPool":
        return EVERYTHING if len(op.outputs) == 1 else None
    if op.type != "Clip":
        return None
    found = [op.attributes.get("min", -math.inf), op.attributes.get("max", math.inf)]
    for i, name in enumerate(op.inputs[1:3]):
        constant = graph.constants.get(name)
        if name and (constant is None or constant.array is None or constant.array.size != 1):
            return None
        if name and constant is not None and constant.array is not None:
            found[i] = float(constant.array.reshape(-1)[0])
    return (found[0], found[1]) if found[0] <= found[1] else None

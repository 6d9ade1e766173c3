"""Stretches: the kernels of a model as steps that can run one by one, and as few longer ones.

A loop, or an If with its branches, is one step. Behind the kernels where it begins a run goes on in
stretches, many kernels in one session: handing arrays from session to session costs more than small
kernels do. Source: docs/accuracy.md.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from planner.interpreter.blocks import Floats
from planner.interpreter.bodies import Item, items_of
from planner.interpreter.calls import FLOAT32_QDQ
from planner.ir.borders import border_op, inner_scope
from planner.ir.graph import Graph, Region
from planner.ir.structure import JOIN
from planner.ir.topology import reads, writes
from planner.lowering.blocks import needed_regions
from planner.plans.plan import Plan

# Every op in float32 between two roundings: no kernel on integers, which would want all of its operands so.
ROUNDED: Final = FLOAT32_QDQ


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """One kernel, a loop or branches whole, or a stretch of kernels.

    Attributes:
      regions: in order.
      items: of the interpreter, all in float.
      reads, writes: values outside, constants left out, and those that it hands on.
    """

    regions: tuple[Region, ...]
    items: tuple[Item, ...]
    reads: frozenset[str]
    writes: frozenset[str]


def steps_of(model: Graph, plan: Plan, pinned: Mapping[str, object]) -> tuple[Step, ...]:
    """The kernels of a plan in float, in order; `pinned` values are rounded where they are made."""
    return tuple(
        Step(
            regions,
            items_of(model, plan, ROUNDED, pinned, regions),
            _reads(plan.graph, regions),
            frozenset(name for region in regions for name in writes(region)),
        )
        for regions in _units(plan.graph, needed_regions(plan))
    )


def _units(graph: Graph, regions: Sequence[Region]) -> list[tuple[Region, ...]]:
    """Regions that run as one: each alone, all of a loop or an If, those that hand on what is no tensor."""
    keys = [_owner(graph, region) for region in regions]
    last = {key: i for i, key in enumerate(keys)}
    found: list[tuple[Region, ...]] = []
    waiting: dict[str, list[Region]] = {}
    open_values: set[str] = set()
    for i, (key, region) in enumerate(zip(keys, regions, strict=True)):
        waiting.setdefault(key, []).append(region)
        if key and last[key] != i:
            continue
        unit = tuple(waiting.pop(key))
        odd = {name for part in unit for name in writes(part) if not graph.values[name].dtype}
        if found and open_values & {name for part in unit for name in reads(part)}:
            unit = (*found.pop(), *unit)
        open_values |= odd
        found.append(unit)
    return found


def stretches(
    graph: Graph, steps: Sequence[Step], pinned: Mapping[str, object]
) -> tuple[tuple[Step, tuple[Step, ...]], ...]:
    """Steps as few longer ones, each with those it is made of; loops and branches stay alone.

    Args:
      pinned: values that are rounded where they are made, which ends a stretch.
    """
    readers: dict[str, set[Step]] = {}
    for step in steps:
        for name in step.reads:
            readers.setdefault(name, set()).add(step)
    most = math.isqrt(len(steps)) + 1
    parts: list[list[Step]] = []
    for step in steps:
        last = parts[-1][-1] if parts else None
        if (
            last is not None
            and last.writes.isdisjoint(pinned)
            and _is_plain(last)
            and _is_plain(step)
            and len(parts[-1]) < most
        ):
            parts[-1].append(step)
        else:
            parts.append([step])
    return tuple((_joined(graph, part, readers), tuple(part)) for part in parts)


def _is_plain(step: Step) -> bool:
    """Whether a step is one float kernel, no border of a body."""
    return len(step.regions) == 1 and isinstance(step.items[0], Floats)


def _joined(graph: Graph, steps: Sequence[Step], readers: Mapping[str, set[Step]]) -> Step:
    if len(steps) == 1:
        return steps[0]
    regions = tuple(region for step in steps for region in step.regions)
    inside = set(steps)
    writes = frozenset(
        name
        for step in steps
        for name in step.writes
        if name in graph.outputs or readers.get(name, set()) - inside
    )
    ops = tuple(op for region in regions for op in region.ops)
    return Step(regions, (Floats(ops, tuple(sorted(writes))),), _reads(graph, regions), writes)


def _owner(graph: Graph, region: Region) -> str:
    """The loop or If, outermost, that a region belongs to; "" for none."""
    if not graph.scopes:
        return ""
    path = inner_scope(graph.scopes, region.scope, "")
    op = border_op(region)
    if not path and op is not None:
        body = str(op.attributes["body"])
        if op.type == JOIN:
            return body
        path = inner_scope(graph.scopes, body, "")
    return graph.scopes[path].owner if path else ""


def _reads(graph: Graph, regions: Sequence[Region]) -> frozenset[str]:
    made = {name for region in regions for name in writes(region)}
    bodies = {region.scope for region in regions if region.scope}
    found = {name for region in regions for name in reads(region)}
    found |= {name for path in bodies for name in graph.scopes[path].operands if name}
    return frozenset(found - made - graph.constants.keys())

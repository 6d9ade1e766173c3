"""Re-verify which constants keep the grid that training gave them: those of which it costs no reader its row.

A pin rules rows out; the planner makes one of `AnyType.trained` where that leaves a row for every reader.
Needs the target and the model's numbers. Source: docs/specification.md, section 4.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from planner.checker.kernel_ports import Served, refuse
from planner.checker.origins import of_the_model
from planner.checker.rows.asked import asked_of
from planner.checker.rows.left import check_left
from planner.checker.rows.merit import merit_of
from planner.checker.rows.reading import read_row
from planner.ir.graph import Constant, Graph, Region
from planner.ir.types.qtypes import AnyType, Uniform
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan
from planner.target.borders import rows_for
from planner.target.records import Row, Target

Left: TypeAlias = Mapping[str, Mapping[str, str]]


def check_trained_grids(
    plan: Plan,
    regions: Mapping[str, Region],
    target: Target,
    lefts: tuple[Left, Left],
    *,
    behind: Mapping[str, int],
    numbers: Mapping[str, Constant],
) -> None:
    """A constant is pinned to its grid of training if, and only if, no reader is in float for its sake alone.

    Args:
      lefts: why rows could not be kept, by kernel and key, as the log says; and why they could not with such
        pins, which are let go for that.
      behind: number of the latest engine on the way to each kernel.
      numbers: the model's constants.
    """
    graph = plan.graph
    told = ((name, fact) for name in graph.constants for fact in graph.values[name].facts)
    trained = {name: fact.trained for name, fact in told if isinstance(fact, AnyType) and fact.trained}
    if not trained:
        return
    free, bound = dict(graph.values), dict(graph.values)
    for name, kind in trained.items():
        facts = of_the_model(graph.values[name].facts)
        free[name] = replace(free[name], facts=facts)
        bound[name] = replace(bound[name], facts=(kind, *facts))
    as_wished, pinned = replace(graph, values=free), replace(graph, values=bound)
    readers = [
        (kernel, regions[kernel.name])
        for kernel in plan.kernels_in_order
        if not trained.keys().isdisjoint(regions[kernel.name].inputs)
    ]
    let_go = {
        name
        for kernel, region in readers
        if not any(_fits(pinned, kernel, region, target, lefts, numbers=numbers))
        if any(_fits(as_wished, kernel, region, target, (), numbers=numbers))
        for name in region.inputs
    }
    for kernel, region in readers:
        let_go |= {name for name in region.inputs if _has_own_pin(region, name, trained.get(name))}
        given_up = lefts[1].get(kernel.name, {})
        for row, served in _given_up(pinned, kernel, region, target, given_up=given_up, numbers=numbers):
            check_left(served, target, {row.key: given_up[row.key]}, behind.get(kernel.name, 0))
    for name, kind in trained.items():
        is_pinned = kind in graph.values[name].facts
        if is_pinned and name in let_go:
            refuse(name, f"is pinned to {kind}, for which a reader has no row; accepted: its width alone")
        if not is_pinned and name not in let_go:
            refuse(name, f"is not pinned to {kind}, which costs no reader its row; accepted: the pin")


def _has_own_pin(region: Region, name: str, trained: Uniform | None) -> bool:
    """Whether a port that reads a constant is pinned to another type than it had in training."""
    sides = zip(region.inputs, region.input_facts, strict=False)
    own = [fact for read, facts in sides if read == name for fact in facts]
    return trained is not None and any(isinstance(fact, Uniform) and fact != trained for fact in own)


def _given_up(
    pinned: Graph,
    kernel: KernelPlan,
    region: Region,
    target: Target,
    *,
    given_up: Mapping[str, str],
    numbers: Mapping[str, Constant],
) -> Iterator[tuple[Row, Served]]:
    """The rows for which pins are let go, each with the kernel as it is with them."""
    rows = {row.key: row for row in rows_for(target, kernel.kernel)}
    for key in given_up:
        row = rows.get(key)
        reading = read_row(row, region) if row is not None else "no row"
        if row is None or isinstance(reading, str):
            refuse(kernel.name, f"is said to have let go for {key!r}, which is no row for its ports")
        ports = (*kernel.inputs, *kernel.outputs)
        yield row, Served(kernel, region, reading, ports, pinned, numbers)


def _fits(
    graph: Graph,
    kernel: KernelPlan,
    region: Region,
    target: Target,
    left: Sequence[Left],
    *,
    numbers: Mapping[str, Constant],
) -> Iterable[bool]:
    """For each row that a kernel could keep, whether it fits in this graph."""
    asked = asked_of(graph, region)
    if asked is not None and asked.wanted.float:
        return
    for row in rows_for(target, kernel.kernel):
        reading = read_row(row, region)
        tried = any(row.key in rows.get(kernel.name, {}) for rows in left)
        if not tried and not isinstance(reading, str):
            ports = (*kernel.inputs, *kernel.outputs)
            served = Served(kernel, region, reading, ports, graph, numbers)
            yield merit_of(served, row, target.costs) is not None

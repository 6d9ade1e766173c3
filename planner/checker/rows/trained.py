"""Re-verify which constants keep the grid that training gave them: those of which it costs no reader its row.

A pin rules rows out; the planner makes one of `AnyType.trained` where that leaves a row for every reader.
Needs the target and the model's numbers. Source: design 01, section 4.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeAlias

from planner.checker.kernel_ports import Served, refuse
from planner.checker.origins import of_the_model
from planner.checker.rows.asked import asked_of
from planner.checker.rows.merit import merit_of
from planner.checker.rows.reading import read_row
from planner.ir.graph import Constant, Graph, Region
from planner.ir.types.qtypes import AnyType
from planner.plans.plan import Plan
from planner.plans.records import KernelPlan
from planner.target.borders import rows_for
from planner.target.records import Target

Left: TypeAlias = Mapping[str, Mapping[str, str]]


def check_trained_grids(
    plan: Plan, regions: Mapping[str, Region], target: Target, left: Left, numbers: Mapping[str, Constant]
) -> None:
    """A constant is pinned to its grid of training if, and only if, no reader is in float for its sake alone.

    Args:
      left: why rows could not be kept, by kernel and key, as the log says.
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
        if not any(_fits(pinned, kernel, region, target, left, numbers=numbers))
        if any(_fits(as_wished, kernel, region, target, left, numbers=numbers))
        for name in region.inputs
    }
    for name, kind in trained.items():
        is_pinned = kind in graph.values[name].facts
        if is_pinned and name in let_go:
            refuse(name, f"is pinned to {kind}, for which a reader has no row; accepted: its width alone")
        if not is_pinned and name not in let_go:
            refuse(name, f"is not pinned to {kind}, which costs no reader its row; accepted: the pin")


def _fits(
    graph: Graph,
    kernel: KernelPlan,
    region: Region,
    target: Target,
    left: Left,
    *,
    numbers: Mapping[str, Constant],
) -> Iterable[bool]:
    """For each row that a kernel could keep, whether it fits in this graph."""
    asked = asked_of(graph, region)
    if asked is not None and asked.wanted.float:
        return
    for row in rows_for(target, kernel.kernel):
        reading = read_row(row, region)
        if row.key not in left.get(kernel.name, {}) and not isinstance(reading, str):
            ports = (*kernel.inputs, *kernel.outputs)
            served = Served(kernel, region, reading, ports, graph, numbers)
            yield merit_of(served, row, target.costs) is not None

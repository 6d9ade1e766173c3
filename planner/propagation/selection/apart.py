"""Kernels as rows serve them: those that no row takes whole are taken apart first.

In: a graph as it was fused, and the rows that kernels could not keep. Out: the graph with the kernels that it
is planned with, a choice for each. Source: design 04, `fusions`; design 01, section 4.
"""

from collections.abc import Collection
from dataclasses import replace
from functools import partial

from planner.fusion.apart import can_be_apart, taken_apart
from planner.ir.graph import Graph, Region
from planner.ir.topology import running, topological
from planner.propagation.selection.choice import Choice
from planner.propagation.selection.remedies import Remedies
from planner.propagation.selection.row_layout import moves_alone
from planner.propagation.selection.rows import choose_rows
from planner.propagation.selection.too_little import TOO_LITTLE
from planner.propagation.selection.wanted_rows import ANNOTATED
from planner.propagation.selection.weight_axes import linear_op
from planner.target.records import Target


def served(
    graph: Graph, target: Target, remedies: Remedies, floats: Collection[str], *, fuses: bool
) -> tuple[Graph, list[Choice], Remedies]:
    """Choose a row for every live kernel; of those that have none, take apart what has rows in parts.

    Args:
      floats: kernels that are to run in float.
      fuses: whether kernels may be taken apart.
    """
    choices = choose_rows(graph, running(graph), target, remedies.left)
    apart: dict[str, tuple[Region, ...]] = {}
    why: dict[str, tuple[tuple[Region, str], ...]] = {}
    taken = {region.name for region in graph.regions}
    for region, row, _, reason, *_ in choices if fuses else ():
        if row is not None or region.name in floats or not can_be_apart(region):
            continue
        if reason == ANNOTATED or reason.startswith(TOO_LITTLE):
            continue
        taken.discard(region.name)
        wholes = (*remedies.apart.get(region.name, ()), (region, reason))
        parts = taken_apart(
            region,
            graph,
            target,
            is_served=lambda part: choose_rows(graph, (part,), target)[0].row is not None,
            computes=partial(_does_the_work, graph, region),
            taken=taken,
            tried=[whole for whole, _ in wholes],
        )
        taken.update(part.name for part in parts or (region,))
        if parts:
            apart[region.name] = parts
            why |= {part.name: wholes for part in parts}
    if not apart:
        return graph, choices, remedies
    regions = [part for region in graph.regions for part in apart.get(region.name, (region,))]
    cut = replace(graph, regions=topological(tuple(regions)))
    remedies = remedies.without(apart.keys()) | Remedies(apart=why)
    return cut, choose_rows(cut, running(cut), target, remedies.left), remedies


def _does_the_work(graph: Graph, region: Region, part: Region) -> bool:
    """Whether a part does what its kernel is for: the product where there is one, else any computing."""
    # An Add in integers behind its MatMul in float would cost two casts and save nothing.
    if linear_op(region.ops) is not None:
        return linear_op(part.ops) is not None
    return not moves_alone(graph, part)

"""Kernels as rows serve them: taken apart first where no row takes them whole, or a type inside is to hold.

In: a graph as it was fused, and the rows that kernels could not keep. Out: the graph with the kernels that it
is planned with, a choice for each. Source: docs/targets/patterns.md; docs/specification.md, section 4.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace

from planner.fusion.split import can_be_apart, taken_apart
from planner.ir.graph import Graph, Region
from planner.ir.inner_types import unkept_types
from planner.ir.roles import moves_alone
from planner.ir.topology import running, topological
from planner.ir.types.qtypes import QType
from planner.ir.types.typetext import brief
from planner.propagation.selection.choice import Choice
from planner.propagation.selection.remedies import Remedies
from planner.propagation.selection.rows import choose_rows
from planner.propagation.selection.too_little import TOO_LITTLE
from planner.propagation.selection.wanted_rows import ANNOTATED
from planner.target.ports.axes import linear_op
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
    for choice in choices if fuses else ():
        region = choice.region
        inner = unkept_types(region, graph)
        if not inner and not _may_be_smaller(choice, floats):
            continue
        taken.discard(region.name)
        wholes = (*remedies.apart.get(region.name, ()), (region, _describe(inner) or choice.reason))
        parts = _parts_of(graph, target, choice, taken, tried=[whole for whole, _ in wholes], inner=inner)
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


def _may_be_smaller(choice: Choice, floats: Collection[str]) -> bool:
    """Whether a kernel has no row though no request put it in float, so that its parts may have some."""
    if choice.row is not None or choice.region.name in floats or not can_be_apart(choice.region):
        return False
    return choice.reason != ANNOTATED and not choice.reason.startswith(TOO_LITTLE)


def _describe(inner: Sequence[tuple[str, QType]]) -> str:
    """The types inside a kernel for which it is taken apart; "" where there are none."""
    return "; ".join(f"{name!r} inside it is fixed to {brief(kind)}" for name, kind in inner)


def _parts_of(
    graph: Graph,
    target: Target,
    choice: Choice,
    taken: Collection[str],
    *,
    tried: Sequence[Region],
    inner: Sequence[tuple[str, QType]],
) -> tuple[Region, ...]:
    """The parts of a kernel, types inside between them; () where it is as well left whole."""
    region = choice.region
    is_block = any(block.kernel == region.kernel and block.whole for block in target.blocks)

    def is_served(part: Region) -> bool:
        return choose_rows(graph, (part,), target)[0].row is not None

    def accepts(parts: Sequence[Region]) -> bool:
        # In float nothing is lost with the parts, and the types between them hold.
        if inner and target.on_no_kernel == "error":
            return all(map(is_served, parts))
        in_float = bool(inner) and choice.row is None
        if is_block and not in_float:
            # A variance in 8 bits between a float root and a float mean is worth nothing.
            return all(is_served(part) or moves_alone(graph, part) for part in parts)
        return in_float or any(is_served(part) and _does_the_work(graph, region, part) for part in parts)

    return taken_apart(
        region,
        graph,
        target,
        is_served=is_served,
        accepts=accepts,
        taken=taken,
        tried=tried,
        kept=frozenset(name for name, _ in inner),
    )


def _does_the_work(graph: Graph, region: Region, part: Region) -> bool:
    """Whether a part does what its kernel is for: the product where there is one, else any computing."""
    # An Add in integers behind its MatMul in float would cost two casts and save nothing.
    if linear_op(region.ops) is not None:
        return linear_op(part.ops) is not None
    return not moves_alone(graph, part)

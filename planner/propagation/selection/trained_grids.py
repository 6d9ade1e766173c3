"""Grids that training gave constants: fixed types where a row holds them, a width where none does.

A grid that few devices have (a zero point, all 256 integers) would put its kernel into float if its type were
fixed, and be lost if only its width counted. So the import says both (`AnyType.trained`), and rows decide.
Source: docs/specification.md, section 4 ("fixed constants rule rows out").
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

from planner.ir.graph import Graph, Region
from planner.ir.topology import running
from planner.ir.types.qtypes import AnyType, Uniform
from planner.propagation.selection.remedies import Remedies
from planner.propagation.selection.rows import choose_rows
from planner.target.records import Target


def with_trained_grids(graph: Graph, target: Target, remedies: Remedies) -> tuple[Graph, Remedies]:
    """The graph with a fixed type beside the Any of each constant where that costs no consumer its row.

    A kernel that had to leave all its rows because of such types keeps only widths, and has its rows again.

    Args:
      graph: the types that an earlier call fixed are reconsidered; where they stay, it is returned itself.
    """
    trained = {name: kind for name in graph.constants if (kind := _trained(graph, name)) is not None}
    if not trained:
        return graph, remedies
    regions = [region for region in running(graph) if not trained.keys().isdisjoint(region.inputs)]
    pinned, free = _pinned(graph, trained, trained), _pinned(graph, trained, ())
    floats = [c.region for c in choose_rows(pinned, regions, target, remedies.left) if c.row is None]
    held = {name for name, kind in trained.items() if kind in graph.values[name].facts}
    stuck = {region.name for region in floats if not held.isdisjoint(region.inputs)} & remedies.left.keys()
    remedies = remedies.letting_go(stuck - remedies.let_go.keys())
    # What no row fits whatever the weight is reads the pin's numbers; what left its rows may have them back.
    served = {c.region.name for c in choose_rows(free, floats, target) if c.row is not None}
    served |= remedies.let_go.keys()
    let_go = {name for region in regions if region.name in served for name in region.inputs}
    let_go |= {name for region in regions for name in _pinned_otherwise(region, trained)}
    settled = _pinned(graph, trained, trained.keys() - let_go)
    same = all(settled.values[name].facts == graph.values[name].facts for name in trained)
    return (graph if same else settled), remedies


def _pinned_otherwise(region: Region, trained: Mapping[str, Uniform]) -> Iterator[str]:
    """Those of a kernel's constants whose port has a fixed type of its own, as in a plan planned again."""
    for name, facts in zip(region.inputs, region.input_facts, strict=False):
        kind = trained.get(name)
        if kind is not None and any(isinstance(fact, Uniform) and fact != kind for fact in facts):
            yield name


def _trained(graph: Graph, name: str) -> Uniform | None:
    facts = graph.values[name].facts
    return next((fact.trained for fact in facts if isinstance(fact, AnyType)), None)


def _pinned(graph: Graph, trained: Mapping[str, Uniform], kept: Collection[str]) -> Graph:
    """The graph in which these of the constants with such a grid, and no others, have its type fixed."""
    values = dict(graph.values)
    for name, kind in trained.items():
        wishes = tuple(fact for fact in values[name].facts if fact != kind)
        values[name] = replace(values[name], facts=(kind, *wishes) if name in kept else wishes)
    return replace(graph, values=values)

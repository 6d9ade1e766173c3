"""Grids that training gave constants: pins where a row holds them, a width where none does.

A grid that few devices have (a zero point, all 256 integers) would put its kernel into float where it were a
pin, and be lost where only its width counted. So the import says both (`AnyType.trained`), and rows decide.
Source: design 01, section 4 ("pinned constants rule rows out").
"""

from collections.abc import Mapping
from dataclasses import replace

from planner.ir.graph import Graph
from planner.ir.topology import running
from planner.ir.types.qtypes import AnyType, Uniform
from planner.propagation.selection.remedies import Left
from planner.propagation.selection.rows import choose_rows
from planner.target.records import Target


def with_trained_grids(graph: Graph, target: Target, left: Mapping[str, Mapping[str, Left]]) -> Graph:
    """The graph with a pin beside the wish of each constant that costs no reader its row.

    Args:
      graph: the pins that an earlier call gave are judged anew; where they stay, it is returned itself.
      left: rows that kernels could not keep, by kernel and key.
    """
    trained = {name: kind for name in graph.constants if (kind := _trained(graph, name)) is not None}
    if not trained:
        return graph
    pinned = _with_pins(graph, trained)
    regions = [region for region in running(graph) if not trained.keys().isdisjoint(region.inputs)]
    floats = [choice.region for choice in choose_rows(pinned, regions, target, left) if choice.row is None]
    # What runs in float whatever the weight is reads the pin's numbers.
    served = [choice for choice in choose_rows(_with_pins(graph, {}), floats, target, left) if choice.row]
    let_go = {name for choice in served for name in choice.region.inputs}
    settled = _with_pins(graph, {name: kind for name, kind in trained.items() if name not in let_go})
    same = all(settled.values[name].facts == graph.values[name].facts for name in trained)
    return graph if same else settled


def _trained(graph: Graph, name: str) -> Uniform | None:
    facts = graph.values[name].facts
    return next((fact.trained for fact in facts if isinstance(fact, AnyType)), None)


def _with_pins(graph: Graph, pins: Mapping[str, Uniform]) -> Graph:
    """The graph in which these of the constants with such a grid, and no others, are pinned to it."""
    values = dict(graph.values)
    for name in graph.constants:
        kind = _trained(graph, name)
        if kind is not None:
            wishes = tuple(fact for fact in values[name].facts if fact != kind)
            pin = (kind,) if name in pins else ()
            values[name] = replace(values[name], facts=(*pin, *wishes))
    return replace(graph, values=values)

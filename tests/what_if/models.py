"""Models of several parts and random edits of them."""

from random import Random
from typing import Any

from planner.ir.graph import Graph
from planner.ir.validity import validate
from tests.propagation.graphs import random_graph, renamed, seeded

TYPES = (
    "!quant.any<i16>",
    "!quant.any<i8>",
    "!quant.none",
    "!quant.calibrated<f32<-3.0:2.0>>",
    "!quant.calibrated<f32<0.0:0.5>>",
    "!quant.uniform<i8:f32, 0.02:3>",
    "!quant.uniform<u8:f32, 0.025:128>",
    "!quant.uniform<i16:f32, 0.5>",
)


def in_parts(seed: int, parts: int, kernels: int) -> Graph:
    """A model of disjoint random graphs."""
    graphs = []
    for i in range(parts):
        graph = random_graph(seed * 1000 + i, kernels)
        names = [f"p{i}.{name}" for name in graph.values]
        graphs.append(renamed(graph, names, [f"p{i}.{region.name}" for region in graph.regions]))
    return validate(
        Graph(
            name="parts",
            values={name: value for graph in graphs for name, value in graph.values.items()},
            ops=(),
            inputs=tuple(name for graph in graphs for name in graph.inputs),
            outputs=tuple(name for graph in graphs for name in graph.outputs),
            constants={name: data for graph in graphs for name, data in graph.constants.items()},
            regions=tuple(region for graph in graphs for region in graph.regions),
        )
    )


def random_edit(graph: Graph, seed: int) -> dict[str, Any]:
    """One to three changes: of values, of ports, or taken away."""
    random = seeded(seed)
    values: dict[str, str] = {}
    ports: dict[str, str] = {}
    remove: list[str] = []
    for _ in range(random.choice((1, 1, 2, 3))):
        pick = random.random()
        if pick < 0.6:
            values[random.choice(list(graph.values))] = random.choice(TYPES)
        elif pick < 0.8:
            ports[_port(graph, random)] = random.choice(TYPES)
        else:
            remove.append(random.choice(list(graph.values)))
    return {"values": values, "ports": ports, "remove": remove}


def _port(graph: Graph, random: Random) -> str:
    region = random.choice(graph.regions)
    side, names = random.choice((("in", region.inputs), ("out", region.outputs)))
    return f"{region.name}.{side}[{random.randrange(len(names))}]"

"""Cycles: which steps wait for each other, for the error that says so. The home of networkx."""

from collections.abc import Iterable

import networkx as nx


def find_cycle(edges: Iterable[tuple[int, int]]) -> list[int]:
    """Nodes of one cycle of a directed graph, in order.

    Raises:
      networkx.NetworkXNoCycle: there is none.
    """
    return [node for node, _ in nx.find_cycle(nx.DiGraph(edges))]

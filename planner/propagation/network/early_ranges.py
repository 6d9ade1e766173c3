"""Early ranges: what is known of ranges before there is a network, for wildcards that look for a storage.

From facts, data movement, and the ranges that relus and clamps keep. `value_ranges` knows more, later: types
that rows fix, loops. Two passes over all kernels, made when the first port asks. Source:
docs/specification.md, section 5, item 1.
"""

from collections.abc import Sequence
from functools import cached_property

from planner.ir.graph import Graph
from planner.ir.types.intervals import ALL, Interval, cut_to, hull
from planner.ir.types.qtypes import Uniform
from planner.propagation.selection.choice import Choice
from planner.propagation.selection.reach import known_range
from planner.target.records import PortId

Way = tuple[bool, Interval | None]
"""Of a kernel: whether it only moves data, and what it cuts data to."""


class EarlyRanges:
    """The ranges that ports have to hold, as far as they are known; by the number of a kernel."""

    def __init__(self, graph: Graph, choices: Sequence[Choice], ways: Sequence[Way]) -> None:
        self._graph, self._choices, self._ways = graph, choices, ways

    def required(self, kernel: int, side: PortId, name: str) -> Interval | None:
        """Return the range that a port has to hold; None where nothing is known."""
        extent = known_range(self._graph, name) if name in self._graph.constants else self._known.get(name)
        if extent is None:
            return None
        through, kept = self._keeping
        keeps = through[kernel] if side[0] == "in" else kept.get(name)
        # A pinned result of a kernel that computes keeps its pin, and is known to be within it.
        if side[0] == "out" and not self._ways[kernel][0] and self._is_pinned(name):
            keeps = ALL
        return cut_to(extent, keeps) if keeps is not None else (0.0, 0.0)

    def _is_pinned(self, name: str) -> bool:
        return any(isinstance(fact, Uniform) for fact in self._graph.values[name].facts)

    @cached_property
    def _known(self) -> dict[str, Interval]:
        """Ranges from facts, and those that data movement makes of the ranges that it reads."""
        found: dict[str, Interval] = {}
        for name in self._graph.inputs:
            found |= _if_known(name, known_range(self._graph, name))
        for choice, (moves, cut) in zip(self._choices, self._ways, strict=True):
            region = choice.region
            moved = None
            if moves:
                constants = (name for name in region.inputs if name in self._graph.constants)
                extents = [known_range(self._graph, name) for name in constants]
                moved = hull([*extents, *(found.get(name) for name in region.inputs)])
                moved = cut_to(moved, cut) if moved and cut else moved
            for name in filter(None, region.outputs):
                own = known_range(self._graph, name)
                found |= _if_known(name, cut_to(own, moved) if own and moved else own or moved)
        return found

    @cached_property
    def _keeping(self) -> tuple[list[Interval | None], dict[str, Interval | None]]:
        """The ranges that kernels keep of their inputs, and that all uses keep of values; None: nothing."""
        kept: dict[str, Interval | None] = dict.fromkeys(self._graph.outputs, ALL)
        found: list[Interval | None] = []
        for choice, (moves, cut) in zip(reversed(self._choices), reversed(self._ways), strict=True):
            through: Interval | None = ALL
            if moves:
                through = hull(kept.get(name) for name in choice.region.outputs)
                through = cut_to(through, cut) if through and cut else through
            found.append(through)
            for name in filter(None, choice.region.inputs):
                kept[name] = hull([kept.get(name), through])
        return found[::-1], kept


def _if_known(name: str, extent: Interval | None) -> dict[str, Interval]:
    return {} if extent is None else {name: extent}

"""Names: fresh tensor and node names that collide with nothing in the model.

A model's names are the user's and stay as they are, quotes and slashes included; ours step aside.
"""

from typing import Final

from planner.ir.graph import Graph, Opaque

# Names of ours that rest on a longer one keep its two ends: a file is not to consist of names.
MAX_STEM: Final = 400


class Names:
    """A set of taken names that hands out free ones."""

    def __init__(self, graph: Graph, plan_graph: Graph) -> None:
        """Take every name of the model; names in subgraph bodies count by their bytes."""
        self._taken: set[str] = {*graph.values, *plan_graph.values}
        self._counts: dict[str, int] = {}
        ops = {id(op): op for part in (graph, plan_graph) for op in part.all_ops()}.values()
        self._taken.update([op.name for op in ops])
        items = [item for op in ops for item in op.attributes.values()]
        self._bodies = tuple(dict.fromkeys(item.data for item in items if isinstance(item, Opaque)))

    def fresh(self, stem: str) -> str:
        """Return `stem`, or `stem_1`, `stem_2`, ..., whichever is the first that is free, and take it."""
        if len(stem) > MAX_STEM:
            stem = f"{stem[: MAX_STEM // 2]}...{stem[-MAX_STEM // 2 :]}"
        if stem not in self._taken and not self._bodies:
            self._taken.add(stem)
            return stem
        count = self._counts.get(stem, 0)
        name = f"{stem}_{count}" if count else stem
        while name in self._taken or any(name.encode() in body for body in self._bodies):
            count += 1
            name = f"{stem}_{count}"
        self._counts[stem] = count + 1
        self._taken.add(name)
        return name

"""Parts: a unit of very many classes cut into smaller ones that are labelled by themselves.

What a part leaves out, uses and classes elsewhere, can only add to the price: the parts' bounds add up to
a bound. Source: design 01, section 5.
"""

from collections.abc import Iterator
from dataclasses import replace

from planner.propagation.solver.components import Component, Unit


def split(unit: Unit, size: int) -> Iterator[Unit]:
    """Cut a unit into parts of `size` classes, in the order of its classes.

    An edge belongs to the part that defines it, else to that of its first use; a loss to that of the last
    class on its way. Each keeps the classes of its part alone.
    """
    home = {c: i // size for i, c in enumerate(unit.classes)}
    count = 1 + max(home.values())
    parts = [Unit([Component([])]) for _ in range(count)]
    for c in unit.classes:
        parts[home[c]].components[0].classes.append(c)
    for edge in unit.edges:
        groups = edge.groups()
        if groups:
            mine = home[groups[0] if edge.definition is None else edge.definition[0]]
            uses = [use for use in edge.uses if use.group < 0 or home[use.group] == mine]
            parts[mine].edges.append(replace(edge, uses=uses))
    for loss in unit.losses:
        mine = max(home[c] for c in loss.upstream)
        parts[mine].losses.append(replace(loss, upstream=tuple(c for c in loss.upstream if home[c] == mine)))
    for c, toll in unit.tolls.items():
        parts[home[c]].tolls[c] = toll
    for part in parts:
        part.classes = part.components[0].classes
        part.components[0].edges = part.edges
        yield part

"""Parts: a unit cut into smaller ones, whose bounds add up to a bound of the whole.

A linear program takes longer than in proportion to its size, so beyond a size each part gets one of its own.
What a part leaves out, uses and classes elsewhere, can only add to the price: bounds stay bounds.
Source: design 01, section 5; `benchmarks.solver_steps` measures what parts are worth.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from planner.propagation.solver.components import Component, Unit
from planner.propagation.solver.ways import Way


def split(unit: Unit, size: int) -> Iterator[Unit]:
    """Cut a unit into parts of `size` classes, in the order of its classes.

    An edge belongs to the part that defines it, else to that of its first use; a loss to that of the last
    class on its way. Each keeps the classes of its part alone.
    """
    home = {c: i // size for i, c in enumerate(unit.classes)}
    parts = [Unit([Component([])]) for _ in range(1 + max(home.values()))]
    for c in unit.classes:
        parts[home[c]].components[0].classes.append(c)
    for edge in unit.edges:
        groups = edge.groups()
        if groups:
            mine = home[groups[0] if edge.definition is None else edge.definition[0]]
            # Uses elsewhere could only add rescales, so leaving them out keeps the bound a bound.
            uses = [use for use in edge.uses if use.group < 0 or home[use.group] == mine]
            parts[mine].edges.append(replace(edge, uses=uses))
    here: dict[int, set[int]] = {c: {part} for c, part in home.items()}
    for number, (members, constant) in unit.ways.items():
        here[number] = {part for member in members for part in here[member]}
        for part in here[number]:
            parts[part].ways[number] = Way(_inside(members, here, part), constant)
    for loss in unit.losses:
        # The last part on the way: each loss is counted once, or bounds would add up to too much.
        mine = max(part for member in loss.upstream for part in here[member])
        parts[mine].losses.append(replace(loss, upstream=_inside(loss.upstream, here, mine)))
    for one in parts:
        one.classes = one.components[0].classes
        one.components[0].edges = one.edges
        yield one


def _inside(members: Sequence[int], here: dict[int, set[int]], part: int) -> tuple[int, ...]:
    return tuple([member for member in members if part in here[member]])

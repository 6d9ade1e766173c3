"""Relaxations: units that are easier to label and that no labelling of the real one costs less than.

Two, for units that elimination does not fit and whose linear program would be large; `benchmarks.relaxations`
measures what each is worth (on nets of 2,000 kernels nothing). Parts: what a part leaves out, uses and
classes elsewhere, can only add to the price, so the bounds of parts add up. Blurred labels: those of nearly
the same scale and zero point become one, as fine as the finest of them and legal where any of them is; the
answer also says which of the real ones to look at. Source: design 01, section 5; aggregation bounds.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from planner.ir.types.qtypes import Uniform
from planner.propagation.solver.classes import Label, Offered, Offers, label_of, typed
from planner.propagation.solver.components import Component, Edge, Unit
from planner.propagation.solver.dominance import NEAR
from planner.propagation.solver.ways import Way

SCALES: Final = 32  # cells to a factor of two
OFFSETS: Final = 16  # zero points to a cell

Cell = tuple[int, int]


def blur(unit: Unit, offered: Offered) -> tuple[Unit, Offers, dict[int, dict[Label, Label]]]:
    """Return a unit of blurred labels, what its classes are offered, and each class's labels blurred."""
    components: list[Component] = []
    fewer: Offers = {}
    blurred: dict[int, dict[Label, Label]] = {}
    for component in unit.components:
        to = _cells(_labels(component, offered))
        components.append(Component(component.classes, [_edge(edge, to) for edge in component.edges]))
        for c in component.classes:
            fewer[c] = list(dict.fromkeys(None if label is None else to[label] for label in offered[c]))
            fewer[c].sort(key=lambda label: (label is None, label or (0.0, 0)))
            blurred[c] = to
    edges = [edge for component in components for edge in component.edges]
    return Unit(components, unit.classes, edges, unit.losses, unit.ways), fewer, blurred


def _labels(component: Component, offered: Offered) -> list[Label]:
    found = {label for c in component.classes for label in offered[c] if label is not None}
    for edge in component.edges:
        kinds = (edge.start, *(use.goal for use in edge.uses))
        found.update(label_of(kind) for kind in kinds if kind is not None and kind.is_per_tensor)
    return sorted(found)


def _edge(edge: Edge, to: Mapping[Label, Label]) -> Edge:
    uses = [use._replace(goal=_kind(use.goal, to)) for use in edge.uses]
    return replace(edge, start=_kind(edge.start, to), uses=uses)


def _kind(kind: Uniform | None, to: Mapping[Label, Label]) -> Uniform | None:
    return kind if kind is None or not kind.is_per_tensor else typed(to[label_of(kind)], kind.storage)


def _cells(labels: Sequence[Label]) -> dict[Label, Label]:
    """Every label's blurred one.

    Scales that count as the same fall into one cell, and where they have zero points of several cells,
    these get one scale: what costs a shift of zero point or nothing must not cost a requantize.
    """
    cells: dict[Label, Cell] = {}
    offsets: dict[float, set[int]] = {}
    first = last = 0.0
    for scale, zero_point in labels:
        # Scales that count as one must not fall into two cells, or a free change would cost a rescale.
        if scale > last * NEAR:
            first = scale
        last = scale
        cells[scale, zero_point] = math.floor(math.log2(first) * SCALES), zero_point // OFFSETS
        offsets.setdefault(first, set()).add(zero_point // OFFSETS)
    # Zero points of one scale share it across cells: a shift of zero point must not become a requantize.
    joined = {math.floor(math.log2(scale) * SCALES) for scale, found in offsets.items() if len(found) > 1}
    finest: dict[int, float] = {}
    scales: dict[Cell, float] = {}
    for label, (row, column) in cells.items():
        finest.setdefault(row, label[0])
        scales.setdefault((row, column), label[0])
    return {
        label: (finest[cell[0]] if cell[0] in joined else scales[cell], _nearest_zero(cell[1]))
        for label, cell in cells.items()
    }


def _nearest_zero(column: int) -> int:
    """The zero point of a cell nearest to 0: every storage that holds one of the cell's holds it."""
    return min(max(column * OFFSETS, 0), column * OFFSETS + OFFSETS - 1)


def shared_labels(unit: Unit, offered: Offered, picked: Mapping[int, Label | None]) -> Offers:
    """The finest labels that classes picked alike, and classes at one value, have in common."""
    found: Offers = {c: [] for c in unit.classes}
    sets = {c: set(offered[c]) - {None} for c in unit.classes}
    linked: dict[int, list[int]] = {c: [] for c in unit.classes}
    for edge in unit.edges:
        groups = edge.groups()
        _share(groups, sets, found)
        for a in groups:
            linked[a] += [b for b in groups if b != a and picked[a] is not None and picked[a] == picked[b]]
    waiting = dict.fromkeys(unit.classes)
    while waiting:
        region = [next(iter(waiting))]
        del waiting[region[0]]
        for c in region:
            near = [b for b in dict.fromkeys(linked[c]) if b in waiting]
            region += near
            for b in near:
                del waiting[b]
        _share(region, sets, found)
    return found


def _share(group: Sequence[int], sets: Mapping[int, set[Label | None]], found: Offers) -> None:
    if len(group) > 1:
        common: Iterable[Label | None] = set.intersection(*(sets[c] for c in group))
        label = min((label for label in common if label is not None), default=None)
        for c in group if label is not None else ():
            found[c].append(label)


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

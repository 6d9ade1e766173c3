"""Places of nodes in groups in groups: a group is a rectangle of ranks and columns, for its own alone.

Every group is placed as a graph of its nodes and inner groups, innermost first; edges that cross its border
enter and leave it by lanes. Without groups it is `layout.place`. Source: Sugiyama and Misue,
"Visualization of structural information", 1991 (compound graphs), with borders for their global ordering.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from planner.report.placement.layout import FAR, LANE, Layout, place
from planner.report.placement.scopes import Group

FRAME: Final = 0.3
"""Columns of a group's frame, both sides together."""
Item: TypeAlias = tuple[str, int]
"""In a group: ("node", i), ("group", g), and lanes of node i at the border, ("in", i) and ("out", i)."""

Path: TypeAlias = list[tuple[int, Item, Item]]
"""An edge through frames: in which, from which item, to which."""


@dataclass(frozen=True, slots=True)
class Rectangle:
    """The place of a group: its first rank, which holds its title, ranks in all; left border, width."""

    rank: int
    ranks: int
    column: float
    columns: float


@dataclass(slots=True)
class _Frame:
    """The inside of a group, or of all: its items, edges among them, and where they were placed."""

    items: dict[Item, int] = field(default_factory=dict)
    edges: dict[tuple[Item, Item], int] = field(default_factory=dict)
    layout: Layout = field(default_factory=lambda: Layout((), (), ()))
    starts: list[int] = field(default_factory=list)
    left: float = 0.0
    wide: float = 1.0


@dataclass(frozen=True, slots=True)
class _Nest:
    """All frames, and the rank and column of the first inside each on the page; -1 is the page itself."""

    frames: dict[int, _Frame]
    tops: dict[int, int]
    lefts: dict[int, float]


def place_nested(
    nodes: int, edges: Sequence[tuple[int, int]], order: Sequence[int], groups: Sequence[Group]
) -> tuple[Layout, tuple[Rectangle, ...]]:
    """Place nodes and groups.

    Args:
      nodes: number of them; every edge (from, to) goes forward in `order`.
      groups: outer ones first, each a stretch of `order`.
    """
    if not groups:
        return place(nodes, edges), ()
    homes = _homes(nodes, order, groups)
    paths = [_path(homes, groups, edge) for edge in edges]
    frames = _framed(homes, paths, order, groups)
    for at in range(len(groups) - 1, -2, -1):
        _place_frame(frames, at)
    tops, lefts = _origins(frames, groups)
    ranks, columns = [0] * nodes, [0.0] * nodes
    for node, home in enumerate(homes):
        frame, i = frames[home], frames[home].items["node", node]
        ranks[node] = tops[home] + frame.starts[frame.layout.ranks[i]]
        columns[node] = round(lefts[home] + frame.layout.columns[i], 2)
    nest = _Nest(frames, tops, lefts)
    bends = [
        _bends(nest, path, (ranks[source], ranks[reader], columns[source]))
        for path, (source, reader) in zip(paths, edges, strict=True)
    ]
    found = [
        Rectangle(tops[at] - 1, 1 + frames[at].starts[-1], round(lefts[at] + frames[at].left - FRAME / 2, 2),
                  round(frames[at].wide, 2))
        for at in range(len(groups))
    ]  # fmt: skip
    return Layout(tuple(ranks), tuple(columns), tuple(bends)), tuple(found)


def _homes(nodes: int, order: Sequence[int], groups: Sequence[Group]) -> list[int]:
    """The innermost group of each node; -1 for none."""
    homes = [-1] * nodes
    for at, group in enumerate(groups):
        for place_ in range(group.first, group.last):
            homes[order[place_]] = at
    return homes


def _path(homes: Sequence[int], groups: Sequence[Group], edge: tuple[int, int]) -> Path:
    """The parts of an edge: in which frame, from which item to which."""
    source, reader = edge
    up, down = [homes[source]], [homes[reader]]
    while up[-1] >= 0:
        up.append(groups[up[-1]].parent)
    while down[-1] >= 0:
        down.append(groups[down[-1]].parent)
    while len(up) > 1 and len(down) > 1 and up[-2] == down[-2]:
        up.pop()
        down.pop()
    parts: Path = []
    here: Item = ("node", source)
    for at in up[:-1]:
        parts.append((at, here, ("out", source)))
        here = ("group", at)
    rest: Path = []
    there: Item = ("node", reader)
    for at in down[:-1]:
        rest.append((at, ("in", source), there))
        there = ("group", at)
    return [*parts, (up[-1], here, there), *reversed(rest)]


def _framed(
    homes: Sequence[int], paths: Sequence[Path], order: Sequence[int], groups: Sequence[Group]
) -> dict[int, _Frame]:
    """Frames with what stands in them: lanes that enter, what is inside in order, lanes that leave."""
    frames = {at: _Frame() for at in range(-1, len(groups))}
    for at, source, reader in (part for path in paths for part in path):
        frames[at].edges.setdefault((source, reader), len(frames[at].edges))
    for frame in frames.values():
        for source, _ in frame.edges:
            if source[0] == "in":
                frame.items.setdefault(source, len(frame.items))
    opens: dict[int, list[int]] = {}
    for at, group in enumerate(groups):
        opens.setdefault(group.first, []).append(at)
    for place_, node in enumerate(order):
        for at in opens.get(place_, ()):
            frames[groups[at].parent].items["group", at] = len(frames[groups[at].parent].items)
        frames[homes[node]].items["node", node] = len(frames[homes[node]].items)
    for frame in frames.values():
        for _, reader in frame.edges:
            if reader[0] == "out":
                frame.items.setdefault(reader, len(frame.items))
    return frames


def _place_frame(frames: dict[int, _Frame], at: int) -> None:
    """Place the items of a frame, whose groups are placed: layers as high as their highest item."""
    frame = frames[at]
    widths = [
        frames[i].wide if kind == "group" else 1.0 if kind == "node" else LANE for kind, i in frame.items
    ]
    entries, exits = (sum(kind == side for kind, _ in frame.items) for side in ("in", "out"))
    pairs = [(frame.items[source], frame.items[reader]) for source, reader in frame.edges]
    frame.layout = place(len(widths), pairs, widths, entries=entries, exits=exits)
    heights = [0] * (1 + max(frame.layout.ranks, default=-1))
    for (kind, i), rank in zip(frame.items, frame.layout.ranks, strict=True):
        high = 1 + frames[i].starts[-1] if kind == "group" else int(kind == "node")
        heights[rank] = max(heights[rank], high)
    frame.starts = [0]
    for high in heights:
        frame.starts.append(frame.starts[-1] + high)
    centres = [*zip(frame.layout.columns, widths, strict=True)]
    centres += [(column, LANE) for bends in frame.layout.bends for column in bends]
    # A node's column is that of its left border where it is 1 wide, so all centres are half a column further.
    frame.left = min((column + 0.5 - wide / 2 for column, wide in centres), default=0.0)
    right = max((column + 0.5 + wide / 2 for column, wide in centres), default=1.0)
    frame.wide = right - frame.left + FRAME


def _origins(frames: dict[int, _Frame], groups: Sequence[Group]) -> tuple[dict[int, int], dict[int, float]]:
    """The rank and the column that the first ones inside each frame have on the page; of all 0."""
    tops, lefts = {-1: 0}, {-1: -min(0.0, frames[-1].left)}
    for at, group in enumerate(groups):
        around = frames[group.parent]
        i = around.items["group", at]
        tops[at] = tops[group.parent] + around.starts[around.layout.ranks[i]] + 1
        middle = lefts[group.parent] + around.layout.columns[i] + 0.5
        lefts[at] = middle - (frames[at].wide - FRAME) / 2 - frames[at].left
    return tops, lefts


def _bends(nest: _Nest, path: Path, places: tuple[int, int, float]) -> tuple[float, ...]:
    """The column in each rank that an edge passes; none where a part of it is far.

    Args:
      places: ranks of its ends, and the column of its source, below which it starts.
    """
    top, bottom, column = places
    known: dict[int, float] = {}
    for at, source, reader in path:
        frame = nest.frames[at]
        layout, starts = frame.layout, frame.starts
        first, last = layout.ranks[frame.items[source]], layout.ranks[frame.items[reader]]
        if last - first > FAR:
            return ()
        passed = layout.bends[frame.edges[source, reader]]
        for layer, at_column in zip(range(first + 1, last), passed, strict=True):
            for rank in range(starts[layer], starts[layer + 1]):
                known[nest.tops[at] + rank] = nest.lefts[at] + at_column
    found = []
    for rank in range(top + 1, bottom):
        column = known.get(rank, column)
        found.append(round(column, 2))
    return tuple(found)

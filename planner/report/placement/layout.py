"""Layout of the kernels of a plan on the page: a rank from top to bottom, a column from left to right.

Layers by longest path, then sweeps in which each node moves to the mean of its neighbours, weighed by their
widths, and makes room for those beside it (Sugiyama's scheme with barycentres; room by least squares,
pool-adjacent-violators). Time is linear but for a sort in each rank. Places only; `view` has the contents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

LANE: Final = 0.3
"""Columns that an edge takes where it passes a rank; a node takes one."""
FAR: Final = 48
"""Ranks that an edge makes room for on its way; a longer one is drawn straight."""
LEAST_HIGH: Final = 4
"""Nodes without edges that stand below each other, at least."""
_ROUNDS: Final = 3

Neighbours: TypeAlias = list[list[int]]


@dataclass(frozen=True, slots=True)
class Layout:
    """Places of nodes and edges.

    Attributes:
      ranks: of each node, from 0 at the top.
      columns: centre of each node, in columns, from 0 at the left.
      bends: of each edge, the column in each rank that it passes; empty for neighbours and far edges.
    """

    ranks: tuple[int, ...]
    columns: tuple[float, ...]
    bends: tuple[tuple[float, ...], ...]


def place(
    nodes: int,
    edges: Sequence[tuple[int, int]],
    widths: Sequence[float] | None = None,
    *,
    entries: int = 0,
    exits: int = 0,
) -> Layout:
    """Place nodes `0 .. nodes - 1`, numbered so that every edge (from, to) goes upwards in number.

    Args:
      widths: of the nodes, in columns; 1 each by default.
      entries, exits: how many of the first nodes stand in a rank above all, of the last in one below all.
    """
    alone = _alone(nodes, edges)
    if 0 < len(alone) < nodes:
        return _beside(edges, list(widths or [1.0] * nodes), alone, entries=entries, exits=exits)
    ranks = _ranks(nodes, [edge for edge in edges if edge[0] >= entries] if entries else edges)
    if entries:
        ranks = [0] * entries + [1 + rank for rank in ranks[entries:]]
    if exits:
        ranks[nodes - exits :] = [1 + max(ranks[: nodes - exits], default=0)] * exits
    drawn = _Drawn(list(ranks), list(widths or [1.0] * nodes), [[] for _ in ranks], [[] for _ in ranks])
    lanes = _lanes(drawn, ranks, edges)
    columns = _sweep(drawn)
    left = min(columns, default=0.0)
    columns = [column - left for column in columns]
    bends = tuple(tuple(round(columns[lane], 2) for lane in passed) for passed in lanes)
    return Layout(tuple(ranks), tuple(round(column, 2) for column in columns[:nodes]), bends)


def _alone(nodes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Nodes without an edge."""
    met = bytearray(nodes)
    for source, reader in edges:
        met[source] = met[reader] = 1
    return [node for node in range(nodes) if not met[node]]


def _beside(
    edges: Sequence[tuple[int, int]],
    widths: Sequence[float],
    alone: Sequence[int],
    *,
    entries: int,
    exits: int,
) -> Layout:
    """The nodes with edges, and those without in columns to their left, as high as the others are."""
    nodes = len(widths)
    kept = sorted(set(range(nodes)) - set(alone))
    at = {node: i for i, node in enumerate(kept)}
    pairs = [(at[a], at[b]) for a, b in edges]
    rest = place(len(kept), pairs, [widths[node] for node in kept], entries=entries, exits=exits)
    ranks, columns = [0] * nodes, [0.0] * nodes
    top = 1 if entries else 0
    # Nothing stands below the exits.
    high = max(1, max(rest.ranks) - top) if exits else max(LEAST_HIGH, 1 + max(rest.ranks) - top)
    left = 0.0
    for first in range(0, len(alone), high):
        column = alone[first : first + high]
        wide = max(widths[node] for node in column)
        for rank, node in enumerate(column):
            ranks[node], columns[node] = top + rank, left + (wide - 1) / 2
        left += wide
    lefts = (column + 0.5 - widths[node] / 2 for column, node in zip(rest.columns, kept, strict=True))
    shift = left - min(0.0, *lefts)
    for i, node in enumerate(kept):
        ranks[node], columns[node] = rest.ranks[i], round(rest.columns[i] + shift, 2)
    bends = tuple(tuple(round(column + shift, 2) for column in passed) for passed in rest.bends)
    return Layout(tuple(ranks), tuple(columns), bends)


def _ranks(nodes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest path to each node; a node without one stands right above its first consumer."""
    ranks = [0] * nodes
    readers: Neighbours = [[] for _ in range(nodes)]
    for source, reader in edges:
        readers[source].append(reader)
    led = bytearray(nodes)
    for node in range(nodes):
        below = ranks[node] + 1
        for reader in readers[node]:
            led[reader] = 1
            ranks[reader] = max(ranks[reader], below)
    for node in range(nodes):
        if not led[node] and readers[node]:
            ranks[node] = min(ranks[reader] for reader in readers[node]) - 1
    return ranks


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Nodes and lanes: rank and width of each, its neighbours right above and right below."""

    ranks: list[int]
    widths: list[float]
    above: Neighbours
    below: Neighbours

    def lane(self, rank: int) -> int:
        self.ranks.append(rank)
        self.widths.append(LANE)
        self.above.append([])
        self.below.append([])
        return len(self.ranks) - 1

    def join(self, upper: int, lower: int) -> None:
        self.below[upper].append(lower)
        self.above[lower].append(upper)


def _lanes(drawn: _Drawn, ranks: Sequence[int], edges: Sequence[tuple[int, int]]) -> Neighbours:
    """The lanes that each edge passes, one in a rank; edges of one node share theirs as far as they go."""
    lanes: dict[tuple[int, int], int] = {}
    passed: Neighbours = []
    for source, reader in edges:
        mine: list[int] = []
        if ranks[reader] - ranks[source] <= FAR:
            for rank in range(ranks[source] + 1, ranks[reader]):
                if (source, rank) not in lanes:
                    lanes[source, rank] = drawn.lane(rank)
                    drawn.join(mine[-1] if mine else source, lanes[source, rank])
                mine.append(lanes[source, rank])
            drawn.join(mine[-1] if mine else source, reader)
        passed.append(mine)
    return passed


def _sweep(drawn: _Drawn) -> list[float]:
    """Columns of nodes and lanes after some rounds down and up."""
    rows: Neighbours = [[] for _ in range(1 + max(drawn.ranks, default=-1))]
    for item, rank in enumerate(drawn.ranks):
        rows[rank].append(item)
    columns = [0.0] * len(drawn.ranks)
    for row in rows:
        _make_room(row, [float(i) for i in range(len(row))], drawn.widths, columns)
    for _ in range(_ROUNDS):
        for row in rows:
            _move(row, drawn.above, drawn.widths, columns)
        for row in reversed(rows):
            _move(row, drawn.below, drawn.widths, columns)
    for row in rows:
        _move(row, drawn.above, drawn.widths, columns)
    return columns


def _move(row: list[int], beside: Neighbours, widths: Sequence[float], columns: list[float]) -> None:
    """Move a rank to the means of its neighbours; nodes without any keep their places."""
    wanted = {}
    for item in row:
        near = beside[item]
        weight = sum([widths[other] for other in near])
        wanted[item] = (
            sum([columns[other] * widths[other] for other in near]) / weight if near else columns[item]
        )
    row.sort(key=lambda item: (wanted[item], columns[item]))
    _make_room(row, [wanted[item] for item in row], widths, columns)


def _make_room(
    row: Sequence[int], wanted: Sequence[float], widths: Sequence[float], columns: list[float]
) -> None:
    """Give each item of a row the place nearest to its wish, in order and none over another."""
    if len(row) == 1:
        columns[row[0]] = wanted[0]
        return
    offsets, total = [], 0.0
    for i, item in enumerate(row):
        total += (widths[item] + widths[row[i - 1]]) / 2 if i else 0.0
        offsets.append(total)
    pools: list[tuple[float, int]] = []  # sum of what the members want less their offsets, members
    for want, offset in zip(wanted, offsets, strict=True):
        pool = (want - offset, 1)
        while pools and pools[-1][0] * pool[1] >= pool[0] * pools[-1][1]:
            before = pools.pop()
            pool = (before[0] + pool[0], before[1] + pool[1])
        pools.append(pool)
    at = 0
    for amount, members in pools:
        for item, offset in zip(row[at : at + members], offsets[at : at + members], strict=True):
            columns[item] = amount / members + offset
        at += members

"""Layout of the kernels of a plan on the page: a rank from top to bottom, a column from left to right.

Layers by longest path, then sweeps in which each node moves to the mean of its neighbours and makes room for
those beside it (Sugiyama's scheme with barycentres; room by pool-adjacent-violators, least squares and
linear). Time is linear but for a sort in each rank. Places only; `view` has the contents.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

LANE: Final = 0.3
"""Columns that an edge takes where it passes a rank; a node takes one."""
FAR: Final = 48
"""Ranks that an edge makes room for on its way; a longer one is drawn straight."""
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


def _ranks(nodes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """The longest way to each node; a node without one stands right above its first reader."""
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
        wanted[item] = sum([columns[other] for other in near]) / len(near) if near else columns[item]
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

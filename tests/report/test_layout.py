"""Places on the page: ranks follow edges, nothing stands over anything, straight things stay straight."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.report.placement.layout import FAR, LANE, place


@st.composite
def drawings(draw):
    nodes = draw(st.integers(0, 40))
    pairs = st.tuples(st.integers(0, max(nodes - 1, 0)), st.integers(0, max(nodes - 1, 0)))
    edges = draw(st.lists(pairs, max_size=90)) if nodes else []
    return nodes, [(min(edge), max(edge)) for edge in edges if edge[0] != edge[1]]


@given(drawings())
def test_edges_lead_down_and_nothing_overlaps(drawing):
    nodes, edges = drawing
    layout = place(nodes, edges)
    assert place(nodes, edges) == layout
    assert all(layout.ranks[a] < layout.ranks[b] for a, b in edges)
    taken = dict.fromkeys(zip(layout.ranks, layout.columns, strict=True), 1.0)
    assert len(taken) == nodes
    for (a, b), bends in zip(edges, layout.bends, strict=True):
        span = layout.ranks[b] - layout.ranks[a]
        assert len(bends) == (span - 1 if span <= FAR else 0)
        taken |= {(layout.ranks[a] + 1 + i, column): LANE for i, column in enumerate(bends)}
    for rank in range(max(layout.ranks, default=-1) + 1):
        row = sorted((column, wide) for (at, column), wide in taken.items() if at == rank)
        assert all(right[0] - left[0] >= (left[1] + right[1]) / 2 - 0.02 for left, right in pairwise(row))


def test_the_longest_way_gives_the_rank():
    layout = place(5, [(0, 1), (1, 2), (0, 2), (2, 3)])
    assert layout.ranks == (0, 1, 2, 3, 0)


def test_what_nothing_leads_to_stands_above_its_reader():
    # 0 -> 1 -> 2 -> 4, and 3 is read by 4 alone
    assert place(5, [(0, 1), (1, 2), (2, 4), (3, 4)]).ranks == (0, 1, 2, 2, 3)


def test_a_chain_is_a_straight_line():
    layout = place(50, [(i, i + 1) for i in range(49)])
    assert set(layout.columns) == {0.0}


@pytest.mark.parametrize("children", [1, 2, 3, 5])
@pytest.mark.parametrize("parent", [1, 2, 3])
def test_children_stand_below_the_middle_of_their_parent(parent, children):
    """Of three beside each other, only one of which has any."""
    edges = [*((0, i) for i in (1, 2, 3)), *((parent, 4 + i) for i in range(children))]
    columns = place(4 + children, edges).columns
    assert sum(columns[4:]) / children == pytest.approx(columns[parent], abs=0.02)


def test_a_skip_passes_beside_the_branch():
    layout = place(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    skip = layout.bends[3]
    assert len(skip) == 2
    assert all(
        abs(column - layout.columns[node]) >= (1 + LANE) / 2
        for column, node in zip(skip, (1, 2), strict=True)
    )


def test_edges_of_one_value_share_their_way():
    layout = place(6, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 3), (0, 4)])
    assert layout.bends[4] == layout.bends[5][:2]


def test_a_far_edge_makes_no_room():
    nodes = FAR + 5
    layout = place(nodes, [*((i, i + 1) for i in range(nodes - 1)), (0, nodes - 1)])
    assert layout.bends[-1] == ()
    assert set(layout.columns) == {0.0}


@pytest.mark.parametrize("nodes", [0, 1])
def test_almost_nothing(nodes):
    assert place(nodes, []).ranks == (0,) * nodes

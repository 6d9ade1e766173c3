"""Groups on the page: they nest, hold their own alone, and edges lead down through them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.report.placement.layout import place
from planner.report.placement.nested import place_nested
from planner.report.placement.scopes import Group, groups_of, ordered, scopes_of


@st.composite
def drawings(draw):
    scopes = draw(st.lists(st.lists(st.sampled_from("ab"), max_size=3).map(tuple), max_size=24))
    pairs = st.tuples(st.integers(0, max(len(scopes) - 1, 0)), st.integers(0, max(len(scopes) - 1, 0)))
    edges = draw(st.lists(pairs, max_size=50)) if scopes else []
    return scopes, [(min(edge), max(edge)) for edge in edges if edge[0] != edge[1]]


@given(drawings())
def test_groups_nest_and_edges_lead_down(drawing):
    scopes, edges = drawing
    order = ordered(scopes, edges)
    groups = groups_of(scopes, order)
    layout, frames = place_nested(len(scopes), edges, order, groups)
    assert sorted(order) == list(range(len(scopes)))
    at = {node: i for i, node in enumerate(order)}
    assert all(at[a] < at[b] and layout.ranks[a] < layout.ranks[b] for a, b in edges)
    for (a, b), bends in zip(edges, layout.bends, strict=True):
        assert len(bends) in (0, layout.ranks[b] - layout.ranks[a] - 1)
    for i, group in enumerate(groups):
        assert group.parent < i
        assert group.last - group.first >= 2
        frame = frames[i]
        for node, place_ in at.items():
            is_mine = group.first <= place_ < group.last
            is_inside = (
                frame.rank < layout.ranks[node] < frame.rank + frame.ranks
                and frame.column < layout.columns[node] + 0.5 < frame.column + frame.columns
            )
            assert is_mine == is_inside
    for rank in set(layout.ranks):
        row = sorted(layout.columns[node] for node in order if layout.ranks[node] == rank)
        assert all(right - left >= 0.98 for left, right in pairwise(row))


def test_without_groups_it_is_the_plain_layout():
    edges = [(0, 1), (1, 2), (0, 2), (2, 3)]
    assert place_nested(4, edges, range(4), ()) == (place(4, edges), ())


def test_an_order_stays_in_a_scope_as_long_as_it_can():
    scopes = [("a",), ("b",), ("a",), ("b",), ()]
    edges = [(0, 4), (1, 4)]
    assert ordered(scopes, edges) == [0, 2, 1, 3, 4]
    assert groups_of(scopes, [0, 2, 1, 3, 4]) == (Group("a", -1, 0, 2), Group("b", -1, 2, 4))


def test_a_scope_that_is_left_and_entered_again_is_two_groups():
    scopes = [("a",), ("a",), ("b",), ("a",), ("a",)]
    edges = [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert groups_of(scopes, ordered(scopes, edges)) == (Group("a", -1, 0, 2), Group("a", -1, 3, 5))


def test_a_group_that_fills_another_is_one_with_it():
    scopes = [("m", "x"), ("m", "x"), ()]
    assert groups_of(scopes, [0, 1, 2]) == (Group("m/x", -1, 0, 2),)


def test_groups_that_do_not_fill_the_one_around_them_stand_in_it():
    scopes = [("m",), ("m", "x"), ("m", "x"), ("m", "y", "z"), ("m", "y", "z"), ("n",), ("n", "w")]
    assert groups_of(scopes, range(7)) == (
        Group("m", -1, 0, 5),
        Group("n", -1, 5, 7),
        Group("x", 0, 1, 3),
        Group("y/z", 0, 3, 5),
    )


@pytest.mark.parametrize(
    ("names", "weights", "scopes"),
    [
        (["/m/layer.0/MatMul", "/m/Add", "x"], [(), (), ()], [("m", "layer.0"), ("m",), ()]),
        (["layers.0.q", "layers.0.k"], [(), ()], [("layers", "0"), ("layers", "0")]),
        (["Conv_0", "Mul_1"], [("w.1",), ()], [(), ()]),
        (["/If/then/begin:/a/b", "/If/then/a/b"], [(), ()], [("If", "then"), ("If", "then", "a")]),
        # A numbered name says nothing; the layer of the weights read last does, until others are read.
        (
            ["n0", "n1", "n2", "n3", "n4"],
            [("m.embed.weight",), ("m.layers.0.q.weight",), (), ("m.layers.1.q.weight",), ("m.norm.weight",)],
            [(), ("layers.0",), ("layers.0",), ("layers.1",), ()],
        ),
    ],
)
def test_scopes_come_from_names(names, weights, scopes):
    assert scopes_of(names, weights) == scopes

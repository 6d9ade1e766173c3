"""Edge tables: entry by entry what `edge_price` says of one labelling."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from planner.ir.types.qtypes import storage, uniform
from planner.propagation.solver.components import GIVEN_USE, Edge, Use
from planner.propagation.solver.edge_tables import MANY, edge_tables
from planner.propagation.solver.price import CostModel, edge_price
from planner.target.records import Costs

I8, U8, I16 = storage("i8"), storage("u8"), storage("i16")
LABELS = [(0.5, 0), (0.5, 3), (0.25, 0), (0.5000000596046448, 0), None]
TYPES = [None, uniform(I8, 0.5), uniform(U8, 0.25, 128), uniform(I16, 0.5)]


@st.composite
def edges(draw):
    """An edge of up to four uses in up to three classes, some of them the definition's own."""
    store, group = st.sampled_from((I8, U8, I16)), st.integers(0, 2)
    trips = st.sampled_from(draw(st.sampled_from([(1,), (3,), (1, 3, 7), (1, 1 << 40)])))
    use = st.one_of(
        st.builds(lambda g, s, times: Use(g, s, None, times), group, store, trips),
        st.builds(
            lambda goal, times, outer: Use(GIVEN_USE, None, goal, times, outer),
            st.sampled_from(TYPES),
            trips,
            st.booleans(),
        ),
    )
    uses = draw(st.lists(use, min_size=1, max_size=4))
    definition = draw(st.one_of(st.none(), st.tuples(group, store)))
    start = draw(st.sampled_from(TYPES)) if definition is None else None
    return Edge(0, draw(st.integers(1, 1 << 40)), definition, start, uses, inlet=definition is None)


@given(
    edges(),
    st.lists(st.permutations(LABELS).map(lambda labels: labels[:3]), min_size=3, max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_tables_hold_the_price_of_every_pick(edge, offered, single, allowed):
    cost_model = CostModel(Costs(), single, allowed)
    groups, labels = edge.groups(), dict(enumerate(offered))
    prices, counts = edge_tables(edge, labels, cost_model)
    assert prices.shape == tuple(len(labels[group]) for group in groups)
    for picked in itertools.product(*(range(len(labels[group])) for group in groups)):
        chosen = {group: labels[group][i] for group, i in zip(groups, picked, strict=True)}
        assert (prices[picked], counts[picked]) == edge_price(edge, chosen, cost_model)


def test_very_many_uses_have_no_table():
    edge = Edge(0, 1, (0, I8), None, [Use(GIVEN_USE, None, None, 1)] * (MANY + 1))
    assert edge_tables(edge, {0: LABELS}, CostModel(Costs(), single_consumer=False)) is None

"""Dominated labels: which label a region keeps, as bits, the finest first."""

import pytest

from planner.propagation.solver import dominance


@pytest.mark.parametrize(
    ("offered", "given", "scale", "kept"),
    [
        # Two zero points of one scale, of which no class has both: the coarser label they share is no match.
        ((0b101, 0b110), (), 0b011, 0),
        ((0b101, 0b110), (), 0b100, 0b100),
        # The finest label in common, no coarser than the scale.
        ((0b111, 0b110), (), 0b100, 0b010),
        ((0b111, 0b111), (), 0b100, 0b001),
        ((0b111, 0b111), (), 0b010, 0b001),
        # What an edge starts from or wants of this very scale is the only one that will do, if it is one.
        ((0b111, 0b111), (0b010,), 0b110, 0b010),
        ((0b111, 0b111), (0b010, 0b100), 0b110, 0),
        ((0b101, 0b111), (0b010,), 0b110, 0),
        ((0b111, 0b111), (0b001,), 0b110, 0b001),
    ],
)
def test_a_region_keeps_the_finest_label_that_all_have(offered, given, scale, kept):
    masks = dominance._Masks(dict(enumerate(offered)), dict(enumerate(given)), {}, [], [])
    assert dominance._keep(masks, range(len(offered)), scale) == kept

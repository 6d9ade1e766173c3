"""The way of one factor: the ops that it may lead through, and where it ends."""

from dataclasses import replace

from planner.factors.paths import MOST_STEPS, Move
from planner.ir.graph import Op

OP = Op("o", "Relu", ("x",), ("y",))


def test_a_way_has_a_bounded_number_of_steps():
    move = Move(None, "")
    assert [move.passes(OP) for _ in range(MOST_STEPS + 1)] == [True] * MOST_STEPS + [False]


def test_a_way_passes_plain_ops_of_its_own_scope():
    assert Move(None, "w").passes(replace(OP, scope="w"))
    assert not Move(None, "w").passes(OP)
    assert not Move(None, "").passes(replace(OP, captures=("z",)))
    assert not Move(None, "").passes(replace(OP, outputs=("y", "z")))
    assert Move(None, "").passes(replace(OP, outputs=("y", "")))

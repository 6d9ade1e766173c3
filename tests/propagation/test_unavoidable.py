"""What a use would lose anyway: a class that may run in float counts as exact, and excuses no loss."""

import pytest

import planner
from planner.target.modeltext import read_model_text

BEHIND_FLOAT = """v0 : f32[1,8,2,2] {{-3, 3}}
w = {first} : f32[1,8,2,2]
v = {second} : f32[1,8,2,2] {{-0.1, 0.1}}
z = Sigmoid(v) : f32[1,8,2,2] {{0, 1}}
a = AveragePool(v) [kernel_shape=[1,1]] : f32[1,8,2,2] {{-2.2, 1.1}}
return z, a"""
MOVES = ("Transpose({}) [perm=[0,1,3,2]]", "MaxPool({}) [kernel_shape=[1,1]]", "Concat({}) [axis=1]")


@pytest.mark.parametrize("second", MOVES)
@pytest.mark.parametrize("first", MOVES)
def test_data_moved_in_float_excuses_no_loss(first, second):
    """One more quantize costs 32; 4.04 bits of 32 elements, which float would not lose, are worth 227."""
    text = BEHIND_FLOAT.format(first=first.format("v0"), second=second.format("w"))
    graph = read_model_text(text, "moved in float")
    plan = planner.plan(graph, "litert-int8")
    assert plan.kernels["z"].inputs[0].type.scale < 0.001
    planner.check(plan, graph, "litert-int8")

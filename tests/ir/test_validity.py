"""Validity: each way in which a graph can be broken is named, with the value and the step."""

from dataclasses import replace

import numpy as np
import pytest

from planner.errors import ModelError
from planner.ir.graph import BOUNDARY, Constant, Graph, Op, Value
from planner.ir.structure import Branches, Call, Loop
from planner.ir.topology import topological
from planner.ir.validity import RULES_OF_VALIDITY, validate

NAMES = ("x", "c", "a", "b", "y")
BODY = Graph(
    "body",
    {name: Value(name, (1,), "f32") for name in ("u", "v")},
    (Op("inner", "Relu", ("u",), ("v",)),),
    ("u",),
    ("v",),
)


def graph(*ops, **changed):
    own = {
        "values": {name: Value(name, (1,), "f32") for name in NAMES},
        "ops": ops,
        "inputs": ("x",),
        "outputs": ("y",),
        "constants": {"c": Constant(np.zeros(1, np.float32))},
    }
    return Graph("m", **{**own, **changed})


def runs(structure, inputs=("x",), outputs=("y",)):
    return graph(Op("run", "Run", inputs, outputs, structure=structure), functions={"body": BODY})


LAST = Op("last", "Relu", ("x",), ("y",))
VALID = (
    graph(LAST),
    graph(Op("first", "Add", ("x", "", "c"), ("a", "")), Op("last", "Relu", ("a",), ("y",))),
    graph(LAST, caches=(("x", "y"),)),
    runs(Call("body")),
    runs(Loop("body", 1, carried=((0, 0),))),
    runs(Branches(("body", "body")), ("c", "x")),
)
BROKEN = [
    (graph(Op("o", "Add", ("x", "z"), ("y",))), "'o' names 'z', which is no value of the graph"),
    (graph(Op("o", "Add", ("x",), ("y", "z"))), "'o' names 'z', which is no value of the graph"),
    (graph(LAST, Op("last", "Relu", ("x",), ("a",))), "two kernels or ops are named 'last'"),
    (graph(replace(LAST, name=BOUNDARY)), f"two kernels or ops are named {BOUNDARY!r}"),
    (
        graph(LAST, Op("o", "Relu", ("x",), ("x",))),
        "value 'x' is written by 'o' and is already a model input",
    ),
    (graph(LAST, Op("o", "Relu", ("x",), ("c",))), "value 'c' is written by 'o' and is already a constant"),
    (
        graph(LAST, Op("o", "Relu", ("x",), ("y",))),
        "value 'y' is written by 'o' and is already written by 'last'",
    ),
    (graph(Op("o", "Relu", ("a",), ("y",))), "'o' reads 'a', which nothing before it defines"),
    (graph(Op("o", "Relu", ("x",), ("a",))), "output 'y' is defined by nothing"),
    (runs(Call("nobody")), "'run' runs function 'nobody', which the model does not have"),
    (runs(Call("body"), ("x", "c")), "'run' has 2 inputs for 1 of function 'body'"),
    (runs(Call("body"), outputs=("a", "y")), "'run' has 2 results for 1 of function 'body'"),
    (runs(Branches(("body",)), ("x",)), "'run' has 0 inputs for 1 of function 'body'"),
    (runs(Branches(()), ("x",)), "'run' has branches and no condition, or no branch"),
    (runs(Branches(()), ()), "'run' has branches and no condition, or no branch"),
    (runs(Loop("body", 0)), "'run' loops 0 times; accepted: 1 or more"),
    (
        runs(Loop("body", 1, carried=((1, 0),))),
        "'run' carries [1, 0], which is no pair of an input and a result",
    ),
    (
        runs(Loop("body", 1, carried=((0, 1),))),
        "'run' carries [0, 1], which is no pair of an input and a result",
    ),
    (
        runs(Loop("body", 1, carried=((-1, 0),))),
        "'run' carries [-1, 0], which is no pair of an input and a result",
    ),
    (runs(Loop("body", 1, carried=((0, 0), (0, 0)))), "'run' carries an input or a result twice"),
    (graph(LAST, caches=(("a", "y"),)), "the cache of 'a' and 'y' names 'a', which is no input"),
    (graph(LAST, caches=(("x", "a"),)), "the cache of 'x' and 'a' names 'a', which is no output"),
]


@pytest.mark.parametrize("good", VALID)
def test_a_valid_graph_comes_back(good):
    assert validate(good) is good


@pytest.mark.parametrize(("bad", "said"), BROKEN, ids=range(len(BROKEN)))
def test_a_broken_graph_is_refused_where_it_breaks(bad, said):
    with pytest.raises(ModelError) as raised:
        validate(bad)
    assert raised.value.message == f"model 'm': {said}"


def test_a_broken_function_is_named():
    body = replace(BODY, outputs=("w",))
    with pytest.raises(ModelError) as raised:
        validate(replace(graph(LAST), functions={"body": body}))
    assert raised.value.message == "function 'body': output 'w' is defined by nothing"


def test_a_function_may_run_the_models_functions():
    outer = replace(BODY, ops=(Op("run", "Run", ("u",), ("v",), structure=Call("body")),))
    good = replace(graph(LAST), functions={"outer": outer, "body": BODY})
    assert validate(good) is good
    with pytest.raises(ModelError, match="function 'outer': 'run' runs function 'body'"):
        validate(replace(graph(LAST), functions={"outer": outer}))


def test_every_rule_is_broken_here():
    broken = {rule for rule in RULES_OF_VALIDITY for bad, _ in BROKEN if next(rule(bad), None)}
    assert broken == set(RULES_OF_VALIDITY)


def test_a_cycle_is_told_as_a_way_round():
    steps = (
        Op("a", "Add", ("x", "r"), ("p",)),
        Op("b", "Relu", ("p",), ("q",)),
        Op("c", "Relu", ("q",), ("r",)),
        Op("d", "Relu", ("x",), ("s",)),
        Op("e", "Relu", ("r",), ("t",)),
    )
    with pytest.raises(ModelError) as raised:
        topological(steps)
    assert raised.value.message == "these depend on each other in a cycle: 'a' -> 'b' -> 'c'"

"""Variables of streaming files: inputs and outputs of the model, which the caller hands from call to call."""

import numpy as np
import pytest

import planner
from planner.errors import ModelError
from planner.interpreter.models import run_model
from tests.formats.litert.reader.by_hand import Hand

STEPS = [np.float32([1, -2, 3]), np.float32([0.5, 0, -1]), np.float32([4, 4, 4])]


def summing(name="stream/states", **stored):
    """A sum of all inputs so far: read, added to, assigned, and read again."""
    hand = Hand()
    element = "INT8" if stored else "FLOAT32"
    x = hand.tensor((3,), element, name="x", **stored)
    handle = hand.tensor((), "RESOURCE", name=name)
    held, total, again = (
        hand.tensor((3,), element, name=key, **stored) for key in ("held", "total", "again")
    )
    hand.operator("CALL_ONCE", 1, (), (), "CallOnceOptions", {"InitSubgraphIndex": 1})
    hand.operator("VAR_HANDLE", 1, (), (handle,), "VarHandleOptions")
    hand.operator("READ_VARIABLE", 1, (handle,), (held,), "ReadVariableOptions")
    hand.operator("ADD", 1, (x, held), (total,), "AddOptions")
    hand.operator("ASSIGN_VARIABLE", 1, (handle, total), (), "AssignVariableOptions")
    hand.operator("READ_VARIABLE", 1, (handle,), (again,), "ReadVariableOptions")
    return hand, x, again


def test_a_state_is_an_input_and_an_output():
    hand, x, again = summing()
    data = hand.file((x,), (again,), [(Hand(), (), ())])
    graph = planner.load_model(data)
    assert (graph.inputs, graph.outputs[1:]) == (("x", "stream/states"), ("stream/states/next",))
    assert any("whose first numbers the caller gives: 'stream/states'" in note for note in graph.notes)
    state, total = np.zeros(3, np.float32), np.zeros(3, np.float32)
    for step in STEPS:
        found = run_model(data, {"x": step, "stream/states": state})
        total, state = total + step, found["stream/states/next"]
        np.testing.assert_array_equal(found[graph.outputs[0]], total)
        np.testing.assert_array_equal(state, total)


def test_a_stored_state_keeps_its_type():
    kind = {"scales": (0.5,), "zeros": (-3,)}
    hand, x, again = summing(**kind)
    graph = planner.load_model(hand.file((x,), (again,), [(Hand(), (), ())]))
    plan = planner.plan(graph, "litert-int8")
    planner.check(plan, graph, "litert-int8")
    texts = {name: str(plan.values[name].type) for name in ("stream/states", "stream/states/next")}
    assert set(texts.values()) == {"!quant.uniform<i8:f32, 0.5:-3>"}
    assert plan.fully_quantized


def test_a_variable_of_a_name_in_use_gets_another():
    hand, x, again = summing(name="x")
    graph = planner.load_model(hand.file((x,), (again,), [(Hand(), (), ())]))
    assert len(set(graph.inputs)) == len(graph.inputs) == 2


def test_a_variable_without_a_handle_is_refused():
    hand = Hand()
    x, y = hand.tensor((3,), "RESOURCE", name="x"), hand.tensor((3,), "FLOAT32", name="y")
    hand.operator("READ_VARIABLE", 1, (x,), (y,), "ReadVariableOptions")
    with pytest.raises(ModelError, match="READ_VARIABLE reads a variable that no VAR_HANDLE names"):
        planner.load_model(hand.file((), (y,)))

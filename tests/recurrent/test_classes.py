"""Rows with several `same_scale` rules: each class has its own ports and ranges, and names its own line."""

from pathlib import Path

import pytest

from planner.checker.check import check
from planner.pipeline import plan
from planner.plans.explain import explain
from planner.target.load import load_target
from planner.target.modeltext import read_model_text

TEXT = (Path(__file__).parent / "device.yaml").read_text(encoding="utf-8")
MODEL = """
x : f32[4,1,8] {-2, 2}
w = constant : f32[1,64,8] {-0.5, 0.5}
r = constant : f32[1,64,16] {-0.5, 0.5}
h : f32[1,1,16] {-2, 2}
c : f32[1,1,16] {-7, 7}
y, hn, cn = LSTM(x, w, r, _, _, h, c) : f32[4,1,1,16] {-1, 1}, f32[1,1,16] {-1, 1}, f32[1,1,16] {-3, 3}
"""


def types(text):
    made = plan(read_model_text(MODEL, "m"), load_target(text), max_clip=1.0)
    kernel = made.kernels["y"]
    return {port.address: port.type for port in (*kernel.inputs, *kernel.outputs) if port.value}


def test_each_class_holds_its_own_hull():
    found = types(TEXT)
    assert found["y.in[4]"] == found["y.out[0]"] == found["y.out[1]"]
    assert found["y.in[4]"].scale == pytest.approx(4 / 255)
    assert found["y.in[5]"] == found["y.out[2]"]
    assert found["y.in[5]"].scale == 2**-12


def test_a_direction_is_of_the_ports_it_names():
    """The hidden state takes the range of the results, the cell state still that of all its ports."""
    old = "- same_scale: [h_in, y, h_out]"
    new = "- same_scale: {ports: [h_in, y, h_out], direction: from_outputs}"
    found = types(TEXT.replace(old, new, 1))
    assert found["y.in[4]"].scale == pytest.approx(2 / 255)
    assert found["y.in[5]"].scale == 2**-12


def test_an_explanation_names_the_rule_that_joins_the_port():
    target = load_target(TEXT)
    made = plan(read_model_text(MODEL, "m"), target)
    hidden, cell = (rule.source for rule in target.rows["LSTM"][0].rules[1:])
    assert f"same_scale gives y.out[1] its type ({hidden})" in explain(made, "y.out[1]")
    assert f"same_scale gives y.out[2] its type ({cell})" in explain(made, "y.out[2]")


UNREAD = """
x : f32[4,1,8] {-2, 2}
w = constant : f32[1,64,8] {-0.5, 0.5}
r = constant : f32[1,64,16] {-0.5, 0.5}
zeros = constant 0 : f32[1,1,16]
y, h, c = LSTM(x, w, r, _, _, zeros, zeros) : f32[4,1,1,16] {-1, 1}, f32[1,1,16] {-1, 1}, f32[1,1,16] {-3, 3}
z = Relu(y) : f32[4,1,1,16]
return z
"""


@pytest.mark.parametrize("start", ["zeros", "_"])
def test_a_state_that_nothing_reads_still_has_its_range(start):
    """The cell state comes back at every step: on the scale of its constant start it would be all zeros."""
    text = UNREAD.replace("zeros, zeros)", f"zeros, {start})")
    made = plan(read_model_text(text, "m"), load_target(TEXT))
    kernel = made.kernels["y"]
    types = {port.address: port.type for port in (*kernel.inputs, *kernel.outputs) if port.value}
    assert types["y.out[2]"].scale == 2**-13
    assert types.get("y.in[5]", types["y.out[2]"]) == types["y.out[2]"]
    check(made, read_model_text(text, "m"), load_target(TEXT))

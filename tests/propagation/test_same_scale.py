"""`same_scale` with `prefer` and `direction`: whose range the class holds; and ports fixed apart."""

from dataclasses import replace

import pytest

from planner.checker.check import check
from planner.errors import Conflict
from planner.ir.types.qtypes import storage
from planner.ir.types.ranges import uniform_from_range
from planner.ir.types.typetext import parse_type
from planner.propagation.propagate import propagate
from tests.propagation.small import graph_of, target_of

ROW = "- {kernel: mix, in: {a: a8, b: a8}, out: {y: a8}, computes: true, rules: [{same_scale: RULE}]}"


def plan_of(rule, **facts):
    graph = graph_of(
        {"a": "[-1, 1]", "b": "[-4, 1]", "y": "[-8, 2]"}, [("k", "mix", "a b", "y")], outputs="y"
    )
    if facts:
        sides = {"input_facts": ((), ()), "output_facts": ((),), **facts}
        graph = replace(graph, regions=(replace(graph.regions[0], **sides),))
    return propagate(graph, target_of(ROW.replace("RULE", rule)))


@pytest.mark.parametrize(
    ("rule", "lo", "hi"),
    [
        ("[a, b, y]", -8, 2),
        ("{ports: [a, b, y], prefer: hull}", -8, 2),
        ("{ports: [a, b, y], direction: from_inputs}", -4, 1),
        ("{ports: [a, b, y], direction: from_outputs}", -8, 2),
        ("{ports: [a, b, y], prefer: first}", -1, 1),
        ("{ports: [b, a, y], prefer: first}", -4, 1),
        ("{ports: [a, b, y], prefer: widest}", -8, 2),
        ("{ports: [a, b, y], prefer: widest, direction: from_inputs}", -4, 1),
    ],
)
def test_whose_range_is_held(rule, lo, hi):
    """What the others lose is told."""
    plan = plan_of(rule)
    check(plan)
    kernel = plan.kernels["k"]
    assert {port.type for port in (*kernel.inputs, *kernel.outputs)} == {
        uniform_from_range(lo, hi, storage("i8"))
    }
    assert (plan.values["y"].clip > 0.01) == ((lo, hi) != (-8, 2))


P, Q = parse_type("!quant.uniform<i8:f32, 0.5>"), parse_type("!quant.uniform<i8:f32, 0.25>")


def test_ports_of_a_class_that_facts_fix_apart_are_a_conflict():
    with pytest.raises(Conflict, match=r"k.in\[0\] and k.out\[0\] share a scale") as caught:
        plan_of("[a, b, y]", input_facts=((P,), ()), output_facts=((Q,),))
    assert caught.value.facts[:2] == (f"port k.in[0]: {P}", f"port k.out[0]: {Q}")
    assert caught.value.facts[2].startswith("same_scale of ")


def test_ports_that_facts_fix_alike_are_none():
    plan = plan_of("[a, b, y]", input_facts=((P,), (P,)), output_facts=((P,),))
    check(plan)
    assert plan.kernels["k"].outputs[0].type == P

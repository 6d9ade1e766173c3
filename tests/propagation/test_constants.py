"""Constants in several roles, biases that are too long, and functions that type constants."""

from dataclasses import replace

import numpy as np
import pytest

from planner.checker.check import check
from planner.errors import Conflict, RuleError
from planner.ir.graph import Op, model_digest
from planner.ir.types.qtypes import Uniform, storage
from planner.ir.types.typetext import parse_type
from planner.propagation.propagate import propagate
from tests.propagation.small import graph_of, target_of

ROWS = """
- {kernel: fc, in: {x: a8, w: n8, b?: b32}, out: {y: a8}, rules: RULES}
- {kernel: other, in: {x: a8, w: a8}, out: {y: a8}}
""".replace("RULES", "[{multiplier_accumulator_scale: {port: b, of: [x, w]}}]")
FREE = target_of(ROWS)
ONCE = replace(FREE, duplicate_constants=False)
W = np.array([[1.0, -2.0], [0.5, 0.25]], np.float32)


def shared(first, second):
    kernels = [("k1", first, "x w", "a"), ("k2", second, "a w", "y")]
    return graph_of({"x": "[-1, 1]", "w": W, "a": "[-1, 1]", "y": "[-1, 1]"}, kernels, outputs="y")


def test_one_copy_where_the_types_agree():
    """Case 21, also where the target stores constants once."""
    plan = propagate(shared("fc", "fc"), ONCE)
    assert plan.kernels["k1"].inputs[1].type == plan.kernels["k2"].inputs[1].type
    assert plan.warnings == ()


def test_another_copy_and_its_bytes_where_they_differ():
    plan = propagate(shared("fc", "other"), FREE)
    check(plan)
    kind = plan.kernels["k2"].inputs[1].type
    assert plan.warnings == (f"k2.in[1] stores 'w' once more, as {kind}: 4 bytes",)


def test_a_conflict_where_the_target_stores_it_once():
    with pytest.raises(Conflict, match="'w' would be stored twice") as caught:
        propagate(shared("fc", "other"), ONCE)
    assert [fact.partition(":")[0] for fact in caught.value.facts[:2]] == ["port k1.in[1]", "port k2.in[1]"]
    assert caught.value.facts[2].endswith("duplicate_constants: false")
    plan = propagate(shared("fc", "other"), ONCE, best_effort=True)
    assert plan.warnings[0].endswith("stores a constant once: done all the same")


def biased(bias, pin):
    values = {
        "x": "!quant.uniform<i8:f32, 0.0078125>",
        "w": W,
        "b": np.array(bias, np.float32),
        "y": "[-4, 4]",
    }
    graph = graph_of(values, [("k", "fc", "x w b", "y")], outputs="y", shapes={"x": (1, 2)})
    op = Op("k_op", "Gemm", ("x", "w", "b"), ("y",), {"transB": 1})
    named = {**graph.values, "w": replace(graph.values["w"], facts=(parse_type(pin),) if pin else ())}
    return replace(graph, regions=(replace(graph.regions[0], ops=(op,)),), values=named)


FINE = "!quant.uniform<i8<-127:127>:f32, 0.0000152587890625>"  # 2^-16


def test_a_pinned_weight_cannot_grow_for_its_bias():
    """Case 22: past 2^30 steps the channel is named, past the storage the row is left."""
    graph = biased([0.5, 200.0], FINE)
    plan = propagate(graph, FREE, model=model_digest(graph))
    check(plan, graph, FREE)
    assert plan.warnings == ("k.in[2]: channel 1 of 'b' takes 1.678e+09 of 2^31 steps",)
    floated = propagate(biased([512.0, 0.0], FINE), FREE)
    said = "channel 0 of 'b' is 4.295e+09 steps of its scale, i32 holds 2147483647, and 'w' has a fixed type"
    assert floated.kernels["k"].reason.endswith(said)
    assert any("k.in[1] is float" in warning for warning in floated.warnings)
    assert propagate(biased([512.0, 0.0], ""), FREE).kernels["k"].row is not None


def doubled(inputs, outputs, args):
    """Twice the scale of x for the weight, the same type for the result."""
    del args
    kind = inputs[0].type
    if kind is None:
        return {}
    weight = Uniform(storage("i8"), (kind.scale * 2,), (0,))
    return {inputs[1].id: weight, outputs[0].id: kind}


def calling(function):
    return target_of("- {kernel: special, in: {x: a8, w: a8}, out: {y: a8}, rules: [{fn: f}]}", f=function)


def special():
    values = {"x": "[-1, 1]", "w": W, "y": "[-1, 1]"}
    return graph_of(values, [("k", "special", "x w", "y")], outputs="y")


def test_a_function_types_constants_and_results():
    graph, target = special(), calling(doubled)
    plan = propagate(graph, target, model=model_digest(graph))
    check(plan, graph, target)
    x, w = (port.type for port in plan.kernels["k"].inputs)
    assert w.scale == x.scale * 2
    assert plan.kernels["k"].outputs[0].type == x
    assert {plan.steps[plan.values["y"].decided_by].rule} == {"fn"}


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (
            lambda *sides: {("in", 7): sides[0][0].type},
            "answers for port ('in', 7), the kernel has in[0], in[1], out[0]",
        ),
        (
            lambda *sides: {sides[1][0].id: Uniform(storage("u8"), (1.0,), (0,))},
            "for port 'y', which stores i8",
        ),
        (lambda *sides: {sides[1][0].id: "i8"}, "'f' answers i8 for port 'y'"),
    ],
)
def test_an_answer_that_does_not_fit_names_function_and_port(answer, problem):
    with pytest.raises(RuleError) as caught:
        propagate(special(), calling(answer))
    assert problem in caught.value.message

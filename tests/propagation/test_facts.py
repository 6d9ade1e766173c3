"""What each kind of fact does to the ports it meets: Any, None, floats, Bipolar; and contradictions."""

from dataclasses import replace

import numpy as np
import pytest

from planner.checker.check import check
from planner.errors import Conflict
from planner.ir.graph import Op
from planner.ir.types.typetext import parse_type
from planner.plans.read_json import plan_from_json
from planner.plans.read_mlir import plan_from_mlir
from planner.plans.write_json import plan_to_json
from planner.plans.write_mlir import plan_to_mlir
from planner.propagation.propagate import propagate
from tests.propagation.small import graph_of, target_of

ROWS = target_of("""
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}
- {kernel: narrow, in: {x: {storage: i8, range: [-8, 7]}}, out: {y: {storage: i8, range: [-8, 7]}}}
- {kernel: norm, in: {x: "*"}, out: {y: "*"}, float: bf16}
- {kernel: norm, in: {x: a8}, out: {y: a8}}
- {kernel: fc, in: {x: a8, w: n8}, out: {y: a8}}
- {kernel: conv, in: {x: a8, w: w8}, out: {y: a8}, axis: {w: 0}}
""")
A8, I4 = "!quant.uniform<i8:f32, 0.5>", "!quant.uniform<i8<-8:7>:f32, 0.5>"


def chain(middle, kernels=("add", "add")):
    first, second = kernels
    ins = {"add": "{0} {0}", "norm": "{0}", "narrow": "{0}", "gelu": "{0}"}
    return graph_of(
        {"x": "[-1, 1]", "a": f"[-1, 1] & {middle}", "y": "[-2, 2]"},
        [("k1", first, ins[first].format("x"), "a"), ("k2", second, ins[second].format("a"), "y")],
        outputs="y",
    )


def both_ways(plan):
    """A plan is right, and survives both text forms."""
    check(plan)
    assert plan_to_json(plan_from_json(plan_to_json(plan))) == plan_to_json(plan)
    assert plan_to_json(plan_from_mlir(plan_to_mlir(plan))) == plan_to_json(plan)
    return plan


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (A8, "!quant.any<i16>"),
        (I4, "!quant.any<i8>"),  # eight bits wide, four in use
        (A8, "bf16"),
        ("!quant.none", "bf16"),
        ("bf16", "f16"),
        ("!quant.bipolar<f32, 0.5>", A8),
        ("!quant.bipolar<f32, 0.5>", "!quant.any<i2>"),
    ],
)
def test_contradictions_name_both_facts(first, second):
    with pytest.raises(Conflict, match="'a' cannot be both") as caught:
        propagate(chain(f"{first} & {second}"), ROWS)
    assert caught.value.facts == (f"value 'a': {first}", f"value 'a': {second}")


@pytest.mark.parametrize(
    ("kind", "wish"),
    [(A8, "!quant.any<i8>"), (I4, "!quant.any<i4>"), ("!quant.bipolar<f32, 0.5>", "!quant.any<u1>")],
)
def test_a_type_of_exactly_the_bits_asked_for_contradicts_nothing(kind, wish):
    both_ways(propagate(chain(f"{kind} & {wish}", ("norm", "norm")), ROWS))


def test_a_port_cannot_be_both():
    graph = chain("")
    region = replace(graph.regions[1], input_facts=((parse_type(A8), parse_type("!quant.any<i16>")), ()))
    with pytest.raises(Conflict, match=r"k2.in\[0\] cannot be both") as caught:
        propagate(replace(graph, regions=(graph.regions[0], region)), ROWS)
    assert caught.value.facts[0] == f"port k2.in[0]: {A8}"


@pytest.mark.parametrize(
    ("wish", "served"), [("!quant.any<i4>", True), ("!quant.any<i8<-8:7>>", True), ("!quant.any<i5>", False)]
)
def test_any_asks_for_bits_in_use(wish, served):
    """A narrow range has the bits it uses, not those of its format."""
    plan = both_ways(propagate(chain(wish, ("narrow", "narrow")), ROWS))
    assert [kernel.row is not None for kernel in plan.kernels_in_order] == [served, served]


def test_any_and_calibrated_on_one_value():
    plan = both_ways(propagate(chain("!quant.any<i8>"), ROWS))
    assert plan.kernels["k1"].outputs[0].type.hi == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize(("fact", "kind"), [("!quant.none", None), ("bf16", "bf16"), ("f16", "f16")])
def test_a_value_kept_in_a_float(fact, kind):
    """Casts on both sides; the kernels around it are served."""
    plan = both_ways(propagate(chain(fact), ROWS))
    assert [kernel.row is not None for kernel in plan.kernels_in_order] == [True, True]
    around = [rescale for rescale in plan.rescales if rescale.value == "a"]
    assert [rescale.kind for rescale in around] == ["dequantize", "quantize"]
    assert [str(around[0].to_type), str(around[1].from_type)] == [str(kind), str(kind)]


def test_a_float_kernel_runs_in_the_float_of_its_value():
    plan = both_ways(propagate(chain("bf16", ("add", "gelu")), ROWS))
    assert [str(port.type) for port in (*plan.kernels["k2"].inputs, *plan.kernels["k2"].outputs)] == [
        "bf16",
        "None",
    ]


def test_a_row_runs_its_kernel_in_a_float():
    """`float: bf16` makes every port of the row a bf16 one; the neighbours cast."""
    plan = both_ways(propagate(chain("", ("add", "norm")), ROWS))
    assert {str(port.type) for port in (*plan.kernels["k2"].inputs, *plan.kernels["k2"].outputs)} == {"bf16"}
    assert [rescale.kind for rescale in plan.rescales if rescale.value == "a"] == ["dequantize"]


def test_a_float_fact_prefers_the_row_that_runs_in_it():
    target = target_of("""
- {kernel: norm, in: {x: a8}, out: {y: a8}}
- {kernel: norm, in: {x: "*"}, out: {y: "*"}, float: bf16}
""")
    for fact, row in (("", 0), ("bf16", 1)):
        graph = graph_of({"x": f"[-1, 1] & {fact}", "y": "[-1, 1]"}, [("k", "norm", "x", "y")], outputs="y")
        plan = both_ways(propagate(graph, target))
        check(plan, target=target)
        assert plan.row_of("k") is target.rows["norm"][row]


SIGNS = "!quant.bipolar<f32, 0.25>"


@pytest.mark.parametrize(("kernel", "scales"), [("fc", 1), ("conv", 2)])
def test_one_bit_weights_are_stored_as_signs(kernel, scales):
    weights = np.array([[0.25, -0.25], [-0.25, 0.25]], np.float32)
    graph = graph_of(
        {"x": A8, "w": weights, "y": "[-1, 1]"},
        [("k", kernel, "x w", "y")],
        outputs="y",
        shapes={"x": (1, 2)},
    )
    region = replace(graph.regions[0], ops=(Op("k_op", "Gemm", ("x", "w"), ("y",), {"transB": 1}),))
    values = {**graph.values, "w": replace(graph.values["w"], facts=(parse_type(SIGNS),))}
    graph = replace(graph, values=values, regions=(region,))
    plan = both_ways(propagate(graph, ROWS))
    kind = plan.kernels["k"].inputs[1].type
    assert (kind.scales, set(kind.zero_points)) == ((0.25,) * scales, {0})
    assert plan.kernels["k"].accumulator_bits == 10  # 2 x 1 x 128


def test_a_one_bit_value_is_computed_in_float():
    """No row yields a sign: the value stays float, and its reader quantizes the two reals it can be."""
    plan = both_ways(propagate(chain(SIGNS), ROWS))
    around = [rescale.kind for rescale in plan.rescales if rescale.value == "a"]
    assert around == ["dequantize", "quantize"]
    assert plan.kernels["k2"].inputs[0].type.scale == pytest.approx(0.25 / 127, rel=1e-6)


@pytest.mark.parametrize("maker", ["gelu", "add"])
def test_a_type_of_a_port_holds_whatever_is_settled_without_a_search(maker):
    """The value before it has a range, and nothing else around it has a say."""
    graph = chain("", (maker, "add"))
    region = replace(graph.regions[1], input_facts=((parse_type(A8),), ()))
    plan = both_ways(propagate(replace(graph, regions=(graph.regions[0], region)), ROWS))
    assert plan.kernels["k2"].inputs[0].type == parse_type(A8)


def test_what_the_greedy_order_cuts_off_is_said():
    """Words hand their fine scale on to bytes, which hold a 200th of them."""
    rows = target_of("""
- {kernel: wide, in: {x: a16}, out: {y: a16}}
- {kernel: add, in: {a: a8, b: a8}, out: {y: a8}}
""")
    graph = graph_of(
        {"x": "[-1, 1]", "a": "[-1, 1]", "y": "[-2, 2]"},
        [("k1", "wide", "x", "a"), ("k2", "add", "a a", "y")],
        outputs="y",
    )
    plan = propagate(graph, rows, strategy="rfc")
    assert [text for text in plan.warnings if text.startswith("k2.in[0] takes") and "clips 99.6%" in text]
    assert not propagate(graph, rows).warnings

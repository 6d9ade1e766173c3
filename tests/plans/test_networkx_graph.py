"""A plan as a networkx graph says what the plan says, and answers questions."""

import json

import networkx as nx
import pytest

import planner
from planner.plans.plan import Plan
from tests.conftest import ROOT
from tests.plans.planned import TARGETS, case

CASES = ROOT / "tests" / "cases"


def planned(name: str) -> Plan:
    return planner.plan(planner.load_model(CASES / f"{name}.json"), CASES / "npu.yaml")


def edges(graph: nx.MultiDiGraph) -> dict[str, dict[str, object]]:
    return {port: edge for _, _, port, edge in graph.edges(keys=True, data=True)}


@pytest.mark.parametrize("target", TARGETS)
def test_every_port_and_rescale_of_the_shipped_example_is_there(target):
    plan = case(target).plan
    graph = planner.to_networkx(plan)
    found = edges(graph)
    ports = {port.address: port for k in plan.kernels_in_order for port in k.inputs if port.value}
    assert found.keys() == ports.keys() | {"@model.in[0]"}
    for address, port in ports.items():
        assert found[address]["value"] == port.value
        assert found[address]["to_type"] == ("f32" if port.type is None else str(port.type))
    kernels = [name for name, kind in graph.nodes(data="kind") if kind == "kernel"]
    assert kernels == [kernel.name for kernel in plan.kernels_in_order]
    costs = {rescale.id: rescale.cost for rescale in plan.rescales}
    assert {name: edge["cost"] for edge in found.values() for name in edge["rescales"]} == costs


def test_a_plan_read_from_a_file_gives_the_same_graph():
    plan = case("litert-int8").plan
    mine, read = (planner.to_networkx(one) for one in (plan, planner.plan_from_json(plan.to_json())))
    assert nx.utils.graphs_equal(mine, read)
    assert json.loads(json.dumps(list(mine.nodes(data=True))))
    assert json.loads(json.dumps(edges(mine)))


def test_the_ends_of_a_model_and_a_constant():
    graph = planner.to_networkx(case("litert-int8").plan)
    assert graph.nodes["@model.out[0]"] == {"kind": "input", "value": "image"}
    assert graph.nodes["@model.in[0]"] == {"kind": "output", "value": "probabilities"}
    first = graph.edges["@model.out[0]", "stem/conv", "stem/conv.in[0]"]
    assert first == {
        "value": "image",
        "elements": 64,
        "from_port": "@model.out[0]",
        "from_type": "f32",
        "to_type": "!quant.uniform<i8:f32, 0.003921568859368563:-128>",
        "is_float": False,
        "rescales": ("image#0",),
        "kinds": ("quantize",),
        "cost": 64.0,
    }
    weight = edges(graph)["stem/conv.in[1]"]
    assert weight["from_port"] is None
    assert weight["from_type"] == weight["to_type"] != "f32"


def test_a_pin_between_two_types_is_two_rescales_on_one_edge():
    found = edges(planner.to_networkx(planned("none_between_two_kernels")))["k2.in[0]"]
    assert (found["rescales"], found["kinds"], found["cost"]) == (
        ("a#0", "a#1"),
        ("dequantize", "quantize"),
        32.0,
    )


def test_a_loop_is_no_cycle_but_says_what_its_next_trip_reads():
    graph = planner.to_networkx(planned("structure/loop_start_is_finer"))
    assert nx.is_directed_acyclic_graph(graph)
    assert nx.shortest_path(graph, "k1", "k2") == ["k1", "w/begin:a", "w/sum", "w/act", "w/end:n", "k2"]
    assert {name: trip for name, trip in graph.nodes(data="next_trip") if trip} == {"w/end:n": "w/begin:h"}
    assert [name for name, scope in graph.nodes(data="scope") if scope] == ["w/sum", "w/act", "w/end:n"]
    assert (graph.nodes["w/sum"]["trip_count"], graph.nodes["k1"]["trip_count"]) == (10, 1)


def test_the_float_kernel_that_costs_the_most_casts():
    """A question of a user's own: which kernel should the device serve next?"""
    plan = planner.plan(case("litert-int8").model, "litert-int8")
    for kernel in ("res/conv2", "head/gemm"):
        plan = planner.restore(plan, kernel)
    graph = planner.to_networkx(plan)
    costs = {}
    for name in (name for name, is_float in graph.nodes(data="is_float") if is_float):
        around = [*graph.in_edges(name, data=True), *graph.out_edges(name, data=True)]
        costs[name] = sum({edge["rescales"]: edge["cost"] for *_, edge in around}.values())
    assert costs == {"res/conv2": 2 * 1536.0, "head/gemm": 32.0 + 10.0}

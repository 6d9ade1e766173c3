"""What the graph of a report draws: every kernel, edge and rescale of the plan, once and at its place."""

import json
from pathlib import Path

import pytest

import planner
from planner.formats.annotated.document import read_annotated
from planner.plans.diff import worded
from planner.plans.explain import type_text
from planner.report.view import view_blocks, view_json, view_of
from tests.report.test_html import MODEL, NASTY

EMPTY = """{"format": "qplan.annotated/1", "name": "none", "values": [], "kernels": [], "inputs": [],
 "outputs": []}"""
WIDER = "!quant.uniform<i8:f32, 0.02795201912522316:-61>"
DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"


@pytest.fixture(scope="module", params=["teaching-npu", "onnxruntime-cpu"])
def drawn(request):
    model = planner.load_model(DIGITS / "digits.onnx")
    model = planner.annotate(model, stats=planner.calibrate(model, DIGITS / "calibration.npz"))
    plan = planner.plan(model, request.param)
    return plan, json.loads(view_json(plan))


def said(view, places):
    return [view["texts"][place] for place in places]


def test_every_kernel_stands_between_inputs_and_outputs(drawn):
    plan, view = drawn
    names = [*plan.graph.inputs, *(kernel.name for kernel in plan.kernels_in_order), *plan.graph.outputs]
    assert said(view, view["nodes"]["name"]) == names
    shown = dict(zip(names, zip(*(view["nodes"][key] for key in ("kind", "why")), strict=True), strict=True))
    for kernel in plan.kernels_in_order:
        kind, why = shown[kernel.name]
        assert view["texts"][why] == (plan.target.rows[kernel.row].source if kernel.row else kernel.reason)
        assert (view["kinds"][kind] == "float") == (not kernel.row)


def test_every_use_is_an_edge_and_every_rescale_is_on_its_uses(drawn):
    plan, view = drawn
    names, edges = said(view, view["nodes"]["name"]), view["edges"]
    n_inputs = len(plan.graph.inputs)
    found = {}
    for source, reader, port, rescale in zip(
        *(edges[key] for key in ("from", "to", "port", "rescale")), strict=True
    ):
        is_output = reader >= n_inputs + len(plan.kernels_in_order)
        key = ("@model", plan.graph.outputs.index(names[reader])) if is_output else (names[reader], port)
        found[key] = (names[source], rescale)
    makers = {name: name for name in plan.graph.inputs}
    makers |= {port.value: kernel.name for kernel in plan.kernels_in_order for port in kernel.outputs}
    uses = {
        (kernel.name, i): port.value
        for kernel in plan.kernels_in_order
        for i, port in enumerate(kernel.inputs)
    }
    uses |= {("@model", i): name for i, name in enumerate(plan.graph.outputs)}
    assert {key: source for key, (source, _) in found.items()} == {
        key: makers[value] for key, value in uses.items() if value in makers
    }
    marks = {key: plan.rescales[rescale].id for key, (_, rescale) in found.items() if rescale >= 0}
    assert marks == {use: rescale.id for rescale in plan.rescales for use in rescale.consumers}


def test_ports_say_what_the_plan_says(drawn):
    plan, view = drawn
    ports = view["ports"]
    names = said(view, view["nodes"]["name"])
    shown = {}
    for node, out, index, value, kind in zip(
        *(ports[key] for key in ("node", "out", "index", "value", "type")), strict=True
    ):
        side = "out" if out else "in"
        shown[f"{names[node]}.{side}[{index}]"] = (view["texts"][value], view["texts"][kind])
    for kernel in plan.kernels_in_order:
        for port in (*kernel.inputs, *kernel.outputs):
            assert shown[port.address] == (port.value, type_text(port.type) if port.value else "")


def test_the_log_is_there_whole(drawn):
    plan, view = drawn
    steps = view["steps"]
    assert said(view, steps["port"]) == [step.port for step in plan.steps]
    assert said(view, steps["source"]) == [step.source for step in plan.steps]
    assert steps["because"] == [list(step.because) for step in plan.steps]


def test_the_log_stands_apart_on_a_page(drawn):
    """The two blocks are the whole, and what is drawn needs no text of the log's."""
    plan, view = drawn
    first, log = map(json.loads, view_blocks(plan))
    assert first["steps"] is None
    assert first | {"steps": log["steps"], "texts": first["texts"] + log["texts"]} == view
    assert log["texts"]
    places = [
        first["nodes"]["why"],
        first["ports"]["type"],
        first["values"]["shape"],
        first["rescales"]["id"],
    ]
    assert all(place < len(first["texts"]) for column in places for place in column)


def test_names_cannot_end_the_element():
    plan = planner.plan(read_annotated(MODEL % ((NASTY,) * 4)), "teaching-npu")
    text = view_json(plan)
    assert not {"<", ">", "&"} & set(text)
    assert NASTY in json.loads(text)["texts"]


def test_an_empty_plan_has_nothing_to_draw():
    model = planner.plan(read_annotated(EMPTY), "teaching-npu")
    assert view_of(model)["nodes"]["name"] == []


def test_differences_stand_where_they_are_seen():
    model = planner.load_model(DIGITS / "digits.onnx")
    model = planner.annotate(model, stats=planner.calibrate(model, DIGITS / "calibration.npz"))
    before = planner.plan(model, "litert-int8")
    after = planner.replan(before, {"values": {"stem/relu_out": WIDER}})
    view = view_of(after, before)
    found = planner.diff(before, after)
    names = said(view, view["nodes"]["name"])
    changes = view["changes"]
    shown = list(zip((names[node] for node in changes["node"]), said(view, changes["text"]), strict=True))
    ports = [(change.at.rpartition(".")[0], worded(change)) for change in found.ports]
    gone = [rescale for rescale in before.rescales if rescale.kind == "requantize"]
    assert ports
    assert [(gone[0].consumers[0][0], f"- {gone[0].id}")] == [
        (name, text.partition(":")[0]) for name, text in shown[len(ports) :]
    ]
    assert shown[: len(ports)] == ports
    assert ["rescales", "1", "0"] in changes["totals"]
    assert view_of(after, after)["changes"] | {"plan": 0} == {"plan": 0, "totals": [], "node": [], "text": []}


def test_what_is_gone_has_no_node():
    whole = planner.plan(read_annotated(MODEL % (("m",) * 4)), "teaching-npu")
    view = view_of(planner.plan(read_annotated(EMPTY), "teaching-npu"), whole)
    assert set(view["changes"]["node"]) == {-1}

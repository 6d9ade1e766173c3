"""What if over HTTP: the answers of the library, for small plans, big ones and edited ones alike."""

import json
from pathlib import Path

import numpy as np
import pytest

import planner
from api.schemas.planned import Difference, Explanation, PlanSummary, PlanView, PortPage, Tradeoffs
from tests.api.documents import AS_IT_IS, chain, put
from tests.api.test_problems import check

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
TARGET = "litert-int8"
PIN = "!quant.uniform<i8:f32, 5.0e-02>"


def make(client, model, **options):
    answer = client.post("/v1/plans", json={"model": model, "target": TARGET, "options": options})
    assert answer.status_code == 200, answer.text
    return answer.json()


def library(model, **options):
    return planner.plan(planner.load_model(json.dumps(model).encode(), format="json"), TARGET, **options)


@pytest.fixture(scope="module")
def digits(service):
    """The digits example on LiteRT: its key, and the library's plan."""
    data = (DIGITS / "digits.onnx").read_bytes()
    graph = planner.load_model(data)
    with np.load(DIGITS / "calibration.npz") as samples:
        stats = planner.calibrate(
            graph, [{n: samples[n][i : i + 1] for n in samples.files} for i in range(8)]
        )
    model = service.post("/v1/models", json={"blob": put(service, data)}).json()["digest"]
    kept = service.post("/v1/stats", json=json.loads(stats.to_json())).json()["digest"]
    body = {"model": model, "target": TARGET, "stats": kept}
    plan = planner.plan(planner.annotate(graph, stats=stats), TARGET)
    assert service.post("/v1/plans", json=body).json()["key"] == plan.key
    return {"key": plan.key, "plan": plan}


def test_replan_is_the_library_s(service):
    before = make(service, chain(9))
    answer = service.post(f"/v1/plans/{before['key']}:replan", json={"values": {"v3": PIN}})
    after = planner.replan(library(chain(9)), {"values": {"v3": PIN}})
    assert answer.text == after.to_json()
    assert service.get(f"/v1/plans/{after.key}").text == after.to_json()


def test_replan_goes_on_from_what_it_made(service, make_service):
    edits = [{"values": {"v3": PIN}}, {"ports": {"k5.in[0]": "!quant.any<i8>"}}, {"remove": ["v3"]}]
    plan, key = library(chain(9)), make(service, chain(9))["key"]
    elsewhere = make_service(inline_kernels=1)
    other = make(elsewhere, chain(9))["key"]
    for edit in edits:
        plan = planner.replan(plan, edit)
        key = service.post(f"/v1/plans/{key}:replan", json=edit).json()["key"]
        other = elsewhere.post(f"/v1/plans/{other}:replan", json=edit).json()["key"]
        assert (key, other) == (plan.key, plan.key)


def test_restore_is_an_edit(service):
    key = make(service, chain(9))["key"]
    answer = service.post(f"/v1/plans/{key}:replan", json={"restore": ["k3"]})
    assert answer.text == planner.restore(library(chain(9)), "k3").to_json()
    kernel = next(kernel for kernel in answer.json()["kernels"] if kernel["name"] == "k3")
    assert kernel["row"] is None


def test_a_plan_moves_to_another_target(service):
    key = make(service, chain(9))["key"]
    answer = service.post(f"/v1/plans/{key}:replan", json={"restore": ["k3"], "target": "teaching-npu"})
    restored = planner.restore(library(chain(9)), "k3")
    wanted = planner.retarget(restored, planner.load_target("teaching-npu"))
    assert answer.json()["target"]["id"] == "teaching-npu"
    assert answer.text == wanted.to_json()
    effort = {"target": "teaching-npu", "best_effort": True}
    wanted = planner.retarget(library(chain(9)), planner.load_target("teaching-npu"), best_effort=True)
    assert service.post(f"/v1/plans/{key}:replan", json=effort).text == wanted.to_json()
    refused = service.post(f"/v1/plans/{key}:replan", json={"best_effort": True})
    assert "best_effort needs a target" in refused.json()["errors"][0]["message"]
    refused = service.post(f"/v1/plans/{key}:replan", json={"target": "../../secrets.yaml"})
    assert refused.json()["type"].endswith("unknown-name")


def test_an_onnx_model_is_replanned_and_restored(service, digits):
    edits = {"values": {"stem/relu_out": PIN}}
    answer = service.post(f"/v1/plans/{digits['key']}:replan", json=edits)
    assert answer.json()["key"] == planner.replan(digits["plan"], edits).key
    again = service.post(f"/v1/plans/{answer.json()['key']}:replan", json={"remove": ["stem/relu_out"]})
    assert again.status_code == 200, again.text


def test_suggestions_are_the_library_s(service, digits):
    (rescale,) = [item.id for item in digits["plan"].rescales if item.kind not in ("quantize", "dequantize")]
    path = f"/v1/plans/{digits['key']}/suggest"
    answer = service.get(path, params={"rescale": rescale})
    found = answer.json()
    expected = planner.suggest(digits["plan"], rescale)
    assert found["suggestions"] == json.loads(json.dumps([one.to_dict() for one in expected]))
    assert found["lines"][0] == f"1. {expected[0].text}"
    after = service.post(f"/v1/plans/{digits['key']}:replan", json=found["suggestions"][0]["edits"]).json()
    assert after["key"] == expected[0].plan.key


def test_tradeoffs_are_the_library_s(service, digits):
    value = next(iter(digits["plan"].rescales)).value
    found = service.get(f"/v1/plans/{digits['key']}/pareto", params={"component": value}).json()
    expected = planner.pareto(digits["plan"], value)
    assert found["tradeoffs"] == json.loads(json.dumps([one.to_dict() for one in expected]))
    assert sum("as planned" in line for line in found["lines"]) == 1


def test_a_difference_has_reasons(service, digits):
    edits = {"values": {"stem/relu_out": PIN}}
    after = planner.replan(digits["plan"], edits)
    service.post(f"/v1/plans/{digits['key']}:replan", json=edits)
    found = service.get(f"/v1/plans/{digits['key']}/diff", params={"against": after.key}).json()
    expected = planner.diff(digits["plan"], after)
    assert found["lines"] == str(expected).splitlines()
    assert found["totals"]["price"] == [digits["plan"].price, after.price]
    assert not found["same"]
    same = service.get(f"/v1/plans/{after.key}/diff", params={"against": after.key}).json()
    assert same["same"]
    assert same["lines"] == ["The plans decide the same."]


@pytest.mark.parametrize("kernels", [9, 1300])
def test_ports_come_in_pages(service, kernels):
    plan = make(service, chain(kernels))
    path = f"/v1/plans/{plan['key']}/ports"
    items, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        query = {"limit": kernels // 2, **({"cursor": cursor} if cursor else {})}
        answer = service.get(path, params=query)
        page = answer.json()
        assert ("next" in answer.links) == (page["next"] is not None)
        if page["next"]:
            assert service.get(answer.links["next"]["url"]).status_code == 200
        items, cursor, pages = [*items, *page["items"]], page["next"], pages + 1
    ports = [(p.address, p.type) for k in library(chain(kernels)).kernels_in_order
             for p in (*k.inputs, *k.outputs) if p.value]  # fmt: skip
    assert [(item["address"], item["type"]) for item in items] == [
        (address, None if kind is None else str(kind)) for address, kind in ports
    ]
    assert pages > 2


def test_a_report_is_the_library_s(service):
    plan = make(service, chain(3))
    answer = service.get(f"/v1/plans/{plan['key']}/report")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.text == planner.write_report(planner.plan_from_json(json.dumps(plan)))
    other = make(service, chain(4))
    pair = [planner.plan_from_json(json.dumps(one)) for one in (plan, other)]
    marked = service.get(f"/v1/plans/{plan['key']}/report", params={"before": other["key"]})
    assert marked.text == planner.write_report(pair[0], before=pair[1])
    check(service.get(f"/v1/plans/{plan['key']}/report?before=nothing"), "unknown-name")


ANSWERS = {
    "diff?against={other}": Difference,
    "explain?port=k1": Explanation,
    "pareto?component=v1": Tradeoffs,
    "ports": PortPage,
    "summary": PlanSummary,
    "view?before={other}": PlanView,
}


@pytest.mark.parametrize("part", ANSWERS)
def test_the_document_has_every_key_of_an_answer(service, part):
    """These answers are files that no model of the document has written."""
    key, other = make(service, chain(6))["key"], make(service, chain(7))["key"]
    answer = service.get(f"/v1/plans/{key}/{part.format(other=other)}").json()
    model = ANSWERS[part]
    assert set(answer) - {field.alias or name for name, field in model.model_fields.items()} == set()
    model.model_validate(answer)


def test_answers_are_kept_and_have_tags(service):
    key = make(service, chain(3))["key"]
    for path in ("", "/ports", "/report", "/explain?port=k0", f"/diff?against={key}", "/pareto?component=v1"):
        answer = service.get(f"/v1/plans/{key}{path}", headers=AS_IT_IS)
        assert answer.status_code == 200, answer.text
        tag = answer.headers["etag"]
        for given in (tag, f'"x", {tag}', "*"):
            again = service.get(f"/v1/plans/{key}{path}", headers={"If-None-Match": given})
            assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        assert service.get(f"/v1/plans/{key}{path}", headers={"If-None-Match": '"x"'}).content


def test_options_reach_the_planner(service):
    model = chain(2)
    model["values"][1]["constraints"] = [PIN, "!quant.uniform<i8:f32, 2.5e-01>"]
    body = {"model": model, "target": TARGET}
    check(service.post("/v1/plans", json=body), "conflict", "v0")
    plan = make(service, model, best_effort=True)
    assert plan == json.loads(library(model, best_effort=True).to_json())
    assert plan["warnings"]
    after = service.post(f"/v1/plans/{plan['key']}:replan", json={"values": {"v1": PIN}}).json()
    edited = planner.replan(library(model, best_effort=True), {"values": {"v1": PIN}})
    assert after["key"] == edited.key


@pytest.mark.parametrize("kernels", [2, 100])
def test_a_plan_without_ranges_is_refused(make_service, kernels):
    """As the command refuses it, at once and as a job, with what to send; types are ranges, too."""
    service, bare = make_service(), chain(kernels)
    for value in bare["values"]:
        value.pop("constraints", None)
    for headers in ({}, {"Prefer": "wait=60"}):
        answer = service.post("/v1/plans", json={"model": bare, "target": TARGET}, headers=headers)
        check(answer, "stats-invalid", "no ranges are known for the values of model 'chain'")
        assert "POST /v1/calibrations" in answer.json()["hint"]
    assert service.get("/v1/plans").json()["items"] == []
    for value in bare["values"]:
        value["constraints"] = [] if "constant" in value else [PIN]
    assert any(kernel["row"] for kernel in make(service, bare)["kernels"])


def test_an_edit_that_takes_the_last_range_is_refused(make_service):
    """Replans and previews have the rule of plans."""
    service, model = make_service(), chain(1)
    for value in model["values"]:
        value.pop("constraints", None)
    model["values"][0]["constraints"] = model["values"][1]["constraints"] = [PIN]
    key = make(service, model)["key"]
    edits = {"values": dict.fromkeys(("x", "v0"), "!quant.any<i8>")}
    check(service.post(f"/v1/plans/{key}:preview", json=edits), "stats-invalid", "no ranges are known")
    check(service.post(f"/v1/plans/{key}:replan", json=edits), "stats-invalid", "no ranges are known")


WRONG = [
    ("annotation-invalid", "POST", ":replan", {"values": {"v9": PIN}}, "'v9' is no value"),
    ("request-invalid", "POST", ":replan", {"types": {}}, "/types"),
    ("unknown-name", "POST", ":replan", {"restore": ["k9"]}, "'k9'"),
    ("unknown-name", "GET", "/suggest?rescale=v9", None, "rescale 'v9'"),
    ("unknown-name", "GET", "/pareto?component=v9", None, "'v9'"),
    ("unknown-name", "GET", "/diff?against=v9", None, "unknown plan 'v9'"),
    ("request-invalid", "GET", "/suggest", None, "/rescale: Field required"),
    ("request-invalid", "GET", "/ports?limit=0", None, "/limit"),
    ("request-invalid", "GET", "/ports?cursor=%21", None, "/cursor"),
    ("request-invalid", "GET", "/ports?cursor=NQ", None, "/cursor"),
]


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong[2])
def test_asked_wrongly(service, wrong):
    name, method, path, body, words = wrong
    key = make(service, chain(2))["key"]
    check(service.request(method, f"/v1/plans/{key}{path}", json=body), name, words)


def test_a_plan_without_its_model(service):
    data = json.dumps({**chain(4), "name": "taken-away"}).encode()
    record = service.post("/v1/models", json={"blob": put(service, data)}).json()
    key = make(service, record["digest"])["key"]
    assert service.delete(f"/v1/models/{record['digest']}").status_code == 204
    check(service.post(f"/v1/plans/{key}:replan", json={"restore": ["k1"]}), "unknown-name", "model")
    assert service.get(f"/v1/plans/{key}/ports").status_code == 200


def test_too_many_edits(service, monkeypatch):
    monkeypatch.setattr("api.planning.provenance.MOST_STEPS", 1)
    key = make(service, chain(2))["key"]
    answer = service.post(f"/v1/plans/{key}:replan", json={"restore": ["k0", "k1"]})
    check(answer, "input-invalid", "at most 1 times")

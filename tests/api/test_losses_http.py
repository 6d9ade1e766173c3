"""Losses over HTTP: what the library says, of plans by key and plans that come along; and refusals."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

import planner
from api.jobs import dispatcher
from planner.accuracy.losses_text import losses_json
from tests.api.documents import RANGE, chain, put, relu
from tests.api.test_jobs_http import WAIT, events_of
from tests.api.test_problems import NOWHERE, check

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
PATH = "/v1/losses"


def packed(client, **arrays) -> str:
    """Samples as a blob."""
    file = io.BytesIO()
    np.savez(file, **arrays)
    return put(client, file.getvalue())


@pytest.fixture(scope="module")
def digits(service):
    """A request about the digits example, and what the library says of the same."""
    data = (DIGITS / "digits.onnx").read_bytes()
    few = np.load(DIGITS / "calibration.npz")["image"][:4]
    samples = [{"image": few[i : i + 1]} for i in range(4)]
    graph = planner.load_model(data)
    plan = planner.plan(planner.annotate(graph, stats=planner.calibrate(graph, samples)), "litert-int8")
    model = service.post("/v1/models", json={"blob": put(service, data)}).json()["digest"]
    body = {"model": model, "samples": packed(service, image=few)}
    stats = service.post("/v1/calibrations", json=body, headers=WAIT).json()["digest"]
    asked = {"model": model, "target": "litert-int8", "stats": stats}
    kept = service.post("/v1/plans", json=asked).json()
    assert kept["key"] == plan.key
    return {"body": body | {"plan": plan.key}, "plan": kept, "expected": planner.losses(graph, plan, samples)}


def test_losses_by_key(service, digits):
    answer = service.post(PATH, json=digits["body"], headers=WAIT)
    assert answer.status_code == 201, answer.text
    record, whole = answer.json(), json.loads(json.dumps(losses_json(digits["expected"])))
    assert service.get(record["link"]).json() == whole
    about = {name: record[name] for name in record.keys() & whole.keys()}
    assert about == {name: item for name, item in whole.items() if name != "values"}
    assert record.keys() - whole.keys() == {"blob", "link", "warnings"}
    assert (record["format"], record["begins"]) == ("qplan.losses/1", "head/softmax")
    assert record["remedies"]


def test_a_plan_that_comes_along_and_options(service, digits):
    """The same of the plan itself; the judged output by its name, and nothing taken apart."""
    body = digits["body"] | {"plan": digits["plan"], "output": "probabilities", "limit": 0}
    record = service.post(PATH, json=body, headers=WAIT).json()
    expected = digits["expected"]
    assert [kernel["name"] for kernel in record["kernels"]] == [one.name for one in expected.kernels]
    assert [kernel["parts"] for kernel in record["kernels"]] == [None] * len(expected.kernels)
    assert record["judged"] == "probabilities"


def test_losses_are_a_job_that_tells_how_far_it_is(service, digits, monkeypatch):
    monkeypatch.setattr(dispatcher, "PROGRESS_SECONDS", 0.02)
    answer = service.post(PATH, json=digits["body"])
    assert answer.status_code == 202
    link = answer.headers["location"]
    with service.stream("GET", f"{link}/events") as stream:
        events = events_of(stream.iter_lines())
    assert [kind for _, kind, _ in events if kind != "progress"] == ["queued", "running", "done"]
    told = [data for _, kind, data in events if kind == "progress"]
    assert told
    assert all(0 < data["done"] <= data["total"] for data in told)
    job = service.get(link).json()
    assert (job["kind"], job["state"]) == ("losses", "done")
    assert job["id"] in [one["id"] for one in service.get("/v1/jobs?kind=losses").json()["items"]]


def test_a_plan_without_noise_is_exact(service):
    """What JSON has no word for is null, and `exact` says which; a plan all in float is exact."""
    model = service.post("/v1/models", json={"blob": put(service, relu())}).json()["digest"]
    asked = {"model": model, "target": "litert-int8", "annotations": RANGE | {"kernels": {"*": "float"}}}
    plan = service.post("/v1/plans", json=asked).json()
    body = {"model": model, "plan": plan["key"], "samples": packed(service, x=np.ones((2, 1, 8), np.float32))}
    record = service.post(PATH, json=body, headers=WAIT).json()
    exact = {"output": "y", "slices": "", "label": "y", "sqnr": None, "exact": True, "predicted": None}
    assert record["outputs"] == [exact]
    assert (record["begins"], record["remedies"]) == ("", [])


def test_asked_wrongly(service, digits):
    body = digits["body"]

    def ask(**other):
        return service.post(PATH, json=body | other, headers=WAIT)

    check(ask(model=NOWHERE), "unknown-name", "model")
    check(ask(plan=NOWHERE), "unknown-name", "plan")
    check(ask(samples=NOWHERE), "unknown-name", "blob")
    check(ask(output="logits"), "unknown-name", "'logits'")
    check(ask(samples=put(service, b"no samples")), "input-invalid")
    check(ask(samples=packed(service, picture=np.zeros((1, 1, 8, 8)))), "input-invalid", "'image'")
    for limit in (-1, 101, "many", 1.5):
        check(ask(limit=limit), "request-invalid", "/limit")
    check(ask(plan=None), "request-invalid", "/plan")
    check(ask(files="x"), "request-invalid", "/files")
    other = service.post("/v1/plans", json={"model": chain(3), "target": "litert-int8"}).json()
    check(ask(plan=other["key"]), "plan-invalid")
    check(ask(plan=other), "plan-invalid")


def edited(plan, **changes):
    return json.loads(json.dumps(plan)) | changes


def retyped(plan):
    """A plan whose first quantized port has another scale than its log says."""
    found = edited(plan)
    kernel = next(kernel for kernel in found["kernels"] if kernel["out"][0])
    kernel["out"][0] = "!quant.uniform<i8:f32, 1.000000e+30>"
    return found


@pytest.mark.parametrize(
    ("make", "problem", "words"),
    [
        (lambda _: {}, "plan-invalid", "plan.target"),
        (lambda _: {"target": ["litert-int8", "1"]}, "plan-invalid", "plan.target"),
        (lambda _: {"target": {"id": "litert-int8", "version": 1}}, "plan-invalid", "plan.target"),
        (lambda _: {"target": {"id": "/etc/passwd", "version": "1"}}, "unknown-name", "/etc/passwd"),
        (lambda plan: {"target": plan["target"]}, "model-invalid", "format"),
        (lambda plan: edited(plan, kernels=plan["kernels"] * 2), "model-invalid", "kernels"),
        (lambda plan: edited(plan, kernels=[], rescales=[]), "plan-invalid", ""),
        (lambda plan: edited(plan, graph=chain(2)), "model-invalid", ""),
        (lambda plan: edited(plan, target={**plan["target"], "digest": NOWHERE}), "plan-invalid", "digest"),
        (retyped, "model-invalid", "rescales"),
    ],
)
def test_plans_that_mean_harm(service, digits, make, problem, words):
    """A plan is a stranger's file: it is read, and verified, by the child."""
    body = digits["body"] | {"plan": make(digits["plan"])}
    check(service.post(PATH, json=body, headers=WAIT), problem, words)


def test_text_of_a_client_opens_no_file(service, digits):
    """An output called like a file of the server stays a name."""
    place = str(service.app.state.service.store.path("blobs", digits["body"]["samples"]))
    answer = service.post(PATH, json=digits["body"] | {"output": place}, headers=WAIT)
    assert answer.json()["type"].endswith("unknown-name")


def test_a_plan_nested_too_deep(service, digits):
    deep: list = []
    for _ in range(100):
        deep = [deep]
    check(service.post(PATH, json=digits["body"] | {"plan": {"a": deep}}), "json-invalid", "deeper")

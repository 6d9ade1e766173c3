"""Jobs over HTTP: asked for, waited for, watched, cancelled; what they make is what the library makes."""

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

import planner
from api.jobs.queue import events_after, remove, submit
from api.problems import Refused
from api.storage.store import Store
from planner.plans.read_json import plan_from_json
from tests.api.documents import RANGE, chain, digest, put
from tests.api.documents import relu as onnx_relu
from tests.api.test_problems import check

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
WAIT = {"Prefer": "wait=60"}
AT_ONCE = {"Prefer": "respond-async"}
ENDED = ("done", "failed", "cancelled")


@pytest.fixture(scope="module")
def digits(service):
    """The digits example: its model, a few samples, and both as the library has them."""
    data = (DIGITS / "digits.onnx").read_bytes()
    with np.load(DIGITS / "calibration.npz") as whole:
        few = {name: whole[name][:4] for name in whole.files}
    file = io.BytesIO()
    np.savez(file, **few)
    model = service.post("/v1/models", json={"blob": put(service, data)}).json()["digest"]
    samples = [{name: few[name][i : i + 1] for name in few} for i in range(4)]
    return {
        "model": model,
        "samples": put(service, file.getvalue()),
        "graph": planner.load_model(data),
        "arrays": samples,
    }


def end_of(client: httpx.Client, link: str) -> dict:
    """Wait for a job to end."""
    until = time.monotonic() + 90
    while (job := client.get(link).json())["state"] not in ENDED:
        assert time.monotonic() < until, job
        time.sleep(0.05)
    return job


def events_of(lines: Iterator[str]) -> list[tuple[int, str, dict]]:
    """Events of a stream that ends."""
    found, fields = [], {}
    for line in lines:
        name, _, text = line.partition(": ")
        if name:
            fields[name] = text
        elif fields:
            found.append((int(fields["id"]), fields["event"], json.loads(fields["data"])))
            fields = {}
    return found


def test_a_job_is_asked_for_and_watched(service, digits):
    body = {"model": digits["model"], "samples": digits["samples"]}
    answer = service.post("/v1/calibrations", json=body)
    assert answer.status_code == 202, answer.text
    link = answer.headers["location"]
    assert answer.json()["link"] == link
    with service.stream("GET", f"{link}/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        events = events_of(stream.iter_lines())
    assert [number for number, *_ in events] == list(range(1, len(events) + 1))
    assert [kind for _, kind, _ in events if kind != "progress"] == ["queued", "running", "done"]
    with service.stream("GET", f"{link}/events", headers={"Last-Event-ID": "1"}) as stream:
        assert events_of(stream.iter_lines()) == events[1:]
    job = service.get(link).json()
    assert (job["state"], job["kind"], job["problem"]) == ("done", "calibration", None)
    stats = planner.calibrate(digits["graph"], digits["arrays"])
    assert job["result"]["samples"] == 4
    assert service.get(f"/v1/stats/{job['result']['digest']}").json() == json.loads(stats.to_json())
    request = {"model": digits["model"], "target": "onnxruntime-cpu", "stats": job["result"]["digest"]}
    plan = planner.plan(planner.annotate(digits["graph"], stats=stats), "onnxruntime-cpu")
    assert service.post("/v1/plans", json=request).json()["key"] == plan.key


def test_what_rounding_leaves_at_readers_is_measured_too(service, digits):
    body = {"model": digits["model"], "samples": digits["samples"], "readers": 2}
    stats = service.post("/v1/calibrations", json=body, headers=WAIT).json()["digest"]
    here = planner.calibrate(digits["graph"], digits["arrays"], readers=2)
    assert any(seen.readers for seen in here.values.values())
    assert service.get(f"/v1/stats/{stats}").json() == json.loads(here.to_json())


@pytest.mark.parametrize("method", ["percentile", "mse"])
def test_an_export_and_a_comparison_within_the_time_to_wait(service, digits, method):
    body = {"model": digits["model"], "samples": digits["samples"], "method": method}
    stats = service.post("/v1/calibrations", json=body, headers=WAIT)
    assert (stats.status_code, stats.headers["preference-applied"]) == (201, "wait=60")
    assert stats.json()["method"] == method
    request = {"model": digits["model"], "target": "onnxruntime-cpu", "stats": stats.json()["digest"]}
    key = service.post("/v1/plans", json=request).json()["key"]
    body = {"model": digits["model"], "plan": key, "format": "onnx-qdq"}
    export = service.post("/v1/exports", json=body, headers=WAIT)
    assert (export.status_code, export.json()) == (201, service.post("/v1/exports", json=body).json())
    body = {"model": digits["model"], "file": export.json()["blob"], "samples": digits["samples"]}
    record = service.post("/v1/comparisons", json=body, headers=WAIT).json()
    file = service.get(export.json()["link"]).content
    expected = planner.compare(digits["graph"], file, digits["arrays"])
    assert {name: found["sqnr"] for name, found in record["outputs"].items()} == {
        name: quality.sqnr for name, quality in expected.outputs.items()
    }
    assert service.get(record["link"]).json()["outputs"] == record["outputs"]


def plan_of(service, digits, target="onnxruntime-cpu"):
    """The key of a plan of the digits with ranges."""
    body = {"model": digits["model"], "samples": digits["samples"]}
    stats = service.post("/v1/calibrations", json=body, headers=WAIT).json()["digest"]
    request = {"model": digits["model"], "target": target, "stats": stats}
    return service.post("/v1/plans", json=request).json()["key"]


def test_a_plan_that_no_file_says_is_measured_by_the_interpreter(service, digits):
    """A format that nothing here runs is refused, and says what would do."""
    body = {"model": digits["model"], "samples": digits["samples"]}
    stats = service.post("/v1/calibrations", json=body, headers=WAIT).json()["digest"]
    wide = {"format": "qplan.annotations/1", "values": {"stem/relu_out": "!quant.any<i24>"}}
    request = {"model": digits["model"], "target": "hls4ml-fpga", "stats": stats, "annotations": wide}
    planned = service.post("/v1/plans", json=request).json()["key"]
    body |= {"plan": planned}
    check(
        service.post("/v1/exports", json={"model": digits["model"], "plan": planned, "format": "onnx-qdq"}),
        "unsupported-export",
    )
    record = service.post("/v1/comparisons", json=body, headers=WAIT).json()
    plan = plan_from_json(service.get(f"/v1/plans/{planned}").content)
    expected = planner.compare(digits["graph"], plan, digits["arrays"])
    assert record["quality"]["format"] == "interpreter"
    assert record["quality"]["sqnr"] == expected.worst_sqnr
    assert "the plan in the reference interpreter" in service.get(f"/v1/plans/{planned}/report").text
    listed = {one["key"]: one["quality"] for one in service.get("/v1/plans?limit=1000").json()["items"]}
    assert listed[planned] == record["quality"]
    refused = service.post("/v1/comparisons", json=body | {"format": "mlir"}, headers=WAIT)
    check(refused, "unsupported-export", "nothing here runs files of the format mlir")


def test_a_comparison_has_a_bound_on_coverage(service, digits):
    """By the plan, or read off the file; with nothing quantized the verdict is to keep the float model."""
    body = {"model": digits["model"], "samples": digits["samples"]}
    floats = {"format": "qplan.annotations/1", "kernels": {"*": "float"}}
    stats = service.post("/v1/calibrations", json=body, headers=WAIT).json()["digest"]
    request = {"model": digits["model"], "target": "onnxruntime-cpu", "stats": stats}
    few = {"format": "qplan.annotations/1", "kernels": {"head/gemm": "float"}}
    planned = service.post("/v1/plans", json=request | {"annotations": few}).json()["key"]
    kept = service.post("/v1/plans", json=request | {"annotations": floats})
    assert kept.status_code == 200
    for key, missed in ((planned, []), (kept.json()["key"], ["nothing"])):
        verdict = service.get(f"/v1/plans/{key}/summary").json()["verdict"]
        assert (verdict["keep_float"], verdict["accuracy"]) == (bool(missed), None)
        export = {"model": digits["model"], "plan": key, "format": "onnx-qdq"}
        file = service.post("/v1/exports", json=export).json()["blob"]
        for given in ({"plan": key}, {"file": file}):
            found = service.post("/v1/comparisons", json=body | given | {"min_coverage": 0.9}, headers=WAIT)
            assert found.status_code == 201, found.text
            texts = found.json()["missed"]
            assert len(texts) == len(missed)
            assert all(text.startswith("nothing is quantized") for text in texts)
            if missed and "plan" in given:
                assert found.json()["quality"]["keep_float"] is True
                assert "keep the float model" in service.get(f"/v1/plans/{key}/report").text
    assert (
        service.post("/v1/comparisons", json=body | {"min_coverage": 9, "plan": planned}).status_code == 422
    )


def test_the_quality_of_a_plan_is_kept_with_it(service, digits):
    # Not onnxruntime's own target: its figures are this processor's, which may add products in 16 bits.
    planned = plan_of(service, digits, "qnn-htp")
    link = f"/v1/plans/{planned}"
    before = service.get(f"{link}/summary")
    assert before.json()["quality"] is None
    assert ">not measured <" in service.get(f"{link}/report").text
    body = {"model": digits["model"], "plan": planned, "samples": digits["samples"], "held_out": False}
    record = service.post("/v1/comparisons", json=body, headers=WAIT).json()
    export = {"model": digits["model"], "plan": planned, "format": "onnx-qdq"}
    file = service.get(service.post("/v1/exports", json=export).json()["link"]).content
    expected = planner.compare(digits["graph"], file, digits["arrays"])
    quality = record["quality"]
    assert quality["sqnr"] == expected.worst_sqnr
    assert quality["text"] == f"{expected.worst_sqnr:.2f} dB"
    assert (quality["grade"], quality["format"]) == ("good", "onnx-qdq")
    assert quality["samples"] == digits["samples"]
    assert quality["measured_on"] == "on the 4 calibration samples against the float model"
    seen = {"If-None-Match": before.headers["etag"]}
    assert service.get(f"{link}/summary", headers=seen).json()["quality"] == quality
    for query in ("", "?live=true"):
        page = service.get(f"{link}/report{query}").text
        assert "on the 4 calibration samples" in page
        assert '<p class="figure good">' in page
    # The last one counts, and only for this plan.
    service.post("/v1/comparisons", json=body | {"held_out": True, "format": "onnx-qoperator"}, headers=WAIT)
    again = service.get(f"{link}/summary").json()["quality"]
    assert (again["format"], again["measured_on"][:20]) == ("onnx-qoperator", "on 4 held-out sample")
    service.delete(link)
    assert plan_of(service, digits, "qnn-htp") == planned
    assert service.get(f"{link}/summary").json()["quality"] is None


@pytest.mark.parametrize("inline", [False, True])
def test_reports_draw_the_histograms_of_their_statistics(service, digits, inline):
    body = {"model": digits["model"], "samples": digits["samples"], "method": "percentile"}
    stats = service.post("/v1/calibrations", json=body, headers=WAIT).json()["digest"]
    given = service.get(f"/v1/stats/{stats}").json()
    request = {"model": digits["model"], "target": "litert-int8", "stats": given if inline else stats}
    plan = service.post("/v1/plans", json=request).json()["key"]
    page = service.get(f"/v1/plans/{plan}/report").text
    assert "Values and their ranges" in page
    seen = planner.calibrate(digits["graph"], digits["arrays"], method="percentile")
    assert any(value.bins is not None for value in seen.values.values())
    here = planner.plan(planner.annotate(digits["graph"], stats=seen), "litert-int8")
    assert page == planner.write_report(planner.plan_from_json(here.to_json()), stats=seen)
    assert "Values and their ranges" in service.get(f"/v1/plans/{plan}/report?live=true").text


def test_without_statistics_a_report_has_no_histograms(service):
    plan = service.post("/v1/plans", json={"model": chain(3), "target": "litert-int8"}).json()["key"]
    assert "Values and their ranges" not in service.get(f"/v1/plans/{plan}/report").text


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"plan": None}, "request-invalid"),
        ({"file": "sha256:" + "0" * 64}, "request-invalid"),
        ({"plan": "sha256:" + "0" * 64}, "unknown-name"),
        ({"format": "nothing"}, "request-invalid"),
        ({"format": "tosa"}, "unsupported-export"),
    ],
)
def test_a_plan_that_cannot_be_measured(service, digits, change, kind):
    planned = plan_of(service, digits)
    body = {"model": digits["model"], "plan": planned, "samples": digits["samples"]}
    check(service.post("/v1/comparisons", json=body | change, headers=WAIT), kind)
    if change.get("format") == "tosa":
        kept = service.get(f"/v1/plans/{planned}/summary").json()["quality"]
        assert kept is None or kept["format"] != "tosa"


def test_labels_judge_by_metrics_that_have_names(service, digits):
    """No code: the names of ours, and none else; without one labels are not even read."""
    data = np.load(DIGITS / "test.npz")
    npz = {"image": data["image"][:20], "label": data["label"][:20]}
    model = {"model": digits["model"], "file": put(service, (DIGITS / "digits.onnx").read_bytes())}

    def compared(arrays, **asked):
        file = io.BytesIO()
        np.savez(file, **arrays)
        body = {**model, "samples": put(service, file.getvalue()), **asked}
        return service.post("/v1/comparisons", json=body, headers=WAIT)

    record = compared(npz, metrics=["sqnr", "top1", "cross_entropy"], output="probabilities").json()
    expected = planner.compare(digits["graph"], DIGITS / "digits.onnx", npz, metrics=["cross_entropy"])
    for name in ("top1", "cross_entropy"):
        score = expected.scores[name]
        assert record["metrics"].pop(name) == {
            "reference": pytest.approx(score.reference),
            "quantized": pytest.approx(score.quantized),
            "larger_is_better": name == "top1",
        }
    assert (record["metrics"], record["reference"], record["warnings"]) == ({}, "float", [])
    assert record["outputs"]["probabilities"]["groups"] == {}
    odd = npz | {"label": np.zeros(7)}
    assert compared(odd).json()["metrics"] == {}
    check(compared(odd, metrics=["top5"]), "input-invalid")
    check(compared(npz, metrics=["os:system"]), "request-invalid", "/metrics/0")
    check(compared(npz, metrics=["top1"], output="logits"), "unknown-name")


def test_a_plan_is_a_job_where_the_client_prefers(service, make_service):
    client = make_service(inline_kernels=1)
    body = {"model": chain(12), "target": "litert-int8"}
    answer = client.post("/v1/plans", json=body, headers=AT_ONCE)
    assert (answer.status_code, answer.headers["preference-applied"]) == (202, "respond-async")
    job = end_of(client, answer.headers["location"])
    plan = client.get(job["result"]["link"])
    assert plan.text == service.post("/v1/plans", json=body).text
    assert client.post("/v1/plans", json=body, headers=AT_ONCE).text == plan.text
    edits = {"restore": ["k3"]}
    after = client.post(f"/v1/plans/{job['result']['plan']}:replan", json=edits).json()
    graph = planner.load_model(json.dumps(chain(12)).encode(), format="json")
    assert after["key"] == planner.restore(planner.plan(graph, "litert-int8"), "k3").key
    other = client.post("/v1/plans", json={**body, "options": {"strategy": "rfc"}}, headers=WAIT)
    assert (other.status_code, other.json()["format"]) == (200, "qplan.plan/1")


def test_a_small_plan_is_never_a_job(service):
    body = {"model": chain(11), "target": "litert-int8"}
    assert service.post("/v1/plans", json=body, headers=AT_ONCE).status_code == 200


def test_a_job_that_fails_says_why(service, digits):
    body = {"model": digits["model"], "samples": put(service, b"no samples")}
    check(service.post("/v1/calibrations", json=body, headers=WAIT), "input-invalid")
    job = end_of(service, service.post("/v1/calibrations", json=body).json()["link"])
    assert (job["state"], job["result"]) == ("failed", None)
    assert job["problem"]["type"] == "urn:qplan:problem:input-invalid"
    with service.stream("GET", f"{job['link']}/events") as stream:
        *_, (_, kind, data) = events_of(stream.iter_lines())
    assert (kind, data["name"]) == ("failed", "input-invalid")


def test_a_job_is_cancelled(make_service):
    client = make_service(job_workers=1, inline_kernels=1)
    links = []
    for n in range(3):
        body = {"model": chain(2500 + n), "target": "litert-int8"}
        links.append(client.post("/v1/plans", json=body, headers=AT_ONCE).json()["link"])
    for link in (links[2], links[0]):
        answer = client.post(f"{link}:cancel")
        assert answer.status_code == 200, answer.text
    start = time.monotonic()
    assert end_of(client, links[2])["state"] == "cancelled"
    assert end_of(client, links[0])["state"] in ("cancelled", "done")
    assert time.monotonic() - start < 60
    ended = end_of(client, links[1])
    assert client.post(f"{links[1]}:cancel").json() == ended
    assert ended["state"] == "done"


def test_jobs_are_listed_in_pages(make_service):
    client = make_service(inline_kernels=1)
    bodies = [{"model": chain(n), "target": "litert-int8"} for n in range(2, 7)]
    ids = [client.post("/v1/plans", json=body, headers=AT_ONCE).json()["id"] for body in bodies]
    for name in ids:
        end_of(client, f"/v1/jobs/{name}")
    found, url = [], "/v1/jobs?limit=2"
    while url:
        answer = client.get(url)
        found += [job["id"] for job in answer.json()["items"]]
        url = answer.links.get("next", {}).get("url")
    assert found == ids[::-1]
    assert client.get("/v1/jobs", params={"state": "queued"}).json() == {"items": [], "next": None}
    old, url = [], "/v1/jobs?order=oldest&limit=2"
    while url:
        answer = client.get(url)
        old += [job["id"] for job in answer.json()["items"]]
        url = answer.links.get("next", {}).get("url")
    assert old == ids
    assert len(client.get("/v1/jobs", params={"kind": "plan", "state": "done"}).json()["items"]) == 5


def test_a_job_that_has_ended_is_taken_away(make_service):
    client = make_service(inline_kernels=1, job_workers=1)
    body, key = {"model": chain(3), "target": "litert-int8"}, {"Idempotency-Key": "mine"}
    job = client.post("/v1/plans", json=body, headers=AT_ONCE | key).json()
    made = end_of(client, job["link"])["result"]["plan"]
    assert client.delete(job["link"]).status_code == 204
    check(client.get(job["link"]), "unknown-name", "job")
    check(client.delete(job["link"]), "unknown-name", "job")
    service = client.app.state.service
    assert events_after(service.engine, job["id"]) == []
    assert list(service.store.digests("keys")) == []
    assert client.get(f"/v1/plans/{made}").status_code == 200
    client.delete(f"/v1/plans/{made}")
    again = client.post("/v1/plans", json=body, headers=AT_ONCE | key).json()
    assert again["id"] != job["id"]


def test_a_job_that_waits_or_runs_is_cancelled_first(make_service):
    engine = make_service().app.state.service.engine
    job = submit(engine, "plan", {})
    with pytest.raises(Refused, match=r"the job is queued: cancel it first") as caught:
        remove(engine, job.id)
    assert caught.value.problem.name == "not-ended"
    with pytest.raises(Refused, match="unknown-name"):
        remove(engine, job.id, "another")


def test_pages_go_on_when_what_they_showed_was_taken_away(make_service):
    client = make_service(inline_kernels=1)
    bodies = [{"model": chain(n), "target": "litert-int8"} for n in range(2, 6)]
    links = [client.post("/v1/plans", json=body, headers=AT_ONCE).json()["link"] for body in bodies]
    for link in links:
        end_of(client, link)
    gone, cursor = [], None
    while cursor or not gone:
        page = client.get("/v1/jobs", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        for item in page["items"]:
            assert client.delete(item["link"]).status_code == 204
        gone, cursor = gone + [item["link"] for item in page["items"]], page["next"]
    assert gone == links[::-1]


def test_the_same_key_is_the_same_job(service, digits):
    body = {"model": digits["model"], "samples": digits["samples"]}
    key = {"Idempotency-Key": "calibrate-once"}
    first, again = (service.post("/v1/calibrations", json=body, headers=key).json() for _ in range(2))
    assert first["id"] == again["id"]
    assert end_of(service, first["link"])["attempt"] == 1
    other = service.post("/v1/calibrations", json={**body, "method": "percentile"}, headers=key)
    check(other, "key-reused", "'calibrate-once'")
    assert service.post("/v1/calibrations", json=body).json()["id"] != first["id"]


@pytest.mark.parametrize("prefer", [{}, AT_ONCE, WAIT])
def test_the_same_key_is_answered_alike(make_service, prefer):
    """Once a job was the answer it is again, with its result, though that is there by now."""
    client = make_service(inline_kernels=1)
    key = {"Idempotency-Key": "mine"}
    blob = put(client, onnx_relu())
    model = client.post("/v1/models", json={"blob": blob}).json()["digest"]
    asked = {
        "/v1/plans": {"model": chain(3), "target": "litert-int8"},
        "/v1/calibrations": {"model": model, "samples": put(client, one_sample())},
    }
    for path, body in asked.items():
        first = client.post(path, json=body, headers=AT_ONCE | key)
        assert first.status_code == 202
        done = end_of(client, first.headers["location"])
        again = client.post(path, json=body, headers=prefer | key)
        assert (again.status_code, again.json()) == (202, done)
        assert again.headers["location"] == first.headers["location"]
        assert "retry-after" not in again.headers
        # A result that was the answer is again, whatever is preferred then.
        other = {"Idempotency-Key": "another"}
        result = client.post(path, json=body, headers=WAIT | other)
        assert result.status_code in (200, 201)
        same = client.post(path, json=body, headers=prefer | other)
        assert (same.status_code, same.json()) == (result.status_code, result.json())


def test_a_job_that_failed_is_the_answer_again(service, digits):
    """As it was the answer before it failed."""
    key = {"Idempotency-Key": "fails"}
    body = {"model": digits["model"], "samples": put(service, b"none")}
    first = service.post("/v1/calibrations", json=body, headers=AT_ONCE | key).json()
    assert end_of(service, first["link"])["state"] == "failed"
    again = service.post("/v1/calibrations", json=body, headers=WAIT | key)
    assert (again.status_code, again.json()["problem"]["type"]) == (202, "urn:qplan:problem:input-invalid")


def test_a_job_that_the_service_failed_is_no_answer_again(make_service, tmp_path):
    """Its model was damaged on disk: sent again, it is the model that it was, and the request is done."""
    client = make_service()
    data = (DIGITS / "digits.onnx").read_bytes()
    model = client.post("/v1/models", json={"blob": put(client, data)}).json()["digest"]
    known = {**RANGE, "values": {"image": "!quant.calibrated<f32<0.0:1.0>>"}}
    body = {"model": model, "target": "litert-int8", "annotations": known}
    key = {"Idempotency-Key": "damaged"}
    path = Store(tmp_path).path("blobs", digest(data))
    path.write_bytes(data[:-1] + b"?")
    first = client.post("/v1/plans", json=body, headers=AT_ONCE | key).json()
    assert end_of(client, first["link"])["problem"]["type"] == "urn:qplan:problem:corrupted"
    put(client, data)
    again = client.post("/v1/plans", json=body, headers=AT_ONCE | key).json()
    assert again["id"] != first["id"]
    assert end_of(client, again["link"])["state"] == "done"


def one_sample() -> bytes:
    file = io.BytesIO()
    np.savez(file, x=np.ones((1, 8), np.float32))
    return file.getvalue()


def test_the_same_key_is_the_same_plan(service):
    key = {"Idempotency-Key": "plan-once"}
    body = {"model": chain(4), "target": "litert-int8"}
    first, again = (service.post("/v1/plans", json=body, headers=key) for _ in range(2))
    assert first.text == again.text
    check(service.post("/v1/plans", json={**body, "model": chain(5)}, headers=key), "key-reused")


def test_asked_wrongly(service, digits):
    nowhere = f"sha256:{'0' * 64}"
    check(service.get("/v1/jobs/none"), "unknown-name", "job")
    check(service.get("/v1/jobs/none/events"), "unknown-name", "job")
    check(service.post("/v1/jobs/none:cancel"), "unknown-name", "job")
    check(service.get("/v1/jobs", params={"cursor": "bm9uZQ"}), "request-invalid", "/cursor")
    check(service.get("/v1/jobs", params={"state": "lost"}), "request-invalid", "/state")
    body = {"model": digits["model"], "samples": nowhere}
    check(service.post("/v1/calibrations", json=body), "unknown-name", "blob")
    check(service.post("/v1/comparisons", json={**body, "file": nowhere}), "unknown-name", "blob")
    check(service.post("/v1/calibrations", json={**body, "model": nowhere}), "unknown-name", "model")
    body = {"model": digits["model"], "plan": nowhere, "format": "onnx-qdq"}
    check(service.post("/v1/exports", json=body, headers=WAIT), "unknown-name", "plan")


@pytest.mark.parametrize("prefer", ["wait=soon", "return=minimal", ""])
def test_preferences_that_say_nothing_to_us(service, digits, prefer):
    body = {"model": digits["model"], "samples": digits["samples"]}
    answer = service.post("/v1/calibrations", json=body, headers={"Prefer": prefer})
    assert answer.status_code == 202
    assert "preference-applied" not in answer.headers


def test_calibrating_on_nothing_but_nan_is_refused(service, digits):
    file = io.BytesIO()
    shapes = {name: array.shape for name, array in digits["arrays"][0].items()}
    np.savez(file, **{name: np.full(shape, np.nan, np.float32) for name, shape in shapes.items()})
    asked = {"model": digits["model"], "samples": put(service, file.getvalue())}
    answer = service.post("/v1/calibrations", json=asked, headers=WAIT)
    check(answer, "input-invalid", "no finite number in any of 1 samples")

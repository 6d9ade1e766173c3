"""Searches over HTTP: what the library finds, a plan that is kept, measurements that outlive their child."""

import io
import json
import os
import signal
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import planner
from api.jobs.child_process import _regular
from api.jobs.search_task import search_of
from planner.calibration.statistics import Statistics
from planner.plan_search.search_text import search_json
from planner.report.search_results import search_part
from tests.api.conftest import serving
from tests.api.documents import chain, digest, put
from tests.api.test_jobs_http import AT_ONCE, DIGITS, WAIT, end_of
from tests.api.test_problems import check

TARGET = "litert-int8"
NOWHERE = f"sha256:{'0' * 64}"
MARK = 12.345


def arrays_of(name: str, count: int) -> dict[str, np.ndarray]:
    whole = np.load(DIGITS / f"{name}.npz")
    return {key: whole[key][:count] for key in whole.files}


def npz(arrays: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


@cache
def statistics() -> Statistics:
    return planner.calibrate(planner.load_model(DIGITS / "digits.onnx"), [arrays_of("calibration", 1)])


def asked(client: httpx.Client, goal: Any, samples: bytes | None = None, **more: Any) -> dict[str, Any]:
    """The body of a search in the digits example; all that it names is sent before."""
    model, stats = sent(client)
    data = npz(arrays_of("calibration", 4)) if samples is None else samples
    body = {"model": model, "target": TARGET, "stats": stats, "samples": put(client, data)}
    return {**body, "goal": goal, **more}


@cache
def sent(client: httpx.Client) -> tuple[str, str]:
    """Digests of the model and of statistics."""
    blob = put(client, (DIGITS / "digits.onnx").read_bytes())
    model = client.post("/v1/models", json={"blob": blob}).json()["digest"]
    stats = client.post("/v1/stats", json=json.loads(statistics().to_json())).json()["digest"]
    return model, stats


@pytest.fixture(scope="module")
def found(service) -> dict[str, Any]:
    """A search that ends within the time to wait."""
    answer = service.post("/v1/searches", json=asked(service, "sqnr=40", trials=8), headers=WAIT)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


def test_a_search_is_what_the_library_finds(service, found, tmp_path):
    (tmp_path / "samples.npz").write_bytes(npz(arrays_of("calibration", 4)))
    model = planner.annotate(planner.load_model(DIGITS / "digits.onnx"), stats=statistics())
    here = planner.search(model, TARGET, tmp_path / "samples.npz", goal="sqnr=40", trials=8)
    whole = service.get(f"/v1/blobs/{found['blob']}").json()
    assert whole == search_json(here)
    assert (found["met"], found["sentence"]) == (True, whole["sentence"])
    assert found["annotations"] == here.annotations
    assert len(found["trials"]) == len(here.trials)
    assert found["trials"][found["best"]]["asked"] == len(here.best.kernels) > 0
    assert not {"kernels", "outputs"} & set(found["trials"][0])


def test_its_front_is_drawn_in_a_report(service, found):
    """The report of the server is the library's, of what the document has."""
    link = f"{found['link']}/report"
    page = service.get(link, params={"search": found["blob"]}).text
    document = service.get(f"/v1/blobs/{found['blob']}").json()
    read = search_of(json.dumps(document))
    assert search_json(read) == document | {"trials": [{**one, "outputs": {}} for one in document["trials"]]}
    assert str(search_part(read)) in page
    assert "Front of the search" not in service.get(link).text
    other = put(service, b'{"format": "qplan.search-result/1", "goal": {}}')
    check(service.get(link, params={"search": other}), "input-invalid", "qplan.search-result/1")
    check(service.get(link, params={"search": NOWHERE}), "unknown-name", "unknown blob")


def test_the_best_plan_is_kept_as_any_other(service, found):
    plan = service.get(found["link"])
    assert plan.json()["key"] == found["plan"]
    body = asked(service, "sqnr=40")
    again = {name: body[name] for name in ("model", "target", "stats")}
    same = service.post("/v1/plans", json={**again, "annotations": found["annotations"]})
    assert same.json()["key"] == found["plan"]
    work = planner.plan_from_json(plan.text).work.total
    assert work == pytest.approx(found["trials"][found["best"]]["work"])
    file = service.post(
        "/v1/exports", json={"model": body["model"], "plan": found["plan"], "format": "onnx-qdq"}
    )
    assert file.status_code == 201, file.text
    compared = {"model": body["model"], "file": file.json()["blob"], "samples": body["samples"]}
    outputs = service.post("/v1/comparisons", json=compared, headers=WAIT).json()["outputs"]
    sqnr = min(output["sqnr"] for output in outputs.values())
    assert sqnr == pytest.approx(found["trials"][found["best"]]["sqnr"])
    wished = found["annotations"]["kernels"]
    name = next(one["name"] for one in plan.json()["kernels"] if one["name"] not in wished)
    edited = service.post(f"/v1/plans/{found['plan']}:replan", json={"restore": [name]})
    assert edited.status_code == 200, edited.text
    assert edited.json()["key"] != found["plan"]


def test_wishes_of_the_user_stay(service):
    wish = {"format": "qplan.annotations/1", "kernels": {"head/gemm": "float"}}
    body = asked(service, "sqnr=60", annotations=wish, trials=4)
    found = service.post("/v1/searches", json=body, headers=WAIT).json()
    assert found["annotations"]["kernels"]["head/gemm"] == "float"
    whole = service.get(f"/v1/blobs/{found['blob']}").json()
    assert all("head/gemm" not in trial["kernels"] for trial in whole["trials"])


@pytest.mark.parametrize(
    ("goal", "more"),
    [
        ("weight_bits=0.5", {}),
        ({"work": 1e-6}, {}),
        ({"metric": 1.5}, {"metric": "top1", "output": "probabilities"}),
    ],
    ids=["weights", "work", "metric"],
)
def test_a_goal_that_no_plan_reaches(service, goal, more):
    labeled = npz(arrays_of("test", 6)) if more else None
    answer = service.post("/v1/searches", json=asked(service, goal, labeled, trials=4, **more), headers=WAIT)
    assert answer.status_code == 201, answer.text
    found = answer.json()
    assert found["met"] is False
    assert found["sentence"].startswith(f"{found['goal']['text']} is not met; the nearest: ")
    assert found["front"]
    assert found["best"] in range(len(found["trials"]))
    assert service.get(found["link"]).json()["key"] == found["plan"]
    scores = {trial["metric"] is None for trial in found["trials"]}
    assert scores == {not more}


X_FILE = npz({"x": np.zeros((1, 8), np.float32)})
X = digest(X_FILE)

HOSTILE: dict[str, tuple[dict[str, Any], str, str]] = {
    "no goal": ({"goal": "good"}, "input-invalid", "sqnr=30"),
    "an unknown goal": ({"goal": "speed=3"}, "unknown-name", "speed"),
    "a goal out of bounds": ({"goal": {"work": 2.0}}, "input-invalid", "above 0 and up to 1"),
    "two goals": ({"goal": {"work": 0.5, "sqnr": 3.0}}, "request-invalid", "/goal"),
    "no goal at all": ({"goal": {}}, "request-invalid", "/goal"),
    "a goal of truth": ({"goal": {"work": True}}, "request-invalid", "/goal"),
    "a long goal": ({"goal": "sqnr=" + "3" * 200}, "request-invalid", "/goal"),
    "no trial": ({"trials": 0}, "request-invalid", "/trials"),
    "too many trials": ({"trials": 201}, "request-invalid", "/trials"),
    "half a trial": ({"trials": 1.5}, "request-invalid", "/trials"),
    "code": ({"metric": "os:system"}, "request-invalid", "/metric"),
    "a state of one's own": ({"state": "/etc/passwd"}, "request-invalid", "/state"),
    "options": ({"options": {"strategy": "rfc"}}, "request-invalid", "/options"),
    "no target": ({"target": "litert-int9"}, "unknown-name", "litert-int9"),
    "no model": ({"model": NOWHERE}, "unknown-name", "model"),
    "no statistics": ({"stats": NOWHERE}, "unknown-name", "statistics"),
    "no samples": ({"samples": NOWHERE}, "unknown-name", "blob"),
    "a metric without labels": ({"metric": "top1"}, "input-invalid", "label"),
    "a goal without its metric": ({"goal": "drop=1%"}, "input-invalid", "needs a metric"),
    "an unknown output": ({"metric": "top1", "output": "logits"}, "unknown-name", "logits"),
    "an annotation of nothing": (
        {"annotations": {"format": "qplan.annotations/1", "kernels": {"nothing": "float"}}},
        "annotation-invalid",
        "nothing",
    ),
    "a model without numbers": (
        {"model": chain(2), "stats": None, "samples": X},
        "model-invalid",
        "has a range but no numbers",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_asked_wrongly(service, name):
    more, problem, words = HOSTILE[name]
    samples = npz(arrays_of("test", 2)) if "output" in more else None
    put(service, X_FILE)
    body = asked(service, "sqnr=40", samples, trials=2) | more
    check(service.post("/v1/searches", json=body, headers=WAIT), problem, words)


@pytest.mark.parametrize(
    "samples",
    [
        b"PK no samples",
        npz({}),
        npz({"picture": np.zeros((1, 1, 8, 8), np.float32)}),
        npz({"image": np.zeros((2, 3, 9), np.float32)}),
        npz({"image": np.array([["a"]])}),
    ],
    ids=["no archive", "nothing", "another name", "another shape", "text"],
)
def test_samples_that_do_not_fit(service, samples):
    answer = service.post("/v1/searches", json=asked(service, "sqnr=40", samples, trials=2), headers=WAIT)
    check(answer, "input-invalid")


def slow(client: httpx.Client, goal: str = "sqnr=46") -> dict[str, Any]:
    """A search whose trials take a while."""
    return asked(client, goal, npz(arrays_of("calibration", 96)), trials=16)


def wait_for_trials(client: httpx.Client, link: str, count: int) -> None:
    until = time.monotonic() + 90
    while True:
        told = (job := client.get(link).json())["progress"] or {}
        if "phase" not in told and told.get("done", 0) >= count:
            return
        assert time.monotonic() < until, job
        assert job["state"] in ("queued", "running"), job
        time.sleep(0.02)


def states(data: Path) -> list[Path]:
    return [path for path in (data / "states").glob("*/*") if path.is_file()]


def marked(data: Path) -> int:
    """Put figures that no measurement gives into the first trial of the one state; how many there are."""
    [path] = states(data)
    state = json.loads(path.read_bytes())
    state["trials"][0]["sqnr"] = MARK
    path.write_text(json.dumps(state), encoding="utf-8")
    return len(state["trials"])


def children_of(parent: int) -> Iterator[int]:
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            text = status.read_text()
        except OSError:
            continue
        if f"PPid:\t{parent}\n" in text:
            yield int(status.parent.name)


def test_a_search_goes_on_where_its_child_crashed(make_service, tmp_path):
    """Measured figures come back as they were written, so nothing was measured again."""
    client = make_service(job_workers=1)
    body = slow(client)
    before = {one for server in children_of(os.getpid()) for one in children_of(server)}
    link = client.post("/v1/searches", json=body, headers=AT_ONCE).json()["link"]
    wait_for_trials(client, link, 2)
    # The child of the fork server, not that itself: where it dies its jobs are taken up again.
    for child in {one for server in children_of(os.getpid()) for one in children_of(server)} - before:
        os.kill(child, signal.SIGSEGV)  # of its own doing: one that is killed is tried again
    job = end_of(client, link)
    assert (job["state"], job["problem"]["type"]) == ("failed", "urn:qplan:problem:worker-crashed")
    known = marked(tmp_path)
    assert known >= 2
    # Another goal is another search; what was measured serves it as well.
    other = client.post("/v1/searches", json=slow(client, "work=0.5"), headers=WAIT).json()
    assert other["trials"][0]["sqnr"] == MARK
    again = client.post("/v1/searches", json=body, headers=WAIT).json()
    assert again["trials"][0]["sqnr"] == MARK
    assert len(again["trials"]) > known
    assert len(states(tmp_path)) == 1


def test_a_search_is_cancelled_and_asked_for_again(make_service, tmp_path):
    client = make_service(job_workers=1)
    link = client.post("/v1/searches", json=slow(client), headers=AT_ONCE).json()["link"]
    wait_for_trials(client, link, 1)
    start = time.monotonic()
    assert client.post(f"{link}:cancel").status_code == 200
    job = end_of(client, link)
    assert (job["state"], job["result"], job["problem"]) == ("cancelled", None, None)
    assert time.monotonic() - start < 30
    assert marked(tmp_path) >= 1
    events = client.get(f"{link}/events").text
    assert '"total": 16' in events
    body = slow(client) | {"trials": 1}
    found = client.post("/v1/searches", json=body, headers=WAIT).json()
    assert [trial["sqnr"] for trial in found["trials"]] == [MARK]


def test_a_search_goes_on_where_its_server_was_killed(tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    with serving(data, QPLAN_LEASE_SECONDS="1") as server:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=100) as client:
            link = client.post("/v1/searches", json=slow(client), headers=AT_ONCE).json()["link"]
            wait_for_trials(client, link, 2)
        server.process.kill()
        server.process.wait()
    assert marked(data) >= 2
    with (
        # The lease of the killed one is over; the next one's own has to outlast a loaded machine.
        serving(data, QPLAN_LEASE_SECONDS="20") as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=100) as client,
    ):
        job = end_of(client, link)
        assert (job["state"], job["attempt"]) == ("done", 2), job
        assert job["result"]["trials"][0]["sqnr"] == MARK
        assert client.get(job["result"]["link"]).status_code == 200


def test_a_state_that_is_no_file_is_not_kept(tmp_path):
    """A child may put anything there: what the server may read is not for it to point at."""
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "state").write_text("{}")
    assert _regular(tmp_path / "state") == b"{}"
    assert [_regular(tmp_path / name) for name in ("link", "pipe", "none", ".")] == [None] * 4

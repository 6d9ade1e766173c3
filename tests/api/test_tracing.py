"""Who asked stands on all work that follows: in the log, and in spans for OpenTelemetry where wanted."""

import json
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

from api import tracing
from api.tracing import Span, span, start
from planner.errors import InputError
from tests.api.conftest import ROOT, serving
from tests.api.documents import OCTETS, chain, put, relu
from tests.api.test_jobs_http import AT_ONCE, WAIT, end_of, one_sample

ORACLE = ROOT / ".oracles" / "otel"
SCRIPT = ROOT / "tests" / "oracles" / "otel_run.py"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
VALUE_NAME = "a-name-of-a-value"


@contextmanager
def asking(data: Path, **more) -> Iterator[httpx.Client]:
    """A client of a server of its own."""
    with (
        serving(data, **more) as server,
        httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client,
    ):
        yield client


def lines_of(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_job_is_logged_with_the_request_that_asked(tmp_path):
    with (tmp_path / "log").open("w") as log, asking(tmp_path, stderr=log) as client:
        model = client.post("/v1/models", content=relu(), headers=OCTETS).json()["digest"]
        body = {"model": model, "samples": put(client, one_sample())}
        good = client.post("/v1/calibrations", json=body, headers=AT_ONCE)
        bad = client.post("/v1/calibrations", json={**body, "samples": put(client, b"none")})
        jobs = [end_of(client, answer.headers["location"]) for answer in (good, bad)]
    asked = [answer.headers["x-request-id"] for answer in (good, bad)]
    assert [job["request_id"] for job in jobs] == asked
    told = {one["job"]: one for one in lines_of(tmp_path / "log") if one.get("message") == "job ended"}
    found = [told[job["id"]] for job in jobs]
    assert [one["request_id"] for one in found] == asked
    assert [one["ending"] for one in found] == ["done", "input-invalid"]
    assert {one["kind"] for one in found} == {"calibration"}
    assert all(one["ms"] > 0 and one["attempt"] == 1 for one in found)


def test_jobs_are_logged_with_requests_or_not_at_all(tmp_path):
    quiet = {"QPLAN_ACCESS_LOG": "off", "QPLAN_INLINE_KERNELS": "1"}
    with (tmp_path / "log").open("w") as log, asking(tmp_path, stderr=log, **quiet) as client:
        body = {"model": chain(3), "target": "litert-int8"}
        answer = client.post("/v1/plans", json=body, headers=WAIT)
        assert answer.status_code == 200
    assert [one for one in lines_of(tmp_path / "log") if one.get("message") == "job ended"] == []


def test_without_a_collector_there_are_no_spans():
    with span("x", {"request_id": "1"}) as part:
        assert isinstance(part, Span)
        part.set(a=1)
        part.rename("y")
        assert part.asked == {"request_id": "1"}


def test_a_collector_that_cannot_be_had(monkeypatch):
    with pytest.raises(InputError, match="QPLAN_TRACES is 'collector:4318'"):
        start("collector:4318")

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name, name=name)

    monkeypatch.setattr(tracing, "import_module", missing)
    with pytest.raises(InputError, match=r"QPLAN_TRACES needs opentelemetry\.sdk") as caught:
        start("http://127.0.0.1:4318")
    assert caught.value.hint.startswith("pip install")


@contextmanager
def collecting(folder: Path) -> Iterator[str]:
    """A collector that keeps what it is sent, a file for each request."""

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            (folder / f"{len(list(folder.iterdir())):03}").write_bytes(data)
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.skipif(not ORACLE.exists(), reason="no .oracles/otel: run make oracles")
def test_one_trace_leads_from_a_request_through_its_job(tmp_path):
    """With OpenTelemetry's own SDK: request, job and children in one trace; nothing of what they hold."""
    (site,) = ORACLE.glob("lib/python*/site-packages")
    (tmp_path / "spans").mkdir()
    with collecting(tmp_path / "spans") as address:
        environment = {"PYTHONPATH": f"{ROOT}:{site}", "QPLAN_TRACES": address, "QPLAN_INLINE_KERNELS": "1"}
        with asking(tmp_path, **environment) as client:
            body = {"model": chain(3), "target": "litert-int8"}
            headers = {**WAIT, "traceparent": PARENT}
            asked = client.post("/v1/plans", json=body, headers=headers).headers["x-request-id"]
            job = client.get("/v1/jobs").json()["items"][0]
            read = client.post(f"/v1/models?x={VALUE_NAME}", content=relu(), headers=OCTETS)
            client.get("/v1/targets", headers={"traceparent": "nonsense"})
    line = [ORACLE / "bin" / "python", SCRIPT, tmp_path / "spans"]
    text = subprocess.run(line, capture_output=True, check=True, text=True).stdout
    assert VALUE_NAME not in text
    spans = json.loads(text)
    assert {one["service"] for one in spans} == {"quant-planner"}
    ours = {one["name"]: one for one in spans if one["trace"] == PARENT.split("-")[1]}
    assert ours.keys() == {"POST /v1/plans", "job plan", "child plan"}
    request, work, child = (ours[name] for name in ("POST /v1/plans", "job plan", "child plan"))
    assert [one["parent"] for one in (request, work, child)] == [
        PARENT.split("-")[2],
        request["id"],
        work["id"],
    ]
    assert request["attributes"] == {
        "qplan.request": asked,
        "qplan.route": "/v1/plans",
        "qplan.status": 200,
    }
    assert work["attributes"] == {"qplan.job": job["id"], "qplan.attempt": 1, "qplan.ending": "done"}
    assert child["attributes"]["qplan.ending"] == "ok"
    # The child of a request, without a job between.
    reading = next(one for one in spans if one["name"] == "child model")
    parent = next(one for one in spans if one["id"] == reading["parent"])
    assert parent["attributes"]["qplan.request"] == read.headers["x-request-id"]
    assert any(one["name"] == "GET /v1/targets" and not one["parent"] for one in spans)

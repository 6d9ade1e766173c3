"""A server at work: what it counts, logs, waits for, and how it ends."""

import asyncio
import base64
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.routes.metrics import STATES
from api.schemas.examples import TARGET, TARGET_NAME
from api.server.body_stream import REQUEST_ID, BodyStream
from api.server.logs import ACCESS
from api.settings import Settings
from tests.api.conftest import COMMAND, ROOT, serving
from tests.api.documents import JSON, YAML, chain, digest, put, relu
from tests.api.test_problems import check

CANARY = "canary_of_a_name"


def numbers(client) -> dict[tuple[str, ...], float]:
    """Samples of /metrics by name and values of labels."""
    families = text_string_to_metric_families(client.get("/metrics").text)
    return {(one.name, *one.labels.values()): one.value for family in families for one in family.samples}


def named_model() -> dict:
    text = json.dumps(chain(2)).replace('"k0"', f'"{CANARY}"')
    return json.loads(text)


def test_requests_are_counted_by_route_and_never_by_address(make_service):
    service = make_service()
    body = {"model": chain(2), "target": "litert-int8"}
    key = service.post("/v1/plans", json=body).json()["key"]
    for address in (f"/v1/plans/{key}", f"/v1/plans/{key}", "/v1/none", "/v2/%22%0a"):
        service.get(address)
    service.request("BREW", "/v1/plans")
    found = numbers(service)
    assert found["qplan_requests_total", "POST", "/v1/plans", "200"] == 1
    assert found["qplan_requests_total", "GET", "/v1/plans/{key}", "200"] == 2
    assert found["qplan_requests_total", "GET", "none", "404"] == 2
    assert found["qplan_request_seconds_count", "/v1/plans/{key}"] == 2
    assert found["qplan_received_bytes_total",] > 100
    assert found["qplan_sent_bytes_total",] > 1000
    assert found["qplan_requests_under_way",] == 1
    assert {state: found["qplan_jobs", state] for state in STATES} == dict.fromkeys(STATES, 0)
    labels = {label for name, *labels in found for label in labels}
    assert {"other", "none"} < labels
    assert [label for label in labels if key[-8:] in label or "BREW" in label] == []


def test_children_are_counted_by_task_and_ending(make_service):
    service = make_service()
    good = service.post("/v1/models", json={"blob": put(service, relu())})
    assert good.status_code == 201, good.text
    service.post("/v1/models", json={"blob": put(service, relu()[:-7])})
    found = numbers(service)
    assert found["qplan_children_total", "ok", "model"] == 1
    assert found["qplan_children_total", "model-invalid", "model"] == 1
    assert found["qplan_children_at_work",] == 0
    assert 10 << 20 < found["qplan_child_peak_bytes",] < 512 << 20


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A server and its log, which holds no contents when it has ended either."""
    folder = tmp_path_factory.mktemp("logged")
    log = folder / "log"
    with log.open("wb") as stream, serving(folder, stderr=stream) as server:
        yield server, log
    assert CANARY not in log.read_text()


@pytest.mark.parametrize(
    "ending",
    [
        lambda service: service.post("/v1/plans", json={"model": named_model(), "target": "litert-int8"}),
        lambda service: service.get("/v1/targets/x", params={"q": CANARY}),
        lambda service: service.post(
            "/v1/plans",
            json={"model": {**named_model(), "values": [{"name": CANARY}]}, "target": "litert-int8"},
        ),
    ],
    ids=["planned", "query", "refused"],
)
def test_logs_hold_no_contents(logged, ending):
    server, log = logged
    plain = {"Accept-Encoding": "identity"}  # the log counts bytes as they were sent
    with httpx.Client(base_url=server.url, trust_env=False, timeout=60, headers=plain) as client:
        answer = ending(client)
    wait_for(lambda: answer.headers["x-request-id"] in log.read_text())
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    (line,) = [line for line in lines if line.get("request_id") == answer.headers["x-request-id"]]
    assert (line["status"], line["method"], line["client"]) == (
        answer.status_code,
        answer.request.method,
        "127.0.0.1",
    )
    assert line["sent"] == len(answer.content)
    assert set(ACCESS) <= set(line)
    if answer.is_error:
        assert answer.json()["type"].endswith(line["problem"])
    assert CANARY not in log.read_text()


def test_a_bug_is_logged_by_its_place(make_service, tmp_path, caplog):
    service = make_service()
    (tmp_path / "models").rmdir()
    answer = service.get("/v1/models")
    name = check(answer, "internal")["request_id"]
    (record,) = [record for record in caplog.records if name in record.getMessage()]
    assert record.exc_info[0] is FileNotFoundError


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("impatient"), QPLAN_HEAD_SECONDS="1") as server:
        yield server


def test_a_head_that_never_ends(impatient):
    for start in (b"", b"GET /v1/targets HTTP/1.1\r\nHost: loc"):
        with socket.create_connection(("127.0.0.1", impatient.port), timeout=20) as line:
            line.sendall(start)
            answer = b"".join(iter(lambda: line.recv(65_536), b""))
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b"urn:qplan:problem:slow-head" in answer


def test_a_second_head_that_never_ends(impatient):
    whole = b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", impatient.port), timeout=20) as line:
        line.sendall(whole)
        assert line.recv(65_536).startswith(b"HTTP/1.1 200 ")
        line.sendall(whole[:20])
        answer = b"".join(iter(lambda: line.recv(65_536), b""))
    assert b"urn:qplan:problem:slow-head" in answer


def test_what_is_no_http(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as line:
        line.sendall(b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")
        answer = b"".join(iter(lambda: line.recv(65_536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"application/problem+json" in head
    assert json.loads(body)["type"] == "urn:qplan:problem:http-invalid"


def test_connections_beyond_the_most_are_closed(tmp_path):
    with serving(tmp_path, QPLAN_CONNECTIONS="4") as server, ExitStack() as stack:
        lines = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            for _ in range(8)
        ]
        closed = 0
        for line in lines[4:]:
            try:
                closed += line.recv(1) == b""
            except ConnectionResetError:
                closed += 1
        assert closed >= 3


def test_slow_sockets_hold_nobody_up(server):
    """The small form of the proof in benchmarks/service_load.py: 60 of 200 sockets, seconds of 60."""
    with ExitStack() as stack:
        lines = [
            stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            for _ in range(60)
        ]
        head = b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n"
        head += b"Content-Type: application/json\r\n"
        for place, line in enumerate(lines):
            line.sendall(head + b"\r\n{" if place % 2 else head)
        with httpx.Client(base_url=server.url, trust_env=False, timeout=20) as client:
            for _ in range(20):
                for line in lines:
                    line.sendall(b"a")
                assert client.get("/v1/health/live").status_code == 200
            body = {"model": chain(2), "target": "litert-int8"}
            assert client.post("/v1/plans", json=body).status_code == 200


def test_two_processes_share_a_port_and_their_numbers(tmp_path):
    command = (sys.executable, "-c", COMMAND, "serve", "--processes", "2")
    with serving(tmp_path, command) as server:
        for _ in range(40):  # each a connection of its own
            assert httpx.get(f"{server.url}/v1/targets", trust_env=False).status_code == 200
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
            assert numbers(client)["qplan_requests_total", "GET", "/v1/targets", "200"] == 40
        with ExitStack() as stack:  # connections that stay open are spread
            for _ in range(64):
                line = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
                line.sendall(b"GET /v1/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert line.recv(12) == b"HTTP/1.1 200"
            held = [sockets_of(pid) for pid in workers_of(server.process.pid)]
            assert min(held) > max(held) / 4
        first, second = workers_of(server.process.pid)
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: len(alive := workers_of(server.process.pid)) == 2 and first not in alive)
        assert httpx.get(f"{server.url}/v1/targets", trust_env=False, timeout=60).status_code == 200
        server.process.kill()
        wait_for(lambda: not Path(f"/proc/{second}").exists())


def sockets_of(pid: int) -> int:
    return sum(str(path.readlink()).startswith("socket:") for path in Path(f"/proc/{pid}/fd").iterdir())


def workers_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(one) for one in found if b"api.server.run" in Path(f"/proc/{one}/cmdline").read_bytes()]


def wait_for(what) -> None:
    for _ in range(600):
        if what():
            return
        time.sleep(0.05)
    raise AssertionError(what)


def test_requests_under_way_end_before_the_server_does(tmp_path):
    """A body of which half is sent when the server is told to end is still taken, and answered."""
    with serving(tmp_path) as server:
        body = json.dumps({"model": chain(2), "target": "litert-int8"}).encode()
        head = f"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=30) as line,
            socket.create_connection(("127.0.0.1", server.port), timeout=30) as other,
        ):
            line.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body[:100])
            other.sendall(b"PUT /v1/blobs/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
            time.sleep(0.3)
            server.process.send_signal(signal.SIGTERM)
            wait_for(lambda: refuses(server.port))
            line.sendall(body[100:])
            answer = b"".join(iter(lambda: line.recv(65_536), b""))
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b'"qplan.plan/1"' in answer
        assert b"connection: close" in answer.lower()
        server.process.wait(timeout=60)
    key = json.loads(answer.partition(b"\r\n\r\n")[2])["key"].removeprefix("sha256:")
    assert (tmp_path / "plans" / key[:2] / key).is_file()


def refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return True
    return False


def test_streams_end_when_the_server_does():
    """Whoever streams events waits for `receive`, which says that the client left."""

    async def one() -> list[object]:
        draining = asyncio.Event()
        sent = []

        async def receive():
            await asyncio.sleep(60)

        async def send(message):
            sent.append(message)

        scope = {"headers": [], REQUEST_ID: "x"}
        exchange = BodyStream(10, Settings(data=Path()), (scope, receive, send), draining)
        exchange.complete = True
        kind = (b"content-type", b"text/event-stream; charset=utf-8")
        await exchange.send({"type": "http.response.start", "status": 200, "headers": [kind]})
        waiting = asyncio.create_task(exchange.receive())
        await asyncio.sleep(0)
        draining.set()
        left = (await waiting)["type"]
        await exchange.close()
        return [left, sent[-1]]

    assert asyncio.run(one()) == ["http.disconnect", {"type": "http.response.body", "body": b""}]


def test_events_of_a_job_end_whole_with_the_server(tmp_path):
    with serving(tmp_path, QPLAN_ACCESS_LOG="off") as server:
        with httpx.Client(base_url=server.url, trust_env=False, timeout=60) as client:
            blob = put(client, json.dumps(chain(8000)).encode())
            model = client.post("/v1/models", json={"blob": blob}).json()["digest"]
            body = {"model": model, "target": "litert-int8"}
            job = client.post("/v1/plans", json=body, headers={"Prefer": "wait=0"}).json()
            with client.stream("GET", f"{job['link']}/events") as events:
                lines = events.iter_lines()
                assert "event: queued" in (next(lines), next(lines))
                server.process.send_signal(signal.SIGTERM)
                assert list(lines)[-1] == ""
        server.process.wait(timeout=60)


def test_a_server_that_ends_is_not_ready(make_service):
    service = make_service()
    service.app.state.draining.set()
    check(service.get("/v1/health/ready"), "not-ready", "ending")
    assert service.get("/v1/health/live").status_code == 200


def test_the_quota(make_service):
    service = make_service(quota=1000)
    put(service, bytes(600))
    kind = {"content-type": "application/octet-stream"}
    more = b"1" * 600
    check(service.put(f"/v1/blobs/{digest(more)}", content=more, headers=kind), "quota", "the server is full")
    assert service.head(f"/v1/blobs/{digest(more)}").status_code == 404
    put(service, b"2" * 300)


def test_the_quota_counts_plans(make_service):
    """100 plans of 100 kB were kept under a quota of 100 kB, when only blobs counted."""
    service = make_service(quota=100_000)
    answers = [
        service.post("/v1/plans", json={"model": chain(k), "target": "litert-int8"}) for k in range(1, 40)
    ]
    refused = [answer for answer in answers if answer.is_error]
    check(refused[0], "quota", "the server is full")
    kept = service.app.state.quotas.whole.measure()
    assert 50_000 < kept <= 100_000
    assert service.app.state.quotas.whole.used == kept
    first = answers[0].json()["key"]
    assert service.get(f"/v1/plans/{first}").json() == answers[0].json()
    assert service.post("/v1/plans", json={"model": chain(1), "target": "litert-int8"}).status_code == 200


def test_the_quota_counts_targets_and_what_children_make(make_service):
    service = make_service(quota=400_000)
    quota = service.app.state.quotas.whole
    before = quota.used
    kind = {"content-type": "application/yaml"}
    assert service.put(f"/v1/targets/{TARGET_NAME}", content=TARGET, headers=kind).status_code == 201
    assert quota.used >= before + len(TARGET)
    key = service.post("/v1/plans", json={"model": chain(2), "target": "litert-int8"}).json()["key"]
    before = quota.used
    page = service.get(f"/v1/plans/{key}/report")
    assert quota.used == before + len(page.content) == quota.measure()
    put(service, bytes(400_000 - quota.used))
    before = quota.used
    assert before == 400_000
    check(service.post(f"/v1/plans/{key}:replan", json={"restore": ["k0"]}), "quota")
    assert service.get(f"/v1/plans/{key}/report").content == page.content
    job = {"model": chain(2), "target": "onnxruntime-cpu"}
    check(service.post("/v1/plans", json=job), "quota")
    assert quota.used == before == quota.measure()


def test_a_full_quota_refuses_nothing_that_is_kept_or_only_read(make_service):
    service = make_service(quota=400_000, inline_kernels=1)
    quota, store = service.app.state.quotas.whole, service.app.state.service.store
    blob = put(service, relu())
    model = service.post("/v1/models", json={"blob": blob}).json()["digest"]
    asked = {"model": chain(2), "target": "litert-int8"}
    key = service.post("/v1/plans", json=asked).json()["key"]
    last = os.urandom(400_000 - quota.used)
    put(service, last)
    assert quota.used == quota.measure() == 400_000
    kind = {"content-type": "application/octet-stream"}
    for content in (last, relu()):
        assert service.put(f"/v1/blobs/{digest(content)}", content=content, headers=kind).status_code == 201
        begun = service.post("/v1/uploads", json={"digest": digest(content), "bytes": len(content)})
        assert (begun.status_code, begun.json()["offset"]) == (201, len(content))
    check(service.put(f"/v1/blobs/{blob}", content=b"other", headers=kind), "digest-mismatch")
    assert service.post("/v1/models", json={"blob": blob}).json()["digest"] == model
    assert service.post("/v1/plans", json=asked).json()["key"] == key
    for part in ("summary", "view", "report", "ports", f"diff?against={key}", "report?live=true"):
        for _ in range(2):
            answer = service.get(f"/v1/plans/{key}/{part}", headers={"Accept-Encoding": "identity"})
            assert answer.status_code == 200, (part, answer.text)
            assert int(answer.headers["content-length"]) == len(answer.content) > 100
        known = {"If-None-Match": answer.headers["etag"]}
        assert service.get(f"/v1/plans/{key}/{part}", headers=known).status_code == 304
    for question in ("pareto?component=v1", "report?pareto=v1", "part?pointer=/key"):
        assert service.get(f"/v1/plans/{key}/{question}").status_code == 200, question
    check(service.get(f"/v1/plans/{key}/summary", headers={"Range": "bytes=900000-"}), "range-invalid")
    assert quota.used == quota.measure() == 400_000
    assert list((store.root / "drafts").iterdir()) == []
    whole = service.get(f"/v1/plans/{key}/summary").json()
    service.delete(f"/v1/blobs/{digest(last)}")
    assert service.get(f"/v1/plans/{key}/summary").json() == whole
    assert quota.used == quota.measure() < 400_000


def test_a_blob_that_was_damaged_is_healed_by_coming_again(make_service):
    service = make_service()
    blob = put(service, b"whole")
    service.app.state.service.store.path("blobs", blob).write_bytes(b"holed")
    put(service, b"whole")
    assert service.get(f"/v1/blobs/{blob}").content == b"whole"


def test_the_quota_counts_parts_and_what_is_given_up(make_service):
    service = make_service(quota=1000)
    quota, content = service.app.state.quotas.whole, b"3" * 700
    asked = {"digest": digest(content), "bytes": len(content)}
    first, second = (service.post("/v1/uploads", json=asked).json()["link"] for _ in range(2))
    kind = {"content-type": "application/octet-stream", "upload-offset": "0"}
    assert service.patch(first, content=content[:600], headers=kind).status_code == 204
    assert quota.used == quota.measure() == 600
    check(service.patch(second, content=content[:600], headers=kind), "quota")
    assert quota.used == quota.measure() == 600
    assert service.patch(first, content=content[600:], headers=kind | {"upload-offset": "600"}).is_success
    assert quota.used == 700
    service.delete(second)
    assert quota.used == 700


def test_a_report_may_style_itself_and_run_its_two_scripts(service):
    key = service.post("/v1/plans", json={"model": chain(2), "target": "litert-int8"}).json()["key"]
    answer = service.get(f"/v1/plans/{key}/report")
    assert answer.headers["content-type"].startswith("text/html")
    policy = answer.headers["content-security-policy"].split("; ")
    scripts = [part.partition("</script>")[0] for part in answer.text.split("<script>")[1:]]
    style = answer.text.partition("<style>")[2].partition("</style>")[0]
    own, *digests = (
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in (style, *scripts)
    )
    assert len(digests) == 2
    assert policy == [
        "default-src 'none'",
        f"style-src 'sha256-{own}'",
        "script-src " + " ".join(f"'sha256-{digest}'" for digest in digests),
        "frame-ancestors 'none'",
        "sandbox allow-scripts allow-downloads",
    ]


def test_a_preflight_is_not_answered(service):
    asked = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    answer = service.options("/v1/plans", headers=asked)
    assert answer.status_code == 405
    answers = [answer, service.get("/v1/targets", headers=asked)]
    names = {name for answer in answers for name in answer.headers if name.startswith("access-control")}
    assert names == set()


def test_a_form_is_not_a_request(service):
    """A page elsewhere can send a form, and text/plain, without asking first."""
    kinds = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x")
    body = json.dumps({"model": chain(1), "target": "litert-int8"})
    for kind in kinds:
        check(service.post("/v1/plans", content=body, headers={"content-type": kind}), "unsupported-media")
    assert service.post("/v1/plans", content=body, headers=JSON).status_code == 200


CALLING = b"""\
apiVersion: planner/v1
kind: Target
id: calling-npu
version: 1.0.0
kernels:
  - kernel: relu
    in: {x: {storage: i8}}
    out: {y: {storage: i8}}
    rules: [{fn: {name: "mine:follow", args: {}}}]
"""


def test_functions_of_targets_are_those_of_the_allow_list(service, make_service):
    check(service.post("/v1/targets:lint", content=CALLING, headers=YAML), "target-invalid", "mine:follow")
    allowing = make_service(functions=(("mine:follow", "planner.target.rules:same_scale"),))
    found = allowing.post("/v1/targets:lint", content=CALLING, headers=YAML)
    assert (found.status_code, found.json().get("id")) == (200, "calling-npu"), found.text


def test_no_module_is_run_as_a_script_beside_the_data(tmp_path):
    """A file in the data folder is not imported by children, whatever it is called."""
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    line = [sys.executable, "-P", "-m", "api.child"]
    done = subprocess.run(
        line, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, input=b"", capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")

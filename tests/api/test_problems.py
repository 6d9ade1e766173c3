"""Every type of problem can be provoked, is documented, and has one shape."""

import asyncio
import inspect
import io
import json
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path

import httpx
import numpy as np
import pytest
from onnx import helper

from api.jobs.forks import FORKS
from api.problems import AGAIN, CLASSES, MEDIA_TYPE, PREFIX, REMEDIES, TYPES, problem_of
from api.server.metrics import Metrics
from api.server.middleware import ServiceMiddleware
from api.server.run import _bound
from api.server.tokens import parse_token
from api.settings import Settings
from planner import errors
from planner.cli.app import run
from tests.api.conftest import serving
from tests.api.documents import JSON, OCTETS, YAML, chain, contradicted, external, onnx_file, put, relu
from tests.test_model_sources import FOREIGN

ROOT = Path(__file__).resolve().parents[2]
DIGITS = ROOT / "examples" / "digits"
PLACES = (str(ROOT), tempfile.gettempdir(), "/drafts/", "/blobs/", "site-packages")
"""Where files of the server lie: nobody's business."""
BY_NAME = (".json", ".pb", ".py", ".yaml")
"""Suffixes of foreign files that only their name tells, and of documents."""
NOWHERE = f"sha256:{'0' * 64}"


def plan(**request):
    return {"json": {"model": chain(1), "target": "litert-int8", **request}}


def annotations(**values):
    return {"format": "qplan.annotations/1", "values": values}


STATS = {"format": "qplan.stats/1", "model": NOWHERE, "method": "minmax", "samples": 1}

# Name of the problem, method, path, request, and words of its detail or members.
ASKED = [
    (
        "annotation-invalid",
        "POST",
        "/v1/plans",
        plan(annotations=annotations(v9="!quant.none")),
        "'v9' is no value",
    ),
    (
        "conflict",
        "POST",
        "/v1/plans",
        {"json": {"model": contradicted(), "target": "litert-int8"}},
        "cannot be both",
    ),
    (
        "digest-mismatch",
        "PUT",
        f"/v1/blobs/{NOWHERE}",
        {"content": b"x", "headers": OCTETS},
        "the body is sha256:2d71",
    ),
    (
        "input-invalid",
        "POST",
        "/v1/targets:lint",
        {"content": b"id: \xff", "headers": YAML},
        "byte 4 is no UTF-8",
    ),
    ("json-invalid", "POST", "/v1/plans", {"content": b"{", "headers": JSON}, "not JSON"),
    ("json-invalid", "POST", "/v1/plans", {"content": b"[" * 65, "headers": JSON}, "deeper than 64"),
    (
        "json-invalid",
        "POST",
        "/v1/stats",
        {"content": b"[" + b"1," * 100_000, "headers": JSON},
        "100000 values",
    ),
    (
        "json-invalid",
        "POST",
        "/v1/plans",
        {"content": b'{"model": 1' + b"0" * 20 + b"}", "headers": JSON},
        "19 digits",
    ),
    ("method-not-allowed", "DELETE", "/v1/plans", {}, "Method Not Allowed"),
    (
        "request-invalid",
        "PUT",
        "/v1/targets/t1",
        {"content": b"id: t1", "headers": YAML},
        "'t1' is not ID@VERSION, as in acme-npu@1",
    ),
    ("model-invalid", "POST", "/v1/plans", plan(model={"format": "qplan.annotated/1"}), "missing"),
    ("model-invalid", "POST", "/v1/plans", plan(model=chain(1, shape=[-1, 8])), "-1 is negative"),
    (
        "model-invalid",
        "POST",
        "/v1/plans",
        plan(model=chain(1, constraints=["!quant.cal"])),
        "values[0].constraints[0]",
    ),
    ("not-found", "GET", "/v1/nothing", {}, "Not Found"),
    ("request-invalid", "POST", "/v1/plans", {"json": {"target": "x"}}, "/model: Field required"),
    ("request-invalid", "POST", "/v1/plans", plan(options={"strategy": "best"}), "/options/strategy"),
    ("request-invalid", "POST", "/v1/plans", plan(more=1), "/more"),
    (
        "stats-invalid",
        "POST",
        "/v1/stats",
        {"json": {**STATS, "values": {"x": {"min": 2, "max": 1}}}},
        "values.x",
    ),
    (
        "stats-invalid",
        "POST",
        "/v1/plans",
        plan(stats={**STATS, "values": {"v9": {"min": 1, "max": 2}}}),
        "'v9'",
    ),
    ("target-invalid", "POST", "/v1/targets:lint", {"content": "id: x", "headers": YAML}, "T011"),
    (
        "too-large",
        "POST",
        "/v1/plans",
        {"content": b" " * 4_194_305, "headers": JSON},
        "at most 4194304 bytes",
    ),
    ("unknown-name", "GET", "/v1/targets/litert-int9", {}, "litert-int8"),
    ("unknown-name", "GET", "/v1/targets/litert-int8@0.0.1", {}, "litert-int8@"),
    ("unknown-name", "GET", "/v1/blobs/sha256:..", {}, "unknown blob"),
    ("unknown-name", "GET", f"/v1/plans/{NOWHERE}", {}, "unknown plan"),
    ("unknown-name", "POST", "/v1/models", {"json": {"blob": NOWHERE}}, "unknown blob"),
    ("unknown-name", "POST", "/v1/plans", plan(model=NOWHERE), "unknown model"),
    (
        "unknown-name",
        "POST",
        "/v1/plans",
        plan(options={"costs": {"bit_prize": 1}}),
        "did you mean 'bit_price'",
    ),
    (
        "unknown-name",
        "POST",
        "/v1/plans",
        plan(options={"costs": {"strategy": 1}}),
        "unknown cost 'strategy'",
    ),
    (
        "unsupported-media",
        "POST",
        "/v1/plans",
        {"content": b"{}", "headers": {"content-type": "text/plain"}},
        "'text/plain'",
    ),
    (
        "unsupported-media",
        "POST",
        "/v1/targets:lint",
        {"content": b"{}", "headers": {"content-type": "text/html"}},
        "application/yaml",
    ),
]


def check(answer: httpx.Response, name: str, words: str = "") -> dict:
    """Hold a problem against its type."""
    assert answer.headers["content-type"] == MEDIA_TYPE, answer.text
    found = answer.json()
    status, title = TYPES[name]
    assert (found["type"], found["status"], found["title"]) == (f"{PREFIX}{name}", status, title), found
    assert answer.status_code == status
    assert ("retry-after" in answer.headers) == (status in (429, 503))
    assert found["request_id"] == answer.headers["x-request-id"]
    assert words in answer.text, answer.text
    assert [place for place in PLACES if place in answer.text] == []
    return found


@pytest.mark.parametrize("asked", ASKED, ids=lambda asked: f"{asked[0]}: {asked[4]}")
def test_asked_wrongly(service, asked):
    name, method, path, request, words = asked
    check(service.request(method, path, **request), name, words)


def test_members(service):
    for name, method, path, request, _ in ASKED:
        if name in ("conflict", "target-invalid", "request-invalid"):
            found = service.request(method, path, **request).json()
            assert found["facts" if name == "conflict" else "errors"]


def exported(service, model: bytes, plan_of: dict, format_: str = "onnx-qdq") -> httpx.Response:
    record = service.post("/v1/models", json={"blob": put(service, model)}).json()
    made = service.post("/v1/plans", json={"model": plan_of, "target": "litert-int8"}).json()
    return service.post(
        "/v1/exports", json={"model": record["digest"], "plan": made["key"], "format": format_}
    )


def test_a_plan_of_another_model(service):
    check(exported(service, relu(), chain(2)), "plan-invalid")


def test_what_a_format_cannot_say_names_the_port_and_the_row(service):
    blobs = [put(service, (DIGITS / name).read_bytes()) for name in ("digits.onnx", "calibration.npz")]
    model = service.post("/v1/models", json={"blob": blobs[0]}).json()["digest"]
    asked, wait = {"model": model, "samples": blobs[1]}, {"Prefer": "wait=60"}
    stats = service.post("/v1/calibrations", json=asked, headers=wait).json()["digest"]
    body = {"model": model, "stats": stats, "target": "onnxruntime-cpu"}
    key = service.post("/v1/plans", json=body).json()["key"]
    answer = service.post("/v1/exports", json={"model": model, "plan": key, "format": "tosa"})
    found = check(answer, "unsupported-export", "tosa accepts rows of")
    assert (found["port"], found["row"].partition("@")[0]) == ("stem/conv.out[0]", "conv")


def test_places_in_models(service):
    model = chain(2)
    model["kernels"][0]["kernel"] = 4
    found = check(service.post("/v1/plans", json={"model": model, "target": "litert-int8"}), "model-invalid")
    assert found["pointer"] == "/kernels/0/kernel"
    blob = put(service, onnx_file([helper.make_node("Conv", ["x", "w"], ["y"], name="c")]))
    found = check(service.post("/v1/models", json={"blob": blob}), "model-invalid")
    assert found["names"] == ["g", "c", "w"]


@pytest.mark.parametrize("name", [name for name in FOREIGN if Path(name).suffix not in BY_NAME])
def test_files_of_other_kinds_are_named(service, name):
    """As in the library; the scan of ONNX's wire format, which comes first, knew a byte at most."""
    data, what, advice = FOREIGN[name]
    answer = service.post("/v1/models", content=data, headers=OCTETS)
    assert advice in check(answer, "model-invalid", f"the model is {what}")["hint"]


@pytest.mark.parametrize(
    ("data", "words"),
    [([], "or to the service `external_data`"), (["b.bin"], "external file 'a.bin' of tensor 'w' does not")],
)
def test_external_data_that_is_not_there(service, data, words):
    given = [{"location": place, "blob": put(service, bytes(8))} for place in data]
    body = {"blob": put(service, external("a.bin")), "external_data": given}
    check(service.post("/v1/models", json=body), "model-invalid", words)


@pytest.mark.parametrize("shape", [(2, 1, 9), (3,)])
def test_samples_that_do_not_fit_are_called_samples(service, shape):
    model = service.post("/v1/models", json={"blob": put(service, relu())}).json()["digest"]
    file = io.BytesIO()
    np.savez(file, x=np.zeros(shape, np.float32))
    body = {"model": model, "samples": put(service, file.getvalue())}
    answer = service.post("/v1/calibrations", json=body, headers={"Prefer": "wait=60"})
    assert check(answer, "input-invalid")["detail"].startswith("samples: input 'x' has shape")


def test_an_export_without_numbers(service):
    check(exported(service, json.dumps(chain(1)).encode(), chain(1)), "unsupported-export", "no ops inside")


def test_an_export_in_no_format(service):
    check(exported(service, json.dumps(chain(1)).encode(), chain(1), "onnx"), "request-invalid", "onnx-qdq")


def test_an_address_that_is_not_in_the_plan(service):
    key = service.post("/v1/plans", **plan()).json()["key"]
    check(service.get(f"/v1/plans/{key}/explain", params={"port": "k9"}), "unknown-name", "'k0'")


def test_busy(make_service):
    service = make_service(waiting=0)
    service.app.state.service.sandbox.turns.free = 0
    check(service.post("/v1/models", json={"blob": put(service, relu())}), "busy")


def test_the_data_folder_is_gone(make_service, tmp_path):
    service = make_service(data=tmp_path / "data")
    shutil.rmtree(tmp_path / "data")
    told = check(service.get("/v1/health/ready"), "not-ready")
    upload = {"digest": NOWHERE, "bytes": 1}
    for answer in (
        service.put(f"/v1/blobs/{NOWHERE}", content=b"", headers=OCTETS),
        service.get("/v1/plans"),
        service.get(f"/v1/plans/{NOWHERE}"),
        service.post("/v1/plans", **plan()),
        service.post("/v1/uploads", json=upload),
        service.get(f"/v1/uploads/{int(time.time()):08x}-{'0' * 32}"),
    ):
        assert set(check(answer, "not-ready")["missing"]) <= set(told["missing"])
    assert service.get("/v1/health/live").status_code == 200
    assert not (tmp_path / "data").exists()


def test_the_data_folder_takes_no_files(make_service, tmp_path):
    service = make_service(data=tmp_path / "data")
    (tmp_path / "data" / "drafts").rmdir()
    (tmp_path / "data" / "drafts").touch()
    told = check(service.get("/v1/health/ready"), "not-ready", "Not a directory")
    found = check(service.put(f"/v1/blobs/{NOWHERE}", content=b"", headers=OCTETS), "not-ready")
    assert found["missing"] == told["missing"]
    assert service.get("/v1/plans").json()["items"] == []


def test_a_bug(make_service, tmp_path):
    service = make_service()
    (tmp_path / "models" / "00").mkdir()
    (tmp_path / "models" / "00" / NOWHERE.removeprefix("sha256:")).write_bytes(b"no record")
    check(service.get(f"/v1/models/{NOWHERE}"), "internal", "request id")


def test_out_of_memory(make_service):
    service = make_service(child_memory=1)
    names = {f"v{i}": {"min": 0.0, "max": 1.0} for i in range(20_000)}
    check(service.post("/v1/stats", json={**STATS, "values": names}), "out-of-memory")


def test_timeout(make_service):
    service = make_service(child_seconds=1)
    sandbox = service.app.state.service.sandbox
    sandbox.bounds = replace(sandbox.bounds, patience=60)  # however busy the machine of the tests is
    big = json.dumps(chain(100_000)).encode()
    check(service.post("/v1/models", json={"blob": put(service, big)}), "timeout")
    check(service.post("/v1/models", json={"blob": NOWHERE}), "unknown-name")


def test_a_crash(make_service):
    service = make_service()
    big = json.dumps(chain(100_000)).encode()
    blob = put(service, big)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(service.post("/v1/models", json={"blob": blob})))
    asking.start()
    while not answers and not (busy := [child for child in children() if cpu_seconds(child) > 1]):
        time.sleep(0.05)
    for child in busy:
        os.kill(child, signal.SIGSEGV)
    asking.join()
    check(answers[0], "worker-crashed", "SIGSEGV")
    assert service.post("/v1/models", json={"blob": put(service, relu())}).status_code == 201


def children() -> list[int]:
    """Processes that read for services of this process."""
    if FORKS.server is None:
        return []
    server = FORKS.server[0].pid
    return [int(pid) for pid in Path(f"/proc/{server}/task/{server}/children").read_text().split()]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_body_that_stops(make_service):
    service = make_service(body_seconds=1)
    head = b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n"
    head += b"Content-Type: application/json\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", service.base_url.port)) as line:
        line.sendall(head)
        answer = b"".join(iter(lambda: line.recv(65_536), b""))
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"urn:qplan:problem:slow-body" in answer


def test_a_name_that_is_not_ours(service, make_service):
    evil = {"Host": "evil.example"}
    check(service.get("/v1/targets", headers=evil), "wrong-host", "evil.example")
    assert service.get("/v1/targets", headers={"Host": "LOCALHOST:99"}).status_code == 200
    assert make_service(hosts=frozenset({"evil.example"})).get("/v1/targets", headers=evil).status_code == 200


def test_tokens(make_service):
    known = "3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0"  # of "token"
    service = make_service(tokens=(parse_token(known, "the test"),))
    check(service.get("/v1/targets"), "unauthorized")
    check(service.get("/v1/targets", headers={"Authorization": "Bearer other"}), "unauthorized")
    check(service.get("/v1/targets", headers={"Authorization": "Basic token"}), "unauthorized")
    assert service.get("/v1/targets", headers={"Authorization": "Bearer token"}).status_code == 200
    assert service.get("/v1/health/live").status_code == 200


def test_beyond_loopback(tmp_path):
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/targets",
        "headers": [(b"host", b"192.0.2.1")],
        "server": ("192.0.2.1", 80),
    }
    edge = ServiceMiddleware(None, Settings(data=tmp_path), Metrics(), asyncio.Event())
    problem = edge._refusal(scope)
    assert (problem.name, problem.status) == ("not-local", 403)
    assert edge._refusal({**scope, "server": ("::1", 80)}) is None


def test_serving_elsewhere_needs_tokens(tmp_path, capsys):
    assert run(["serve", "--host", "192.0.2.1", "--data", str(tmp_path)]) == 2
    assert "QPLAN_TOKENS" in capsys.readouterr().err


def test_a_port_that_is_taken(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run(["serve", "--port", port, "--data", str(tmp_path)]) == 2
    assert f"cannot serve on 127.0.0.1 port {port}: " in capsys.readouterr().err


def test_answers_do_not_wait_for_acknowledgements(tmp_path):
    with _bound("127.0.0.1", 0, Settings(data=tmp_path)) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_serving_elsewhere_with_tokens(tmp_path):
    known = "3c469e9d6c5875d37a43f353d4f88e61fcf812c66eee3457465a40b0da4153e0"
    with serving(tmp_path, QPLAN_TOKENS=known) as server:
        check(httpx.get(f"{server.url}/v1/targets", trust_env=False), "unauthorized")


CLASS_ONLY = {
    "rule-invalid": errors.RuleError("x"),
    "type-invalid": errors.QTypeError("x"),
}


@pytest.mark.parametrize("name", CLASS_ONLY)
def test_classes_that_no_route_lets_out_today(name):
    assert problem_of(CLASS_ONLY[name]).name == name


def test_every_type_is_provoked():
    found = Path(__file__).parent.rglob("*.py")
    text = "".join(path.read_text(encoding="utf-8") for path in found)
    asked = {name for name in TYPES if re.search(rf'["\':]{name}["\']', text)}
    assert set(TYPES) - asked == set()


def test_every_error_class_has_a_type():
    found = [item for item in vars(errors).values() if inspect.isclass(item) and issubclass(item, Exception)]
    assert set(found) == set(CLASSES)
    assert set(CLASSES.values()) <= set(TYPES)


def test_every_type_has_a_remedy():
    assert list(REMEDIES) == list(TYPES)
    assert all(remedy for _, remedy in REMEDIES.values())
    assert list(TYPES) == sorted(TYPES)
    assert {name for name, (status, _) in TYPES.items() if status in (429, 503)} == set(AGAIN)

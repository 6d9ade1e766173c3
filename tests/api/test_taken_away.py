"""What is taken away while somebody reads it: the reader is told what a later one is told."""

import asyncio
import io
import socket
import threading
import time
from contextlib import contextmanager

import numpy as np
import pytest
from onnx import helper

from api.jobs.child_process import Bounds, run_child, start_child
from api.jobs.records import made, stored, work
from api.problems import Refused
from api.server.responses import StoredFile
from api.storage.deleted import gone
from api.storage.store import Store
from tests.api.documents import chain, digest, onnx_file
from tests.api.test_problems import check
from tests.api.test_uploads import DATA, begin

PLAN = {"annotations": {}, "target": {"name": "litert-int8"}, "options": {}, "steps": []}


def npz(**arrays) -> bytes:
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


FILES = {
    "external": b"w" * 64,
    "model": onnx_file([helper.make_node("Relu", ["x"], ["y"])]),
    "samples": npz(x=np.zeros((2, 1, 8), np.float32)),
    "stats": b"{}",
}


def asked(task: str, **more) -> dict:
    """A work on the files of `FILES`."""
    names = {name: stored("blobs", digest(FILES[name])) for name in ("model", *more.pop("files", ()))}
    external = [["w.bin", names.pop("external")]] if "external" in names else []
    return work(task, {**names, "external": external, **more})


CALIBRATED = {"method": "minmax", "readers": 0, "shard": None, "out": made("stats")}


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("model", asked("model", out=made("answers"))),
        ("external", asked("model", files=["external"], out=made("answers"))),
        ("stats", asked("plan", files=["stats"], **PLAN, out=made("plans"))),
        ("samples", asked("calibrate", files=["samples"], **CALIBRATED)),
    ],
)
def test_a_file_that_goes_before_its_child_reads_it(tmp_path, name, asked):
    store = Store(tmp_path)
    store.open()
    for data in FILES.values():
        store.put("blobs", digest(data), data)

    def start(folder):
        store.drop("blobs", digest(FILES[name]))
        return start_child(folder)

    with pytest.raises(Refused) as caught:
        run_child(store, asked, Bounds(1 << 30, 10), start=start)
    assert caught.value.problem.name == "unknown-name"
    assert caught.value.problem.detail == f"unknown blob {digest(FILES[name])!r}"


def test_a_child_that_is_out_of_time_says_so_whatever_went(tmp_path):
    store = Store(tmp_path)
    store.open()
    store.put("blobs", digest(FILES["model"]), FILES["model"])

    def start(folder):
        store.drop("blobs", digest(FILES["model"]))
        return start_child(folder)

    with pytest.raises(Refused) as caught:
        run_child(store, asked("model", out=made("answers")), Bounds(1 << 30, 0), start=start)
    assert caught.value.problem.name in ("overloaded", "timeout")


@contextmanager
def planning_elsewhere(client):
    """Hold the one place for planning in a server's process."""
    service = client.app.state.service
    loop = service.dispatcher.loops[0].get_loop()
    held, free = threading.Event(), asyncio.Event()

    async def hold() -> None:
        async with service.turns.place("somebody"):
            held.set()
            await free.wait()

    holding = asyncio.run_coroutine_threadsafe(hold(), loop)
    assert held.wait(30)
    try:
        yield service.turns
    finally:
        loop.call_soon_threadsafe(free.set)
        holding.result(30)


@pytest.mark.parametrize("question", ["summary", "ports", "explain?port=k0", "part?pointer=/format"])
def test_a_plan_that_goes_while_it_is_looked_into(make_service, question):
    client = make_service()
    key = client.post("/v1/plans", json={"model": chain(2), "target": "litert-int8"}).json()["key"]
    answers = []
    asking = threading.Thread(target=lambda: answers.append(client.get(f"/v1/plans/{key}/{question}")))
    with planning_elsewhere(client) as turns:
        asking.start()
        while not turns.queued:
            assert asking.is_alive()
            time.sleep(0.01)
        assert client.delete(f"/v1/plans/{key}").status_code == 204
    asking.join()
    check(answers[0], "unknown-name", f"unknown plan '{key}'")


def test_a_file_that_goes_while_it_is_sent_comes_whole(tmp_path):
    path, body = tmp_path / "file", bytearray()
    path.write_bytes(b"x" * 100_000)

    async def send(message) -> None:
        path.unlink(missing_ok=True)
        body.extend(message.get("body", b""))

    scope = {"type": "http", "method": "GET", "headers": [], "asgi": {"spec_version": "2.4"}}
    asyncio.run(StoredFile(path)(scope, None, send))
    assert bytes(body) == b"x" * 100_000
    with pytest.raises(FileNotFoundError):  # which the application knows how to word
        asyncio.run(StoredFile(path)(scope, None, send))


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        (f"/data/plans/ab/ab{'0' * 62}", f"unknown plan 'sha256:ab{'0' * 62}'"),
        (f"/data/tenants/a/stats/ab/ab{'0' * 62}", f"unknown statistics 'sha256:ab{'0' * 62}'"),
        (f"/data/uploads/00000001-{'0' * 32}/data", f"unknown upload '00000001-{'0' * 32}'"),
        (f"/data/plans/ab/cd{'0' * 62}", None),
        (f"/data/plans/ab/ab{'0' * 62}/more", None),
        ("/data/drafts/abc", None),
    ],
)
def test_what_a_missing_file_was(path, detail):
    found = gone(FileNotFoundError(2, "No such file or directory", path))
    assert (found and found.problem.detail) == detail
    assert gone(PermissionError(13, "Permission denied", path)) is None


def test_an_upload_that_is_given_up_while_a_part_is_on_its_way(make_service):
    client = make_service(quota=100_000_000)
    quota = client.app.state.quotas.whole
    link = begin(client).headers["location"]
    head = f"PATCH {link} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    head += "Content-Type: application/octet-stream\r\n"
    head += f"Upload-Offset: 0\r\nContent-Length: {len(DATA)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.base_url.port)) as line:
        line.sendall(head.encode() + DATA[:2_000_000])
        until = time.monotonic() + 30
        while not client.get(link).json()["offset"]:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert client.delete(link).status_code == 204
        line.sendall(DATA[2_000_000:])
        answer = line.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 404 "), answer
    assert b"urn:qplan:problem:unknown-name" in answer
    assert quota.used == quota.measure() == 0
    check(client.get(link), "unknown-name")

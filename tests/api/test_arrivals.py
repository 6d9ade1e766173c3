"""Bodies that come slowly, or never: they keep nobody else waiting, and their bytes are bounded."""

import asyncio
import json
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request

from api.intake.arrivals import SMALL, Arrivals, Body
from tests.api.documents import chain, digest
from tests.api.test_problems import check

HEAD = b"POST /v1/plans HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SHORT = HEAD + b"Content-Length: 9\r\n\r\n{"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
PLACES = 64


def silent(stack: ExitStack, service: httpx.Client, start: bytes, count: int) -> None:
    """Open sockets that promise a body and send no end of it."""
    for _ in range(count):
        line = stack.enter_context(socket.create_connection(("127.0.0.1", service.base_url.port)))
        line.sendall(start)


@pytest.mark.parametrize("start", [SHORT, CHUNKED], ids=["short", "chunked"])
@pytest.mark.parametrize("spaces", [0, 2 * SMALL], ids=["small", "big"])
def test_bodies_that_never_come_take_no_place(make_service, start, spaces):
    service = make_service(waiting=1)
    body = json.dumps({"model": chain(2), "target": "litert-int8"}).encode() + b" " * spaces
    with ExitStack() as stack:
        silent(stack, service, start, PLACES + 2)
        time.sleep(0.5)  # so that the server has read their heads
        headers = {"content-type": "application/json"}
        # Well below the 30 s after which the silent ones would be gone.
        answer = service.post("/v1/plans", content=body, headers=headers, timeout=25)
    assert answer.status_code == 200, answer.text


def test_a_blob_that_trickles_is_given_up(make_service):
    service = make_service(body_seconds=1, body_rate=1000)
    head = f"PUT /v1/blobs/{digest(b'')} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 900\r\n"
    head += "Content-Type: application/octet-stream\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.base_url.port)) as line:
        line.sendall(head.encode())
        line.settimeout(0.2)
        answer = b""
        for _ in range(60):
            with suppress(TimeoutError, ConnectionError):
                line.sendall(b"x")
                answer += line.recv(65_536)
            if answer:
                break
    assert answer.startswith(b"HTTP/1.1 408 ")


def request_of(*parts: bytes, then: asyncio.Event | None = None) -> Request:
    """A request whose body comes in parts; after them it waits for an event, then ends."""
    waiting = list(parts)

    async def receive() -> dict:
        await asyncio.sleep(0)
        if waiting:
            return {"type": "http.request", "body": waiting.pop(0), "more_body": True}
        if then is not None:
            await then.wait()
        return {"type": "http.request", "body": b"", "more_body": False}

    return Request({"type": "http", "headers": []}, receive)


@pytest.mark.parametrize("size", [0, 1, SMALL - 1, SMALL, SMALL + 1, 3 * SMALL + 5])
@pytest.mark.parametrize("part", [SMALL // 2 + 1, 10 * SMALL])
def test_a_body_comes_back_as_it_was_sent(tmp_path, size, part):
    content = (b"0123456789abcdef" * (SMALL // 4))[:size]
    arrivals = Arrivals(tmp_path, 10 * SMALL)

    async def run() -> bytes:
        parts = [content[k : k + part] for k in range(0, size, part)]
        async with arrivals.receive(request_of(*parts)) as body:
            assert arrivals.bytes == body.size == size
            return await body.read()

    assert asyncio.run(run()) == content
    assert (arrivals.bytes, list(tmp_path.iterdir())) == (0, [])


@pytest.mark.parametrize(("last", "kept"), [(SMALL, True), (SMALL + 1, False)], ids=["just", "too much"])
def test_the_one_that_comes_for_longest_makes_room(tmp_path, last, kept):
    arrivals = Arrivals(tmp_path, 3 * SMALL)

    async def run() -> None:
        never = asyncio.Event()
        eldest, second = (
            asyncio.create_task(hold(arrivals, request_of(b"x" * SMALL, then=never))) for _ in range(2)
        )
        await turns()
        assert arrivals.bytes == 2 * SMALL
        async with arrivals.receive(request_of(b"y" * last)) as body:
            assert await body.read() == b"y" * last
        await turns()
        assert (eldest.done(), second.done()) == (not kept, False)
        never.set()
        results = await asyncio.gather(eldest, second, return_exceptions=True)
        assert [getattr(error, "problem", None) and error.problem.name for error in results] == [
            None if kept else "busy",
            None,
        ]

    asyncio.run(run())
    assert arrivals.bytes == 0


async def turns() -> None:
    """Let the other tasks go as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


async def hold(arrivals: Arrivals, request: Request) -> None:
    async with arrivals.receive(request) as body:
        await body.read()


def test_a_body_that_alone_is_more_than_all_may_have(make_service):
    service = make_service(bodies=2 * SMALL)
    body = json.dumps({"model": chain(2), "target": "litert-int8"}).encode() + b" " * 3 * SMALL
    headers = {"content-type": "application/json"}
    check(service.post("/v1/plans", content=body, headers=headers), "busy", str(2 * SMALL))
    assert service.post("/v1/plans", content=body.rstrip(), headers=headers).status_code == 200


def test_a_body_on_disk_has_no_name(tmp_path):
    async def run() -> list[Path]:
        body = Body(tmp_path)
        await body.write(b"x" * (SMALL + 1))
        named = list(tmp_path.iterdir())
        body.close()
        return named

    assert asyncio.run(run()) == []


def test_a_client_that_leaves_frees_its_bytes(tmp_path):
    arrivals = Arrivals(tmp_path, SMALL)

    async def run() -> None:
        coming = asyncio.create_task(hold(arrivals, request_of(b"x" * 9, then=asyncio.Event())))
        await turns()
        assert arrivals.bytes == 9
        coming.cancel()
        with pytest.raises(asyncio.CancelledError):
            await coming

    asyncio.run(run())
    assert (arrivals.bytes, arrivals.coming) == (0, {})

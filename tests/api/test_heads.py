"""Heads of requests: how large they may be, and which ones leave open where the request ends."""

import socket

import pytest

from api.server.middleware import HEAD_BYTES, HEADER_SIGNS
from tests.api.conftest import Server

LIVE = "/v1/health/live"
BOTH = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
END = "0\r\n\r\n"


def said(server: Server, *parts: str) -> bytes:
    """Send text and read until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
        for part in parts:
            line.sendall(part.encode())
        return b"".join(iter(lambda: line.recv(65_536), b""))


def get(*, more: str = "", path: str = LIVE) -> str:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n"


@pytest.mark.parametrize("more", [BOTH, "".join(reversed(BOTH.splitlines(keepends=True)))])
@pytest.mark.parametrize("start", [f"GET {LIVE}", "POST /v1/plans"])
def test_two_lengths_close_the_connection(server, start, more):
    """Who stands before the server may read the other length, and take a body for a request."""
    answer = said(server, f"{start} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n{END}{get()}")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"urn:qplan:problem:http-invalid" in answer
    assert b"connection: close" in answer.lower()
    assert b"HTTP/1.1 200 " not in answer


def test_one_length_does_not(server):
    chunked = f"GET {LIVE} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{END}"
    answer = said(server, chunked + get(more="Connection: close\r\n"))
    assert answer.count(b"HTTP/1.1 200 ") == 2


def padded(size: int, *, in_path: bool) -> str:
    """A request whose head counts so many bytes."""
    known = sum(
        len(name + text) + HEADER_SIGNS for name, text in (("host", "localhost"), ("connection", "close"))
    )
    left = size - known - len(LIVE)
    close = "Connection: close\r\n"
    if in_path:
        return get(more=close, path=f"{LIVE}?{'x' * left}")
    return get(more=f"{close}X: {'x' * (left - 1 - HEADER_SIGNS)}\r\n")


@pytest.mark.parametrize("in_path", [False, True])
@pytest.mark.parametrize(("more", "status"), [(0, 200), (1, 431), (30_000, 431)])
def test_heads_have_a_size(server, more, status, in_path):
    answer = said(server, padded(HEAD_BYTES + more, in_path=in_path))
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert (b"urn:qplan:problem:head-too-large" in answer) == (status == 431)


def test_a_head_that_goes_on_and_on(server):
    answer = said(server, get().removesuffix("\r\n"), *(["X: " + "x" * 10_000 + "\r\n"] * 3))
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"urn:qplan:problem:head-too-large" in answer

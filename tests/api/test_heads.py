"""Heads of requests: how large they may be, and which ones leave open where the request ends."""

import gzip
import json
import socket
import time

import pytest

from api.server.heads import HEAD_BYTES, HEADER_SIGNS, SINGLE
from tests.api.conftest import Server, serving

LIVE = "/v1/health/live"
BOTH = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"
END = "0\r\n\r\n"


def said(server: Server, *parts: str) -> bytes:
    """Send text and read until the server closes the connection."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
        for part in parts:
            line.sendall(part.encode("latin-1"))
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


def posted(more: str, body: str, path: str = "/v1/plans") -> str:
    """A request with a body, whose connection closes."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
    )
    return f"{head}{more}\r\n{body}"


def problem(answer: bytes) -> str:
    """The name of the problem that an answer is; "" where it is none."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return json.loads(body)["type"].rpartition(":")[2] if b"application/problem+json" in head else ""


TEXTS = {
    "authorization": "Bearer a",
    "content-encoding": "identity",
    "content-length": "2",
    "content-type": "application/json",
    "expect": "100-continue",
    "host": "localhost",
    "transfer-encoding": "chunked",
}


@pytest.mark.parametrize("name", sorted(name.decode() for name in SINGLE))
@pytest.mark.parametrize("same", [True, False])
def test_a_header_of_which_there_is_one_comes_once(server, name, same):
    """Else a proxy in front may go by the first, and we by the last."""
    text = TEXTS.get(name, "1")
    second = text if same else f"{text}0"
    lines = [f"{name}: {text}\r\n", f"{name}: {second}\r\n"]
    whole = "".join(f"{key}: {item}\r\n" for key, item in (("host", "localhost"),) if key != name)
    answer = said(server, f"POST /v1/plans HTTP/1.1\r\n{whole}{''.join(lines)}\r\n{{}}")
    if name == "content-length" and same:  # RFC 9110, section 8.6: it may be taken for one
        assert problem(answer) == "unsupported-media"
        return
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert problem(answer) == "http-invalid"
    assert b"connection: close" in answer.lower()


def test_a_list_may_come_in_two_headers(server):
    answer = said(server, get(more="Accept: a/b\r\nAccept: */*\r\nConnection: close\r\n"))
    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("target", ["http://localhost", "HTTP://127.0.0.1:8000", "https://localhost:443"])
def test_targets_may_be_as_proxies_send_them(server, target):
    """RFC 9112, section 3.2.2; its authority counts, not Host."""
    answer = said(server, get(path=f"{target}{LIVE}?x=1", more="Connection: close\r\n"))
    assert answer.startswith(b"HTTP/1.1 200 ")
    evil = get(path=f"{target}/v1/server", more="Connection: close\r\n").replace(
        "Host: localhost", "Host: evil"
    )
    assert said(server, evil).startswith(b"HTTP/1.1 200 ")
    named = get(path="http://evil.example/v1/server", more="Connection: close\r\n")
    assert problem(said(server, named)) == "wrong-host"
    page = said(server, get(path=target, more="Connection: close\r\n"))
    assert b"content-type: text/html" in page.lower()


@pytest.mark.parametrize(
    "target", ["http://u@localhost/", "ftp://localhost/", "http:///x", "localhost:80", "http://a/b#c"]
)
def test_targets_that_are_none(server, target):
    answer = said(server, get(path=target, more="Connection: close\r\n"))
    assert problem(answer) == "http-invalid"


@pytest.mark.parametrize("coding", ["gzip", "br", "deflate, gzip", "x"])
def test_a_compressed_body_is_refused(server, coding):
    """It would unpack to nobody knows how much."""
    packed = gzip.compress(b"{}" * 100_000).decode("latin-1")
    lengths = f"Content-Encoding: {coding}\r\nContent-Length: {len(packed)}\r\n"
    answer = said(server, posted(lengths, packed))
    assert answer.startswith(b"HTTP/1.1 415 ")
    assert problem(answer) == "unsupported-coding"
    assert b"accept-encoding: identity" in answer.lower()
    plain = posted("Content-Encoding: Identity\r\nContent-Length: 2\r\n", "{}")
    assert problem(said(server, plain)) == "request-invalid"


@pytest.mark.parametrize(
    ("size", "status", "name"),
    [
        ("9" * 18, 413, "too-large"),
        ("f" * 16, 413, "too-large"),
        ("0" * 21, 400, "http-invalid"),
        ("-2", 400, "http-invalid"),
        ("+2", 400, "http-invalid"),
        ("0x2", 400, "http-invalid"),
        ("", 400, "http-invalid"),
        ("2 2", 400, "http-invalid"),
    ],
)
def test_sizes_of_chunks(server, size, status, name):
    """Answered at once: what such a chunk would bring need not be waited for."""
    start = time.monotonic()
    answer = said(server, posted("Transfer-Encoding: chunked\r\n", f"{size}\r\n{{}}"))
    assert time.monotonic() - start < 5
    assert answer.startswith(f"HTTP/1.1 {status} ".encode())
    assert problem(answer) == name
    assert b"connection: close" in answer.lower()


FAULTS = {
    "a header without a name": get(more=": 1\r\n"),
    "a space before the colon": get(more="X : 1\r\n"),
    "a folded first line": get().replace("Host:", " Host:"),
    "no host": get().replace("Host: localhost\r\n", ""),
    "a sign that no header has": get(more="X: a\0b\r\n"),
    "a length with a sign": posted("Content-Length: +2\r\n", "{}"),
    "a length of 5000 digits": posted(f"Content-Length: {'9' * 5000}\r\n", "{}"),
    "chunked twice": posted("Transfer-Encoding: chunked, chunked\r\n", END),
    "another coding": posted("Transfer-Encoding: gzip, chunked\r\n", END),
    "chunked in HTTP/1.0": posted("Transfer-Encoding: chunked\r\n", END).replace("HTTP/1.1", "HTTP/1.0"),
    "a chunk that is longer than it says": posted("Transfer-Encoding: chunked\r\n", f"1\r\n{{}}\r\n{END}"),
    "HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_no_request_has(server, name):
    answer = said(server, FAULTS[name])
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert problem(answer) == "http-invalid"
    assert b"HTTP/1.1 200 " not in answer


def test_a_folded_header_is_one_line(server):
    """RFC 9112, section 5.2: each fold counts as a space, so that nothing hides behind it."""
    folded = get(more="Connection: close\r\nX: a\r\n Transfer-Encoding: chunked\r\n")
    answer = said(server, folded)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert problem(said(server, get(more="Content-Length: 0\r\n chunked\r\n"))) == "http-invalid"


def test_who_leaves_in_the_middle_of_a_body_is_no_fault_of_ours(tmp_path):
    with (tmp_path / "log").open("w") as log, serving(tmp_path, stderr=log) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
            line.sendall(posted("Content-Length: 100\r\n", "{}").encode())
        assert said(server, get(more="Connection: close\r\n")).startswith(b"HTTP/1.1 200 ")
    lines = [json.loads(text) for text in (tmp_path / "log").read_text().splitlines()]
    assert [one for one in lines if one["level"] == "error"] == []
    assert [one["status"] for one in lines if one.get("path") == "/v1/plans"] == [0]

"""Input that means harm: a typed answer below 500, and a server that stays small and goes on."""

import hashlib
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.api.documents import (
    JSON,
    OCTETS,
    YAML,
    chain,
    claiming,
    expanding,
    external,
    nested,
    put,
    relu,
    sparse,
)
from tests.api.test_problems import check

MB = 1_000_000
MAX_MEMORY = 300
"""Megabytes the server may ever have resident (issue: under 300 MB)."""

NOWHERE = f"sha256:{'0' * 64}"

FILES = {
    "a truncated file": (relu()[:-7], "truncated"),
    "an empty file": (b"", "empty"),
    "zeros": (b"\0" * 1000, "do not parse"),
    "noise": (hashlib.shake_256(b"noise").digest(4096), "no ONNX model"),
    "2 MB of [": (b"[" * 2 * MB, "no ONNX model"),
    "JSON nested 1 M deep": (b'{"a":' * MB, "deeper than 64"),
    "a length beyond the file": (b"\x3a\xff\xff\xff\xff\x0f", "promises 4294967295 bytes"),
    "graphs in graphs": (nested(3000), "64 messages deep"),
    "ConstantOfShape of 400 GB": (expanding("ConstantOfShape"), "100000000000 elements"),
    "Expand to 400 GB": (expanding("Expand"), "100000000000 elements"),
    "Tile to 400 GB": (expanding("Tile"), "100000000000 elements"),
    "a tensor without its 16 GB": (claiming(1 << 20, 1 << 12), "its 0 bytes hold less"),
    "dimensions that overflow": (claiming(*[(1 << 63) - 1] * 8), "its 0 bytes hold less"),
    "a sparse tensor of 32 GB": (sparse(1 << 31, 4), "claims 8589934592 elements"),
    "external data elsewhere": (external("/etc/passwd"), "external file '/etc/passwd'"),
    "external data of terabytes": (external("a.bin", offset=1 << 50, length=1 << 50), "external file"),
    "MLIR nested 20 k deep": (b"module {" * 20_000, "nested too deep"),
    "an annotated tensor of 10^36": (json.dumps(chain(1, shape=[10**18, 10**18])).encode(), "are the limit"),
}


@pytest.fixture(scope="module")
def client(server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, trust_env=False, timeout=100) as made:
        yield made


@pytest.fixture(autouse=True)
def still_well(server, client) -> Iterator[None]:
    """After each: alive, and it never was bigger than allowed."""
    yield
    assert client.get("/v1/health/live").status_code == 200
    assert server.peak < MAX_MEMORY


def megabytes(count: int) -> Iterator[bytes]:
    for _ in range(count):
        yield bytes(MB)


@pytest.mark.parametrize("name", FILES)
def test_files(client, name):
    data, words = FILES[name]
    check(
        client.post("/v1/models", json={"blob": put(client, data)}),
        "model-invalid" if name[:4] != "JSON" else "json-invalid",
        words,
    )


def test_the_expanding_files_are_small():
    assert max(len(expanding(op)) for op in ("ConstantOfShape", "Expand", "Tile")) < 130


@pytest.mark.parametrize("path", ["/v1/plans", "/v1/models", "/v1/stats", "/v1/exports"])
def test_two_megabytes_of_brackets(client, path):
    check(client.post(path, content=b"[" * 2 * MB, headers=JSON), "json-invalid", "deeper than 64")


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("PUT", f"/v1/blobs/{NOWHERE}", "too-large"),
        ("POST", "/v1/plans", "too-large"),
        ("POST", "/v1/targets:lint", "too-large"),
        ("POST", "/v1/nothing", "not-found"),
    ],
)
def test_300_megabytes(client, method, path, name):
    kind = {"PUT": OCTETS, "POST": YAML if "lint" in path else JSON}[method]
    check(client.request(method, path, content=megabytes(300), headers=kind), name)


def test_300_megabytes_announced(server):
    head = f"PUT /v1/blobs/{NOWHERE} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        line.sendall(head.encode())
        assert line.recv(65_536).startswith(b"HTTP/1.1 413 ")


def test_a_wrong_digest_leaves_nothing(client):
    check(client.put(f"/v1/blobs/{NOWHERE}", content=megabytes(20), headers=OCTETS), "digest-mismatch")
    assert client.head(f"/v1/blobs/{NOWHERE}").status_code == 404


@pytest.mark.parametrize("text", ["a: " + "[" * 3000, "a: " * 3000, "- " * 5000])
def test_deep_yaml(client, text):
    check(client.post("/v1/targets:lint", content=text, headers=YAML), "target-invalid")


def test_yaml_that_multiplies(client):
    lines = ["a0: &a0 [x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 40)]
    check(client.post("/v1/targets:lint", content="\n".join(lines), headers=YAML), "target-invalid", "T006")


def test_an_annotated_model_with_ranges_for_billions_of_channels(client):
    model = chain(1)
    for i in (1, 2):
        model["values"][i]["shape"] = [1 if i == 1 else 8, 2 * 10**9]
    answer = client.post("/v1/plans", json={"model": model, "target": "litert-int8"})
    assert answer.status_code in (200, 422), answer.text


@pytest.mark.parametrize(
    "model",
    [{"a": ["x" * 30] * 98_000}, {"values": [{}] * 99_000}, {"kernels": [], "values": [[[]]] * 30_000}],
    ids=["texts", "objects", "lists"],
)
def test_many_big_bodies_at_once(client, model):
    body = json.dumps({"model": model, "target": "litert-int8"}).encode()
    with ThreadPoolExecutor(12) as pool:
        answers = list(pool.map(lambda _: client.post("/v1/plans", content=body, headers=JSON), range(12)))
    names = {answer.json()["type"].rpartition(":")[2] for answer in answers}
    assert names <= {"model-invalid", "json-invalid", "busy"}


def test_headers_without_end(server):
    with socket.create_connection(("127.0.0.1", server.port)) as line:
        line.sendall(b"GET /v1/targets HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 100_000)
        assert b" 4" in line.recv(100)[:16]


def test_names_stay_text(client):
    model = chain(1)
    model["values"][0]["constraints"] = ['<img src=x onerror="1">\ud800\u0000']
    check(
        client.post(
            "/v1/plans",
            content=json.dumps({"model": model, "target": "litert-int8"}),
            headers=JSON,
        ),
        "model-invalid",
    )

"""Answers come as gzip to those who take it, under a tag of their own; blobs come as they are."""

import gzip
import json
import os

import pytest

from api.server.compression import LEAST, takes_gzip
from tests.api.documents import AS_IT_IS, RANGE, chain, digest, put, relu

GZIP = {"Accept-Encoding": "gzip"}


def raw(service, address, **headers):
    """An answer, with its bytes as they came."""
    with service.stream("GET", address, headers=headers) as answer:
        return answer, b"".join(answer.iter_raw())


@pytest.fixture
def address(service) -> str:
    body = {"model": chain(20), "target": "litert-int8"}
    return f"/v1/plans/{service.post('/v1/plans', json=body).raise_for_status().json()['key']}"


@pytest.mark.parametrize("path", ["", "/report", "/part?pointer=/kernels", "/view"])
def test_a_plan_comes_compressed(service, address, path):
    plain, whole = raw(service, address + path, **AS_IT_IS)
    packed, bytes_ = raw(service, address + path, **GZIP)
    assert len(whole) > LEAST
    assert "content-encoding" not in plain.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert len(bytes_) < len(whole) / 2
    assert gzip.decompress(bytes_) == whole
    assert plain.headers["vary"] == packed.headers["vary"] == "Accept-Encoding"
    assert packed.headers["etag"] == f"W/{plain.headers['etag']}"
    assert packed.headers.get("cache-control") == plain.headers.get("cache-control")


PART = (206, None)
WHOLE = (200, "gzip")


@pytest.mark.parametrize(
    ("tag", "comes"),
    [(None, PART), ('"{}"', PART), ('W/"{}"', WHOLE), ('"{}0"', WHOLE)],
    ids=["no If-Range", "the strong tag", "the weak tag", "another tag"],
)
def test_a_part_of_a_plan_comes_as_it_is(service, address, tag, comes):
    """A range counts the bytes that are kept; a weak tag does not say which bytes those were."""
    _, whole = raw(service, address, **AS_IT_IS)
    condition = {} if tag is None else {"If-Range": tag.format(address.rpartition("/")[2])}
    answer, found = raw(service, address, **GZIP, Range="bytes=10-9009", **condition)
    assert (answer.status_code, answer.headers.get("content-encoding")) == comes
    if comes == PART:
        assert (found, answer.headers["content-range"]) == (whole[10:9010], f"bytes 10-9009/{len(whole)}")
        assert not answer.headers["etag"].startswith("W/")
        assert answer.headers["vary"] == "Accept-Encoding"
    else:
        assert (gzip.decompress(found), answer.headers["etag"][:2]) == (whole, "W/")


def test_either_tag_is_known_and_comes_back_as_it_was(service, address):
    for headers in (AS_IT_IS, GZIP):
        tag = service.get(address, headers=headers).headers["etag"]
        known = service.get(address, headers={**headers, "If-None-Match": tag})
        assert (known.status_code, known.content, known.headers["etag"]) == (304, b"", tag)
        assert known.headers["vary"] == "Accept-Encoding"
        head = service.head(address, headers={**headers, "Range": "bytes=0-9"})
        assert (head.status_code, head.headers["etag"]) == (200, tag)
        again = {**headers, "If-Match": tag}
        assert service.delete(f"{address}x", headers=again).status_code == 404
    weak = {"If-Match": service.get(address, headers=GZIP).headers["etag"]}
    assert service.delete(address, headers=weak).status_code == 204


def test_problems_and_short_answers_come_as_they_are(service):
    for path in ("/v1/health/live", "/v1/plans/none"):
        assert "content-encoding" not in raw(service, path, **GZIP)[0].headers


def test_blobs_and_their_parts_come_as_they_are(service):
    for data in (json.dumps([0] * 50_000).encode(), gzip.compress(os.urandom(50_000))):
        address = f"/v1/blobs/{put(service, data)}"
        answer, found = raw(service, address, **GZIP)
        assert (found, "content-encoding" in answer.headers) == (data, False)
        assert answer.headers["etag"] == f'"{digest(data)}"'
        part, found = raw(service, address, **GZIP, Range="bytes=10-19")
        assert (part.status_code, found) == (206, data[10:20])


def test_streams_of_events_come_as_they_are(service):
    model = service.post("/v1/models", json={"blob": put(service, relu())}).json()["digest"]
    body = {"model": model, "target": "tosa-int8", "annotations": RANGE}
    job = service.post("/v1/plans", json=body, headers={"Prefer": "respond-async"}).json()
    answer, found = raw(service, f"/v1/jobs/{job['id']}/events", **GZIP)
    assert "content-encoding" not in answer.headers
    assert b"event: done" in found


@pytest.mark.parametrize(
    ("text", "takes"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("*", True),
        ("gzip;q=0, *", False),
        ("gzip; q=0.000", False),
        ("gzip;q=0.001", True),
        ("identity", False),
        ("gzipped", False),
        ("", False),
    ],
)
def test_who_takes_gzip(text, takes):
    assert takes_gzip(text) is takes

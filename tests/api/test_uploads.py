"""Uploads in parts: they go on after a break, and end as a blob or not at all."""

import os
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.api.documents import OCTETS, digest
from tests.api.test_problems import check

DATA = os.urandom(3_000_000)
NOWHERE = f"00000000-{'0' * 32}"


def begin(client, data=DATA, **headers):
    body = {"digest": digest(data), "bytes": len(data)}
    answer = client.post("/v1/uploads", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    return answer


def send(client, link, offset, data):
    return client.patch(link, content=data, headers={**OCTETS, "Upload-Offset": str(offset)})


def test_parts_become_a_blob(make_service):
    client = make_service()
    link = begin(client).headers["location"]
    for start in range(0, len(DATA), 1 << 20):
        answer = send(client, link, start, DATA[start : start + (1 << 20)])
        assert (answer.status_code, answer.headers["upload-offset"]) == (
            204,
            str(min(start + (1 << 20), len(DATA))),
        )
    assert answer.headers["location"] == f"/v1/blobs/{digest(DATA)}"
    assert client.get(answer.headers["location"]).content == DATA
    again = send(client, link, len(DATA), b"")
    assert (again.status_code, again.headers["upload-offset"]) == (204, str(len(DATA)))
    assert begin(client).json()["offset"] == len(DATA)


def test_an_upload_goes_on_after_a_break(make_service):
    client = make_service()
    link = begin(client).headers["location"]
    head = f"PATCH {link} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
    head += f"Upload-Offset: 0\r\nContent-Length: {len(DATA)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", client.base_url.port)) as line:
        line.sendall(head.encode() + DATA[:2_000_000])
    until = time.monotonic() + 30
    while (stands := client.get(link).json()["offset"]) < 2_000_000:
        assert time.monotonic() < until, stands
        time.sleep(0.05)
    answer = client.head(link)
    assert (answer.headers["upload-offset"], answer.headers["upload-length"]) == ("2000000", str(len(DATA)))
    assert send(client, link, 2_000_000, DATA[2_000_000:]).status_code == 204
    assert client.get(f"/v1/blobs/{digest(DATA)}").content == DATA


def test_a_part_that_does_not_go_on(make_service):
    client = make_service()
    link = begin(client).headers["location"]
    send(client, link, 0, DATA[:1000])
    found = check(send(client, link, 999, DATA[999:2000]), "offset-mismatch", "byte 1000")
    assert found["offset"] == 1000
    check(send(client, link, 1000, DATA[1000:] + b"x"), "too-large")
    assert client.get(link).json()["offset"] <= len(DATA)


def test_parts_at_once(make_service):
    client = make_service()
    link = begin(client).headers["location"]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: send(client, link, 0, DATA[:2_000_000]), range(8)))
    assert sorted({answer.status_code for answer in answers}) in ([204], [204, 409])
    assert [answer.status_code for answer in answers].count(204) == 1
    assert send(client, link, 2_000_000, DATA[2_000_000:]).status_code == 204
    assert client.get(f"/v1/blobs/{digest(DATA)}").content == DATA


def test_other_bytes_than_announced(make_service):
    client = make_service()
    link = begin(client).headers["location"]
    check(send(client, link, 0, DATA[::-1]), "digest-mismatch", digest(DATA[::-1]))
    check(client.get(link), "unknown-name", "upload")
    assert client.head(f"/v1/blobs/{digest(DATA)}").status_code == 404


def test_the_same_key_is_the_same_upload(make_service):
    client = make_service()
    key = {"Idempotency-Key": "mine"}
    first, again = (begin(client, **key).json() for _ in range(2))
    assert first == again
    assert begin(client).json()["id"] != first["id"]
    body = {"digest": digest(DATA), "bytes": len(DATA) - 1}
    check(client.post("/v1/uploads", json=body, headers=key), "key-reused")


def test_an_upload_that_took_too_long(make_service, tmp_path):
    client = make_service()
    check(client.get(f"/v1/uploads/{NOWHERE}"), "expired", "24 hours")
    (tmp_path / "uploads" / NOWHERE).mkdir(parents=True)
    begin(client)
    assert not (tmp_path / "uploads" / NOWHERE).exists()


def test_an_upload_that_is_given_up(make_service):
    client = make_service()
    link = begin(client).headers["location"]
    assert client.delete(link).status_code == 204
    check(client.get(link), "unknown-name", "upload")


def test_uploads_are_listed_and_take_their_keys_along(make_service):
    client = make_service(quota=10_000_000)
    quota = client.app.state.quotas.whole
    empty = quota.measure()
    begun = (begin(client, DATA[:size], **{"Idempotency-Key": str(size)}) for size in (5, 6, 7))
    links = [answer.json()["link"] for answer in begun]
    send(client, links[1], 0, DATA[:2])
    send(client, links[2], 0, DATA[:7])
    found, url = [], "/v1/uploads?limit=2"
    while url:
        answer = client.get(url)
        found += answer.json()["items"]
        url = answer.links.get("next", {}).get("url")
    assert {item["link"]: (item["offset"], item["bytes"]) for item in found} == dict(
        zip(links, ((0, 5), (2, 6), (7, 7)), strict=True)
    )
    assert found == sorted(found, key=lambda item: item["id"])
    assert found[0] == client.get(found[0]["link"]).json()
    for item in found:
        assert client.delete(item["link"]).status_code == 204
    assert client.get("/v1/uploads").json() == {"items": [], "next": None}
    client.delete(f"/v1/blobs/{digest(DATA[:7])}")
    assert quota.used == quota.measure() == empty
    check(client.get("/v1/uploads", params={"cursor": "!"}), "request-invalid", "/cursor")


def test_an_upload_that_ran_out_is_not_listed(make_service, tmp_path):
    client = make_service()
    (tmp_path / "uploads" / NOWHERE).mkdir(parents=True)
    (tmp_path / "uploads" / NOWHERE / "about").write_text("{}")
    assert client.get("/v1/uploads").json()["items"] == []


def test_announced_wrongly(make_service):
    client = make_service(max_upload=1000)
    body = {"digest": digest(DATA), "bytes": len(DATA)}
    assert check(client.post("/v1/uploads", json=body), "too-large")["limit"] == 1000
    check(client.post("/v1/uploads", json={**body, "bytes": 0}), "request-invalid", "/bytes")
    small = {"digest": digest(b"x"), "bytes": 1}
    check(make_service(quota=1).post("/v1/uploads", json={**small, "bytes": 2}), "quota")
    link = begin(client, b"x").headers["location"]
    check(client.patch(link, content=b"x", headers=OCTETS), "request-invalid", "Upload-Offset")
    check(client.patch(link, json={}, headers={"Upload-Offset": "0"}), "unsupported-media")


@pytest.mark.parametrize("size", [1, 1 << 20])
def test_sizes(make_service, size):
    client = make_service()
    link = begin(client, DATA[:size]).headers["location"]
    assert send(client, link, 0, DATA[:size]).headers["location"] == f"/v1/blobs/{digest(DATA[:size])}"

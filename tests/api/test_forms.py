"""Forms: read as they stream, cut anywhere; what is no form, or another page's, is refused."""

import itertools
import json
from typing import Any

import pytest

from api.intake.files_in_bodies import LONGEST_HEAD, LONGEST_TEXT, MOST_FIELDS
from tests.api.documents import digest
from tests.api.test_problems import check

PATH = "/v1/quantizations"
MEDIA = "multipart/form-data; boundary=b"


def part(name: str, content: bytes, more: str = "") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    return head.encode() + content + b"\r\n"


def sent(service, body: Any, media: str = MEDIA, **headers: str):
    return service.post(PATH, content=body, headers={"content-type": media, **headers})


FILE = b"--b\r\n\r\n--bb\r\n--b-\r\n" * 3 + b"\r\n--"
"""Bytes that begin like a boundary again and again."""
END = b"--b--\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_parts_may_be_cut_anywhere(service, size):
    """Of a file that has all but the boundary in it, each byte is kept."""
    content = FILE.replace(b"\r\n--b\r\n", b"\r\n--c\r\n").replace(b"--b\r\n", b"--d\r\n", 1)
    content = content.replace(b"\r\n--bb", b"\r\n--cb").replace(b"\r\n--b-", b"\r\n--c-")
    body = part("model", content, '; filename="x; name=y.onnx"') + part("samples", b"s" * size) + END
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    check(sent(service, iter(pieces)), "model-invalid")
    assert service.get(f"/v1/blobs/{digest(content)}").content == content
    assert service.get(f"/v1/blobs/{digest(b's' * size)}").content == b"s" * size


@pytest.mark.parametrize("before", [b"", b"preamble\r\n"])
@pytest.mark.parametrize("after", [b"", b"\r\n", b"\r\nepilogue"])
def test_what_stands_around_the_parts_counts_for_nothing(service, before, after):
    body = before + part("target", b"none") + b"--b--" + after
    check(sent(service, body), "request-invalid", "/model")  # it was read, and lacks one


REFUSED = {
    "no boundary in its type": (b"", "multipart/form-data", "names no boundary"),
    "no boundary at all": (b"abc", MEDIA, "ends before its last boundary"),
    "no last boundary": (part("target", b"x"), MEDIA, "ends before its last boundary"),
    "a head without an end": (b"--b\r\nX: 1", MEDIA, "ends before"),
    "a long head": (b"--b\r\nX: " + b"1" * LONGEST_HEAD, MEDIA, "the head of a part"),
    "no name": (b"--b\r\nContent-Type: text/plain\r\n\r\nx\r\n" + END, MEDIA, "has no name"),
    "an unknown field": (part("tarket", b"x") + END, MEDIA, "unknown field 'tarket'"),
    "a field twice": (part("target", b"x") * 2 + END, MEDIA, "comes twice"),
    "a long text": (part("target", b"x" * (LONGEST_TEXT + 1)) + END, MEDIA, "its texts have more"),
    "no text": (part("target", b"\xff") + END, MEDIA, "no UTF-8"),
    "no JSON": (part("dims", b"{") + END, MEDIA, "dims is not JSON"),
    "encoded": (
        part("target", b"x", "\r\nContent-Transfer-Encoding: base64") + END,
        MEDIA,
        "is encoded",
    ),
    "something behind a boundary": (b"--b x\r\n\r\n", MEDIA, "followed by something"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_form_is_refused(service, name):
    body, media, text = REFUSED[name]
    check(sent(service, body, media), "request-invalid", text)


def test_a_form_has_so_many_fields(service):
    names = itertools.chain(["target"], (f"f{n}" for n in range(MOST_FIELDS)))
    check(sent(service, b"".join(part(name, b"x") for name in names) + END), "request-invalid")


def test_documents_stand_in_a_form_as_json(service):
    body = part("dims", b'{"n": "1"}') + part("annotations", b"[]") + END
    told = check(sent(service, body), "request-invalid")
    pointers = [error["pointer"] for error in told["errors"]]
    assert {"/dims/n", "/annotations"} <= set(pointers)


@pytest.mark.parametrize("origin", ["https://example.org", "null", "http://127.0.0.1:1"])
def test_a_page_of_another_origin_cannot_send_one(service, origin):
    """Browsers send forms to other servers without asking these, and say from where."""
    check(sent(service, part("target", b"x") + END, origin=origin), "foreign-origin")
    own = str(service.base_url).rstrip("/")
    check(sent(service, part("target", b"x") + END, origin=own), "request-invalid", "/model")


def test_a_form_is_as_large_as_a_blob_may_be(make_service):
    service = make_service(max_blob=50_000, max_body=10_000)
    check(sent(service, part("model", b"x" * 20_000) + END), "request-invalid", "/samples")
    check(sent(service, part("model", b"x" * 60_000) + END), "too-large")
    check(
        service.post(
            PATH, content=json.dumps({"model": "x" * 20_000}), headers={"content-type": "application/json"}
        ),
        "too-large",
    )


@pytest.mark.parametrize(
    "media", ["application/json", "Application/JSON ; charset=utf-8", "\xa0application/json"]
)
@pytest.mark.parametrize("path", [PATH, "/v1/models"])
def test_no_spelling_of_json_makes_it_a_file(make_service, path, media):
    """What a route parses whole is never as large as a blob."""
    service = make_service(max_blob=50_000, max_body=10_000)
    body = json.dumps({"model": "x" * 20_000}).encode()
    answer = service.post(path, content=body, headers={b"content-type": media.encode("latin-1")})
    check(answer, "unsupported-media" if media.startswith("\xa0") else "too-large")


def test_files_of_a_form_count_into_the_quota(make_service):
    service = make_service(quota=10_000)
    check(sent(service, part("model", b"x" * 20_000) + END), "quota")
    assert service.get("/v1/blobs").json()["items"] == []

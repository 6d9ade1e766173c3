"""Files: blobs up and down; a long one in parts, from where it stood when the connection broke."""

import hashlib
from functools import partial
from pathlib import Path
from typing import Any, Final

from planner.client.calls.answers import FIRST_LOOK, Source, items_of, object_of, quoted
from planner.client.failures import ServiceError
from planner.client.steps import Ask, Do, Pause, Steps
from planner.errors import InputError, expect

PART: Final = 16 << 20
"""Bytes of a part; longer files go in several."""
TRIES: Final = 4
"""Times that a part is sent before we give up."""
_OCTETS: Final = {"Content-Type": "application/octet-stream"}


def upload(source: Source) -> Steps[str]:
    """Store bytes, or a file, unless the server has them; returns their digest.

    A long file goes in parts, and goes on where it stood when the connection breaks.
    """
    digest, size = yield Do(partial(_digest, source))
    path = f"/v1/blobs/{digest}"
    if (yield Ask("HEAD", path, also=(404,))).status_code == 200:
        return str(digest)
    if size <= PART:
        content = yield Do(partial(_read, source, 0))
        yield Ask("PUT", path, content=content, headers=_OCTETS)
    else:
        yield from _upload_in_parts(source, digest, size)
    return str(digest)


def uploads() -> Steps[list[dict[str, Any]]]:
    """The uploads in parts that have not run out: `id`, `digest`, `bytes`, and the `offset` they stand at."""
    return (yield from items_of("/v1/uploads", {}))


def delete_upload(id: str) -> Steps[None]:  # noqa: A002 - as the service has it
    """Give an upload in parts up; what was sent of it goes."""
    yield Ask("DELETE", f"/v1/uploads/{quoted(id)}")


def _upload_in_parts(source: Source, digest: str, size: int) -> Steps[None]:
    begun = yield from object_of(Ask("POST", "/v1/uploads", json={"digest": digest, "bytes": size}))
    link, offset, failed = begun["link"], begun["offset"], 0
    while offset < size:
        content = yield Do(partial(_read, source, offset))
        try:
            headers = _OCTETS | {"Upload-Offset": str(offset)}
            answer = yield Ask("PATCH", link, content=content, headers=headers, also=(409,))
        except ServiceError as error:
            failed += 1
            if error.problem or failed == TRIES:
                raise
            yield Pause(FIRST_LOOK * 4**failed)
            answer = None
        if answer is not None and answer.status_code == 204:
            offset, failed = int(answer.headers["upload-offset"]), 0
        else:
            offset = (yield from object_of(Ask("GET", link)))["offset"]


def download(digest: str) -> Steps[bytes]:
    """Fetch a blob."""
    content: bytes = (yield Ask("GET", f"/v1/blobs/{quoted(digest)}")).content
    return content


def download_to(digest: str, path: Path) -> Steps[None]:
    """Fetch a blob into a file, in parts; what was there before stays until all of it has come."""
    draft = path.with_name(f".{path.name}.part")
    yield Do(partial(_begin, draft))
    offset, whole = 0, 1
    try:
        while offset < whole:
            ranged = {"Range": f"bytes={offset}-{offset + PART - 1}"}
            answer = yield Ask("GET", f"/v1/blobs/{quoted(digest)}", headers=ranged, also=(416,))
            content = b"" if answer.status_code == 416 else answer.content
            whole = int(answer.headers.get("content-range", f"bytes */{len(content)}").rpartition("/")[2])
            yield Do(partial(_append, draft, content))
            offset += len(content)
        yield Do(partial(draft.replace, path))
    finally:
        draft.unlink(missing_ok=True)


def _begin(path: Path) -> None:
    try:
        path.write_bytes(b"")
    except OSError as error:
        raise InputError(f"cannot write to {str(path)!r}: {error.strerror}") from error


def _append(path: Path, content: bytes) -> None:
    with path.open("ab") as file:
        file.write(content)


def blobs(*, order: str | None = None) -> Steps[list[dict[str, Any]]]:
    """List the blobs: digests and sizes; `order` as for `plans`."""
    return (yield from items_of("/v1/blobs", {"order": order}))


def delete_blob(digest: str) -> Steps[None]:
    """Take a blob away; models that lie in it stay as records."""
    yield Ask("DELETE", f"/v1/blobs/{quoted(digest)}")


def _digest(source: Source) -> tuple[str, int]:
    expect(source, (bytes, str, Path), "a path or the bytes of a file are uploaded")
    if isinstance(source, bytes):
        return f"sha256:{hashlib.sha256(source).hexdigest()}", len(source)
    try:
        with Path(source).open("rb") as file:
            return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}", file.tell()
    except OSError as error:
        raise InputError(f"cannot read {str(source)!r}: {error.strerror}") from error


def _read(source: Source, offset: int) -> bytes:
    if isinstance(source, bytes):
        return source[offset : offset + PART]
    with Path(source).open("rb") as file:
        file.seek(offset)
        return file.read(PART)

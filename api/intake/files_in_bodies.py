"""Files in bodies: bytes, alone or in a form, are kept as blobs, and JSON that names their digests goes on.

A form (`multipart/form-data`) is read as it streams: files go to the disk, short texts stay in memory.
Source: RFC 7578; RFC 2046, section 5.1.
"""

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from anyio.to_thread import run_sync
from starlette.requests import Request

from planner.file_names import name_by_file

from ..problems import Refused
from ..server.tokens import DEFAULT, PRINCIPAL, TENANT
from ..storage.digests import DIGEST
from ..storage.store import Store
from .request_bodies import AsJson, write_parts
from .scan import require_unicode, scan_json

FORM: Final = "multipart/form-data"
LONGEST_TEXT: Final = 1 << 16
"""Bytes of the fields of a form that are no files, together."""
LONGEST_HEAD: Final = 4096
LONGEST_NAME: Final = 300
MOST_FIELDS: Final = 32
DIGEST_BYTES: Final = 71

Field: TypeAlias = Literal["file", "json", "text"]
"""The content of a field: a file or the digest of a blob, a JSON document, or text."""

_BOUNDARY: Final = re.compile(
    r"(?i)(?:^|;)\s*boundary=(?:\"([^\"\\\r\n]{1,70})\"|([^\s;\"]{1,70}))\s*(?:;|$)"
)
_NAME: Final = re.compile(
    rb"(?im)^content-disposition:\s*form-data\b[^\r\n]*?;\s*name=\"?([\w.-]{1,40})\"?\s*(?:;|\r?$)"
)
_FILE_NAME: Final = re.compile(
    rb"(?im)^content-disposition:\s*form-data\b[^\r\n]*?;\s*filename=(?:\"([^\"\r\n]+)\"|([^\s;\"]+))"
)
_ENCODING: Final = re.compile(rb"(?im)^content-transfer-encoding:\s*(?!(?:7bit|8bit|binary)\s*\r?$)")


async def store_of(request: Request) -> Store:
    """The store of the tenant whose token a request bears."""
    scope = request.scope
    service = await request.app.state.tenants.find(scope.get(TENANT, DEFAULT), scope.get(PRINCIPAL, ""))
    found: Store = service.store
    return found


async def keep_parts(store: Store, parts: AsyncIterator[bytes]) -> tuple[str, int]:
    """Keep bytes as a blob as they arrive.

    Returns:
      Its digest and size.

    Raises:
      Refused: `quota`.
    """
    with store.draft() as folder:
        digest = await write_parts(parts, folder / "data", store.quota)
        size = (folder / "data").stat().st_size
        await run_sync(store.keep, "blobs", digest, folder / "data")
    return digest, size


def bytes_as(field: str) -> AsJson:
    """Make what keeps a body of bytes as a blob, and says its digest in a field."""

    async def convert(request: Request) -> bytes:
        digest, _ = await keep_parts(await store_of(request), request.stream())
        return json.dumps({field: digest}).encode()

    return convert


def form_as(
    fields: Mapping[str, Field], names: Mapping[str, str] | None = None
) -> Callable[[Request], Awaitable[bytes]]:
    """Make what reads a form of some fields, and says them in JSON.

    Args:
      names: fields that say the name of a file, each by the field of the file; the form need not have them.
    """

    async def convert(request: Request) -> bytes:
        _require_own_origin(request)
        found = _BOUNDARY.search(request.headers["content-type"].partition(";")[2])
        if found is None:
            raise _no_form("its Content-Type names no boundary")
        form = _Form(request.stream(), (found[1] or found[2]).encode("latin-1"))
        form.most_values = request.app.state.service.settings.max_values
        store = await store_of(request)
        told: dict[str, Any] = {}
        async for name in form.names():
            if name in told:
                raise _no_form(f"the field {name!r} comes twice")
            if name not in fields:
                raise _no_form(f"unknown field {name!r}; it has {', '.join(sorted(fields))}", name)
            told[name] = await _READ[fields[name]](form, store, name)
        for file, name in (names or {}).items():
            called = name_by_file(form.file_names.get(file, ""))
            if called and name not in told:
                told[name] = called[:LONGEST_NAME]
        return json.dumps(told).encode()

    return convert


def _require_own_origin(request: Request) -> None:
    """Refuse forms of other pages: a browser sends these without asking, as it does not JSON or bytes.

    Raises:
      Refused: `foreign-origin`.
    """
    origin = request.headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("host"):
        raise Refused("foreign-origin", f"a page of {origin[:100]} sent this form")


async def _file(form: "_Form", store: Store, _: str) -> str:
    """Keep a file; a short text that is a digest names one that is kept already."""
    parts = form.content()
    first = b""
    async for part in parts:
        first += part
        if len(first) > DIGEST_BYTES:
            break
    if len(first) == DIGEST_BYTES and re.fullmatch(DIGEST, text := first.decode("latin-1")):
        return text

    async def whole() -> AsyncIterator[bytes]:
        yield first
        async for part in parts:
            yield part

    return (await keep_parts(store, whole()))[0]


async def _text(form: "_Form", _store: Store, name: str) -> str:
    text = b""
    async for part in form.content():
        text += part
        form.texts += len(part)
        if form.texts > LONGEST_TEXT:
            raise _no_form(f"its texts have more than {LONGEST_TEXT} bytes", name)
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise _no_form(f"byte {error.start} of {name} is no UTF-8", name) from None


async def _document(form: "_Form", store: Store, name: str) -> Any:
    text = (await _text(form, store, name)).encode()
    require_unicode(text)
    scan_json(text, form.most_values)
    try:
        return json.loads(text)
    except ValueError as error:
        raise _no_form(f"{name} is not JSON: {error}", name) from None


_READ: Final[Mapping[Field, Callable[["_Form", Store, str], Awaitable[Any]]]] = {
    "file": _file,
    "json": _document,
    "text": _text,
}


class _Form:
    """Reads a form part by part; `content` of a part is read to its end before the next name.

    `texts` counts the bytes of fields that are no files; a JSON document has `most_values` at most;
    `file_names` are those of files, by their fields, as the sender says.
    """

    most_values = 0

    def __init__(self, stream: AsyncIterator[bytes], boundary: bytes) -> None:
        self.stream = stream
        self.mark = b"\r\n--" + boundary
        self.waiting = bytearray(b"\r\n")  # so that the first boundary, at the very beginning, is like others
        self.texts = 0
        self.file_names: dict[str, str] = {}

    async def names(self) -> AsyncIterator[str]:
        """Names of the fields, in order."""
        async for _ in self.content():  # before the first boundary stands nothing that counts
            pass
        for _ in range(MOST_FIELDS):
            while len(self.waiting) < 2:
                await self._more()
            if self.waiting.startswith(b"--"):
                async for _ in self.stream:  # what follows the last boundary counts as little
                    pass
                return
            if (await self._until(b"\r\n")).strip(b" \t"):
                raise _no_form("a boundary is followed by something")
            head = await self._until(b"\r\n\r\n")
            name = _NAME.search(head)
            if name is None:
                raise _no_form("a part has no name")
            if _ENCODING.search(head):
                raise _no_form("a part is encoded, not sent as it is")
            field = name[1].decode()
            if called := _FILE_NAME.search(head):
                self.file_names[field] = (called[1] or called[2]).decode("utf-8", "replace")
            yield field
        raise _no_form(f"it has more than {MOST_FIELDS} fields")

    async def content(self) -> AsyncIterator[bytes]:
        """The bytes of a part, to the next boundary."""
        while (end := self.waiting.find(self.mark)) < 0:
            safe = len(self.waiting) - len(self.mark) + 1  # the rest may begin a boundary
            if safe > 0:
                yield bytes(self.waiting[:safe])
                del self.waiting[:safe]
            await self._more()
        yield bytes(self.waiting[:end])
        del self.waiting[: end + len(self.mark)]

    async def _until(self, mark: bytes) -> bytes:
        while (end := self.waiting.find(mark, 0, LONGEST_HEAD)) < 0:
            if len(self.waiting) > LONGEST_HEAD:
                raise _no_form(f"the head of a part has more than {LONGEST_HEAD} bytes")
            await self._more()
        found = bytes(self.waiting[:end])
        del self.waiting[: end + len(mark)]
        return found

    async def _more(self) -> None:
        async for part in self.stream:
            if part:
                self.waiting += part
                return
        raise _no_form("it ends before its last boundary")


def _no_form(why: str, field: str = "") -> Refused:
    message = f"not a form: {why}"
    errors = [{"pointer": f"/{field}" if field else "", "message": message}]
    return Refused("request-invalid", message, errors=errors)

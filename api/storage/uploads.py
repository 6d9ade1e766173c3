"""Uploads in parts: a file that arrives over several requests, and goes on where it stood after a break.

An upload is a folder under `uploads`: what was announced, and the bytes so far. Its id says when it began, so
an expired one can be distinguished from one that never was. Several servers share uploads where they share
the data folder. Source: docs/service.md.
"""

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Final

from anyio.to_thread import run_sync
from starlette.requests import Request

from ..intake.request_bodies import CHUNK
from ..problems import Refused, unknown
from ..server.limits import Quota
from ..server.responses import page_of
from ..settings import Settings
from .digests import digest_of_file
from .kept_bytes import UPLOADS
from .store import Store

ID: Final = r"^[0-9a-f]{8,12}-[0-9a-f]{32}$"


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload as it stands; `expires` is seconds since 1970."""

    id: str
    digest: str
    bytes: int
    offset: int
    expires: int


class Uploads:
    """The uploads under way in a data folder."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self.store = store
        self.quota = store.quota or Quota(0, int)
        self.root = store.root / UPLOADS

    def begin(self, digest: str, size: int, id_: str = "", key: str | None = None) -> Upload:
        """Announce a file; one that is kept already needs no room.

        Args:
          id_: of `new_id`; an upload of this id that is there goes on.
          key: digest of the idempotency key that it came with, which goes with it.

        Raises:
          Refused: `too-large`, `quota`.
        """
        if size > self.settings.max_upload:
            limit = self.settings.max_upload
            raise Refused("too-large", f"an upload has at most {limit} bytes", limit=limit)
        if not self.store.has("blobs", digest):
            self.quota.check(size)
        self.sweep()
        folder = self.root / (id_ or new_id())
        for each in (self.root, folder):  # not what lies above: a data folder that is away stays away
            each.mkdir(exist_ok=True)
        about = folder / "about"
        if not about.exists():
            draft = folder / token_hex(8)
            draft.write_text(json.dumps({"digest": digest, "bytes": size, "key": key}))
            draft.replace(about)
        return self.find(folder.name)

    def find(self, id_: str) -> Upload:
        """The state of an upload.

        Raises:
          Refused: none of this id, or `expired`.
        """
        folder = self._folder(id_)
        about = json.loads((folder / "about").read_bytes())
        data = folder / "data"
        size = data.stat().st_size if data.exists() else 0
        offset = about["bytes"] if self.store.has("blobs", about["digest"]) else size
        return Upload(id_, about["digest"], about["bytes"], offset, self._expires(id_))

    def page(self, limit: int, cursor: str | None) -> tuple[list[Upload], str | None]:
        """Uploads that have not run out, the earliest first, complete ones too; and the cursor that follows.

        Raises:
          Refused: a cursor that no page gave.
        """
        names = [folder.name for folder in (self.root.iterdir() if self.root.is_dir() else ())]
        there = (name for name in names if re.fullmatch(ID, name) and (self.root / name / "about").is_file())
        ids, after = page_of((name for name in there if self._expires(name) >= time.time()), limit, cursor)
        found = []
        for id_ in ids:
            with suppress(Refused, FileNotFoundError):  # given up meanwhile
                found.append(self.find(id_))
        return found, after

    def drop(self, id_: str) -> None:
        """Give an upload up.

        Raises:
          Refused: none of this id, or `expired`.
        """
        self._drop(self._folder(id_))

    def sweep(self) -> None:
        """Take away what ran out."""
        for folder in self.root.iterdir() if self.root.is_dir() else ():
            if re.fullmatch(ID, folder.name) and self._expires(folder.name) < time.time():
                self._drop(folder)

    async def append(self, id_: str, offset: int, request: Request) -> Upload:
        """Add the body of a request to an upload; the last part makes it a blob.

        Raises:
          Refused: `offset-mismatch` with the `offset` it stands at, `too-large`, `digest-mismatch`: then the
            upload is gone, since nobody can say which part was wrong.
        """
        upload = await run_sync(self.find, id_)
        if upload.offset == upload.bytes == offset:
            return upload
        with _locked(self._folder(id_) / "data") as file:
            stands = os.fstat(file).st_size
            if stands != offset:
                raise Refused("offset-mismatch", f"the upload stands at byte {stands}", offset=stands)
            try:
                await _write(request, file, upload.bytes - offset, partial(self._take, id_))
                if os.fstat(file).st_size == upload.bytes:
                    await run_sync(self._finish, upload)
            finally:
                if not os.fstat(file).st_nlink:  # whoever gave the upload up left the count to this part
                    self.quota.give_back(os.fstat(file).st_size)
        return await run_sync(self.find, id_)

    def _take(self, id_: str, size: int) -> None:
        """Count bytes of a part that are about to be written.

        Raises:
          Refused: `quota`; the upload was given up or ran out while the part was on its way.
        """
        self._folder(id_)
        self.quota.take(size)

    def _finish(self, upload: Upload) -> None:
        data = self.root / upload.id / "data"
        found = digest_of_file(data)
        if found != upload.digest:
            self.drop(upload.id)
            raise Refused("digest-mismatch", f"what was uploaded is {found}", found=found)
        self.quota.give_back(upload.bytes)  # as parts; the store counts it as a blob
        try:
            self.store.keep("blobs", upload.digest, data)
        except BaseException:
            self.quota.take(upload.bytes)
            raise

    def _drop(self, folder: Path) -> None:
        key = _key_of(folder / "about")
        with _unused(folder / "data") as size:
            shutil.rmtree(folder, ignore_errors=True)
            self.quota.give_back(size)
        if key is not None and self.store.has("keys", key):
            self.store.drop("keys", key)

    def _folder(self, id_: str) -> Path:
        if not re.fullmatch(ID, id_):
            raise unknown("upload", id_, [])
        if self._expires(id_) < time.time():
            raise Refused("expired", f"an upload may take {self.settings.upload_hours} hours")
        if not (self.root / id_ / "about").is_file():
            self.store.require_folder()
            raise unknown("upload", id_, [])
        return self.root / id_

    def _expires(self, id_: str) -> int:
        return int(id_.partition("-")[0], 16) + 3600 * self.settings.upload_hours


def new_id() -> str:
    """An id for an upload that begins now."""
    return f"{int(time.time()):08x}-{token_hex(16)}"


def _key_of(about: Path) -> str | None:
    """Digest of the idempotency key of an upload; earlier versions did not note it."""
    try:
        found: dict[str, Any] = json.loads(about.read_bytes())
    except FileNotFoundError:
        return None
    return found.get("key")


def as_record(upload: Upload) -> dict[str, Any]:
    """An upload as it is answered."""
    return asdict(upload) | {"link": f"/v1/uploads/{upload.id}"}


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """A file to append to that nobody else appends to now."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise Refused("offset-mismatch", "another part is on its way", offset=path.stat().st_size) from None
    try:
        if not os.fstat(file).st_nlink:
            raise unknown("upload", path.parent.name, [])
        yield file
    finally:
        os.close(file)


@contextmanager
def _unused(path: Path) -> Iterator[int]:
    """Hold a file so that nobody appends to it; its size, 0 of none and where a part is on its way."""
    try:
        file = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        yield 0
        return
    try:
        yield _size_of_unused(file)
    finally:
        os.close(file)


def _size_of_unused(file: int) -> int:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0
    found = os.fstat(file)
    return found.st_size if found.st_nlink else 0


async def _write(request: Request, file: int, room: int, take: Callable[[int], None]) -> None:
    """Append a body as it arrives; what came before a break stays.

    Args:
      take: counts bytes before they are written, or refuses them.

    Raises:
      Refused: `too-large`; what `take` refuses, as soon as it does.
    """
    waiting = bytearray()

    def write(data: bytes) -> None:
        take(len(data))
        while data:
            data = data[os.write(file, data) :]

    try:
        async for part in request.stream():
            room -= len(part)
            if room < 0:
                raise Refused("too-large", "the part goes beyond the size that was announced")
            waiting += part
            if len(waiting) >= CHUNK:
                await run_sync(write, bytes(waiting))
                waiting.clear()
    finally:
        write(bytes(waiting))
        await run_sync(os.fsync, file)

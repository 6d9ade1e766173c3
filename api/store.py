"""Store: files by their digest, written whole or not at all, never changed.

`blobs` are bytes as sent, `models` records of what a blob holds, `stats` and `plans` JSON text, `requests`
links from a request's digest to its plan, `origins` the requests of plans by their keys, `answers` what
follows from plans, `targets` by id and version, `keys` of requests that may come twice. A restart finds
everything. Source: design 06, "Shape".
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from api.problems import unknown

Kind: TypeAlias = Literal[
    "answers", "blobs", "keys", "models", "origins", "plans", "requests", "stats", "targets"
]

DIGEST: Final = r"^sha256:[0-9a-f]{64}$"
_NAMES: Final[dict[Kind, str]] = {
    "answers": "answer",
    "blobs": "blob",
    "keys": "idempotency key",
    "models": "model",
    "origins": "origin of plan",
    "plans": "plan",
    "requests": "request",
    "stats": "statistics",
    "targets": "target",
}
_KINDS: Final = tuple(_NAMES)
_LISTED: Final = 200


def digest_of(data: bytes) -> str:
    """`sha256:...` of bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of content-addressed files."""

    root: Path

    def open(self) -> None:
        """Make the folders, and clear what an earlier server left half done."""
        shutil.rmtree(self.root / "drafts", ignore_errors=True)
        for name in (*_KINDS, "drafts"):
            (self.root / name).mkdir(parents=True, exist_ok=True)

    def path(self, kind: Kind, digest: str) -> Path:
        """Where a file lies, or would.

        Raises:
          Refused: `digest` is none, so nothing can be there.
        """
        if not re.fullmatch(DIGEST, digest):
            raise unknown(_NAMES[kind], digest, [])
        name = digest.removeprefix("sha256:")
        return self.root / kind / name[:2] / name

    def has(self, kind: Kind, digest: str) -> bool:
        """Whether a file is there."""
        return self.path(kind, digest).is_file()

    def find(self, kind: Kind, digest: str) -> Path:
        """Path of a file that is there.

        Raises:
          Refused: it is not; with the nearest digests.
        """
        path = self.path(kind, digest)
        if not path.is_file():
            raise unknown(_NAMES[kind], digest, list(islice(self.digests(kind), _LISTED)))
        return path

    def digests(self, kind: Kind) -> Iterator[str]:
        """Digests of everything of a kind, in no order."""
        for folder in os.scandir(self.root / kind):
            yield from (f"sha256:{entry.name}" for entry in os.scandir(folder.path))

    def read_json(self, kind: Kind, digest: str) -> Any:
        """Read a record this server wrote."""
        return json.loads(self.find(kind, digest).read_bytes())

    def drop(self, kind: Kind, digest: str) -> None:
        """Take a file away.

        Raises:
          Refused: it is not there; with the nearest digests.
        """
        self.find(kind, digest).unlink(missing_ok=True)

    def put(self, kind: Kind, digest: str, data: bytes) -> None:
        """Keep bytes under a digest; what is there stays."""
        if self.has(kind, digest):
            return
        with self.draft() as folder:
            path = folder / "data"
            path.write_bytes(data)
            self.keep(kind, digest, path)

    def keep(self, kind: Kind, digest: str, draft: Path) -> None:
        """Move a finished file into its place: fsync, then rename."""
        goal = self.path(kind, digest)
        goal.parent.mkdir(exist_ok=True)
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        draft.replace(goal)

    def link(self, digest: str, plan: str) -> None:
        """Note that a request's answer is a plan."""
        goal = self.path("requests", digest)
        goal.parent.mkdir(exist_ok=True)
        with suppress(FileExistsError):  # two equal requests at once: the other one's link is as good
            os.link(self.path("plans", plan), goal)

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Give a folder to work in; it goes, with what was not kept."""
        folder = tempfile.mkdtemp(dir=self.root / "drafts")
        try:
            yield Path(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

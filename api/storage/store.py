"""Store: files by their digest, written whole or not at all, never changed.

`blobs` are bytes as sent, `models` records of what a blob holds, `stats` and `plans` JSON text, `requests`
links from a request's digest to its plan, `origins` the requests of plans by their keys, `answers` what
follows from plans, `states` of work that may have to go on later, `targets` by id and version with their
`descriptions`, `keys` of requests that may come twice, `qualities` the last comparison of a plan, by its key.
A restart finds everything. Each tenant has a store of its own. Source: docs/service.md.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from ..problems import Refused, unknown
from ..server.limits import Quota, Quotas
from ..server.tokens import DEFAULT
from .digests import DIGEST, digest_of_file
from .objects import Objects

Kind: TypeAlias = Literal[
    "answers",
    "blobs",
    "descriptions",
    "keys",
    "models",
    "origins",
    "plans",
    "qualities",
    "requests",
    "states",
    "stats",
    "targets",
]

NAMES: Final[dict[Kind, str]] = {
    "answers": "answer",
    "blobs": "blob",
    "descriptions": "target description",
    "keys": "idempotency key",
    "models": "model",
    "origins": "origin of plan",
    "plans": "plan",
    "qualities": "quality of plan",
    "requests": "request",
    "states": "state",
    "stats": "statistics",
    "targets": "target",
}
_KINDS: Final = tuple(NAMES)
TENANTS: Final = "tenants"
"""Folder of the stores of other tenants than the default one."""
_LISTED: Final = 200
_UNCHANGING: Final = frozenset({"answers", "blobs", "descriptions", "origins", "plans", "requests", "stats"})
"""Kinds that are the same for ever: a copy of them need not be looked after."""
_BY_CONTENT: Final = frozenset({"blobs", "descriptions", "stats"})
"""Kinds whose digest is that of their bytes."""
_MADE_AGAIN: Final = frozenset({"answers", "origins", "plans", "requests", "states"})
"""Kinds that the same question brings back."""
_LATEST: Final = (1 << 63) - 1
"""Nanoseconds since 1970 that no file was written after."""
_MOST_CHECKED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Store:
    """A folder of content-addressed files; in front of an object store it holds the files requested here.

    `checked` are files whose bytes were compared with their digest: where, how big, how old. A `quota` counts
    what is kept and taken away, one of `quotas`; none allows everything.
    """

    root: Path
    objects: Objects | None = None
    quota: Quota | None = field(default=None, compare=False)
    quotas: Quotas | None = field(default=None, compare=False)
    checked: set[tuple[str, int, int]] = field(default_factory=set, compare=False)

    @property
    def drafts(self) -> Path:
        """Folder of files that are not kept yet."""
        return self.root / "drafts"

    @property
    def home(self) -> Path:
        """The data folder: of the default tenant it is the root, of others it lies above."""
        parent = self.root.parent
        return parent.parent if parent.name == TENANTS else self.root

    def of(self, tenant: str) -> "Store":
        """The store of another tenant: it shares nothing with this one, so neither tells of the other."""
        if tenant == DEFAULT:
            return self
        folder = f"{TENANTS}/{tenant}"
        objects = None if self.objects is None else self.objects.below(folder)
        quota = None if self.quotas is None else self.quotas.of(tenant)
        return Store(self.root / folder, objects, quota)

    def tenants(self) -> list[str]:
        """The tenants that something was kept of here, the default one first."""
        folder = self.root / TENANTS
        return [DEFAULT, *(sorted(path.name for path in folder.iterdir()) if folder.is_dir() else ())]

    def open(self) -> None:
        """Make the folders, and clear what an earlier server left half done."""
        for name in (*_KINDS, "drafts"):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        with _holding(self.drafts, fcntl.LOCK_EX):
            for draft in self.drafts.iterdir():
                if not _in_use(draft):
                    _remove(draft)

    def path(self, kind: Kind, digest: str) -> Path:
        """The place of a file, whether or not it is there.

        Raises:
          Refused: `digest` is none, so nothing can be there.
        """
        if not re.fullmatch(DIGEST, digest):
            raise unknown(NAMES[kind], digest, [])
        name = digest.removeprefix("sha256:")
        return Path(f"{self.root}/{kind}/{name[:2]}/{name}")

    def has(self, kind: Kind, digest: str) -> bool:
        """Whether a file is there."""
        here = self.path(kind, digest).is_file()
        if self.objects is None or (here and kind in _UNCHANGING):
            return here
        return self.objects.has(self._name(kind, digest))

    def look(self, kind: Kind, digest: str) -> Path | None:
        """Path of a file, if it is there: in the folder by then, wherever it was."""
        path = self.path(kind, digest)
        if self.objects is not None and not (kind in _UNCHANGING and path.is_file()):
            self._fetch(kind, digest, path)
        return path if path.is_file() else None

    def find(self, kind: Kind, digest: str) -> Path:
        """Path of a file that is there.

        Raises:
          Refused: it is not; with the nearest digests.
          OSError: the data folder is away.
        """
        path = self.look(kind, digest)
        if path is None:
            self.require_folder()
            raise unknown(
                NAMES[kind], digest, list(islice(self._near(kind, self.path(kind, digest)), _LISTED))
            )
        return path

    def read(self, kind: Kind, digest: str) -> bytes | None:
        """Bytes of a file, if it is there."""
        path = self.look(kind, digest)
        try:
            return None if path is None else path.read_bytes()
        except FileNotFoundError:  # taken away since
            return None

    def require_folder(self) -> None:
        """Look for the data folder: of one that was moved away nobody can say what it does not hold.

        Raises:
          OSError: it is away.
        """
        self.drafts.stat()

    def find_verified(self, kind: Kind, digest: str) -> Path:
        """Path of a file that is there and, where its digest is that of its bytes, has these bytes.

        Raises:
          Refused: it is not there, or damaged: then it is taken away, so that it can be sent again.
        """
        path = self.find(kind, digest)
        if kind not in _BY_CONTENT or self._is_verified(path, digest):
            return path
        path.unlink(missing_ok=True)
        if self.objects is not None:
            path = self.find(kind, digest)  # the copy here was damaged, perhaps not the other one
            if self._is_verified(path, digest):
                return path
            self.drop(kind, digest)
        raise Refused("corrupted", f"{NAMES[kind]} {digest} was damaged on disk")

    def is_whole(self, kind: Kind, digest: str) -> bool:
        """Whether a file is there, and undamaged where its digest can tell; a damaged one goes."""
        if not self.has(kind, digest):
            return False
        try:
            self.find_verified(kind, digest)
        except Refused as error:
            if error.problem.name not in ("corrupted", "unknown-name"):
                raise
            return False
        return True

    def digests(self, kind: Kind) -> Iterator[str]:
        """Digests of everything of a kind, in no order."""
        if self.objects is not None:
            yield from (f"sha256:{name}" for name in self.objects.names(kind))
            return
        for folder in os.scandir(self.root / kind):
            yield from (f"sha256:{entry.name}" for entry in os.scandir(folder.path))

    def by_age(self, kind: Kind) -> Iterator[str]:
        """Texts for everything of a kind, in no order, that sort the newest first and end in the digest."""
        if self.objects is not None:
            times: Iterable[tuple[str, int]] = self.objects.times(kind).items()
        else:
            times = self._times(kind)
        return (f"{_LATEST - at:019d} sha256:{name}" for name, at in times)

    def _times(self, kind: Kind) -> Iterator[tuple[str, int]]:
        for folder in os.scandir(self.root / kind):
            for entry in os.scandir(folder.path):
                with suppress(FileNotFoundError):  # taken away since
                    yield entry.name, entry.stat().st_mtime_ns

    def _near(self, kind: Kind, path: Path) -> Iterator[str]:
        """Digests to look for a nearest one among: those that begin alike, for all may be a million."""
        beginning = path.parent.name
        if self.objects is not None:
            yield from (f"sha256:{name}" for name in self.objects.names(f"{kind}/{beginning}"))
        elif path.parent.is_dir():
            yield from (f"sha256:{entry.name}" for entry in os.scandir(path.parent))

    def size(self, kind: Kind) -> int:
        """Bytes of all files of a kind, in the object store where there is one."""
        if self.objects is not None:
            return self.objects.size(kind)
        return sum(path.stat().st_size for path in (self.root / kind).glob("*/*"))

    def read_json(self, kind: Kind, digest: str) -> Any:
        """Read a record this server wrote."""
        return json.loads(self.find(kind, digest).read_bytes())

    def drop(self, kind: Kind, digest: str) -> None:
        """Take a file away.

        Raises:
          Refused: it is not there; with the nearest digests.
        """
        path = self.find(kind, digest)
        if self.objects is not None:
            self.objects.drop(self._name(kind, digest))
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:  # somebody else just did, and gave its bytes back
            raise unknown(NAMES[kind], digest, []) from None
        if self.quota is not None and (kind != "requests" or self.objects is not None):
            self.quota.give_back(size)  # a request's link in the folder is a second name of its plan

    def put(self, kind: Kind, digest: str, data: bytes) -> None:
        """Keep bytes under a digest; bytes already there stay."""
        self.put_all([(kind, digest, data)])

    def put_all(self, files: Iterable[tuple[Kind, str, bytes]]) -> None:
        """Keep bytes under digests, in this order; bytes already there stay.

        Raises:
          Refused: `quota`, before anything is kept, where not all of them fit.
        """
        missing = [file for file in files if not self.has(file[0], file[1])]
        self._require_room(sum(len(data) for _, _, data in missing))
        with self._drafted([_make_file] * len(missing)) as drafts:
            for (_, file), (_, _, data) in zip(drafts, missing, strict=True):
                _write(file, data)
            for _, file in drafts:  # one after the other without a name between: the journal has less to do
                os.fsync(file)
            for (path, _), (kind, digest, _) in zip(drafts, missing, strict=True):
                self._give_name(kind, digest, path)

    def keep(self, kind: Kind, digest: str, draft: Path) -> None:
        """Move a finished file into its place: fsync, rename, fsync of a name that nothing brings back."""
        with draft.open("rb") as file:
            os.fsync(file.fileno())
        self._give_name(kind, digest, draft)

    def replace(self, kind: Kind, digest: str, data: bytes) -> None:
        """Keep bytes under a digest in the place of what is there: of kinds that change."""
        with self._drafted([_make_file]) as [(path, file)]:
            _write(file, data)
            os.fsync(file)
            self._give_name(kind, digest, path)

    def _give_name(self, kind: Kind, digest: str, draft: Path) -> None:
        goal = self.path(kind, digest)
        with self._counted(kind, digest, draft):
            if self.objects is not None:
                self.objects.send(draft, self._name(kind, digest))
            _in_folder(os.replace, draft, goal)
        if kind not in _MADE_AGAIN:
            with _opened(goal.parent) as folder:
                os.fsync(folder)

    def _require_room(self, size: int) -> None:
        if self.quota is not None:
            self.quota.check(size)

    @contextmanager
    def _counted(self, kind: Kind, digest: str, draft: Path) -> Iterator[None]:
        """Count the bytes by which a file that is kept is larger than one in its place, unless that fails.

        Raises:
          Refused: `quota`.
        """
        if self.quota is None:
            yield
            return
        there = self.path(kind, digest)
        more = draft.stat().st_size - (there.stat().st_size if there.is_file() else 0)
        self.quota.take(max(more, 0))
        try:
            yield
        except BaseException:
            self.quota.give_back(max(more, 0))
            raise
        self.quota.give_back(max(-more, 0))

    def keep_plan(self, request: str | None, key: str, plan: bytes | Path, origin: bytes) -> None:
        """Keep a plan, its bytes or a finished file, with its provenance, as the answer of a request."""
        if isinstance(plan, Path):
            is_new = not self.has("plans", key)
            if is_new:  # an origin alone is of no use
                self._require_room(plan.stat().st_size + len(origin))
            self.put("origins", key, origin)
            if is_new:  # else links of requests would lead to the file that it takes the place of
                self.keep("plans", key, plan)
        else:
            self.put_all([("origins", key, origin), ("plans", key, plan)])
        if request is not None:
            self.link(request, key)

    def link(self, digest: str, plan: str) -> None:
        """Note that a request's answer is a plan."""
        goal = self.path("requests", digest)
        if self.objects is not None:
            self.objects.send(self.find("plans", plan), self._name("requests", digest))
        with suppress(FileExistsError):  # two equal requests at once: the other one's link is as good
            _in_folder(os.link, self.path("plans", plan), goal)

    @contextmanager
    def draft(self) -> Iterator[Path]:
        """Give a folder to work in; it goes, with what was not kept."""
        with self._drafted([_make_folder]) as [(folder, _)]:
            yield folder

    @contextmanager
    def _drafted(self, makers: Sequence[Callable[[Path], int]]) -> Iterator[list[tuple[Path, int]]]:
        """Make files or folders among the drafts and hold them; those that are still there go."""
        folder = self.drafts
        drafts: list[tuple[Path, int]] = []
        try:
            if makers:
                with _holding(folder, fcntl.LOCK_SH):  # `open` takes away what nobody holds
                    for make in makers:
                        path = folder / secrets.token_hex(8)
                        drafts.append((path, make(path)))
                        fcntl.flock(drafts[-1][1], fcntl.LOCK_EX)
            yield drafts
        finally:
            for path, file in drafts:
                _remove(path)
                os.close(file)

    def _name(self, kind: Kind, digest: str) -> str:
        return self.path(kind, digest).relative_to(self.root).as_posix()

    def _fetch(self, kind: Kind, digest: str, path: Path) -> None:
        """Bring an object here; what is no object any more goes here too."""
        if self.objects is None:
            return
        with self.draft() as folder:
            if self.objects.fetch(self._name(kind, digest), folder / "data"):
                path.parent.mkdir(exist_ok=True)
                (folder / "data").replace(path)
            else:
                path.unlink(missing_ok=True)

    def _is_verified(self, path: Path, digest: str) -> bool:
        stands = path.stat()
        mark = (str(path), stands.st_size, stands.st_mtime_ns)
        if mark in self.checked:
            return True
        if digest_of_file(path) != digest:
            return False
        if len(self.checked) >= _MOST_CHECKED:
            self.checked.clear()
        self.checked.add(mark)
        return True


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    file = os.open(path, os.O_RDONLY)
    try:
        yield file
    finally:
        os.close(file)


@contextmanager
def _holding(path: Path, how: int) -> Iterator[None]:
    """Hold a lock on a file or folder, as soon as it can be had."""
    with _opened(path) as file:
        fcntl.flock(file, how)
        yield


def _in_use(draft: Path) -> bool:
    """Whether a server that lives holds a draft."""
    try:
        with _holding(draft, fcntl.LOCK_EX | fcntl.LOCK_NB):
            return False
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _make_file(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)


def _make_folder(path: Path) -> int:
    path.mkdir(0o700)
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY)


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _in_folder(move: Callable[[Path, Path], None], draft: Path, goal: Path) -> None:
    """Give a file its name, in a folder that is mostly there."""
    try:
        move(draft, goal)
    except FileNotFoundError:
        goal.parent.mkdir(exist_ok=True)
        move(draft, goal)


def _remove(draft: Path) -> None:
    try:
        draft.unlink()
    except FileNotFoundError:
        return
    except OSError:  # a folder
        shutil.rmtree(draft, ignore_errors=True)

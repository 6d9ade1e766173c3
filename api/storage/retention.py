"""Retention: files unused for a while are deleted, and blobs beyond a size, the longest unused first.

Leftovers go whatever the settings: what nothing leads to any more, a day after its last use.

A file is used when it is written or read, as far as the file system notes reads (`relatime`: by the day).
An object store has life cycles of its own: there only the copies here go. Nothing here knows a route.
Source: docs/service.md.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyio.to_thread import run_sync
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from ..jobs.queue import forget, has_key
from ..problems import Refused
from ..server.limits import Quotas
from ..server.tokens import DEFAULT
from ..settings import Settings
from .followers import FOLLOWING, drop_followers, followers, sources_here
from .store import Kind, Store
from .uploads import Uploads

DAY: Final = 86_400.0
EVERY: Final = 3600.0
"""Seconds between two sweeps of a server."""
LEAST_JUMP: Final = 60.0
"""Seconds by which a clock is set right at most while it is kept right."""
_SWEPT: Final[tuple[Kind, ...]] = (
    "answers",
    "blobs",
    "keys",
    "models",
    "origins",
    "plans",
    "qualities",
    "requests",
    "states",
    "stats",
)

_SOURCES: Final[tuple[Kind, ...]] = ("blobs", "models", "plans", "stats", "targets")
"""Kinds that others follow from."""

log: Final = logging.getLogger("qplan.retention")


@dataclass(frozen=True, slots=True)
class SweepResult:
    """Counts of the files, their bytes, and the jobs that a sweep took away."""

    files: int
    bytes: int
    jobs: int


def sweep(store: Store, engine: Engine | None, settings: Settings, now: float) -> SweepResult:
    """Take away what `keep_days` and `keep_bytes` do not keep; models go with their blobs.

    Args:
      engine: whose jobs are swept too.
      now: seconds since 1970.
    """
    gone: list[tuple[Kind, str, int]] = []
    if settings.keep_days:
        before = now - settings.keep_days * DAY
        old = ((kind, path) for kind in _SWEPT for path in _files(store.root / kind) if _used(path) < before)
        gone += [(kind, path.name, _drop(path)) for kind, path in old]
    if settings.keep_bytes:
        gone += _drop_oldest(store, settings.keep_bytes)
    if any(kind == "blobs" for kind, _, _ in gone):
        gone += [("models", path.name, _drop(path)) for path in _without_blob(store)]
    forgotten = 0
    if engine is not None and settings.keep_days:
        forgotten = forget(engine, now - settings.keep_days * DAY)
    done = SweepResult(len(gone), sum(size for _, _, size in gone), forgotten)
    if done.files or done.jobs:
        log.info("swept", extra={"fields": {"message": "swept", "files": done.files, "jobs": done.jobs}})
    return done


def sweep_leftovers(store: Store, engine: Engine | None, settings: Settings, now: float) -> None:
    """Delete files that nothing leads to.

    That is: uploads that ran out; keys of requests after a day, or the hours of an upload if these are more,
    but for those of jobs that are there; what followed from something that went; and what follows from
    nothing, which the version before kept or a job did not get to the end of.

    Args:
      engine: of the jobs whose keys are kept.
      now: seconds since 1970.
    """
    if store.objects is not None:
        return
    Uploads(settings, store).sweep()
    for source in sources_here(store):
        if not any(store.has(kind, source) for kind in _SOURCES):
            drop_followers(store, source)
    lasting = max(DAY, settings.upload_hours * 3600.0)
    for path in list(_files(store.root / "keys")):
        key = f"sha256:{path.name}"
        if path.stat().st_mtime < now - lasting and not (engine is not None and has_key(engine, key)):
            _drop_counted(store, "keys", key)
    _drop_strays(store, now - DAY)


def _drop_strays(store: Store, before: float) -> None:
    """Take away what follows from nothing that was noted, and was not used since a time.

    Names of the values of models stay as long as a model is there that none were noted to follow from.
    """
    noted = {digest for source in sources_here(store) for digest in followers(store, source)}
    is_older = any(not [*followers(store, model)] for model in [*store.digests("models")])
    for kind in FOLLOWING:
        for path in list(_files(store.root / kind)):
            stray = f"sha256:{path.name}" not in noted and _used(path) < before
            if stray and not (is_older and kind == "answers" and _is_list_of_names(path)):
                _drop_counted(store, kind, f"sha256:{path.name}")


def _is_list_of_names(path: Path) -> bool:
    stands = path.stat()
    with path.open("rb") as file:
        head = file.read(2)
    os.utime(path, ns=(stands.st_atime_ns, stands.st_mtime_ns))  # a look of ours is no use of it
    return head in (b'["', b"[]")


def _drop_counted(store: Store, kind: Kind, digest: str) -> None:
    with suppress(Refused):  # somebody else just did
        store.drop(kind, digest)


class Clock:
    """Whether the clock of the machine was set forward: everything looks older then than it is.

    Args:
      wall, monotonic: give seconds.
    """

    def __init__(
        self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self.wall, self.monotonic = wall, monotonic
        self.ahead = wall() - monotonic()

    def jump(self) -> float:
        """Seconds by which it was set forward since the last look; 0.0 for less than a minute."""
        before, self.ahead = self.ahead, self.wall() - self.monotonic()
        return self.ahead - before if self.ahead - before > LEAST_JUMP else 0.0


async def keep_sweeping(
    store: Store, engine: Engine | None, settings: Settings, quotas: Quotas, clock: Clock
) -> None:
    """Sweep every tenant's now and every hour, until cancelled; and count what the quotas count anew.

    An hour in which the clock was set forward is left out: a wrong one may be set right before the next.
    """
    while True:
        if jump := clock.jump():
            log.warning("nothing is deleted this hour: the clock was set forward by %.0f s", jump)
            await asyncio.sleep(EVERY)
            continue
        for tenant in await run_sync(store.tenants):
            try:
                await run_sync(sweep_leftovers, store.of(tenant), engine, settings, time.time())
            except (OSError, SQLAlchemyError, Refused):
                log.exception("a sweep failed")
        if settings.keep_days or settings.keep_bytes:
            for tenant in await run_sync(store.tenants):
                jobs = engine if tenant == DEFAULT else None  # of all tenants at once
                try:
                    await run_sync(sweep, store.of(tenant), jobs, settings, time.time())
                except (OSError, SQLAlchemyError, Refused):
                    log.exception("a sweep failed")
        await run_sync(quotas.count)
        await asyncio.sleep(EVERY)


def _files(folder: Path) -> Iterator[Path]:
    yield from (path for path in folder.glob("*/*") if path.is_file())


def _used(path: Path) -> float:
    found = path.stat()
    return max(found.st_mtime, found.st_atime)


def _drop(path: Path) -> int:
    size = path.stat().st_size
    path.unlink(missing_ok=True)
    return size


def _drop_oldest(store: Store, most: int) -> list[tuple[Kind, str, int]]:
    found = sorted((_used(path), path.stat().st_size, path) for path in _files(store.root / "blobs"))
    total = sum(size for _, size, _ in found)
    gone: list[tuple[Kind, str, int]] = []
    for _, size, path in found:
        if total <= most:
            break
        gone.append(("blobs", path.name, _drop(path)))
        total -= size
    return gone


def _without_blob(store: Store) -> list[Path]:
    """Records of models whose file is gone."""
    found = []
    for path in _files(store.root / "models"):
        blob = store.read_json("models", f"sha256:{path.name}").get("blob", "")
        if not store.has("blobs", blob):
            found.append(path)
    return found

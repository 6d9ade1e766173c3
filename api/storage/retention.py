"""Retention: files that nobody used for a while go, and blobs beyond a size, the longest unused first.

A file is used when it is written or read, as far as the file system notes reads (`relatime`: by the day).
An object store has life cycles of its own: there only the copies here go. Nothing here knows a route.
Source: design 06.
"""

import asyncio
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anyio.to_thread import run_sync
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from api.jobs.queue import forget
from api.problems import Refused
from api.server.limits import Quotas
from api.server.tokens import DEFAULT
from api.settings import Settings
from api.storage.store import Kind, Store

DAY: Final = 86_400.0
EVERY: Final = 3600.0
"""Seconds between two sweeps of a server."""
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


async def keep_sweeping(store: Store, engine: Engine | None, settings: Settings, quotas: Quotas) -> None:
    """Sweep every tenant's now and every hour, until cancelled; and count what the quotas count anew."""
    while True:
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

"""Readiness: whether requests can be served: database, disk and children are tried, once a second at most.

Nobody needs a token to ask, so asking often has to cost nothing. Nothing here knows HTTP. Source:
docs/service.md.
"""

import asyncio
import tempfile
import time
from collections.abc import Callable
from typing import Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from ..intake.sandbox import Sandbox
from ..problems import Problem, Refused
from ..storage.database import jobs, missing, reading
from ..storage.store import Store

LASTS: Final = 1.0
"""Seconds that an answer holds."""
PATIENCE: Final = 3.0
"""Seconds that all of them have."""


class Readiness:
    """The state of one server's parts."""

    def __init__(self, store: Store, engine: Engine, sandbox: Sandbox) -> None:
        self.parts: tuple[Callable[[], str | None], ...] = (
            lambda: _database(engine),
            lambda: _disk(store),
            lambda: _objects(store),
            lambda: _children(sandbox),
        )
        self.store = store
        self.limiter = CapacityLimiter(1)
        self.asking = asyncio.Lock()
        self.until = 0.0
        self.missing: tuple[str, ...] = ()

    async def require(self) -> None:
        """Refuse while something is missing.

        Raises:
          Refused: `not-ready`, with everything that is missing.
        """
        async with self.asking:
            if time.monotonic() > self.until:
                self.missing = await self._look()
                self.until = time.monotonic() + LASTS
        if self.missing:
            problem = _not_ready(*self.missing)
            raise Refused(problem.name, problem.detail, **problem.more)

    def disk_problem(self) -> Problem | None:
        """The problem of a data folder that takes no files now; to ask once something there failed."""
        missing = _disk(self.store)
        return None if missing is None else _not_ready(missing)

    async def _look(self) -> tuple[str, ...]:
        try:
            async with asyncio.timeout(PATIENCE):
                return await run_sync(self._try_all, abandon_on_cancel=True, limiter=self.limiter)
        except TimeoutError:
            return (f"database, disk and children did not answer within {PATIENCE:g} s",)

    def _try_all(self) -> tuple[str, ...]:
        found = [try_() for try_ in self.parts]
        return tuple(text for text in found if text is not None)


def _not_ready(*missing: str) -> Problem:
    return Problem("not-ready", "; ".join(missing), {"missing": list(missing)})


def _database(engine: Engine) -> str | None:
    try:
        with reading(engine) as connection:
            found = missing(connection)
            if not found:
                connection.execute(select(jobs.c.id).limit(1))
            return found or None
    except (SQLAlchemyError, OSError):
        return "the database does not answer"


def _disk(store: Store) -> str | None:
    try:
        with tempfile.TemporaryFile(dir=store.drafts) as file:
            file.write(b"ready")
    except OSError as error:
        return f"the data folder takes no files: {error.strerror}"
    return None


def _objects(store: Store) -> str | None:
    try:
        if store.objects is not None:
            store.objects.has("ready")
    except Refused as error:
        return error.problem.detail
    return None


def _children(sandbox: Sandbox) -> str | None:
    return None if sandbox.has_child() else "no child process remains to read input"

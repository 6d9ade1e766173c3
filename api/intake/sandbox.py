"""Sandbox: a request's untrusted input is read in a child process of its own, which ends with its work.

Bounds how many children work for requests and how many requests wait for one, in all and for each principal
(`turns`). Children are forked from a process that has their imports done (`forks`).
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from ..jobs.child_process import (
    WAY,
    Bounds,
    Stopped,
    accept,
    ended,
    run_child,
    run_in_thread,
)
from ..jobs.forks import FORKS, Unavailable, WorkerLost
from ..problems import Refused
from ..server.metrics import Metrics
from ..settings import Settings, share_of, tenant_share_of
from ..storage.store import Store
from ..tracing import current
from .turns import Turns


class Sandbox:
    """Children of one server: at most `settings.children` at work.

    `of` gives it to a principal, with the store of his tenant; what is counted is counted of all.
    """

    def __init__(self, settings: Settings, store: Store, metrics: Metrics | None = None) -> None:
        self.settings = settings
        self.store = store
        self.metrics = metrics or Metrics()
        self.bounds = Bounds(settings.child_memory, settings.child_seconds, settings.functions)
        self.threads = ThreadPoolExecutor(settings.children, thread_name_prefix="qplan-child")
        shares = share_of(settings), tenant_share_of(settings)
        self.turns = Turns("a worker", settings.children, settings.waiting, *shares)
        self.principal = ""

    def of(self, store: Store, principal: str) -> "Sandbox":
        """The same children, for a principal."""
        given = copy.copy(self)
        given.store, given.principal = store, principal
        return given

    def start(self) -> None:
        """Have what children are forked from do its imports."""
        FORKS.start()

    def has_child(self) -> bool:
        """Whether a child can be had; what they are forked from is started again where it ended."""
        with suppress(OSError, Unavailable):
            if FORKS.start():
                with ended(FORKS.fork(self.store.root)):
                    return True
        return False

    def stop(self) -> None:
        """Wait for the children at work."""
        self.threads.shutdown()

    async def run(self, work: Mapping[str, Any], check: Callable[[Path], None] = accept) -> dict[str, Any]:
        """Have a piece of work done, as `run_child`.

        Args:
          check: refuses a file that was made, before it is kept.

        Raises:
          Refused: `busy`, `share-taken`; `worker-lost`, twice; the child's refusal, or how it ended.
        """
        peaks = [0]
        work = {**work, "asked": current.get()}

        def once(stopped: Stopped) -> dict[str, Any]:
            return run_child(
                self.store,
                work,
                self.given_way(),
                stopped=stopped,
                check=check,
                note_peak=peaks.append,
            )

        def run(stopped: Stopped) -> dict[str, Any]:
            try:
                return once(stopped)
            except WorkerLost:
                return once(stopped)

        return await self.in_thread(work["task"], run, peaks)

    def given_way(self) -> Bounds:
        """The limits of the next child; it gives way to others where its principal has more of them wait."""
        gives_way = self.principal in self.turns.lines and len(self.turns.principals()) > 1
        return replace(self.bounds, nice=WAY if gives_way else 0)

    async def in_thread(
        self, task: str, run: Callable[[Stopped], dict[str, Any]], peaks: Sequence[int] = (0,)
    ) -> dict[str, Any]:
        """Run what talks to a child in a thread, once there is a place for it.

        Args:
          peaks: bytes of memory the child had, the last one counts.

        Raises:
          Refused: `busy`, `share-taken`; what `run` raises.
        """
        async with self.turns.place(self.principal):
            return await self._run(task, run, peaks)

    async def _run(
        self, task: str, run: Callable[[Stopped], dict[str, Any]], peaks: Sequence[int]
    ) -> dict[str, Any]:
        self.metrics.children_at_work.inc()
        start, ending = perf_counter(), "crashed"
        try:
            result = await run_in_thread(self.threads, run)
            ending = "ok"
        except Refused as error:
            ending = error.problem.name
            raise
        except Unavailable as error:
            ending = "busy"
            raise Refused(ending, str(error)) from error
        except WorkerLost as error:
            ending = "worker-lost"
            raise Refused(ending, str(error)) from error
        else:
            return result
        finally:
            self.metrics.children_at_work.dec()
            self.metrics.count_child(task, ending, perf_counter() - start, peaks[-1])

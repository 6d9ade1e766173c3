"""The dispatcher: in every server, leases waiting jobs, has them run, keeps the leases, and writes the ends.

Several dispatchers share one queue. One that is killed loses its leases after a while, and others take over;
one that cannot reach the database goes on with what it has, and writes when it can. Source: docs/service.md.
"""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from sqlalchemy import Engine
from sqlalchemy.exc import DatabaseError

from ..intake.turns import ALL
from ..problems import Problem, Refused, as_arguments
from ..server.logs import log_job
from ..tracing import Asked, span
from . import queue
from .child_process import BEHIND, WAY
from .executors import Executor
from .fan_out import run_work
from .forks import Unavailable, WorkerLost
from .records import Job

POLL: Final = 0.25
IDLE_POLL: Final = 1.0
"""After a while without jobs: only those of other servers wait for this, our own wake us."""
BEATS: Final = 4
"""Heartbeats within one lease."""
PROGRESS_SECONDS: Final = 0.5
PAUSE: Final = 1.0
THREADS: Final = 4

T = TypeVar("T")

log: Final = logging.getLogger("qplan.jobs")


class Pace:
    """How fast the steps of one phase of a job go."""

    def __init__(self) -> None:
        self.phase: object = self
        self.began, self.done = 0.0, 0

    def left(self, progress: Mapping[str, Any], now: float) -> float | None:
        """Seconds until the phase ends, as fast as it went so far; None where that is not known yet.

        Args:
          now: seconds, since whenever.
        """
        done, total = progress.get("done", 0), progress.get("total")
        if progress.get("phase") != self.phase or done < self.done:
            self.phase, self.began, self.done = progress.get("phase"), now, done
        if total is None or done <= self.done:
            return None
        seconds: float = (now - self.began) / (done - self.done) * (total - done)
        return round(seconds, 1)


class Dispatcher:
    """The jobs of one server.

    Args:
      seconds: of a lease.
      share: the percentage of the slots that one principal may have.
      tenant_share: the percentage of the slots that the principals of one tenant may have together.
      asking: gives the principals of requests, to whom jobs of others give way.
      log_ends: write a line for each job that ended here.
    """

    def __init__(
        self,
        engine: Engine,
        executor: Executor,
        *,
        seconds: float,
        share: int = ALL,
        tenant_share: int = ALL,
        asking: Callable[[], Iterable[str]] = tuple,
        log_ends: bool = False,
    ) -> None:
        self.log_ends = log_ends
        self.shares = {"share": share, "tenant_share": tenant_share}
        self.asking = asking
        self.engine = engine
        self.executor = executor
        self.seconds = seconds
        self.owner = f"{socket.gethostname()[:40]}-{secrets.token_hex(8)}"
        self.held: dict[str, tuple[Job, asyncio.Task[None]]] = {}
        self.progress: dict[str, Mapping[str, Any]] = {}
        self.stopping: set[str] = set()
        self.wake = asyncio.Event()
        self.pause = POLL
        self.threads = CapacityLimiter(THREADS)
        self.loops: list[asyncio.Task[None]] = []
        self.leasing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to take jobs."""
        await self.executor.start()
        loops = (self._take, self._watch, self._beat)
        self.loops = [asyncio.create_task(self._for_ever(loop)) for loop in loops]

    async def stop(self) -> None:
        """Stop what runs and give it back, for another server to begin anew."""
        for loop in self.loops:
            loop.cancel()
        leasing = () if self.leasing is None else (self.leasing,)
        await asyncio.gather(*self.loops, *leasing, return_exceptions=True)
        tasks = [task for _, task in self.held.values()]
        self._halt(list(self.held))
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.executor.stop()

    def nudge(self) -> None:
        """Say that a job was put into the queue, so that it need not wait for the next look."""
        self.wake.set()

    async def _for_ever(self, once: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await once()
            except (DatabaseError, Unavailable) as error:
                log.warning("jobs wait: %s", str(error).splitlines()[0][:300])
                await asyncio.sleep(PAUSE)

    async def _take(self) -> None:
        """Lease as many jobs as there are slots."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self.pause):  # wait_for may swallow a cancellation
                await self.wake.wait()
        self.pause = POLL if self.wake.is_set() else min(2 * self.pause, IDLE_POLL)
        self.wake.clear()
        free = await self.executor.slots() - len(self.held)
        if free <= 0:
            return
        self.leasing = asyncio.create_task(self._lease(free))
        await asyncio.shield(self.leasing)  # to its end: a lease that nobody holds lasts its whole time

    async def _lease(self, free: int) -> None:
        taken = await self._do(queue.lease, self.owner, free, seconds=self.seconds, **self.shares)
        waiting: dict[str, bool] = {}
        with suppress(DatabaseError):  # what is leased must be held, whatever else fails
            waiting = await self._do(queue.who_waits) if taken else {}
        present = {*waiting, *self.asking()}
        for job in taken:
            gives_way = waiting.get(job.principal) and present - {job.principal}
            running = self._run(job, BEHIND + (WAY if gives_way else 0))
            self.held[job.id] = (job, asyncio.create_task(running))
        await asyncio.sleep(0)  # what is cancelled before it began would not be given back

    async def _watch(self) -> None:
        """Stop what was cancelled or lost."""
        await asyncio.sleep(POLL)
        if self.held:
            self._settle(await self._do(queue.standing, [job for job, _ in self.held.values()]))

    async def _beat(self) -> None:
        """Prolong the leases."""
        await asyncio.sleep(self.seconds / BEATS)
        if self.held:
            self._settle(await self._do(queue.heartbeat, [job for job, _ in self.held.values()]))

    def _settle(self, standing: queue.Standing) -> None:
        self._halt(standing.lost | standing.cancelling)

    def _halt(self, names: Iterable[str]) -> None:
        for name in names:
            # Once: a second time would interrupt the writing of its end.
            if name in self.held and name not in self.stopping:
                self.stopping.add(name)
                self.held[name][1].cancel()

    async def _run(self, job: Job, nice: int) -> None:
        telling = asyncio.create_task(self._tell(job))
        begun = time.monotonic()
        try:
            with span(f"job {job.kind}", job.work.get("asked", {})) as part:
                ending, end = await self._end_of(job, nice, part.asked)
                part.set(job=job.id, attempt=job.attempt, ending=ending)
                await self._write(end)
            if self.log_ends:
                log_job(job, ending, time.monotonic() - begun)
        finally:
            telling.cancel()
            self.progress.pop(job.id, None)
            self.held.pop(job.id, None)
            self.stopping.discard(job.id)
            self.wake.set()

    async def _end_of(self, job: Job, nice: int, asked: Asked) -> tuple[str, Callable[[], bool]]:
        """Run a job, and give how it ended and the function that writes it."""
        pace = Pace()

        def tell(progress: Mapping[str, Any]) -> None:
            self.progress[job.id] = {**progress, "left_s": pace.left(progress, time.monotonic())}

        try:
            result = await run_work(self.executor, job.work, tell, job.tenant, nice, by=asked)
        except asyncio.CancelledError:
            return "stopped", lambda: queue.give_up(self.engine, job)
        except Refused as error:
            problem = error.problem
            return problem.name, lambda: queue.fail(self.engine, job, as_arguments(problem))
        except WorkerLost as error:
            reason = str(error)
            return "worker-lost", lambda: queue.retry(self.engine, job, reason)
        except Unavailable as error:
            log.warning("job %s waits: %s", job.id, error)
            return "put-back", lambda: queue.release(self.engine, job, seconds=PAUSE)
        except Exception:
            log.exception("job %s failed", job.id)
            problem = Problem("internal", "this is a bug of ours")
            return problem.name, lambda: queue.fail(self.engine, job, as_arguments(problem))
        return "done", lambda: queue.finish(self.engine, job, result)

    async def _write(self, end: Callable[[], bool]) -> None:
        """Write an end, however long the database is away: a lease that ran out meanwhile makes it void."""
        until = time.monotonic() + self.seconds * BEATS
        while True:
            try:
                await run_sync(end, limiter=self.threads)
            except DatabaseError as error:
                if time.monotonic() > until:
                    raise
                log.warning("an end waits for the database: %s", str(error).splitlines()[0][:300])
                await asyncio.sleep(PAUSE)
            else:
                return

    async def _tell(self, job: Job) -> None:
        """Write the progress of a job now and then."""
        while True:
            await asyncio.sleep(PROGRESS_SECONDS)
            progress = self.progress.pop(job.id, None)
            if progress is not None:
                with suppress(DatabaseError):
                    await self._do(queue.note_progress, job, progress)

    async def _do(self, call: Callable[..., T], *arguments: Any, **named: Any) -> T:
        return await run_sync(lambda: call(self.engine, *arguments, **named), limiter=self.threads)

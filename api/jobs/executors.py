"""Executors: where the work of jobs runs: threads here that each watch a child, or a Dask cluster's workers.

`run_child` is the same in both. An executor knows nothing of rows: it answers with a result, a problem, or
that the worker was lost. A cluster trusts whoever reaches its scheduler: a private network, or Dask's TLS.
Source: docs/service.md.
"""

import asyncio
import os
import secrets
from collections.abc import Mapping
from concurrent.futures import Executor as Threads
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final, Protocol

from planner.errors import InputError
from planner.installation import install_command

from ..problems import Refused, as_arguments
from ..server.tokens import DEFAULT
from ..settings import Settings
from ..storage.objects import open_objects
from ..storage.store import Store
from ..tracing import start_from
from .child_process import Bounds, Cancelled, Stopped, Tell, run_child, run_in_thread
from .forks import Unavailable, WorkerLost

DASK: Final = "dask://"
TOPIC: Final = "qplan-progress"
CONNECT_SECONDS: Final = 10
FAN_FROM: Final = 1 << 29
AHEAD: Final = 1
"""Works that wait at a cluster beside those at work, so that no worker waits for us."""


class Executor(Protocol):
    """Runs the work of jobs, somewhere.

    `fan_from`: a job that goes through this many bytes of weights is worth cutting into several; None: never.
    `ahead`: of its slots, those beyond its workers.
    """

    fan_from: int | None
    ahead: int

    async def start(self) -> None:
        """Get ready."""

    async def stop(self) -> None:
        """Stop everything that runs."""

    async def slots(self) -> int:
        """Number of works to have under way."""

    async def run(self, work: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """Run a work; cancelling this ends it at once.

        Raises:
          Refused: what the work ended with.
          Unavailable, WorkerLost: no end of the work's own.
        """


class Pool:
    """Threads of this process, or of any `concurrent.futures.Executor` of threads, each beside a child."""

    fan_from: int | None = None
    ahead: int = 0

    def __init__(self, store: Store, bounds: Bounds, workers: int, threads: Threads | None = None) -> None:
        self.store = store
        self.bounds = bounds
        self.workers = workers
        self.threads = threads or ThreadPoolExecutor(workers, thread_name_prefix="qplan-job")

    async def start(self) -> None:
        """Nothing to do: threads start when there is work."""

    async def stop(self) -> None:
        """End the threads, which have nothing to do any more."""
        self.threads.shutdown(wait=False, cancel_futures=True)

    async def slots(self) -> int:
        """One for each thread."""
        return self.workers

    async def run(self, work: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """Run a work in a thread."""
        loop = asyncio.get_running_loop()

        def hear(progress: Mapping[str, Any]) -> None:
            loop.call_soon_threadsafe(tell, progress)

        def run(stopped: Stopped) -> dict[str, Any]:
            return run_child(opened(self.store, work), work, self.bounds, stopped=stopped, tell=hear)

        return await run_in_thread(self.threads, run)


class Cluster:
    """The workers of a Dask cluster; they open the same object store, or see the same data folder."""

    def __init__(
        self, address: str, root: Path, blobs: str, bounds: Bounds, *, fan_from: int = FAN_FROM
    ) -> None:
        self.fan_from: int | None = fan_from
        self.ahead: int = AHEAD
        self.address = address
        self.place = (str(root), blobs)
        self.bounds = bounds
        self.client: Any = None
        self.opening = asyncio.Lock()
        self.told: dict[str, Tell] = {}

    async def start(self) -> None:
        """Nothing to do: the first look for work connects, and a cluster may come later than we."""

    async def stop(self) -> None:
        """Leave; the cluster drops our requests."""
        await self._leave()

    async def slots(self) -> int:
        """One for each thread of the workers, and a little ahead."""
        client = await self._client()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                threads: dict[str, int] = await client.scheduler.ncores()
        except (OSError, TimeoutError) as error:
            await self._leave()
            raise Unavailable(str(error)) from error
        if not threads:
            raise Unavailable("the cluster has no workers")
        return sum(threads.values()) + self.ahead

    async def run(self, work: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
        """Run a work on a worker; a worker that dies is replaced by another three times."""
        client = await self._client()
        key = f"qplan-{secrets.token_hex(8)}"
        self.told[key] = tell
        future = client.submit(run_on_worker, self.place, work, self.bounds, key=key, pure=False)
        try:
            answer: dict[str, Any] = await future
        except asyncio.CancelledError:
            await client.cancel([future], force=True)
            raise
        except _dask("scheduler").KilledWorker as error:
            raise WorkerLost(str(error)[:300]) from error
        except (_dask("client").FutureCancelledError, OSError, TimeoutError) as error:
            raise Unavailable(f"{type(error).__name__}: {error}"[:300]) from error
        finally:
            del self.told[key]
            future.release()
        if "problem" in answer:
            raise Refused(**answer["problem"])
        if "result" not in answer:
            raise Unavailable("the cluster stopped the work")
        result: dict[str, Any] = answer["result"]
        return result

    async def _client(self) -> Any:
        async with self.opening:
            if self.client is not None and self.client.status == "running":
                return self.client
            if self.client is not None:
                await self._leave()
            client = _dask("client").Client(
                self.address, asynchronous=True, set_as_default=False, timeout=CONNECT_SECONDS
            )
            try:
                await client
            except (OSError, TimeoutError) as error:
                await _close(client)
                raise Unavailable(f"no cluster at {self.address}") from error
            except asyncio.CancelledError:
                await _close(client)
                raise
            self.client = client
            self.client.subscribe_topic(TOPIC, self._hear)
            return self.client

    async def _leave(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            await _close(client)

    def _hear(self, event: tuple[float, Mapping[str, Any]]) -> None:
        told = self.told.get(event[1].get("key", ""))
        if told is not None:
            told(event[1]["progress"])


def run_on_worker(place: tuple[str, str], work: Mapping[str, Any], bounds: Bounds) -> dict[str, Any]:
    """Run a child from a thread of a Dask worker; the client's cancelling shows in the task's state there."""
    start_from()
    worker = _dask("worker").get_worker()
    key = _dask("worker").thread_state.key

    def stopped() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state != "executing"

    def tell(progress: Mapping[str, Any]) -> None:
        worker.log_event(TOPIC, {"key": key, "progress": dict(progress)})

    try:
        store = _opened(*place)
        # One child that waits serves all tenants: it has no files before it has work.
        run = partial(run_child, stopped=stopped, tell=tell)
        return {"result": run(opened(store, work), work, bounds)}
    except Cancelled:
        return {}
    except Refused as error:
        return {"problem": as_arguments(error.problem)}


def opened(store: Store, work: Mapping[str, Any]) -> Store:
    """The store of the tenant whose work it is; works of before there were tenants are the default one's."""
    own = store.of(work.get("tenant", DEFAULT))
    if not own.drafts.is_dir():
        own.open()
    return own


def open_executor(settings: Settings, store: Store) -> Executor:
    """Make the executor that `QPLAN_EXECUTOR` names; none is this process.

    Raises:
      InputError: an address that is none, or `distributed` is not installed.
    """
    bounds = Bounds(settings.job_memory, settings.job_seconds, settings.functions)
    if not settings.executor:
        return Pool(store, bounds, settings.job_workers)
    if not settings.executor.startswith(DASK):
        raise InputError(f"QPLAN_EXECUTOR is {settings.executor!r}", hint="dask://HOST:8786, or leave it out")
    try:
        _dask("client")
    except ModuleNotFoundError as error:
        raise InputError(
            f"QPLAN_EXECUTOR needs {error.name}, which is not installed",
            hint=install_command("cluster"),
        ) from error
    address = f"tcp://{settings.executor.removeprefix(DASK)}"
    return Cluster(address, settings.data, settings.blobs, bounds)


@cache
def _opened(root: str, blobs: str) -> Store:
    """The store as a worker sees it: the data folder of its `QPLAN_DATA`, if set, before the same objects."""
    store = Store(Path(os.environ.get("QPLAN_DATA") or root), open_objects(blobs))
    store.open()
    return store


async def _close(client: Any) -> None:
    with suppress(OSError, TimeoutError):
        await client.close(timeout=CONNECT_SECONDS)


def _dask(name: str) -> Any:
    """A module of `distributed`, which only the extra `[cluster]` brings."""
    return import_module(f"distributed.{name}")

"""Sandbox: untrusted input is read in a child process of its own, which ends with its job.

A child has limits on memory, processor time and file size, its own process group and a time limit; what goes
wrong there is a typed problem. One child waits, imports done, so that a job does not pay for starting it.
"""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Final

from api.problems import Problem, Refused
from api.server.logs import log_failure
from api.server.metrics import Metrics
from api.server.paths import import_path
from api.settings import Settings

MAX_REPLY: Final = 4 << 20
MAX_FILE: Final = 2 << 30
# What the child's libraries map beside what they use.
MAPPED: Final = 1 << 30
PER_BYTE: Final = 10
FOREIGN: Final = frozenset({"address", "annotations", "arguments", "options", "steps"})


@dataclass(slots=True)
class Ending:
    """How a child ended: `ok` or the name of a problem, and the most memory it had, in bytes."""

    name: str = "crashed"
    peak: int = 0


class Sandbox:
    """Children of one server: at most `settings.children` at work, one waiting."""

    def __init__(self, settings: Settings, metrics: Metrics | None = None) -> None:
        self.settings = settings
        self.metrics = metrics or Metrics()
        self.free = asyncio.Semaphore(settings.children)
        self.queued = 0
        self.spare: Process | None = None
        self.refill: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the child that waits."""
        self.spare = await _spawn(self.settings.data)

    async def stop(self) -> None:
        """End the child that waits."""
        if self.refill is not None:
            await self.refill
        if self.spare is not None:
            await _end(self.spare)

    async def run(self, task: str, *, reads: int, **arguments: Any) -> dict[str, Any]:
        """Have one job done.

        Args:
          task: a key of `child.TASKS`.
          reads: bytes of the files it reads, which its memory limit grows with.

        Raises:
          Refused: what the child refused, or how it ended.
        """
        if self.queued >= self.settings.waiting:
            raise Refused("busy", f"{self.queued} requests wait for a worker already")
        self.queued += 1
        try:
            await self.free.acquire()
        finally:
            self.queued -= 1
        self.metrics.children_at_work.inc()
        start = perf_counter()
        ended = Ending()
        try:
            limits = self._limits(reads) | files_of(self.settings.data, arguments)
            return await self._run({"task": task, "limits": limits, **arguments}, ended)
        except Refused as error:
            ended.name = error.problem.name
            raise
        finally:
            self.metrics.children_at_work.dec()
            self.metrics.count_child(task, ended.name, perf_counter() - start, ended.peak)
            self.free.release()

    def _limits(self, reads: int) -> dict[str, Any]:
        memory = self.settings.child_memory + PER_BYTE * reads
        return {
            "memory": memory,
            "mapped": MAPPED,
            "seconds": self.settings.child_seconds,
            "file": MAX_FILE,
            "functions": self.settings.functions,
        }

    async def _run(self, job: Mapping[str, Any], ended: Ending) -> dict[str, Any]:
        child = await self._take()
        try:
            async with asyncio.timeout(self.settings.child_seconds):
                reply = await _converse(child, json.dumps(job).encode() + b"\n")
        except TimeoutError:
            raise Refused("timeout", f"no answer within {self.settings.child_seconds} s") from None
        finally:
            await _end(child)
        return _result(child, reply, ended)

    async def _take(self) -> Process:
        child, self.spare = self.spare, None
        if self.refill is None or self.refill.done():
            self.refill = asyncio.create_task(self._refill())
        if child is None or child.returncode is not None:
            return await _spawn(self.settings.data)
        return child

    async def _refill(self) -> None:
        self.spare = await _spawn(self.settings.data)


def files_of(root: Path, arguments: Mapping[str, Any]) -> dict[str, list[str]]:
    """Say which files below a data folder a job is given, and may open: no others.

    Args:
      arguments: of the job; what clients wrote (`FOREIGN`) names no files.

    Returns:
      `readable` files, and `writable` drafts.
    """
    drafts = root / "drafts"
    found: dict[str, list[str]] = {"readable": [], "writable": []}
    waiting: list[Any] = [value for name, value in arguments.items() if name not in FOREIGN]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping):
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple)):
            waiting.extend(value)
        elif isinstance(value, str) and Path(value).is_relative_to(drafts):
            found["writable"].append(str(drafts / Path(value).relative_to(drafts).parts[0]))
        elif isinstance(value, str) and Path(value).is_relative_to(root):
            found["readable"].append(value)
    return found


async def _spawn(folder: Path) -> Process:
    line = (sys.executable, "-P", "-m", "api.child")
    return await asyncio.create_subprocess_exec(
        *line,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
        cwd=folder,
        env=child_environment(),
        start_new_session=True,
        limit=MAX_REPLY,
    )


def child_environment() -> dict[str, str]:
    """Only what the child needs: no tokens, one thread for linear algebra."""
    return {
        "PATH": os.environ.get("PATH", ""),
        "PYTHONPATH": import_path(),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LC_ALL": "C.UTF-8",
        "MALLOC_ARENA_MAX": "2",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }


async def _converse(child: Process, line: bytes) -> bytes:
    if child.stdin is None or child.stdout is None:
        raise RuntimeError("a child is started with pipes")
    with suppress(BrokenPipeError, ConnectionResetError):
        child.stdin.write(line)
        await child.stdin.drain()
    child.stdin.close()
    reply = bytearray()
    while len(reply) <= MAX_REPLY and (part := await child.stdout.read(65_536)):
        reply += part
    if len(reply) <= MAX_REPLY:
        await child.wait()
    return bytes(reply)


async def _end(child: Process) -> None:
    if child.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    await child.wait()


def _result(child: Process, reply: bytes, ended: Ending) -> dict[str, Any]:
    if child.returncode == 0 and reply:
        answer: dict[str, Any] = json.loads(reply)
        ended.peak = answer.get("peak", 0)
        log_failure(answer)
        if "problem" in answer:
            raise Refused(**answer["problem"])
        ended.name = "ok"
        result: dict[str, Any] = answer["result"]
        return result
    problem = ending_of(child.returncode or 0)
    raise Refused(problem.name, problem.detail)


def ending_of(code: int) -> Problem:
    """Word how a child ended that said nothing: its exit code, or the signal, negative."""
    if code == -signal.SIGXCPU:
        return Problem("timeout", "the processor time allowed was used up")
    if code == -signal.SIGKILL:
        return Problem("out-of-memory", "the system ended the reader of this input")
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return Problem("worker-crashed", f"the reader of this input ended with {how}")

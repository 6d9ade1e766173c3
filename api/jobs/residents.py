"""Residents: children that hold a plan in memory, so that edits are previewed within 0.2 s.

A resident has the limits of any child that reads for a request, its processor time counted over its whole
life. A caller has one, so nobody meets another's; of all, the longest unused goes. One that ended, for
whatever reason, is made again by the next question. Source: docs/service.md.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from subprocess import TimeoutExpired
from typing import Any, Final

from ..intake.sandbox import Sandbox
from ..problems import Refused
from .child_process import (
    CLOSED,
    Stopped,
    ended,
    job_of,
    line_of,
    lines_of,
    naming_gone,
    start_child,
)
from .endings import refuse_ending
from .forks import LOST, Child, WorkerLost
from .task_names import HOLD

IDLE: Final = 600.0
"""Seconds without a question after which a resident goes."""


class Gone(Exception):
    """The child ended without an answer.

    Attributes:
      code: how, as `Child.wait` has it; `LOST` where there was none, or nobody can tell.
      seconds: of the processor that it had.
    """

    def __init__(self, child: Child | None) -> None:
        super().__init__()
        self.code, self.seconds = LOST, 0.0
        if child is not None:
            with suppress(TimeoutExpired):
                self.code = child.wait(CLOSED)
            self.seconds = child.seconds


@dataclass(slots=True)
class Resident:
    """A child that holds the plan of a key; `stack` ends it and takes its folder away.

    `sandbox` is that of its caller.
    """

    key: str
    sandbox: Sandbox
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    stack: ExitStack = field(default_factory=ExitStack)
    child: Child | None = None
    timer: asyncio.TimerHandle | None = None

    async def end(self) -> None:
        """End the child in a thread, for it may take a while; being cancelled does not stop that."""
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, self.close))

    def close(self) -> None:
        """End the child, and wait until it has."""
        self.child = None
        if self.timer is not None:
            self.timer.cancel()
        self.stack.close()


class Residents:
    """The residents of one server: at most `settings.residents`, one a caller."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.most = sandbox.settings.residents
        self.held: OrderedDict[str, Resident] = OrderedDict()

    async def stop(self) -> None:
        """End all."""
        while self.held:
            await self.held.popitem()[1].end()

    async def ask(
        self, sandbox: Sandbox, key: str, work: Mapping[str, Any], edits: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return the changes that edits would make in a plan.

        Args:
          sandbox: the caller's.
          work: that makes the plan of the key, of the task `HOLD`.

        Raises:
          Refused: as `Sandbox.run`; edits that do not fit.
        """
        caller = sandbox.principal
        resident = await self._resident(sandbox, key)
        async with resident.lock:
            try:
                return await sandbox.in_thread(
                    HOLD, lambda stopped: self._ask(resident, work, edits, stopped)
                )
            except BaseException:
                if resident.child is None:
                    self._forget(caller, resident)
                raise
            finally:
                if self.held.get(caller) is not resident:  # another plan took its place, or there is none
                    await resident.end()
                else:
                    self._wind_up(caller, resident)

    def _wind_up(self, caller: str, resident: Resident) -> None:
        """End it after a long time without requests."""

        def go() -> None:
            if not resident.lock.locked():
                self._forget(caller, resident)
                asyncio.get_running_loop().run_in_executor(None, resident.close)

        if resident.timer is not None:
            resident.timer.cancel()
        resident.timer = asyncio.get_running_loop().call_later(IDLE, go)

    async def _resident(self, sandbox: Sandbox, key: str) -> Resident:
        """The caller's, if it holds this plan; else a new one in its place."""
        caller = sandbox.principal
        found = self.held.get(caller)
        if found is not None and found.key == key:
            self.held.move_to_end(caller)
            return found
        made = Resident(key, sandbox)
        if found is not None:
            await self._end(caller, found)
        while self.held and len(self.held) >= max(self.most, 1):
            await self._end(*next(iter(self.held.items())))
        if self.most:
            self.held[caller] = made
        return made

    async def _end(self, caller: str, resident: Resident) -> None:
        self._forget(caller, resident)
        async with resident.lock:
            await resident.end()

    def _forget(self, caller: str, resident: Resident) -> None:
        if self.held.get(caller) is resident:
            del self.held[caller]

    def _ask(
        self,
        resident: Resident,
        work: Mapping[str, Any],
        edits: Sequence[Mapping[str, Any]],
        stopped: Stopped,
    ) -> dict[str, Any]:
        """Ask the child; one that is gone, its time used up say, is made again; once more if lost."""
        if resident.child is not None:
            try:
                return self._answer(resident, json.dumps(edits).encode() + b"\n", stopped)
            except Gone:
                resident.close()
        with naming_gone(resident.sandbox.store, work):
            try:
                return self._made(resident, work, edits, stopped)
            except WorkerLost:
                return self._made(resident, work, edits, stopped)

    def _made(
        self,
        resident: Resident,
        work: Mapping[str, Any],
        edits: Sequence[Mapping[str, Any]],
        stopped: Stopped,
    ) -> dict[str, Any]:
        """Make the child, and ask it."""
        try:
            self._start(resident, work, stopped)
            return self._answer(resident, json.dumps(edits).encode() + b"\n", stopped)
        except Gone as error:
            resident.close()
            refuse_ending(error.code, is_used_up=error.seconds > resident.sandbox.bounds.seconds)

    def _start(self, resident: Resident, work: Mapping[str, Any], stopped: Stopped) -> None:
        store, bounds = resident.sandbox.store, resident.sandbox.bounds
        try:
            folder = resident.stack.enter_context(store.draft())
            line = line_of(job_of(store, work, bounds, folder))
            resident.child = resident.stack.enter_context(ended(start_child(store.root)))
            self._answer(resident, line, stopped)
        except BaseException:
            resident.close()
            raise

    def _answer(self, resident: Resident, line: bytes, stopped: Stopped) -> dict[str, Any]:
        child = resident.child
        if child is None:
            raise Gone(child)
        try:
            child.stdin.write(line)
            child.stdin.flush()
        except OSError as error:
            raise Gone(child) from error
        try:
            with closing(lines_of(child.stdout.fileno(), resident.sandbox.bounds, stopped)) as lines:
                reply = next(lines, b"")
        except (
            BaseException
        ):  # cancelled, or no time: what it would say later is no answer of the next question
            resident.close()
            raise
        if not reply:
            raise Gone(child)
        answer: dict[str, Any] = json.loads(reply)
        if "problem" in answer:
            raise Refused(**answer["problem"])
        result: dict[str, Any] = answer["result"]
        return result

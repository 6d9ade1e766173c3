"""Turns: limited places, given to principals in turn, so that more requests do not shorten the wait.

A principal has a share of the places at once, and of the places to wait, and so has a tenant, all its
principals together; among those who wait, the one who was served the longest ago is next. Of whom nothing
waits, one always may: so places to wait are as many more as there are principals, at most. On a server with
one principal the share is everything. Nothing here knows HTTP. Source: round-robin scheduling;
docs/service.md.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final, NoReturn

from ..problems import Refused

ALL: Final = 100
RETRY_SECONDS: Final = 1


class Turns:
    """Places of one kind.

    Args:
      what: what they are places for, in messages.
      places: taken at once, by all.
      waiting: requests that may wait for one.
      share: the percentage of both that one principal may have.
      tenant_share: the percentage of both that the principals of one tenant may have together.
    """

    def __init__(
        self, what: str, places: int, waiting: int, share: int = ALL, tenant_share: int = ALL
    ) -> None:
        self.what = what
        self.free = places
        self.waiting = waiting
        self.most = portion(places, share)
        self.most_waiting = portion(waiting, share)
        self.most_of_tenant = portion(places, tenant_share)
        self.most_of_tenant_waiting = portion(waiting, tenant_share)
        self.taken: dict[str, int] = {}
        self.lines: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @property
    def queued(self) -> int:
        """Requests that wait."""
        return sum(map(len, self.lines.values()))

    def principals(self) -> set[str]:
        """Those who have a place, or wait for one."""
        return {*self.taken, *self.lines}

    @asynccontextmanager
    async def place(self, principal: str) -> AsyncIterator[None]:
        """Have a place, once it is the principal's turn.

        Raises:
          Refused: `busy`, where too many wait; `share-taken`, where too many of the principal's do.
        """
        await self._take(principal)
        try:
            yield
        finally:
            self._leave(principal)

    async def _take(self, principal: str) -> None:
        line = self.lines.get(principal)
        if not line and self._may_sit(principal):
            self._seat(principal)
            return
        if line or not self.waiting:
            self._require_room(principal, len(line or ()))
        line = self.lines.setdefault(principal, deque())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn came in the same moment
                self._leave(principal)
            else:
                if turn in line:
                    line.remove(turn)
                self._forget(principal)
            raise

    def _require_room(self, principal: str, own: int) -> None:
        """Refuse one more to wait of a principal of whom some do."""
        if self.queued >= self.waiting:
            raise Refused("busy", f"{self.queued} requests wait for {self.what} already")
        if own >= self.most_waiting:
            refuse_share(f"{own} requests of yours wait for {self.what} already")
        lines = {name: len(line) for name, line in self.lines.items()}
        of_tenant = _of_tenant(principal, lines)
        if of_tenant >= self.most_of_tenant_waiting:
            refuse_share(f"{of_tenant} requests of your tenant wait for {self.what} already")

    def _may_sit(self, principal: str) -> bool:
        own = self.taken.get(principal, 0)
        return self.free > 0 and own < self.most and _of_tenant(principal, self.taken) < self.most_of_tenant

    def _seat(self, principal: str) -> None:
        self.free -= 1
        self.taken[principal] = self.taken.get(principal, 0) + 1

    def _leave(self, principal: str) -> None:
        self.free += 1
        self.taken[principal] -= 1
        if not self.taken[principal]:
            del self.taken[principal]
        self._call()

    def _call(self) -> None:
        """Give free places to those whose turn it is; who was served goes to the end."""
        served = True
        while self.free and served:
            served = any(map(self._call_one, list(self.lines)))

    def _call_one(self, principal: str) -> bool:
        line = self.lines[principal]
        while line and line[0].done():  # cancelled, and not yet gone
            line.popleft()
        can = bool(line) and self._may_sit(principal)
        if can:
            self._seat(principal)
            line.popleft().set_result(None)
            self.lines.move_to_end(principal)
        self._forget(principal)
        return can

    def _forget(self, principal: str) -> None:
        if not self.lines.get(principal):
            self.lines.pop(principal, None)


def _of_tenant(principal: str, counts: Mapping[str, int]) -> int:
    """How many of what is counted the tenant of a principal has."""
    tenant = tenant_of(principal)
    return sum(count for name, count in counts.items() if tenant_of(name) == tenant)


def tenant_of(principal: str) -> str:
    """The part before the name of a token; empty for the tenant that needs no name."""
    return principal.rpartition("/")[0]


def portion(whole: int, share: int) -> int:
    """A percentage of something that is counted; never nothing."""
    return max(1, whole * share // ALL)


def refuse_share(detail: str) -> NoReturn:
    """Refuse who has all that one may have.

    Raises:
      Refused: `share-taken`.
    """
    raise Refused("share-taken", detail, retry_after=RETRY_SECONDS)

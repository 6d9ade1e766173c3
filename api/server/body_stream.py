"""Body stream: one request and its answer, as bytes pass.

Counts and bounds the body while it arrives, adds headers to the answer, reads what a client still sends so
that it sees the answer, and ends streams when the server drains. Nothing here accepts or refuses a request by
its meaning.
Source: docs/service.md; ASGI 3.
"""

import asyncio
from typing import Final

from starlette.types import Message, Receive, Scope, Send

from planner.report.resources import policy

from ..problems import Problem, Refused, as_arguments
from ..settings import Settings

REQUEST_ID: Final = "qplan.request_id"
DRAINED: Final = 1 << 30
DRAIN_SECONDS: Final = 30
_POLICY: Final = b"content-security-policy"
HEADERS: Final = (
    (_POLICY, b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
)
_STREAM: Final = b"text/event-stream"
_PAGE: Final = b"text/html"
# A report styles itself, runs its own scripts, which reach nothing, and saves files; no page of this origin.
PAGE_POLICY: Final = (
    _POLICY,
    f"{policy()}; frame-ancestors 'none'; sandbox allow-scripts allow-downloads".encode(),
)


class BodyStream:
    """One request and its answer; `status` is 0 until it starts."""

    def __init__(
        self, limit: int, settings: Settings, channel: tuple[Scope, Receive, Send], draining: asyncio.Event
    ) -> None:
        self.limit = limit
        self.seconds = settings.body_seconds
        self.rate = settings.body_rate
        self.patient_from = settings.max_body
        self.begun: float | None = None
        self.scope, self._receive, self._send = channel
        self.draining = draining
        self.size = 0
        self.sent = 0
        self.status = 0
        self.streams = False
        self.ended = False
        self.complete = False
        self.waited_for = any(name == b"expect" for name, _ in self.scope["headers"])

    @property
    def started(self) -> bool:
        """Whether an answer is on its way."""
        return self.status > 0

    async def receive(self) -> Message:
        """Take the next part of the body, within its time and size.

        Raises:
          Refused: `slow-body` or `too-large`.
        """
        if self.complete:
            return await (self._until_drained() if self.streams else self._receive())
        try:
            async with asyncio.timeout_at(self._deadline()):
                message = await self._receive()
        except TimeoutError:
            self.waited_for = True
            raise Refused("slow-body", f"the body did not arrive within {self.seconds} s") from None
        self.complete = not message.get("more_body", False)
        self.size += len(message.get("body", b""))
        if self.size > self.limit:
            raise Refused(**as_arguments(too_large(self.limit)))
        return message

    def _deadline(self) -> float:
        """When the next part is due: a JSON body in its seconds, a blob part by part, at its rate."""
        now = asyncio.get_running_loop().time()
        self.begun = now if self.begun is None else self.begun
        latest = self.begun + self.seconds
        if self.limit <= self.patient_from:
            return latest
        return min(now + self.seconds, latest + self.size / self.rate) if self.rate else now + self.seconds

    async def _until_drained(self) -> Message:
        """Wait, for a stream of events, until its client leaves or the server ends."""
        leaving = asyncio.ensure_future(self._receive())
        ending = asyncio.ensure_future(self.draining.wait())
        try:
            await asyncio.wait((leaving, ending), return_when=asyncio.FIRST_COMPLETED)
            return leaving.result() if leaving.done() else {"type": "http.disconnect"}
        finally:
            leaving.cancel()
            ending.cancel()

    async def send(self, message: Message) -> None:
        """Pass a part of the answer on, with the headers every answer has."""
        if message["type"] == "http.response.start":
            message = self._headed(message)
        self.sent += len(message.get("body", b""))
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        self.ended = last
        if not last or self.complete or self.waited_for:
            await self._send(message)
            return
        # A client that is still sending would see a reset connection instead of the answer.
        await self._send({**message, "more_body": True})
        await self._drain()
        await self._send({"type": "http.response.body", "body": b""})

    def forsake(self) -> None:
        """Have the connection close with the answer, whatever of the body is still to come."""
        self.waited_for = True
        self.complete = False

    async def close(self) -> None:
        """End a stream of events whole that ended because the server does."""
        if self.streams and not self.ended and self.draining.is_set():
            await self.send({"type": "http.response.body", "body": b""})

    def _headed(self, message: Message) -> Message:
        self.status = message["status"]
        given = list(message["headers"])
        kind = next((text for name, text in given if name == b"content-type"), b"")
        self.streams = kind.startswith(_STREAM)
        own = any(name == _POLICY for name, _ in given)
        policy = PAGE_POLICY if kind.startswith(_PAGE) else HEADERS[0]
        more = [*(() if own else (policy,)), *HEADERS[1:], (b"x-request-id", self.scope[REQUEST_ID].encode())]
        if (self.waited_for and not self.complete) or self.draining.is_set():
            more.append((b"connection", b"close"))
        return {**message, "headers": [*given, *more]}

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while self.size < DRAINED and not self.complete:
                    message = await self._receive()
                    self.size += len(message.get("body", b""))
                    self.complete = not message.get("more_body", False)
        except TimeoutError:
            return


def too_large(limit: int) -> Problem:
    """Make the problem of a body beyond a limit."""
    return Problem("too-large", f"a body here has at most {limit} bytes", {"limit": limit})

"""Protocol: HTTP/1.1 as uvicorn speaks it with h11, with a time for a head to arrive and bounded connections.

A client that sends its head byte by byte holds a connection, not more, and not for long. Bytes that are no
HTTP are answered as problem+json too. Source: RFC 9112; uvicorn's `H11Protocol`.
"""

import asyncio
import json
import secrets
import sys
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from ..problems import MEDIA_TYPE, Problem, document
from .body_stream import HEADERS, too_large
from .heads import head_too_large

TOO_LARGE: Final = 431


def protocol(head_seconds: float, connections: int, largest: int) -> type[H11Protocol]:
    """Make the protocol of a server.

    Args:
      head_seconds: time for a head, from its first byte or from the connection.
      connections: open connections; more are closed as they come.
      largest: bytes of a chunk that some address takes; one that is announced larger never comes in.
    """

    class Bounded(H11Protocol):
        """One connection."""

        late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > connections:
                transport.abort()
                return
            self._wait_for_head()

        def connection_lost(self, exc: Exception | None) -> None:
            self._head_came()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is not h11.IDLE:
                self._head_came()
            elif self.late is None:
                self._wait_for_head()
            # h11 has no event for the size of a chunk, only for what came of it.
            if getattr(self.conn._reader, "_bytes_in_chunk", 0) > largest:  # noqa: SLF001
                self._refuse(too_large(largest))

        def send_400_response(self, msg: str) -> None:
            # uvicorn calls this while it handles h11's error, and keeps to itself which one it was.
            too_large = getattr(sys.exc_info()[1], "error_status_hint", 400) == TOO_LARGE
            self._refuse(head_too_large() if too_large else Problem("http-invalid", msg))

        def _wait_for_head(self) -> None:
            self.late = self.loop.call_later(head_seconds, self._give_up)

        def _head_came(self) -> None:
            if self.late is not None:
                self.late.cancel()
                self.late = None

        def _give_up(self) -> None:
            if not self.transport.is_closing():
                self._refuse(Problem("slow-head", f"the head did not arrive within {head_seconds} s"))

        def _refuse(self, problem: Problem) -> None:
            if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
                self.transport.close()  # an answer is on its way, and cannot be another one now
                return
            if self.cycle is not None:
                self.cycle.disconnected = True
                self.cycle.message_event.set()
            name = secrets.token_hex(8)
            body = json.dumps(document(problem, name)).encode()
            headers = [
                (b"content-type", MEDIA_TYPE.encode()),
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
                (b"x-request-id", name.encode()),
                *HEADERS,
            ]
            head = h11.Response(status_code=problem.status, headers=headers, reason=_REASONS[problem.status])
            for event in (head, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
            self.transport.close()

    return Bounded


_REASONS: Final = {
    400: b"Bad Request",
    408: b"Request Timeout",
    413: b"Content Too Large",
    TOO_LARGE: b"Request Header Fields Too Large",
}

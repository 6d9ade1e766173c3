"""The edge: what every request meets first, and every answer last.

Request id, host name, tokens, limits on a body while it arrives, headers, and the one form of every failure.
Nothing here knows a route but health, which needs no token. Source: design 06; RFC 9457.
"""

import asyncio
import hashlib
import ipaddress
import json
import logging
import secrets
from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.problems import MEDIA_TYPE, Problem, Refused, document
from api.settings import Settings

REQUEST_ID: Final = "qplan.request_id"
OPEN_PATHS: Final = ("/v1/health/live", "/v1/health/ready")
BLOBS: Final = "/v1/blobs/"
DRAINED: Final = 1 << 30
DRAIN_SECONDS: Final = 30
HEADERS: Final = (
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)

log: Final = logging.getLogger("qplan.api")


def render(problem: Problem, request_id: str) -> Response:
    """Make the answer of a problem."""
    text = json.dumps(document(problem, request_id))
    headers = {"WWW-Authenticate": "Bearer"} if problem.name == "unauthorized" else None
    return Response(text, problem.status, headers, MEDIA_TYPE)


class Edge:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self.app = app
        self.settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        scope[REQUEST_ID] = secrets.token_hex(8)
        exchange = _Exchange(self._limit(scope), self.settings, scope, receive, send)
        problem = self._refusal(scope)
        try:
            if problem is None:
                await self.app(scope, exchange.receive, exchange.send)
                return
        except Refused as error:
            problem = error.problem
        except Exception:
            log.exception("request %s failed", scope[REQUEST_ID])
            problem = Problem("internal", "this is a bug; the log has more under the request id")
        if not exchange.started:
            await render(problem, scope[REQUEST_ID])(scope, exchange.receive, exchange.send)

    def _limit(self, scope: Scope) -> int:
        blob = scope["method"] == "PUT" and scope["path"].startswith(BLOBS)
        return self.settings.max_blob if blob else self.settings.max_body

    def _refusal(self, scope: Scope) -> Problem | None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._limit(scope):
            return _too_large(self._limit(scope))
        if scope["path"] in OPEN_PATHS:
            return None
        if self.settings.tokens:
            return None if self._knows(headers) else Problem("unauthorized", "send Authorization: Bearer ...")
        # Without tokens, a page that points its own name at this address must not be answered.
        host = _host(headers.get(b"host", b"").decode("latin-1"))
        if not (_address(host) or host == "localhost" or host in self.settings.hosts):
            return Problem("wrong-host", f"no server named {host[:100]!r} here; QPLAN_HOSTS lists names")
        server = _address((scope.get("server") or ("127.0.0.1", 0))[0])
        if server is not None and not server.is_loopback:
            return Problem("not-local", "set QPLAN_TOKENS to answer other machines")
        return None

    def _knows(self, headers: Mapping[bytes, bytes]) -> bool:
        scheme, _, token = headers.get(b"authorization", b"").partition(b" ")
        digest = hashlib.sha256(token.strip()).hexdigest()
        found = [secrets.compare_digest(digest, known) for known in self.settings.tokens]
        return scheme.lower() == b"bearer" and any(found)


class _Exchange:
    """One request and its answer: counts the body, adds headers, and empties the body before it ends."""

    def __init__(self, limit: int, settings: Settings, scope: Scope, receive: Receive, send: Send) -> None:
        self.limit = limit
        self.seconds = settings.body_seconds
        self.patient_from = settings.max_body
        self.deadline: float | None = None
        self.scope = scope
        self._receive = receive
        self._send = send
        self.size = 0
        self.complete = False
        self.started = False
        self.waited_for = any(name == b"expect" for name, _ in scope["headers"])

    async def receive(self) -> Message:
        if self.complete:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._deadline()):
                message = await self._receive()
        except TimeoutError:
            self.waited_for = True
            raise Refused("slow-body", f"the body did not arrive within {self.seconds} s") from None
        self.complete = not message.get("more_body", False)
        self.size += len(message.get("body", b""))
        if self.size > self.limit:
            raise Refused(**_as_arguments(_too_large(self.limit)))
        return message

    def _deadline(self) -> float:
        """When the next part is due: a JSON body within its seconds in all, a blob part by part."""
        now = asyncio.get_running_loop().time()
        if self.deadline is None or self.limit > self.patient_from:
            self.deadline = now + self.seconds
        return self.deadline

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            name = self.scope[REQUEST_ID].encode()
            more = [*HEADERS, (b"x-request-id", name)]
            if self.waited_for and not self.complete:
                more.append((b"connection", b"close"))
            message = {**message, "headers": [*message["headers"], *more]}
        last = message["type"] == "http.response.body" and not message.get("more_body", False)
        if not last or self.complete or self.waited_for:
            await self._send(message)
            return
        # A client that is still sending would see a reset connection instead of the answer.
        await self._send({**message, "more_body": True})
        await self._drain()
        await self._send({"type": "http.response.body", "body": b""})

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(DRAIN_SECONDS):
                while self.size < DRAINED and not self.complete:
                    message = await self._receive()
                    self.size += len(message.get("body", b""))
                    self.complete = not message.get("more_body", False)
        except TimeoutError:
            return


def request_id(request: Request) -> str:
    """Id of a request, as it stands in its answer."""
    return str(request.scope[REQUEST_ID])


def _too_large(limit: int) -> Problem:
    return Problem("too-large", f"a body here has at most {limit} bytes", {"limit": limit})


def _as_arguments(problem: Problem) -> dict[str, Any]:
    return {"name": problem.name, "detail": problem.detail, **problem.more}


def _host(text: str) -> str:
    name = text.partition("]")[0].removeprefix("[") if text.startswith("[") else text.partition(":")[0]
    return name.lower().rstrip(".")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None

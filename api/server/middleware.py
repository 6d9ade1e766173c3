"""Middleware: the first code that a request meets, and the last that its answer does.

Request id, host name, tokens and their scopes, rates, the access log and metrics, and the one form of every
failure; bytes are `body_stream`'s. Nothing here knows a route but those that need no token: health, pages and
the document. Source: docs/service.md; RFC 9457; RFC 6750.
"""

import asyncio
import ipaddress
import json
import logging
import secrets
from collections.abc import Mapping
from time import perf_counter
from typing import Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..page.files import is_open
from ..problems import MEDIA_TYPE, Problem, Refused, document
from ..settings import Settings
from ..tracing import Span, current, span
from .body_stream import REQUEST_ID, BodyStream, too_large
from .heads import JSON_MEDIA, media_in, refused_coding, refused_head
from .limits import RateLimiter, retry_after
from .logs import log_request
from .metrics import Metrics
from .responses import drop_range
from .tokens import METRICS, PRINCIPAL, TENANT, KnownTokens, find_token, needed

PROBLEM: Final = "qplan.problem"
TOKEN: Final = "qplan.token"  # noqa: S105 - a key of the scope
SCOPES: Final = "qplan.scopes"
READY: Final = "/v1/health/ready"
OPEN_PATHS: Final = ("/v1/health/live", READY)
DOCUMENT: Final = "/openapi.json"
"""It says nothing of what is kept, and generators of clients bear no token."""
BLOBS: Final = "/v1/blobs/"
UPLOADS: Final = "/v1/uploads/"
FILES: Final = ("/v1/blobs", "/v1/models", "/v1/quantizations")
"""Paths to which files are posted, alone or in a form."""
EVENTS: Final = "/events"
PREFIX: Final = "/v1"
LONGEST_PATH: Final = 200
UNKNOWN_RATE: Final = 5
"""Requests a second of one address that bear no token we know, and three times that at once."""

log: Final = logging.getLogger("qplan.api")


def render(problem: Problem, request_id: str) -> Response:
    """Make the answer of a problem."""
    text = json.dumps(document(problem, request_id))
    headers = {"WWW-Authenticate": "Bearer"} if problem.name == "unauthorized" else {}
    if problem.name == "unsupported-coding":
        headers["Accept-Encoding"] = "identity"
    if problem.name == "range-invalid":
        headers["Content-Range"] = f"bytes */{problem.more['bytes']}"
    if problem.retry_after is not None:
        headers["Retry-After"] = str(problem.retry_after)
    return Response(text, problem.status, headers, MEDIA_TYPE)


class ServiceMiddleware:
    """ASGI middleware around the whole application."""

    def __init__(self, app: ASGIApp, settings: Settings, metrics: Metrics, draining: asyncio.Event) -> None:
        self.app = app
        self.settings = settings
        self.metrics = metrics
        self.draining = draining
        self.guarded = bool(settings.tokens or settings.tokens_file)
        self.known = KnownTokens(settings.tokens, settings.tokens_file)
        self.tokens = RateLimiter("tokens", settings.rate, settings.burst)
        self.unknown = RateLimiter("unknown", UNKNOWN_RATE, 3 * UNKNOWN_RATE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start = perf_counter()
        scope[REQUEST_ID] = secrets.token_hex(8)
        head = refused_head(scope)  # which brings its address to one form
        stream = BodyStream(self._limit(scope), self.settings, (scope, receive, send), self.draining)
        self.metrics.under_way.inc()
        problem: Problem | None = None
        with span(scope["method"][:20], _asked(scope), server=True) as part:
            current.set(part.asked)
            try:
                problem = await self._serve(scope, stream, head)
            finally:
                self.metrics.under_way.dec()
                self._log(scope, stream, problem, perf_counter() - start, part)

    async def _serve(self, scope: Scope, stream: BodyStream, problem: Problem | None) -> Problem | None:
        if problem is not None:
            stream.forsake()
        else:
            problem = self._refusal(scope)
        try:
            if problem is None:
                await self._answer(scope, stream)
                await stream.close()
                return None
        except Refused as error:
            problem = error.problem
        except ClientDisconnect:
            return None  # in the middle of its body: nobody is there to be answered
        except Exception:
            log.exception("request %s failed", scope[REQUEST_ID])
            problem = Problem("internal", "this is a bug; the log has more under the request id")
        if not stream.started:
            await render(problem, scope[REQUEST_ID])(scope, stream.receive, stream.send)
        return problem

    async def _answer(self, scope: Scope, stream: BodyStream) -> None:
        if not is_answered_as_get(scope):
            await self.app(scope, stream.receive, stream.send)
            return
        asked = {**scope, "method": "GET"}
        drop_range(asked)  # only GET itself has parts
        try:
            await self.app(asked, stream.receive, stream.send)
        finally:
            scope.update({name: asked[name] for name in ("route", PROBLEM) if name in asked})

    def _log(
        self, scope: Scope, stream: BodyStream, problem: Problem | None, seconds: float, part: Span
    ) -> None:
        route = _template(scope)
        method, status = scope["method"], stream.status
        part.rename(f"{method[:20]} {route}")
        part.set(request=scope[REQUEST_ID], route=route, status=status)
        self.metrics.count((method, route, status), seconds, received=stream.size, sent=stream.sent)
        if not self.settings.access_log:
            return
        client = scope.get("client")
        log_request(
            {
                "request_id": scope[REQUEST_ID],
                "method": method[:20],
                "route": route,
                "path": scope["path"][:LONGEST_PATH] if route != "none" else None,
                "status": status,
                "problem": problem.name if problem else scope.get(PROBLEM),
                "ms": round(seconds * 1000, 2),
                "received": stream.size,
                "sent": stream.sent,
                "client": client[0] if client else None,
                "token": scope.get(PRINCIPAL),
            }
        )

    def _limit(self, scope: Scope) -> int:
        blob = scope["method"] == "PUT" and scope["path"].startswith(BLOBS)
        part = scope["method"] == "PATCH" and scope["path"].startswith(UPLOADS)
        return self.settings.max_blob if blob or part or _posts_files(scope) else self.settings.max_body

    def _refusal(self, scope: Scope) -> Problem | None:
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._limit(scope):
            return too_large(self._limit(scope))
        coding = refused_coding(scope)
        if coding is not None:
            return coding
        if scope["path"] in OPEN_PATHS:
            ending = self.draining.is_set() and scope["path"] == READY
            return Problem("not-ready", "the server is ending") if ending else None
        if self.guarded and (is_open(scope["method"], scope["path"]) or scope["path"] == DOCUMENT):
            return None
        if self.guarded:
            return self._unauthorized(scope, headers)
        # Without tokens, a page that points its own name at this address must not be answered.
        host = _host(headers.get(b"host", b"").decode("latin-1"))
        if not (_address(host) or host == "localhost" or host in self.settings.hosts):
            return Problem("wrong-host", f"no server named {host[:100]!r} here; QPLAN_HOSTS lists names")
        server = _address((scope.get("server") or ("127.0.0.1", 0))[0])
        if server is not None and not server.is_loopback:
            return Problem("not-local", "set QPLAN_TOKENS to answer other machines")
        return None

    def _unauthorized(self, scope: Scope, headers: Mapping[bytes, bytes]) -> Problem | None:
        """Refuse who bears no token, one without the scope, or one that asks too often."""
        now = asyncio.get_running_loop().time()
        token = find_token(self.known.now(), headers.get(b"authorization", b""))
        if token is None:
            wait = self.unknown.take((scope.get("client") or ("",))[0], now)
            return _rate_limited(wait) if wait else Problem("unauthorized", "send Authorization: Bearer ...")
        scope[TOKEN] = token.name
        scope[TENANT] = token.tenant
        scope[PRINCIPAL] = token.principal
        scope[SCOPES] = token.scopes
        wait = self.tokens.take(token.digest, now)
        if wait:
            return _rate_limited(wait)
        scope_needed = needed(scope["method"], scope["path"])
        if scope_needed not in token.scopes:
            more = {"scope": scope_needed}
            return Problem("forbidden", f"this needs a token with the scope {scope_needed}", more)
        return None


def _asked(scope: Scope) -> dict[str, str]:
    """The client's request, for the work that follows: its id, and the span that it is a part of."""
    asked = {"request_id": scope[REQUEST_ID]}
    parent = next((text for name, text in scope["headers"] if name == b"traceparent"), b"")
    return asked | ({"traceparent": parent.decode("latin-1")} if parent else {})


def _posts_files(scope: Scope) -> bool:
    """Whether a body may be a file or a form with files: what is JSON never is."""
    if scope["method"] != "POST" or scope["path"] not in FILES:
        return False
    return media_in(scope) != JSON_MEDIA


def is_answered_as_get(scope: Scope) -> bool:
    """Whether HEAD is answered by the route of GET: not where a route of its own is, and not for streams.

    The server leaves the body out by the method that it has seen itself. Source: RFC 9110, section 9.3.2.
    """
    path = scope["path"]
    return scope["method"] == "HEAD" and not path.startswith((BLOBS, UPLOADS)) and not path.endswith(EVENTS)


def request_id(request: Request) -> str:
    """Id of a request, as it stands in its answer."""
    return str(request.scope[REQUEST_ID])


def _template(scope: Scope) -> str:
    """The route as `/v1/plans/{key}`; FastAPI notes it without the prefix its router has."""
    path = getattr(scope.get("route"), "path", "none")
    own = path in ("none", METRICS) or path.startswith(PREFIX) or is_open("GET", scope["path"])
    return path if own else f"{PREFIX}{path}"


def _rate_limited(wait: float) -> Problem:
    seconds = retry_after(wait)
    return Problem(
        "rate-limited", f"too many requests; the next in {seconds} s", {"retry_after": int(seconds)}
    )


def _host(text: str) -> str:
    name = text.partition("]")[0].removeprefix("[") if text.startswith("[") else text.partition(":")[0]
    return name.lower().rstrip(".")


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None

"""The application: settings in, an ASGI application out. `uvicorn api.app:app` in a checkout.

Every failure leaves through `handle`, as problem+json. Source: docs/service.md.
"""

import asyncio
import gc
import logging
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import DatabaseError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match

from planner.errors import PlannerError
from planner.version import VERSION

from .intake.arrivals import Arrivals
from .intake.request_bodies import BodyLimits
from .intake.sandbox import Sandbox
from .intake.turns import Turns
from .jobs.dispatcher import Dispatcher
from .jobs.executors import open_executor
from .jobs.residents import Residents
from .jobs.watch import Watch
from .planning.known_targets import KnownTargets, shipped_targets
from .planning.plugins import load_functions
from .planning.service import Service, Tenants
from .problems import Problem, Refused, http_problem, problem_of
from .routes import ROUTERS, metrics, pages
from .schemas.openapi import ABOUT, openapi_of
from .schemas.responses import ProblemDocument
from .server.compression import Compression
from .server.limits import Quotas
from .server.metrics import Metrics
from .server.middleware import PROBLEM, ServiceMiddleware, is_answered_as_get, render, request_id
from .server.readiness import Readiness
from .server.tokens import DEFAULT
from .settings import Settings, settings_from, share_of, tenant_share_of
from .storage.database import await_database, default_url, failure_of
from .storage.deleted import gone
from .storage.kept_bytes import kept_bytes
from .storage.objects import open_objects
from .storage.retention import Clock, keep_sweeping
from .storage.store import Store
from .storage.uploads import Uploads
from .tracing import SPANS, start

THREADS: Final = 1
"""That plan in this process: two would take turns, and each take twice as long."""
MOST_PLANNING: Final = 256
"""Requests that may wait to be planned there; places for bodies bound them before."""
MOST_ERRORS: Final = 20
METHODS: Final = ("DELETE", "GET", "HEAD", "PATCH", "POST", "PUT")

_NO_TELEMETRY: Final[Any] = {"tracing": False, "metrics": False, "logs": False, "auto_configure": False}
"""FastAPI's own says query strings, which hold names in models; `tracing` is ours."""

log: Final = logging.getLogger("qplan.api")


def create_app(settings: Settings) -> FastAPI:
    """Make the application; its folders and first child come when it starts."""
    app = FastAPI(
        title="quant-planner",
        version=VERSION,
        description=ABOUT,
        docs_url=None,
        redoc_url=None,
        lifespan=_lifespan(settings),
        telemetry=_NO_TELEMETRY,
        responses={"default": {"model": ProblemDocument, "description": "a problem, see docs/problems.md"}},
    )
    for router in ROUTERS:
        app.include_router(router, prefix="/v1")
    app.include_router(metrics.router)
    app.include_router(pages.router)
    app.state.metrics = Metrics()
    app.state.draining = asyncio.Event()
    for kind in (Refused, PlannerError, RequestValidationError, HTTPException, DatabaseError, OSError):
        app.add_exception_handler(kind, handle)
    app.add_middleware(Compression)
    app.add_middleware(
        ServiceMiddleware, settings=settings, metrics=app.state.metrics, draining=app.state.draining
    )
    # FastAPI's own way to extend the document.
    app.openapi = partial(openapi_of, app)  # type: ignore[method-assign]
    return app


def _lifespan(settings: Settings):  # type: ignore[no-untyped-def]  # noqa: ANN202 - contextlib's own type
    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        bare = Store(settings.data, open_objects(settings.blobs))
        quotas = app.state.quotas = Quotas(
            settings.quota,
            settings.tenant_quota,
            lambda tenant: kept_bytes(bare.of(tenant)),
            bare.tenants,
        )
        bare.open()
        store = replace(bare, quota=await run_sync(quotas.of, DEFAULT), quotas=quotas)
        sandbox = Sandbox(settings, store, app.state.metrics)
        sandbox.start()
        start(settings.traces)
        load_functions(settings.functions)  # one that is missing ends the server now, not a child later
        targets = KnownTargets(store, await run_sync(shipped_targets))
        share = share_of(settings)
        tenant_share = tenant_share_of(settings)
        arrivals = Arrivals(store.drafts, settings.bodies, share)
        body_limits = BodyLimits(settings.waiting, arrivals, share, tenant_share)
        await run_sync(quotas.count)
        uploads = Uploads(settings, store)
        url = settings.database_url or default_url(settings.data)
        engine = await run_sync(await_database, url, settings.start_seconds)
        dispatcher = Dispatcher(
            engine,
            open_executor(settings, store),
            seconds=settings.lease_seconds,
            share=share,
            tenant_share=tenant_share,
            asking=sandbox.turns.principals,
            log_ends=settings.access_log,
        )
        watch = Watch(engine)
        residents = Residents(sandbox)
        app.state.service = Service(
            settings,
            store,
            sandbox,
            Turns("planning here", THREADS, MOST_PLANNING, share, tenant_share),
            targets,
            body_limits,
            uploads,
            engine,
            dispatcher,
            watch,
            residents,
            CapacityLimiter(THREADS),
        )
        app.state.tenants = Tenants(app.state.service)
        app.state.readiness = Readiness(store, engine, sandbox)
        await dispatcher.start()
        sweeping = asyncio.create_task(keep_sweeping(store, engine, settings, quotas, Clock()))
        gc.freeze()
        try:
            yield
        finally:
            app.state.draining.set()
            sweeping.cancel()
            await dispatcher.stop()
            await residents.stop()
            sandbox.stop()
            engine.dispose()
            await run_sync(SPANS.stop)

    return lifespan


async def handle(request: Request, error: Exception) -> Response:
    """Answer any failure of a route."""
    if isinstance(error, OSError):
        problem = await run_sync(_file_problem, error, request.app.state.readiness)
    else:
        problem = _problem(error)
    request.scope[PROBLEM] = problem.name
    answer = render(problem, request_id(request))
    answer.headers.update(getattr(error, "headers", None) or {})
    if problem.name == "method-not-allowed":
        answer.headers["Allow"] = _allowed(request)
    return answer


def _problem(error: Exception) -> Problem:
    if isinstance(error, Refused):
        return error.problem
    if isinstance(error, PlannerError):
        return problem_of(error)
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        return http_problem(error.status_code, str(error.detail))
    found = failure_of(error)
    if found is None:
        raise error
    log.error("%s: %s", found.name, str(error).splitlines()[0][:300])
    return found


def _file_problem(error: OSError, readiness: Readiness) -> Problem:
    """Word a failure of the file system: a full disk, a data folder that is away, a file that just went."""
    found = failure_of(error) or readiness.disk_problem()
    if found is not None:
        log.error("%s: %s", found.name, str(error)[:300])
        return found
    refused = gone(error)
    if refused is None:
        raise error
    return refused.problem


def _invalid(error: RequestValidationError) -> Problem:
    told: dict[str, list[str]] = {}
    for entry in error.errors()[:MOST_ERRORS]:
        place = entry["loc"][1:]
        if entry["loc"][0] == "body":
            place = [*_in_body(place, error.body), *(place[-1:] if entry["type"] == "missing" else ())]
        messages = told.setdefault(_pointer(place), [])
        if entry["msg"] not in messages:
            messages.append(entry["msg"])
    # What may be one of several things is wrong as each of them.
    found = [{"pointer": place, "message": "; or: ".join(messages)} for place, messages in told.items()]
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return Problem("json-invalid", f"not JSON: {first.get('ctx', {}).get('error', '')}")
    where = found[0]["pointer"] or "the body"
    return Problem("request-invalid", f"{where}: {found[0]['message']}", {"errors": found})


def _allowed(request: Request) -> str:
    """The methods that an address takes: the router names those of the first of its routes alone."""
    return ", ".join(method for method in METHODS if _takes(request, method))


def _takes(request: Request, method: str) -> bool:
    asked = {**request.scope, "method": method}
    if is_answered_as_get(asked):
        asked["method"] = "GET"
    return any(route.matches(asked)[0] is Match.FULL for route in request.app.router.routes)


def _pointer(place: Sequence[str | int]) -> str:
    """A place as RFC 6901 writes it."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in place)


def _in_body(place: Sequence[str | int], body: Any) -> Iterator[str | int]:
    """The parts of a place that lie in the body; among them stand names of types that it might have had."""
    for part in place:
        try:
            body = body[part]
        except (KeyError, IndexError, TypeError):
            continue
        yield part


def __getattr__(name: str) -> FastAPI:
    """Make `app` for uvicorn on first access: a wrong setting is no failed import (PEP 562)."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return create_app(settings_from(os.environ))

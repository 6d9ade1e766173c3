"""The clients: the calls of `calls` as methods, one after another or beside others (`asyncio`).

Failures come as the planner's own errors where there is one. Source: docs/service.md; docs/problems.md.
"""

import asyncio
import functools
import inspect
import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar

import httpx

from planner.client import calls
from planner.client.failures import ServiceError, failure
from planner.client.steps import Ask, Do, Pause, Step, Steps
from planner.errors import InputError, PlannerError

URL: Final = "http://127.0.0.1:8000"
QUIET: Final = 60.0
"""Seconds without a word, not even a sign of life, after which a stream of events is opened again."""
TRIES: Final = 5

P = ParamSpec("P")
T = TypeVar("T")


def _settings(url: str, token: str | None, timeout: float) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    # A broken SSL_CERT_FILE is none of a server's without TLS.
    trusted = _trusted() if url.lower().startswith("https:") else True
    # An environment's proxy must not see models.
    return {"base_url": url, "headers": headers, "timeout": timeout, "trust_env": False, "verify": trusted}


def _trusted() -> ssl.SSLContext:
    """Trust the certificate authorities of `SSL_CERT_FILE` or `SSL_CERT_DIR`, else those of `certifi`.

    Raises:
      InputError: the file cannot be read.
    """
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise InputError(
            f"SSL_CERT_FILE={os.environ.get('SSL_CERT_FILE', '')}: {error}",
            hint="name a file of PEM certificates, or unset the variable",
        ) from error


def _request(ask: Ask) -> dict[str, Any]:
    given = {"json": ask.json, "content": ask.content, "params": dict(ask.params) or None}
    return {name: item for name, item in given.items() if item is not None} | {"headers": dict(ask.headers)}


def _checked(ask: Ask, answer: httpx.Response) -> httpx.Response:
    if answer.is_success or answer.status_code in ask.also:
        return answer
    raise failure(answer)


def _no_answer(url: object, error: Exception) -> ServiceError:
    return ServiceError(f"no answer from {url}: {error}")


def _described(method: Callable[..., Any], make: Callable[..., Any]) -> None:
    """Let a method show the name, documentation and parameters of its call."""
    functools.update_wrapper(method, make)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    signature = inspect.signature(make)
    found = signature.replace(parameters=[own, *signature.parameters.values()])
    method.__signature__ = found  # type: ignore[attr-defined]


def _called(make: Callable[P, Steps[T]]) -> Callable[Concatenate["Client", P], T]:
    def method(self: "Client", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.take(make(*args, **kwargs))

    _described(method, make)
    return method


def _awaited(make: Callable[P, Steps[T]]) -> Callable[Concatenate["AsyncClient", P], Coroutine[Any, Any, T]]:
    async def method(self: "AsyncClient", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.take(make(*args, **kwargs))

    _described(method, make)
    return method


class Client:
    """A connection to a server; close it, or use it in a `with` block.

    Args:
      url: of the server.
      token: bearer token, where the server wants one.
      timeout: seconds to wait for one answer.
    """

    def __init__(self, url: str = URL, *, token: str | None = None, timeout: float = 120.0) -> None:
        self._http = httpx.Client(**_settings(url, token, timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def take(self, steps: Steps[T]) -> T:
        """Take the steps of a call to its end."""
        try:
            step = next(steps)
            while True:
                try:
                    result = self._take(step)
                except PlannerError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as ended:
            found: T = ended.value
            return found

    def _take(self, step: Step) -> Any:
        if isinstance(step, Pause):
            return time.sleep(step.seconds)
        if isinstance(step, Do):
            return step.work()
        try:
            answer = self._http.request(step.method, step.path, **_request(step))
        except httpx.HTTPError as error:
            raise _no_answer(self._http.base_url, error) from error
        return _checked(step, answer)

    def events(self, id: str, after: int = 0) -> Iterator[dict[str, Any]]:  # noqa: A002
        """Events of a job as they happen, to its end: `id`, `event`, and its data.

        Args:
          after: number of the last event that was seen.
        """
        reading = _Events(after)
        while True:
            try:
                with self._http.stream("GET", **reading.request(id)) as answer:
                    if answer.is_error:
                        answer.read()
                        raise failure(answer)
                    for line in answer.iter_lines():
                        yield from reading.take(line)
            except httpx.TransportError as error:
                time.sleep(reading.failed(self._http.base_url, error))
            else:
                if reading.has_ended:
                    return
                time.sleep(reading.failed(self._http.base_url, EOFError("the stream broke off")))

    blobs = _called(calls.blobs)
    calibrate = _called(calls.calibrate)
    cancel = _called(calls.cancel)
    compare = _called(calls.compare)
    measure = _called(calls.measure)
    delete_blob = _called(calls.delete_blob)
    delete_job = _called(calls.delete_job)
    delete_model = _called(calls.delete_model)
    delete_plan = _called(calls.delete_plan)
    delete_stats = _called(calls.delete_stats)
    delete_upload = _called(calls.delete_upload)
    diff = _called(calls.diff)
    download = _called(calls.download)
    explain = _called(calls.explain)
    plan_part = _called(calls.plan_part)
    export = _called(calls.export)
    export_to = _called(calls.export_to)
    get_model = _called(calls.get_model)
    get_plan = _called(calls.get_plan)
    get_stats = _called(calls.get_stats)
    job = _called(calls.job)
    jobs = _called(calls.jobs)
    lint = _called(calls.lint)
    list_stats = _called(calls.list_stats)
    losses = _called(calls.losses)
    model = _called(calls.model)
    models = _called(calls.models)
    pareto = _called(calls.pareto)
    plan = _called(calls.plan)
    plans = _called(calls.plans)
    ports = _called(calls.ports)
    put_target = _called(calls.put_target)
    delete_target = _called(calls.delete_target)
    preview = _called(calls.preview)
    quantize = _called(calls.quantize)
    replan = _called(calls.replan)
    report = _called(calls.report)
    schema = _called(calls.schema)
    search = _called(calls.search)
    server = _called(calls.server)
    stats = _called(calls.stats)
    suggest = _called(calls.suggest)
    summary = _called(calls.summary)
    target = _called(calls.target)
    target_source = _called(calls.target_source)
    targets = _called(calls.targets)
    test_target = _called(calls.test_target)
    upload = _called(calls.upload)
    uploads = _called(calls.uploads)
    view = _called(calls.view)
    wait = _called(calls.wait)


class AsyncClient:
    """The same for `asyncio`: every method is awaited; use it in an `async with` block."""

    def __init__(self, url: str = URL, *, token: str | None = None, timeout: float = 120.0) -> None:
        self._http = httpx.AsyncClient(**_settings(url, token, timeout))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def take(self, steps: Steps[T]) -> T:
        """Take the steps of a call to its end."""
        try:
            step = next(steps)
            while True:
                try:
                    result = await self._take(step)
                except PlannerError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as ended:
            found: T = ended.value
            return found

    async def _take(self, step: Step) -> Any:
        if isinstance(step, Pause):
            return await asyncio.sleep(step.seconds)
        if isinstance(step, Do):
            return await asyncio.to_thread(step.work)
        try:
            answer = await self._http.request(step.method, step.path, **_request(step))
        except httpx.HTTPError as error:
            raise _no_answer(self._http.base_url, error) from error
        return _checked(step, answer)

    async def events(self, id: str, after: int = 0) -> AsyncIterator[dict[str, Any]]:  # noqa: A002
        """Events of a job as they happen, to its end; see `Client.events`."""
        reading = _Events(after)
        while True:
            try:
                async with self._http.stream("GET", **reading.request(id)) as answer:
                    if answer.is_error:
                        await answer.aread()
                        raise failure(answer)
                    async for line in answer.aiter_lines():
                        for event in reading.take(line):
                            yield event
            except httpx.TransportError as error:
                await asyncio.sleep(reading.failed(self._http.base_url, error))
            else:
                if reading.has_ended:
                    return
                await asyncio.sleep(reading.failed(self._http.base_url, EOFError("the stream broke off")))

    blobs = _awaited(calls.blobs)
    calibrate = _awaited(calls.calibrate)
    cancel = _awaited(calls.cancel)
    compare = _awaited(calls.compare)
    measure = _awaited(calls.measure)
    delete_blob = _awaited(calls.delete_blob)
    delete_job = _awaited(calls.delete_job)
    delete_model = _awaited(calls.delete_model)
    delete_plan = _awaited(calls.delete_plan)
    delete_stats = _awaited(calls.delete_stats)
    delete_upload = _awaited(calls.delete_upload)
    diff = _awaited(calls.diff)
    download = _awaited(calls.download)
    explain = _awaited(calls.explain)
    plan_part = _awaited(calls.plan_part)
    export = _awaited(calls.export)
    export_to = _awaited(calls.export_to)
    get_model = _awaited(calls.get_model)
    get_plan = _awaited(calls.get_plan)
    get_stats = _awaited(calls.get_stats)
    job = _awaited(calls.job)
    jobs = _awaited(calls.jobs)
    lint = _awaited(calls.lint)
    list_stats = _awaited(calls.list_stats)
    losses = _awaited(calls.losses)
    model = _awaited(calls.model)
    models = _awaited(calls.models)
    pareto = _awaited(calls.pareto)
    plan = _awaited(calls.plan)
    plans = _awaited(calls.plans)
    ports = _awaited(calls.ports)
    put_target = _awaited(calls.put_target)
    delete_target = _awaited(calls.delete_target)
    preview = _awaited(calls.preview)
    quantize = _awaited(calls.quantize)
    replan = _awaited(calls.replan)
    report = _awaited(calls.report)
    schema = _awaited(calls.schema)
    search = _awaited(calls.search)
    server = _awaited(calls.server)
    stats = _awaited(calls.stats)
    suggest = _awaited(calls.suggest)
    summary = _awaited(calls.summary)
    target = _awaited(calls.target)
    target_source = _awaited(calls.target_source)
    targets = _awaited(calls.targets)
    test_target = _awaited(calls.test_target)
    upload = _awaited(calls.upload)
    uploads = _awaited(calls.uploads)
    view = _awaited(calls.view)
    wait = _awaited(calls.wait)


class _Events:
    """A stream of server-sent events, read line by line; goes on after a break. Source: HTML, section 9.2."""

    def __init__(self, after: int) -> None:
        self.last = after
        self.fields: dict[str, str] = {}
        self.has_ended = False
        self.breaks = 0

    def request(self, job: str) -> dict[str, Any]:
        """The request that opens the stream, or opens it again."""
        headers = {"Last-Event-ID": str(self.last), "Accept": "text/event-stream"}
        timeout = httpx.Timeout(QUIET)
        return {"url": f"/v1/jobs/{job}/events", "headers": headers, "timeout": timeout}

    def take(self, line: str) -> Iterable[dict[str, Any]]:
        """Take a line; the event it completes."""
        name, _, text = line.partition(":")
        if line:
            self.fields[name] = text.removeprefix(" ")
            return ()
        fields, self.fields = self.fields, {}
        if "id" not in fields:
            return ()
        self.last, self.breaks = int(fields["id"]), 0
        self.has_ended = fields["event"] in ("done", "failed", "cancelled")
        return ({"id": self.last, "event": fields["event"], **json.loads(fields["data"])},)

    def failed(self, url: object, error: Exception) -> float:
        """Count a break; how long to wait before the stream is opened again.

        Raises:
          ServiceError: one too many.
        """
        self.breaks += 1
        if self.breaks == TRIES:
            raise _no_answer(url, error) from error
        return float(2 ** (self.breaks - 2))

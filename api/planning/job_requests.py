"""Job requests: what a request becomes as the work of a job, waiting for it, and what it came to.

`WORKS` has one entry a kind of job. The work itself is `jobs`' and a child's. Source: design 06, "Jobs".
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Final

from anyio.to_thread import run_sync
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from api.jobs import queue
from api.jobs.records import File, Job, State, made, stored, work
from api.planning.planning import plan_arguments, plan_at_once, plan_in_child
from api.planning.service import Service, model_arguments
from api.problems import PREFIX, TYPES, Refused
from api.schemas.requests import CalibrationRequest, ComparisonRequest, ExportRequest, PlanRequest
from api.server.responses import JSON, make_cursor, no_cursor, read_cursor

LONGEST_WAIT: Final = 60
FIRST_LOOK: Final = 0.02
LAST_LOOK: Final = 0.5
_ID: Final = re.compile("[0-9a-f]{32}")
_WAIT: Final = re.compile(r"(?:^|[,;\s])wait\s*=\s*(\d{1,6})(?:$|[,;\s])")
_ASYNC: Final = re.compile(r"(?:^|[,;\s])respond-async(?:$|[,;\s])")


def wait_of(request: Request) -> float | None:
    """Seconds that `Prefer` (RFC 7240) gives us before a job is the answer; None where it says nothing."""
    text = ",".join(request.headers.getlist("prefer"))
    found = _WAIT.search(text)
    if found:
        return float(min(int(found[1]), LONGEST_WAIT))
    return 0.0 if _ASYNC.search(text) else None


async def plan_answer(
    service: Service, request: Request, asked: PlanRequest, key: str | None, body: str | None = None
) -> Response:
    """Answer a plan request: with the plan, or where `Prefer` lets us and it takes long, with a job.

    Args:
      key: of a request that may come twice.
      body: digest of the request as it came, to know it again.

    Raises:
      Refused, PlannerError: what is wrong with the request.
    """
    found = await plan_at_once(service, asked, body)
    wait = wait_of(request)
    if isinstance(found, tuple) and wait is None:
        found = await plan_in_child(service, *found)
    if isinstance(found, bytes):
        return Response(found, media_type=JSON)
    origin, link = found
    await service.shelf.find(origin.target)
    arguments = await run_sync(plan_arguments, service, origin)
    job = work("plan", arguments, link=link, origin=origin.to_json().decode())
    return await answer_of(service, request, "plan", job, key)


async def export_work(service: Service, request: ExportRequest) -> dict[str, Any]:
    """The work of writing a plan in a format.

    Raises:
      Refused: a model or plan that is not there.
    """
    await run_sync(service.store.find, "plans", request.plan)
    model, plan = await run_sync(_model, service, request.model), stored("plans", request.plan)
    return work("export", {**model, "plan": plan, "format": request.format, "out": made("blobs")})


async def calibration_work(service: Service, request: CalibrationRequest) -> dict[str, Any]:
    """The work of running samples through a model.

    Raises:
      Refused: a model or blob that is not there.
    """
    model = await run_sync(_model, service, request.model)
    samples = await run_sync(_blob, service, request.samples)
    arguments = {"method": request.method, "shard": None, "out": made("stats")}
    return work("calibrate", {**model, **arguments, "samples": samples})


async def comparison_work(service: Service, request: ComparisonRequest) -> dict[str, Any]:
    """The work of running a model and a quantized file of it side by side.

    Raises:
      Refused: a model or blob that is not there.
    """
    model = await run_sync(_model, service, request.model)
    given = {name: await run_sync(_blob, service, getattr(request, name)) for name in ("file", "samples")}
    return work("compare", {**model, **given, "values": request.values, "out": made("blobs")})


def _model(service: Service, digest: str) -> dict[str, Any]:
    return model_arguments(service.store, service.store.read_json("models", digest))


def _blob(service: Service, digest: str) -> File:
    service.store.find("blobs", digest)
    return stored("blobs", digest)


async def answer_of(
    service: Service, request: Request, kind: str, asked: Mapping[str, Any], key: str | None
) -> Response:
    """Answer with what a job made, if it is there within the time that `Prefer` gives us, else with the job.

    Raises:
      Refused: what the job failed with within that time; `queue-full`.
    """
    wait = wait_of(request)
    job = await ended(service, await submit(service, request, kind, asked, key), wait or 0.0)
    headers = {} if wait is None else {"Preference-Applied": f"wait={wait:g}" if wait else "respond-async"}
    if job.state == "failed" and job.problem is not None:
        raise Refused(**job.problem)
    if job.state != "done":
        headers |= {"Location": f"/v1/jobs/{job.id}", "Retry-After": "1"}
        return Response(json.dumps(record_of(job)), 202, headers, JSON)
    result = RESULTS[kind](job)
    if kind == "plan":
        return FileResponse(await run_sync(service.store.find, "plans", result["plan"]), 200, headers, JSON)
    return Response(json.dumps(result), 201, headers, JSON)


async def submit(
    service: Service, request: Request, kind: str, asked: Mapping[str, Any], key: str | None
) -> Job:
    """Put a job into the queue, or find the one that was put there under the key.

    Raises:
      Refused: `queue-full`.
    """
    who = request.scope.get("qplan.token") or ""
    most = service.settings.max_jobs
    job = await run_sync(lambda: queue.submit(service.engine, kind, asked, key=key, principal=who, most=most))
    service.dispatcher.nudge()
    return job


async def ended(service: Service, job: Job, seconds: float) -> Job:
    """Wait for a job to end, but not longer than some seconds; the job as it stands then."""
    until, pause = time.monotonic() + seconds, FIRST_LOOK
    while not job.has_ended and time.monotonic() < until:
        await asyncio.sleep(min(pause, max(until - time.monotonic(), 0)))
        pause = min(pause * 2, LAST_LOOK)
        job = await run_sync(queue.get, service.engine, job.id)
    return job


def record_of(job: Job) -> dict[str, Any]:
    """A job as it is answered; times are seconds since 1970."""
    fields = ("id", "kind", "state", "progress", "attempt", "created", "started", "finished")
    return {
        **{name: getattr(job, name) for name in fields},
        "link": f"/v1/jobs/{job.id}",
        "result": None if job.result is None else RESULTS[job.kind](job),
        "problem": None if job.problem is None else _document(job.problem),
    }


def _document(problem: Mapping[str, Any]) -> dict[str, Any]:
    more = {name: item for name, item in problem.items() if name != "name"}
    status, title = TYPES[problem["name"]]
    return {"type": f"{PREFIX}{problem['name']}", "title": title, "status": status, **more}


def _plan(job: Job) -> dict[str, Any]:
    key = _result(job)["key"]
    return {"plan": key, "link": f"/v1/plans/{key}"}


def _export(job: Job) -> dict[str, Any]:
    result = _result(job)
    blob, format_ = result["kept"]["out"], job.request["arguments"]["format"]
    return {"blob": blob, "format": format_, "link": f"/v1/blobs/{blob}", "bytes": result["bytes"]}


def _calibration(job: Job) -> dict[str, Any]:
    result = dict(_result(job))
    return {"digest": result.pop("kept")["out"], **result}


def _comparison(job: Job) -> dict[str, Any]:
    result = dict(_result(job))
    blob = result.pop("kept")["out"]
    return {**result, "blob": blob, "link": f"/v1/blobs/{blob}"}


def _result(job: Job) -> Mapping[str, Any]:
    return job.result or {}


RESULTS: Final[Mapping[str, Callable[[Job], dict[str, Any]]]] = {
    "calibration": _calibration,
    "comparison": _comparison,
    "export": _export,
    "plan": _plan,
}


def list_jobs(
    service: Service, limit: int, cursor: str | None, state: State | None, kind: str | None
) -> dict[str, Any]:
    """Say how jobs stand, a page of them, the latest first.

    Raises:
      Refused: a cursor that no page gave.
    """
    last = read_cursor(cursor)
    try:
        before = queue.get(service.engine, last if _ID.fullmatch(last) else "none") if last else None
    except Refused:
        raise no_cursor() from None
    found = queue.list_page(service.engine, limit=limit + 1, before=before, state=state, kind=kind)
    after = make_cursor(found[limit - 1].id) if len(found) > limit else None
    return {"items": [record_of(job) for job in found[:limit]], "next": after}


async def told(
    service: Service, job: str, after: int, draining: asyncio.Event
) -> AsyncIterator[dict[str, str]]:
    """What happens to a job, from the event after a number to its end, as server-sent events."""
    while not draining.is_set():
        has_ended = (await run_sync(queue.get, service.engine, job)).has_ended
        found = await run_sync(queue.events_after, service.engine, job, after)
        for event in found:
            after = event.number
            data = json.dumps({"at": event.at, **event.data})
            yield {"id": str(event.number), "event": event.kind, "data": data}
        if has_ended:
            return
        await asyncio.sleep(LAST_LOOK / 2)

"""Job requests: requests whose work may become a job, waiting for it, and its result.

`WORKS` and `RESULTS` have one entry a kind of job; a plan has its own way there. The work itself is done by
`jobs` and a child. Source: docs/service.md.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

from anyio.to_thread import run_sync
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from ..jobs import queue
from ..jobs.records import File, Job, made, stored, told_of, work, written
from ..jobs.task_names import WEIGHTS
from ..problems import PREFIX, TYPES, Refused
from ..schemas.requests import (
    CalibrationRequest,
    ComparisonRequest,
    ExportRequest,
    LossesRequest,
    PlanRequest,
)
from ..server.responses import JSON, PageRequest, StoredFile, make_cursor, no_cursor, read_cursor
from ..settings import share_of, tenant_share_of
from ..storage.idempotency import hold, note_made
from ..tracing import current
from .planning import (
    correction_of,
    find_or_make_plan,
    find_origin,
    origin_of,
    plan_without_child,
    plan_work,
)
from .quantizing import quantization_answer, quantization_work
from .searching import search_answer, search_work
from .service import Service, model_arguments

LONGEST_WAIT: Final = 60
FIRST_LOOK: Final = 0.02
LAST_LOOK: Final = 0.5
_PLACE: Final = re.compile(r"(0x1\.[0-9a-f]{1,13}p\+\d{1,2}) ([0-9a-f]{32})")
"""Of a job in their list: when it was made, and its id."""
_WAIT: Final = re.compile(r"(?:^|[,;\s])wait\s*=\s*(\d{1,6})(?:$|[,;\s])")
_ASYNC: Final = re.compile(r"(?:^|[,;\s])respond-async(?:$|[,;\s])")


def wait_of(request: Request) -> float | None:
    """Seconds that `Prefer` (RFC 7240) gives us before a job is the answer; None where it says nothing."""
    text = ",".join(request.headers.getlist("prefer"))
    found = _WAIT.search(text)
    if found:
        return float(min(int(found[1]), LONGEST_WAIT))
    return 0.0 if _ASYNC.search(text) else None


async def answer_plan(service: Service, request: Request, asked: PlanRequest, sent: str | None) -> Response:
    """Answer a plan request: with the plan, or where `Prefer` lets us and it takes long, with a job.

    Args:
      sent: the `Idempotency-Key`.

    Raises:
      Refused, PlannerError: an error in the request.
    """
    key, before = await hold(service, request, sent)
    again = await _answer_again(service, request, before)
    if again is not None:
        return again
    origin = await origin_of(service, asked)
    if wait_of(request) is None:
        return Response(await find_or_make_plan(service, origin), media_type=JSON)
    text = await plan_without_child(service, origin)
    if text is not None:
        return Response(text, media_type=JSON)
    return await _answer_in_time(service, request, "plan", await plan_work(service, origin), key)


async def answer_export(
    service: Service, request: Request, asked: ExportRequest, sent: str | None
) -> Response:
    """Answer an export request: with the file, a blob, or where `Prefer` is there, as `answer_job`.

    Raises:
      Refused: as `answer_job`.
    """
    if wait_of(request) is not None:
        return await answer_job(service, request, "export", asked, sent)
    _, before = await hold(service, request, sent)
    again = await _answer_again(service, request, before)
    if again is not None:
        return again
    export = await export_work(service, asked)
    answer = _export(told_of(export), await service.sandbox.run(export))
    return Response(json.dumps(answer), 201, media_type=JSON)


async def answer_job(
    service: Service, request: Request, kind: str, asked: BaseModel, sent: str | None
) -> Response:
    """Answer with the result of a job, if it is there within the time of `Prefer`, else with the job.

    Raises:
      Refused: an error in the request; the job's failure within that time; `queue-full`.
    """
    key, before = await hold(service, request, sent)
    again = await _answer_again(service, request, before)
    if again is not None:
        return again
    return await _answer_in_time(service, request, kind, await WORKS[kind](service, asked), key)


async def export_work(service: Service, request: ExportRequest) -> dict[str, Any]:
    """The work of writing a plan in a format.

    Raises:
      Refused: a model or plan that is not there.
    """
    await run_sync(service.store.find, "plans", request.plan)
    model, plan = await run_sync(_model, service, request.model), stored("plans", request.plan)
    level = {} if request.accuracy_level is None else {"accuracy_level": request.accuracy_level}
    apart = {"weights": made("blobs")} if request.external_data else {}
    corrected = await run_sync(correction_of, service, request.plan)
    asked = {"plan": plan, "format": request.format, "out": made("blobs"), **corrected}
    return work("export", {**model, **level, **asked, **apart})


async def calibration_work(service: Service, request: CalibrationRequest) -> dict[str, Any]:
    """The work of running samples through a model.

    Raises:
      Refused: a model or blob that is not there.
    """
    model = await run_sync(_model, service, request.model)
    samples = await run_sync(_blob, service, request.samples)
    arguments = {"method": request.method, "readers": request.readers, "shard": None, "out": made("stats")}
    return work("calibrate", {**model, **arguments, "samples": samples})


async def comparison_work(service: Service, request: ComparisonRequest) -> dict[str, Any]:
    """The work of running a model and a quantized file of it, or a plan, side by side.

    Raises:
      Refused: a model, plan, blob or statistics that are not there.
    """
    model = await run_sync(_model, service, request.model)
    given: dict[str, Any] = {"samples": await run_sync(_blob, service, request.samples)}
    if request.file is not None:
        given["file"] = await run_sync(_blob, service, request.file)
    if request.plan is not None:
        await run_sync(service.store.find, "plans", request.plan)
        told = {"format": request.format, "samples": request.samples, "held_out": request.held_out}
        given |= {
            "plan": stored("plans", request.plan),
            "told": told,
            "quality": made("qualities", request.plan),
            **(await run_sync(correction_of, service, request.plan)),
        }
    if request.stats is not None:
        await run_sync(service.store.find, "stats", request.stats)
        given["stats"] = stored("stats", request.stats)
    asked = {
        name: getattr(request, name) for name in ("values", "metrics", "output", "reference", "min_coverage")
    }
    return work("compare", {**model, **given, **asked, "out": made("blobs")})


async def losses_work(service: Service, request: LossesRequest) -> dict[str, Any]:
    """The work of measuring where a plan loses the numbers of its model.

    Raises:
      Refused: a model, plan, target or blob that is not there.
    """
    model = await run_sync(_model, service, request.model)
    samples = await run_sync(_blob, service, request.samples)
    corrected: dict[str, Any] = {}
    if isinstance(request.plan, str):
        plan, target = stored("plans", request.plan), (await find_origin(service, request.plan)).target
        corrected = await run_sync(correction_of, service, request.plan)
    else:
        plan, target = written(json.dumps(request.plan)), _target_name(request.plan)
    await service.targets.find(target)
    asked = {"output": request.output, "limit": request.limit, "out": made("blobs"), **corrected}
    known = await run_sync(service.targets.argument, target)
    return work("losses", {**model, "plan": plan, "target": known, "samples": samples, **asked})


def _target_name(plan: Mapping[str, Any]) -> str:
    """`id@version` of the target of a plan that came with a request.

    Raises:
      Refused: it names none.
    """
    match plan.get("target"):
        case {"id": str(id_), "version": str(version)}:
            return f"{id_}@{version}"
    raise Refused("plan-invalid", "plan.target: expected the id and version of the plan's target")


def _model(service: Service, digest: str) -> dict[str, Any]:
    return model_arguments(service.store, service.store.read_json("models", digest))


def _blob(service: Service, digest: str) -> File:
    service.store.find("blobs", digest)
    return stored("blobs", digest)


WORKS: Final[Mapping[str, Callable[[Service, Any], Awaitable[dict[str, Any]]]]] = {
    "calibration": calibration_work,
    "comparison": comparison_work,
    "export": export_work,
    "losses": losses_work,
    "quantization": quantization_work,
    "search": search_work,
}


async def _answer_in_time(
    service: Service, request: Request, kind: str, asked: Mapping[str, Any], key: str | None
) -> Response:
    wait = wait_of(request)
    job = await _wait_for_end(service, await _submit(service, kind, asked, key), wait or 0.0)
    if job.state == "failed" and job.problem is not None:
        raise Refused(**job.problem)
    if job.state != "done":
        if key is not None:
            await note_made(service, request, key, job.id)
        return _job_answer(job, wait)
    result = RESULTS[kind](job.told, job.result or {})
    if kind == "plan":
        plan = await run_sync(service.store.find, "plans", result["plan"])
        return StoredFile(plan, 200, _applied(wait), JSON)
    return Response(json.dumps(result), 201, _applied(wait), JSON)


async def _answer_again(service: Service, request: Request, job: str) -> Response | None:
    """Answer with the job that was the first answer under a key; None: none, gone, or failed by us."""
    if not job:
        return None
    try:
        found = await run_sync(queue.get, service.engine, job, service.tenant)
    except Refused:
        return None
    if queue.service_failed(found):
        return None
    wait = wait_of(request)
    return _job_answer(await _wait_for_end(service, found, wait or 0.0), wait)


def _job_answer(job: Job, wait: float | None) -> Response:
    headers = {**_applied(wait), "Location": f"/v1/jobs/{job.id}"}
    headers |= {} if job.has_ended else {"Retry-After": "1"}
    return Response(json.dumps(record_of(job)), 202, headers, JSON)


def _applied(wait: float | None) -> dict[str, str]:
    """The header that says which preference counted (RFC 7240)."""
    return {} if wait is None else {"Preference-Applied": f"wait={wait:g}" if wait else "respond-async"}


async def _submit(service: Service, kind: str, asked: Mapping[str, Any], key: str | None) -> Job:
    """Put a job into the queue, or find the one that was put there under the key.

    Raises:
      Refused: `queue-full`, `share-taken`, `quota`.
    """
    is_known = key is not None and await run_sync(queue.has_key, service.engine, key)
    if service.store.quota is not None and not is_known:
        service.store.quota.check(len(json.dumps(asked)))  # a job's result would not be kept either
    settings = service.settings
    submit = partial(
        queue.submit,
        key=key,
        principal=service.principal,
        tenant=service.tenant,
        most=settings.max_jobs,
        share=share_of(settings),
        tenant_share=tenant_share_of(settings),
    )
    job = await run_sync(submit, service.engine, kind, {**asked, "asked": dict(current.get())})
    service.dispatcher.nudge()
    return job


async def _wait_for_end(service: Service, job: Job, seconds: float) -> Job:
    """Wait for a job to end, but not longer than some seconds; the job as it stands then."""
    until, pause = time.monotonic() + seconds, FIRST_LOOK
    while not job.has_ended and time.monotonic() < until:
        await asyncio.sleep(min(pause, max(until - time.monotonic(), 0)))
        pause = min(pause * 2, LAST_LOOK)
        job = await run_sync(queue.get, service.engine, job.id, service.tenant)
    return job


def record_of(job: Job) -> dict[str, Any]:
    """The record of a job for a client; times are seconds since 1970."""
    fields = ("id", "kind", "state", "progress", "attempt", "created", "started", "finished")
    return {
        **{name: getattr(job, name) for name in fields},
        "link": f"/v1/jobs/{job.id}",
        "request_id": job.told["request_id"],
        "result": None if job.result is None else RESULTS[job.kind](job.told, job.result),
        "problem": None if job.problem is None else _document(job.problem),
    }


def _document(problem: Mapping[str, Any]) -> dict[str, Any]:
    more = {name: item for name, item in problem.items() if name != "name"}
    status, title = TYPES[problem["name"]]
    return {"type": f"{PREFIX}{problem['name']}", "title": title, "status": status, **more}


def _plan(_: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    key = result["key"]
    return {"plan": key, "link": f"/v1/plans/{key}"}


def _export(told: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    blob, format_ = result["kept"]["out"], told["format"]
    record = {"blob": blob, "format": format_, "link": f"/v1/blobs/{blob}", "bytes": result["bytes"]}
    weights = result["kept"].get("weights")
    record["warnings"] = result.get("warnings", [])  # jobs that an older server ran have none
    return {**record, "external_data": [{"location": WEIGHTS, "blob": weights}] if weights else []}


def _calibration(_: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    about = {name: item for name, item in result.items() if name != "kept"}
    return {"digest": result["kept"]["out"], **about}


def _with_blob(_: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    blob = result["kept"]["out"]
    about = {name: item for name, item in result.items() if name != "kept"}
    return {**about, "blob": blob, "link": f"/v1/blobs/{blob}"}


RESULTS: Final[Mapping[str, Callable[[Mapping[str, Any], Mapping[str, Any]], dict[str, Any]]]] = {
    "calibration": _calibration,
    "comparison": _with_blob,
    "export": _export,
    "losses": _with_blob,
    "plan": _plan,
    "quantization": quantization_answer,
    "search": search_answer,
}
"""The answer of each kind of job, from what is told of its work and the result of that."""


def list_jobs(service: Service, page: PageRequest, asked: Mapping[str, Any]) -> dict[str, Any]:
    """A page of the records of jobs.

    Args:
      asked: `state` and `kind`, or None, and `order`, as `queue.list_page` takes them.

    Raises:
      Refused: a cursor that no page gave.
    """
    last, limit = read_cursor(page.cursor), page.limit
    found_in = _PLACE.fullmatch(last)
    if last and not found_in:
        raise no_cursor()
    # Not looked up: the last job of a page may have been taken away since.
    after = (float.fromhex(found_in[1]), found_in[2]) if found_in else None
    found = queue.list_page(service.engine, limit=limit + 1, after=after, tenant=service.tenant, **asked)
    edge = found[limit - 1] if len(found) > limit else None
    following = None if edge is None else make_cursor(f"{edge.created.hex()} {edge.id}")
    return {"items": [record_of(job) for job in found[:limit]], "next": following}


def delete_job(service: Service, job: str) -> None:
    """Take a job that has ended away, with its events and the idempotency key that it came with.

    Raises:
      Refused: there is none of this id; `not-ended`.
    """
    key = queue.remove(service.engine, job, service.tenant)
    if key is not None and service.store.has("keys", key):
        service.store.drop("keys", key)


async def job_events(
    service: Service, job: str, after: int, draining: asyncio.Event
) -> AsyncIterator[dict[str, str]]:
    """Events of a job, from the one after a number to its end, as server-sent events."""
    while not draining.is_set():
        has_ended = await service.watch.news(job, after)
        found = await run_sync(queue.events_after, service.engine, job, after)
        for event in found:
            after = event.number
            data = json.dumps({"at": event.at, **event.data})
            yield {"id": str(event.number), "event": event.kind, "data": data}
        if has_ended:
            return

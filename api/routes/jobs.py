"""Jobs: their records, their events, cancelling one, taking one away."""

from collections.abc import AsyncIterator
from typing import Annotated, Any, Final, Literal

from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Query, Request, Response
from sse_starlette.sse import EventSourceResponse

from ..jobs import queue
from ..planning.job_requests import delete_job, job_events, list_jobs, record_of
from ..schemas.responses import JobKind, JobPage, JobRecord
from .parameters import JobId, Listed, ServiceOf

router = APIRouter(tags=["jobs"])

PING: Final = 15
_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "events: `id` their number, `event` its kind, `data` JSON",
        "content": {"text/event-stream": {"schema": {"type": "string"}}},
    }
}
_State = Literal["queued", "running", "done", "failed", "cancelled"]


@router.get("/jobs", operation_id="list_jobs")
async def get_jobs(
    service: ServiceOf,
    listing: Listed,
    *,
    state: Annotated[_State | None, Query(examples=["done"])] = None,
    kind: Annotated[JobKind | None, Query(examples=["export"])] = None,
    order: Annotated[
        queue.Order, Query(description="by when they were created", examples=["oldest"])
    ] = "newest",
) -> JobPage:
    """List the jobs, newest first unless `order` says otherwise."""
    page = await run_sync(list_jobs, service, listing.asked, {"state": state, "kind": kind, "order": order})
    return JobPage.model_validate(listing.linked(page))


@router.get("/jobs/{id}", operation_id="get_job")
async def get_job(id: JobId, service: ServiceOf) -> JobRecord:  # noqa: A002
    """Get the state of a job, and its result or problem."""
    return JobRecord.model_validate(record_of(await run_sync(queue.get, service.engine, id, service.tenant)))


@router.get(
    "/jobs/{id}/events", operation_id="job_events", response_class=EventSourceResponse, responses=_STREAM
)
async def get_events(
    id: JobId,  # noqa: A002
    request: Request,
    service: ServiceOf,
    last_event_id: Annotated[
        int, Header(ge=0, lt=1 << 31, description="the last one seen", examples=[0])
    ] = 0,
) -> Response:
    """Stream the events of a job until it ends, from the first or after a given one."""
    await run_sync(queue.get, service.engine, id, service.tenant)
    events: AsyncIterator[dict[str, str]] = job_events(service, id, last_event_id, request.app.state.draining)
    return EventSourceResponse(events, ping=PING, sep="\n")


@router.delete("/jobs/{id}", operation_id="delete_job", status_code=204)
async def remove_job(id: JobId, service: ServiceOf) -> None:  # noqa: A002
    """Delete an ended job and its events; its results stay."""
    await run_sync(delete_job, service, id)


@router.post("/jobs/{id}:cancel", operation_id="cancel_job")
async def cancel_job(id: JobId, service: ServiceOf) -> JobRecord:  # noqa: A002
    """Cancel a job: a waiting one at once, a running one soon; an ended one stays as it is."""
    job = await run_sync(queue.cancel, service.engine, id, service.tenant)
    service.dispatcher.nudge()
    return JobRecord.model_validate(record_of(job))

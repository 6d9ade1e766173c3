"""Statistics: keep what `qplan calibrate` wrote or a job made, list, give, take away."""

from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Body, Request, Response
from starlette.responses import FileResponse

from ..intake.request_bodies import JsonRoute
from ..planning.service import read_stats
from ..planning.stored_items import delete_file, list_files
from ..schemas.examples import STATS
from ..schemas.measured import StatsRecord
from ..schemas.openapi import STATISTICS_REF
from ..schemas.responses import FilePage
from ..server.responses import UNCHANGING, file_answer, require_match
from .parameters import NOT_MODIFIED, IfMatch, OrderedListed, ServiceOf, StatsDigest

router = APIRouter(tags=["statistics"], route_class=JsonRoute)

_STATS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "statistics, qplan.stats/2",
        "content": {"application/json": {"schema": STATISTICS_REF}},
    }
}


@router.post("/stats", operation_id="put_stats", status_code=201)
async def post_stats(
    body: Annotated[dict[str, Any], Body(examples=[STATS], description="statistics, or `blob`: a digest")],
    request: Request,
    service: ServiceOf,
) -> StatsRecord:
    """Store statistics, sent as they are or as a blob.

    The format is qplan.stats/2; qplan.stats/1 is deprecated: it is accepted, and kept as the former.
    """
    return StatsRecord.model_validate(await read_stats(service, body, await request.body()))


@router.get("/stats", operation_id="list_stats")
async def get_all_stats(service: ServiceOf, listing: OrderedListed) -> FilePage:
    """List the statistics with their sizes."""
    page = await run_sync(list_files, service.store, "stats", listing.asked)
    return FilePage.model_validate(listing.linked(page))


@router.get(
    "/stats/{digest}",
    operation_id="get_stats",
    response_class=FileResponse,
    responses=_STATS | NOT_MODIFIED,
)
async def get_stats(digest: StatsDigest, request: Request, service: ServiceOf) -> Response:
    """Get statistics in the form that `qplan plan --stats` and `planner.annotate` take."""
    path = await run_sync(service.store.find_verified, "stats", digest)
    return file_answer(request, path, digest, **UNCHANGING)


@router.delete("/stats/{digest}", operation_id="delete_stats", status_code=204)
async def delete_stats(
    digest: StatsDigest,
    request: Request,
    service: ServiceOf,
    if_match: IfMatch = None,  # noqa: ARG001 - for OpenAPI; `require_match` reads it
) -> None:
    """Delete statistics; plans made with them stay, but cannot be edited."""
    await run_sync(service.store.find, "stats", digest)
    require_match(request, digest)
    await run_sync(delete_file, service.store, "stats", digest)

"""Statistics: keep what `qplan calibrate` wrote, give back what was kept or made by a job."""

from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Body, Request, Response
from starlette.responses import FileResponse

from api.intake.request_bodies import JsonRoute
from api.planning.service import read_stats
from api.routes.parameters import NOT_MODIFIED, ServiceOf, StatsDigest
from api.schemas.examples import STATS
from api.schemas.responses import StatsRecord
from api.server.responses import file_answer

router = APIRouter(tags=["statistics"], route_class=JsonRoute)

_STATS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "statistics, qplan.stats/2",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}


@router.post("/stats", operation_id="put_stats", status_code=201)
async def post_stats(
    body: Annotated[dict[str, Any], Body(examples=[STATS], description="statistics, or `blob`: a digest")],
    request: Request,
    service: ServiceOf,
) -> StatsRecord:
    """Keep statistics of format qplan.stats/2 (or 1), sent as they are or before, as a blob."""
    return StatsRecord.model_validate(await read_stats(service, body, await request.body()))


@router.get(
    "/stats/{stats}", operation_id="get_stats", response_class=FileResponse, responses=_STATS | NOT_MODIFIED
)
async def get_stats(stats: StatsDigest, request: Request, service: ServiceOf) -> Response:
    """Give statistics that were sent, or made by a calibration."""
    return file_answer(request, await run_sync(service.store.find_verified, "stats", stats), stats)

"""Statistics: keep what `qplan calibrate` wrote."""

from typing import Annotated, Any

from fastapi import APIRouter, Body, Request

from api.intake.request_bodies import JsonRoute
from api.planning.service import read_stats
from api.routes.parameters import ServiceOf
from api.schemas.examples import STATS
from api.schemas.responses import StatsRecord

router = APIRouter(tags=["statistics"], route_class=JsonRoute)


@router.post("/stats", operation_id="put_stats", status_code=201)
async def post_stats(
    body: Annotated[dict[str, Any], Body(examples=[STATS], description="statistics, or `blob`: a digest")],
    request: Request,
    service: ServiceOf,
) -> StatsRecord:
    """Keep statistics of format qplan.stats/2 (or 1), sent as they are or before, as a blob."""
    return StatsRecord.model_validate(await read_stats(service, body, await request.body()))

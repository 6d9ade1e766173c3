"""Exports, calibrations and comparisons: work that runs models, as jobs."""

import json

from fastapi import APIRouter, Request, Response

from api.intake.bodies import JsonRoute
from api.planning.job_requests import answer_of, calibration_work, comparison_work, export_work, wait_of
from api.planning.service import export_plan
from api.routes.parts import JOB, Sent, ServiceOf
from api.schemas.requests import CalibrationRequest, ComparisonRequest, ExportRequest
from api.schemas.responses import ComparisonRecord, ExportRecord, StatsRecord
from api.server.responses import JSON
from api.storage.idempotency import hold

router = APIRouter(tags=["exports"], route_class=JsonRoute)


@router.post(
    "/exports", operation_id="export_plan", status_code=201, responses=JOB, response_model=ExportRecord
)
async def post_export(body: ExportRequest, request: Request, service: ServiceOf, sent: Sent) -> Response:
    """Write a plan of a model in a format; the file is a blob. Without `Prefer`, never a job."""
    key, _ = await hold(service, request, sent)
    if wait_of(request) is None:
        return Response(json.dumps(await export_plan(service, body)), 201, media_type=JSON)
    return await answer_of(service, request, "export", await export_work(service, body), key)


@router.post(
    "/calibrations",
    operation_id="calibrate",
    status_code=202,
    responses=JOB | {201: {"description": "statistics, within the time to wait", "model": StatsRecord}},
)
async def post_calibration(
    body: CalibrationRequest, request: Request, service: ServiceOf, sent: Sent
) -> Response:
    """Run samples through a model and keep the statistics."""
    key, _ = await hold(service, request, sent)
    return await answer_of(service, request, "calibration", await calibration_work(service, body), key)


@router.post(
    "/comparisons",
    operation_id="compare",
    status_code=202,
    responses=JOB
    | {201: {"description": "a comparison, within the time to wait", "model": ComparisonRecord}},
)
async def post_comparison(
    body: ComparisonRequest, request: Request, service: ServiceOf, sent: Sent
) -> Response:
    """Run a quantized file and its model side by side."""
    key, _ = await hold(service, request, sent)
    return await answer_of(service, request, "comparison", await comparison_work(service, body), key)

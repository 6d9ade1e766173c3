"""Exports, calibrations, comparisons, losses and searches: work that runs models, as jobs."""

from fastapi import APIRouter, Request, Response

from api.intake.request_bodies import JsonRoute
from api.planning.job_requests import answer_export, answer_job
from api.routes.parameters import JOB, Sent, ServiceOf
from api.schemas.requests import (
    CalibrationRequest,
    ComparisonRequest,
    ExportRequest,
    LossesRequest,
    SearchRequest,
)
from api.schemas.responses import (
    CalibrationRecord,
    ComparisonRecord,
    ExportRecord,
    LossesRecord,
    SearchRecord,
)

router = APIRouter(tags=["exports"], route_class=JsonRoute)


@router.post(
    "/exports", operation_id="export_plan", status_code=201, responses=JOB, response_model=ExportRecord
)
async def post_export(body: ExportRequest, request: Request, service: ServiceOf, sent: Sent) -> Response:
    """Write a plan of a model in a format; the file is a blob. Without `Prefer`, never a job."""
    return await answer_export(service, request, body, sent)


@router.post(
    "/calibrations",
    operation_id="calibrate",
    status_code=202,
    responses=JOB | {201: {"description": "statistics, within the time to wait", "model": CalibrationRecord}},
)
async def post_calibration(
    body: CalibrationRequest, request: Request, service: ServiceOf, sent: Sent
) -> Response:
    """Run samples through a model and keep the statistics."""
    return await answer_job(service, request, "calibration", body, sent)


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
    return await answer_job(service, request, "comparison", body, sent)


@router.post(
    "/losses",
    operation_id="losses",
    status_code=202,
    responses=JOB | {201: {"description": "losses, within the time to wait", "model": LossesRecord}},
)
async def post_losses(body: LossesRequest, request: Request, service: ServiceOf, sent: Sent) -> Response:
    """Say where a plan loses the numbers of its model: noise of each kernel alone, and what would help."""
    return await answer_job(service, request, "losses", body, sent)


@router.post(
    "/searches",
    operation_id="search",
    status_code=202,
    responses=JOB | {201: {"description": "a search, within the time to wait", "model": SearchRecord}},
)
async def post_search(body: SearchRequest, request: Request, service: ServiceOf, sent: Sent) -> Response:
    """Find the plan of least work that is as good as asked, or the best within means; the plan is kept."""
    return await answer_job(service, request, "search", body, sent)

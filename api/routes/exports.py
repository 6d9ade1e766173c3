"""Exports, calibrations, comparisons, losses and searches: work that runs models, as jobs."""

from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel

from ..intake.request_bodies import JsonRoute
from ..planning.job_requests import answer_export, answer_job
from ..schemas.measured import CalibrationRecord, ComparisonRecord, LossesRecord, SearchRecord
from ..schemas.requests import (
    CalibrationRequest,
    ComparisonRequest,
    ExportRequest,
    LossesRequest,
    SearchRequest,
)
from ..schemas.responses import ExportRecord
from .parameters import JOB, Sent, ServiceOf

Route = TypeVar("Route", bound=Callable[..., Any])

router = APIRouter(tags=["exports"], route_class=JsonRoute)


def _job(path: str, operation: str, told: str, record: type[BaseModel]) -> Callable[[Route], Route]:
    """The route of a work that is a job, or its record if it is done within the time to wait."""
    done: dict[int | str, dict[str, Any]] = {
        201: {"description": f"{told}, within the time to wait", "model": record}
    }
    return router.post(f"/{path}", operation_id=operation, status_code=202, responses=JOB | done)


@router.post(
    "/exports", operation_id="export_plan", status_code=201, responses=JOB, response_model=ExportRecord
)
async def post_export(body: ExportRequest, request: Request, service: ServiceOf, sent: Sent) -> Response:
    """Export a plan of a model in a format; the file is a blob. Without `Prefer` it is never a job."""
    return await answer_export(service, request, body, sent)


@_job("calibrations", "calibrate", "statistics", CalibrationRecord)
async def post_calibration(
    body: CalibrationRequest, request: Request, service: ServiceOf, sent: Sent
) -> Response:
    """Calibrate a model: run samples through it and store the statistics."""
    return await answer_job(service, request, "calibration", body, sent)


@_job("comparisons", "compare", "a comparison", ComparisonRecord)
async def post_comparison(
    body: ComparisonRequest, request: Request, service: ServiceOf, sent: Sent
) -> Response:
    """Compare a quantized file, or a plan, with its float model on samples."""
    return await answer_job(service, request, "comparison", body, sent)


@_job("losses", "losses", "losses", LossesRecord)
async def post_losses(body: LossesRequest, request: Request, service: ServiceOf, sent: Sent) -> Response:
    """Attribute the error of a plan to kernels: the noise of each one alone, and remedies."""
    return await answer_job(service, request, "losses", body, sent)


@_job("searches", "search", "a search", SearchRecord)
async def post_search(body: SearchRequest, request: Request, service: ServiceOf, sent: Sent) -> Response:
    """Search for the plan of least work that reaches a goal, or the best one within a budget."""
    return await answer_job(service, request, "search", body, sent)

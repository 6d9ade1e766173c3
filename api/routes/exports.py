"""Exports: a plan as a file that a real engine runs."""

from fastapi import APIRouter

from api.bodies import JsonRoute
from api.routes.parts import ServiceOf
from api.schemas import ExportRecord, ExportRequest
from api.service import export_plan

router = APIRouter(tags=["exports"], route_class=JsonRoute)


@router.post("/exports", operation_id="export_plan", status_code=201)
async def post_export(body: ExportRequest, service: ServiceOf) -> ExportRecord:
    """Write a plan of a model in a format; the file is a blob."""
    return ExportRecord.model_validate(await export_plan(service, body))

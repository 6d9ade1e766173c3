"""Quantizations: from a model and samples to a file, its plan and a verdict, in one request."""

from typing import Any, Final

from fastapi import APIRouter, Request, Response

from ..intake.files_in_bodies import FORM, form_as
from ..intake.request_bodies import route_taking
from ..planning.job_requests import answer_job
from ..schemas.quantized import FORM_BODY, FORM_FIELDS, QuantizationRecord, QuantizationRequest
from .parameters import JOB, Sent, ServiceOf

router = APIRouter(
    tags=["quantizations"], route_class=route_taking({FORM: form_as(FORM_FIELDS, {"model": "name"})})
)

_DONE: Final[dict[int | str, dict[str, Any]]] = {
    201: {"description": "a quantization, within the time to wait", "model": QuantizationRecord}
}


@router.post(
    "/quantizations",
    operation_id="quantize",
    status_code=202,
    responses=JOB | _DONE,
    openapi_extra=FORM_BODY,
)
async def post_quantization(
    body: QuantizationRequest, request: Request, service: ServiceOf, sent: Sent
) -> Response:
    """Quantize a model: calibrate, plan, write the file and compare it; where that is not good, search."""
    return await answer_job(service, request, "quantization", body, sent)

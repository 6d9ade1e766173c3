"""Models: read an uploaded one."""

from fastapi import APIRouter

from api.bodies import JsonRoute
from api.routes.parts import ServiceOf
from api.schemas import ModelRecord, ModelRequest
from api.service import read_model

router = APIRouter(tags=["models"], route_class=JsonRoute)


@router.post("/models", operation_id="read_model", status_code=201)
async def post_model(body: ModelRequest, service: ServiceOf) -> ModelRecord:
    """Read an uploaded ONNX file or annotated model (JSON, MLIR) and say what it is."""
    return ModelRecord.model_validate(await read_model(service, body))

"""Models: read an uploaded one, list, give, take away."""

from typing import Annotated, Any, TypeAlias

from anyio.to_thread import run_sync
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from ..intake.files_in_bodies import bytes_as
from ..intake.request_bodies import BYTES, route_taking
from ..planning import stored_items
from ..planning.service import find_model, read_model
from ..schemas.examples import ANNOTATED_TEXT
from ..schemas.requests import ModelRequest
from ..schemas.responses import ModelFormat, ModelPage, ModelRecord
from ..server.responses import json_answer, require_match
from .parameters import NOT_MODIFIED, IfMatch, ModelDigest, OrderedListed, ServiceOf

router = APIRouter(tags=["models"], route_class=route_taking(dict.fromkeys(BYTES, bytes_as("blob"))))

Dims: TypeAlias = Annotated[
    list[Annotated[str, Field(pattern=r"^.{1,1000}=[1-9][0-9]{0,8}$")]] | None,
    Query(
        max_length=100,
        description="sizes of open dimensions, NAME=SIZE (`batch=1`, `input[0]=1`); `dims` of a JSON body",
        examples=[[]],
    ),
]
Called: TypeAlias = Annotated[
    str | None,
    Query(max_length=300, description="name of the model; `name` of a JSON body", examples=["demo"]),
]
_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}, "example": ANNOTATED_TEXT}


@router.post(
    "/models",
    operation_id="read_model",
    status_code=201,
    openapi_extra={"requestBody": {"content": {BYTES[0]: _BYTES}}},
)
async def post_model(
    body: ModelRequest, service: ServiceOf, response: Response, dim: Dims = None, name: Called = None
) -> ModelRecord:
    """Read a model, sent as bytes or stored as a blob: ONNX, LiteRT, annotated JSON or MLIR."""
    for text in dim or ():
        dimension, _, size = text.rpartition("=")
        body.dims[dimension] = int(size)
    body.name = name or body.name
    record = ModelRecord.model_validate(await read_model(service, body))
    response.headers["Location"] = f"/v1/models/{record.digest}"
    return record


@router.get("/models", operation_id="list_models")
async def get_models(
    service: ServiceOf,
    listing: OrderedListed,
    *,
    name: Annotated[
        str | None, Query(max_length=1000, description="only models of this name", examples=["demo"])
    ] = None,
    format: Annotated[  # noqa: A002 - the name of the field
        ModelFormat | None, Query(description="only models of this format", examples=["json"])
    ] = None,
) -> ModelPage:
    """List the models."""
    wanted = {"name": name, "format": format}
    page = await run_sync(stored_items.list_models, service, listing.asked, wanted)
    return ModelPage.model_validate(listing.linked(page))


@router.get("/models/{digest}", operation_id="get_model", response_model=ModelRecord, responses=NOT_MODIFIED)
async def get_model(digest: ModelDigest, request: Request, service: ServiceOf) -> Any:
    """Get the record of a model."""
    record = await run_sync(find_model, service, digest)
    return json_answer(request, digest, lambda: record)


@router.delete("/models/{digest}", operation_id="delete_model", status_code=204)
async def delete_model(
    digest: ModelDigest,
    request: Request,
    service: ServiceOf,
    if_match: IfMatch = None,  # noqa: ARG001 - for OpenAPI; `require_match` reads it
) -> None:
    """Delete the record of a model; its blobs and plans stay, but its plans cannot be edited."""
    await run_sync(service.store.find, "models", digest)
    require_match(request, digest)
    await run_sync(stored_items.delete_model, service.store, digest)

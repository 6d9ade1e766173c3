"""Health of the server, and what it is."""

from typing import get_args

from fastapi import APIRouter, Request

from planner.version import VERSION

from ..schemas.requests import ExportFormat
from ..schemas.responses import Health, ServerRecord
from ..schemas.schema_files import SCHEMAS
from ..server.middleware import SCOPES, TOKEN
from ..server.tokens import EVERYTHING
from .parameters import ServiceOf

router = APIRouter(tags=["server"])


@router.get("/health/live", operation_id="live")
async def live() -> Health:
    """Say that the process answers."""
    return Health()


@router.get("/health/ready", operation_id="ready")
async def ready(request: Request) -> Health:
    """Say that requests can be served: the database answers, the disk takes files, a child waits."""
    await request.app.state.readiness.require()
    return Health()


@router.get("/server", operation_id="server")
async def server(service: ServiceOf, request: Request) -> ServerRecord:
    """Versions, limits and file formats, and what the caller may do."""
    limits = service.settings
    return ServerRecord(
        version=VERSION,
        limits={
            "body_bytes": limits.max_body,
            "blob_bytes": limits.max_blob,
            "json_values": limits.max_values,
            "inline_kernels": limits.inline_kernels,
            "seconds": limits.child_seconds,
        },
        formats=[
            "qplan.annotated/1",
            "qplan.annotations/1",
            "qplan.plan/1",
            "qplan.stats/1",
            "qplan.stats/2",
        ],
        schemas=list(SCHEMAS),
        exports=list(get_args(ExportFormat)),
        token=request.scope.get(TOKEN),
        tenant=service.tenant,
        scopes=sorted(request.scope.get(SCOPES, EVERYTHING)),
    )

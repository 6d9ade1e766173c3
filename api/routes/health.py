"""Health of the server, and what it is."""

from typing import Final, get_args

from fastapi import APIRouter, Request

from planner.target.records import ExportFormat
from planner.version import VERSION

from ..schemas.responses import Health, ServerRecord
from ..schemas.schema_files import SCHEMAS
from ..server.middleware import SCOPES, TOKEN
from ..server.tokens import EVERYTHING
from .parameters import ServiceOf

DEPRECATED: Final = {"qplan.stats/1": "qplan.stats/2", "qplan_blob_bytes": "qplan_kept_bytes"}
"""A format and a metric, and what is in their place; docs/upgrades.md says how long they stay."""

router = APIRouter(tags=["server"])


@router.get("/health/live", operation_id="live")
async def live() -> Health:
    """Check that the server process answers."""
    return Health()


@router.get("/health/ready", operation_id="ready")
async def ready(request: Request) -> Health:
    """Check that the server can take requests: database, disk and reading processes work."""
    await request.app.state.readiness.require()
    return Health()


@router.get("/server", operation_id="server")
async def server(service: ServiceOf, request: Request) -> ServerRecord:
    """Get versions, limits and file formats, and the scopes of the caller."""
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
        deprecated=DEPRECATED,
        token=request.scope.get(TOKEN),
        tenant=service.tenant,
        scopes=sorted(request.scope.get(SCOPES, EVERYTHING)),
    )

"""Targets: list, show, lint."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from api.bodies import YAML, require_media, write_body
from api.examples import TARGET
from api.routes.parts import ServiceOf
from api.schemas import LintReport, TargetRecord
from api.service import find_target, lint_target
from planner.target.show import target_to_json

router = APIRouter(tags=["targets"])

_YAML_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/yaml": {"schema": {"type": "string"}, "example": TARGET}},
    }
}


@router.get("/targets", operation_id="list_targets")
async def list_targets(service: ServiceOf) -> list[TargetRecord]:
    """List the shipped targets."""
    return [TargetRecord.model_validate(t, from_attributes=True) for t in service.targets.values()]


@router.get("/targets/{id}", operation_id="get_target")
async def get_target(
    id: Annotated[str, Path(description="id or id@version", examples=["litert-int8"])],  # noqa: A002
    service: ServiceOf,
    response: Response,
) -> dict[str, Any]:
    """Show a target: prices, fusions, rows by kernel."""
    target = find_target(service, id)
    response.headers["ETag"] = f'"{target.digest}"'
    return target_to_json(target)


@router.post("/targets:lint", operation_id="lint_target", openapi_extra=_YAML_BODY)
async def lint(request: Request, service: ServiceOf) -> LintReport:
    """Say what is wrong (422) or odd (200) in a target description."""
    require_media(request, YAML)
    with service.store.draft() as folder:
        await write_body(request, folder / "target")
        return LintReport.model_validate(await lint_target(service, folder / "target"))

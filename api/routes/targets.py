"""Targets: list, show, put, lint."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path as FilePath
from typing import Annotated, Any, Final

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError, ValidatorFunctionWrapHandler, WrapValidator
from pydantic_core import PydanticCustomError

from planner.target.show import target_to_json

from ..intake.request_bodies import (
    BYTES,
    YAML,
    media_of,
    require_media,
    write_body,
)
from ..intake.scan import require_unicode, scan_json
from ..planning.known_targets import lint_target, try_target
from ..planning.service import Service
from ..planning.what_if import show_target
from ..schemas.examples import TARGET, TARGET_NAME
from ..schemas.openapi import SOURCE_REF
from ..schemas.requests import TargetSource
from ..schemas.responses import LintReport, TargetDescription, TargetRecord, TestReport
from ..server.responses import JSON, MOST, json_answer, next_link, page_of, require_match, unchanged
from ..storage.digests import digest_of
from .parameters import NOT_MODIFIED, Cursor, IfMatch, ServiceOf

router = APIRouter(tags=["targets"])

_YAML_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {
            "application/yaml": {"schema": {"type": "string"}, "example": TARGET},
            BYTES[0]: {"schema": {"type": "string", "format": "binary"}, "example": TARGET},
            JSON: {"schema": SOURCE_REF},
        },
    }
}
_Name = Annotated[str, Path(description="id or id@version", examples=["litert-int8"], max_length=200)]

_FileName = Annotated[
    str | None,
    Query(pattern=r"^[\w.@-]{1,100}$", description="name of the file in findings", examples=["own.yaml"]),
]


def _require_version(name: str, validate: ValidatorFunctionWrapHandler) -> str:
    """Say what a full name is where the pattern of the document refuses one."""
    try:
        return str(validate(name))
    except ValidationError as error:
        if error.errors()[0]["type"] != "string_pattern_mismatch":
            raise
        text = "{name} is not ID@VERSION, as in acme-npu@1"
        raise PydanticCustomError("target_name", text, {"name": repr(name)}) from error


_FullName = Annotated[
    str,
    Path(description="id@version", examples=[TARGET_NAME], max_length=200, pattern="^[^@]+@[^@]+$"),
    WrapValidator(_require_version),
]


@router.get("/targets", operation_id="list_targets")
async def list_targets(
    request: Request,
    response: Response,
    service: ServiceOf,
    limit: Annotated[int, Query(ge=1, le=MOST, description="items of a page", examples=[MOST])] = MOST,
    cursor: Cursor = None,
    *,
    shipped: Annotated[
        bool | None, Query(description="only built-in targets, or only uploaded ones", examples=[True])
    ] = None,
) -> list[TargetRecord]:
    """List the targets, built-in and uploaded ones; `Link` has the address of the next page."""
    records = await run_sync(service.targets.records)
    wanted = (record for record in records if shipped in (None, record["shipped"]))
    named = {f"{record['id']}@{record['version']}": record for record in wanted}
    names, after = page_of(named, limit, cursor)
    response.headers.update(next_link(request, after))
    return [TargetRecord.model_validate(named[name]) for name in names]


@router.get(
    "/targets/{name}", operation_id="get_target", response_model=TargetDescription, responses=NOT_MODIFIED
)
async def get_target(name: _Name, request: Request, service: ServiceOf) -> Any:
    """Get a target as JSON: prices, fusions, rows by kernel."""
    target = await service.targets.find(name)
    shipped = target.shipped
    if shipped is not None:
        return json_answer(request, target.digest, lambda: target_to_json(shipped))
    headers = {"ETag": f'"{target.digest}"'}
    same = unchanged(request, target.digest)
    return same or Response(await show_target(service, target), media_type=JSON, headers=headers)


@router.get(
    "/targets/{name}/source",
    operation_id="get_target_source",
    response_class=Response,
    responses={
        200: {"description": "YAML", "content": {"application/yaml": {"schema": {"type": "string"}}}},
        **NOT_MODIFIED,
    },
)
async def get_source(name: _Name, request: Request, service: ServiceOf) -> Response:
    """Get the YAML description of a target as it was written."""
    target = await service.targets.find(name)
    text = await run_sync(service.targets.source, f"{target.id}@{target.version}")
    tag = digest_of(text.encode())
    headers = {"ETag": f'"{tag}"'}
    return unchanged(request, tag) or Response(text, media_type="application/yaml", headers=headers)


@router.put(
    "/targets/{name}",
    operation_id="put_target",
    status_code=201,
    openapi_extra=_YAML_BODY,
    responses={200: {"description": "it was there", "model": LintReport}},
)
async def put_target(
    name: _FullName,
    request: Request,
    response: Response,
    service: ServiceOf,
    file: _FileName = None,
) -> LintReport:
    """Upload a target description under its id and version; it never changes afterwards."""
    async with _described(request, service) as text:
        report, is_new = await service.targets.put(name, text, service.sandbox, file)
    response.status_code = 201 if is_new else 200
    response.headers["ETag"] = f'"{report["digest"]}"'
    return LintReport.model_validate(report)


@router.delete("/targets/{name}", operation_id="delete_target", status_code=204)
async def delete_target(
    name: _FullName,
    request: Request,
    service: ServiceOf,
    if_match: IfMatch = None,  # noqa: ARG001 - for OpenAPI; `require_match` reads it
) -> None:
    """Delete an uploaded target; its plans stay, but cannot be edited. Built-in targets stay."""
    target = await service.targets.find(name)
    require_match(request, target.digest)
    await run_sync(service.targets.delete, name)


@router.post("/targets:lint", operation_id="lint_target", openapi_extra=_YAML_BODY)
async def lint(request: Request, service: ServiceOf, file: _FileName = None) -> LintReport:
    """Check a target description and list errors (422) or warnings (200)."""
    async with _described(request, service) as text:
        return LintReport.model_validate(await lint_target(service.sandbox, text, file or "text"))


@router.post("/targets:test", operation_id="test_target", openapi_extra=_YAML_BODY)
async def run_tests(request: Request, service: ServiceOf, file: _FileName = None) -> TestReport:
    """Run the tests in a target description; failed tests are part of the answer."""
    async with _described(request, service) as text:
        return TestReport.model_validate(await try_target(service.sandbox, text, file or "text"))


@asynccontextmanager
async def _described(request: Request, service: Service) -> AsyncIterator[FilePath]:
    """Give the description that a request has as its body, or as the `source` of JSON, as a file."""
    with service.store.draft() as folder:
        if media_of(request) == JSON:
            async with service.body_limits.whole(request) as body:
                require_unicode(body)
                scan_json(body, service.settings.max_values)
                source = _source(body)
            (folder / "target").write_bytes(source.encode())
        else:
            require_media(request, (*YAML, JSON))
            await write_body(request, folder / "target")
        yield folder / "target"


def _source(body: bytes) -> str:
    """The text of a target in JSON.

    Raises:
      RequestValidationError: the JSON is none, or has another form.
    """
    try:
        return TargetSource.model_validate_json(body).source
    except ValidationError as error:
        found = [{**one, "loc": ("body", *one["loc"])} for one in error.errors(include_url=False)]
        is_json = found[0]["type"] != "json_invalid"
        raise RequestValidationError(found, body=json.loads(body) if is_json else None) from error

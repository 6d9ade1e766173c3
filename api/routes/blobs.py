"""Blobs: bytes by their sha256."""

import os
import time
from typing import Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Request, Response
from starlette.responses import FileResponse

from ..intake.files_in_bodies import keep_parts
from ..intake.request_bodies import BYTES, digest_of_body, require_media, write_body
from ..planning.service import Service
from ..planning.stored_items import delete_file, list_files
from ..problems import Refused
from ..schemas.examples import ANNOTATED_TEXT
from ..schemas.responses import BlobRecord, FilePage
from ..server.responses import UNCHANGING, file_answer, require_match
from .parameters import NOT_MODIFIED, BlobDigest, IfMatch, OrderedListed, ServiceOf

router = APIRouter(tags=["blobs"])

_BYTES: dict[str, Any] = {"schema": {"type": "string", "format": "binary"}, "example": ANNOTATED_TEXT}
_BODY = {"requestBody": {"required": True, "content": {BYTES[0]: _BYTES}}}


@router.post("/blobs", operation_id="post_blob", status_code=201, openapi_extra=_BODY)
async def post_blob(request: Request, response: Response, service: ServiceOf) -> BlobRecord:
    """Upload bytes as a blob and get their digest; 201 also where the blob exists."""
    require_media(request, BYTES)
    digest, size = await keep_parts(service.store, request.stream())
    response.headers["Location"] = f"/v1/blobs/{digest}"
    return BlobRecord(digest=digest, bytes=size)


@router.put("/blobs/{digest}", operation_id="put_blob", status_code=201, openapi_extra=_BODY)
async def put_blob(digest: BlobDigest, request: Request, service: ServiceOf) -> BlobRecord:
    """Upload bytes as the blob of a known digest; 201 also where it exists."""
    require_media(request, BYTES)
    if await run_sync(service.store.is_whole, "blobs", digest):
        _require_digest(digest, await digest_of_body(request))
        return BlobRecord(digest=digest, bytes=await run_sync(_use, service, digest))
    with service.store.draft() as folder:
        _require_digest(digest, await write_body(request, folder / "data", service.store.quota))
        size = (folder / "data").stat().st_size
        await run_sync(service.store.keep, "blobs", digest, folder / "data")
    return BlobRecord(digest=digest, bytes=size)


def _require_digest(digest: str, found: str) -> None:
    """Refuse a body that is another one than its address says.

    Raises:
      Refused: `digest-mismatch`.
    """
    if found != digest:
        raise Refused("digest-mismatch", f"the body is {found}", found=found)


def _use(service: Service, digest: str) -> int:
    """Note that a blob was used, for retention; its bytes."""
    path = service.store.find("blobs", digest)
    stands = path.stat()
    os.utime(path, ns=(time.time_ns(), stands.st_mtime_ns))
    return stands.st_size


@router.get(
    "/blobs/{digest}",
    operation_id="get_blob",
    response_class=FileResponse,
    responses={
        200: {"content": {BYTES[0]: {}}},
        206: {"description": "the part that Range requests"},
        **NOT_MODIFIED,
    },
)
@router.head("/blobs/{digest}", operation_id="head_blob", response_class=FileResponse)
async def get_blob(digest: BlobDigest, request: Request, service: ServiceOf) -> Response:
    """Download a blob, whole or a range of it; HEAD answers whether it exists and its size."""
    path = await run_sync(service.store.find_verified, "blobs", digest)
    return file_answer(request, path, digest, BYTES[0], **UNCHANGING, **{"Content-Disposition": "attachment"})


@router.get("/blobs", operation_id="list_blobs")
async def get_blobs(service: ServiceOf, listing: OrderedListed) -> FilePage:
    """List the blobs with their sizes."""
    page = await run_sync(list_files, service.store, "blobs", listing.asked)
    return FilePage.model_validate(listing.linked(page))


@router.delete("/blobs/{digest}", operation_id="delete_blob", status_code=204)
async def delete_blob(
    digest: BlobDigest,
    request: Request,
    service: ServiceOf,
    if_match: IfMatch = None,  # noqa: ARG001 - for OpenAPI; `require_match` reads it
) -> None:
    """Delete a blob; a model in it keeps its record, and can be planned once the blob is uploaded again."""
    await run_sync(service.store.find, "blobs", digest)
    require_match(request, digest)
    await run_sync(delete_file, service.store, "blobs", digest)

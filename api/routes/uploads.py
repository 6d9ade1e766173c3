"""Uploads in parts: announce, send, look, list, give up."""

from typing import Annotated, Final

from anyio.to_thread import run_sync
from fastapi import APIRouter, Header, Path, Request, Response

from ..intake.request_bodies import BYTES, JsonRoute, require_media
from ..schemas.examples import ANNOTATED_TEXT, UPLOAD
from ..schemas.requests import UploadRequest
from ..schemas.responses import UploadPage, UploadRecord
from ..storage.idempotency import IdempotencyKey, hold
from ..storage.uploads import ID, Upload, as_record, new_id
from .parameters import Listed, ServiceOf

router = APIRouter(tags=["uploads"], route_class=JsonRoute)

_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {BYTES[0]: {"schema": {"type": "string", "format": "binary"}, "example": ANNOTATED_TEXT}},
    }
}
_Id = Annotated[str, Path(description="id of an upload", pattern=ID, examples=[UPLOAD])]
_Offset = Annotated[
    int, Header(alias="Upload-Offset", ge=0, description="where the part begins", examples=[0])
]


@router.post("/uploads", operation_id="begin_upload", status_code=201)
async def post_upload(
    body: UploadRequest,
    request: Request,
    response: Response,
    service: ServiceOf,
    idempotency_key: IdempotencyKey = None,
) -> UploadRecord:
    """Begin an upload in parts: announce its digest and size."""
    key, id_ = await hold(service, request, idempotency_key, new_id())
    upload = await run_sync(service.uploads.begin, body.digest, body.bytes, id_, key)
    response.headers["Location"] = f"/v1/uploads/{upload.id}"
    return UploadRecord.model_validate(as_record(upload))


@router.patch("/uploads/{id}", operation_id="append_upload", status_code=204, openapi_extra=_BODY)
async def patch_upload(id: _Id, upload_offset: _Offset, request: Request, service: ServiceOf) -> Response:  # noqa: A002
    """Send the next part of an upload; the last one makes it a blob."""
    require_media(request, BYTES)
    return _standing(await service.uploads.append(id, upload_offset, request))


@router.head("/uploads/{id}", operation_id="head_upload", status_code=204)
async def head_upload(id: _Id, service: ServiceOf) -> Response:  # noqa: A002
    """Get the offset and length of an upload as headers: `Upload-Offset`, `Upload-Length`."""
    return _standing(await run_sync(service.uploads.find, id))


@router.get("/uploads", operation_id="list_uploads")
async def get_uploads(service: ServiceOf, listing: Listed) -> UploadPage:
    """List the uploads that have not expired, oldest first; `offset` is the number of bytes received."""
    found, after = await run_sync(service.uploads.page, listing.asked.limit, listing.asked.cursor)
    listing.link(after)
    return UploadPage.model_validate({"items": [as_record(upload) for upload in found], "next": after})


@router.get("/uploads/{id}", operation_id="get_upload")
async def get_upload(id: _Id, service: ServiceOf) -> UploadRecord:  # noqa: A002
    """Get the state of an upload."""
    return UploadRecord.model_validate(as_record(await run_sync(service.uploads.find, id)))


@router.delete("/uploads/{id}", operation_id="delete_upload", status_code=204)
async def delete_upload(id: _Id, service: ServiceOf) -> None:  # noqa: A002
    """Cancel an upload and delete its parts."""
    await run_sync(service.uploads.drop, id)


def _standing(upload: Upload) -> Response:
    numbers = {"Upload-Offset": str(upload.offset), "Upload-Length": str(upload.bytes)}
    done = {"Location": f"/v1/blobs/{upload.digest}"} if upload.offset == upload.bytes else {}
    return Response(status_code=204, headers=numbers | done | {"Cache-Control": "no-store"})

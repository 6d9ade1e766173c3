"""Pages: the front end, its files, and the API as a page. Not a part of the API: OpenAPI leaves them out."""

from fastapi import APIRouter, Request, Response

from ..page.files import files, page, page_policy, version
from ..page.reference import reference_page
from ..problems import unknown
from ..server.responses import unchanged
from ..storage.digests import digest_of

router = APIRouter(include_in_schema=False)

HTML = "text/html; charset=utf-8"
IMMUTABLE = "public, max-age=31536000, immutable"


@router.get("/")
@router.get("/models/{name}")
@router.get("/plans")
@router.get("/plans/{name}")
@router.get("/jobs")
@router.get("/jobs/{name}")
@router.get("/targets")
@router.get("/targets/{name}")
async def get_page(request: Request) -> Response:
    """Give the page; its script shows what the address names."""
    return _page(request, page())


@router.get("/docs")
async def get_reference(request: Request) -> Response:
    """Give the description of the API."""
    return _page(request, reference_page(request.app))


@router.get("/page/{digest}/{name}")
async def get_file(digest: str, name: str) -> Response:
    """Give a file of the page; under another digest than today's it is not kept by anybody."""
    if name not in files():
        raise unknown("file of the page", name, list(files()))
    kept = IMMUTABLE if digest == version() else "no-store"
    file = files()[name]
    return Response(file.data, media_type=file.media, headers={"Cache-Control": kept})


def _page(request: Request, data: bytes) -> Response:
    policy = page_policy()
    # A browser keeps the policy with the page, so a new one is a new page.
    tag = digest_of(data + policy.encode())
    headers = {"Cache-Control": "no-cache", "Content-Security-Policy": policy, "ETag": f'"{tag}"'}
    same = unchanged(request, tag)
    if same is None:
        return Response(data, media_type=HTML, headers=headers)
    same.headers.update(headers)
    return same

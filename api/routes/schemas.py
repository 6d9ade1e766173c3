"""Schemas of the files that the service takes and gives."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from ..problems import unknown
from ..schemas.schema_files import SCHEMAS, schema_text
from ..server.responses import unchanged
from ..storage.digests import digest_of
from .parameters import NOT_MODIFIED

router = APIRouter(tags=["schemas"])

_SCHEMA: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "a JSON Schema",
        "content": {"application/schema+json": {"schema": {"type": "object"}}},
    }
}


@router.get(
    "/schemas/{name}", operation_id="get_schema", response_class=Response, responses=_SCHEMA | NOT_MODIFIED
)
async def get_schema(
    name: Annotated[str, Path(description="a format: " + ", ".join(SCHEMAS), examples=["plan"])],
    request: Request,
) -> Response:
    """Get the JSON Schema of a file format."""
    if name not in SCHEMAS:
        raise unknown("schema", name, list(SCHEMAS))
    text = schema_text(name)
    tag = digest_of(text)
    answer = Response(text, media_type="application/schema+json", headers={"ETag": f'"{tag}"'})
    return unchanged(request, tag) or answer

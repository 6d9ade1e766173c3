"""Parameters that routes share: the running service, digests in paths, pages; and documented answers."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias

from fastapi import Depends, Header, Path, Query, Request, Response

from ..planning.service import Service
from ..schemas.examples import BLOB, NO_DIGEST, NO_JOB, NO_STATS
from ..schemas.responses import JobRecord
from ..server.responses import MOST, PAGE, Order, PageRequest, next_link
from ..server.tokens import DEFAULT, PRINCIPAL, TENANT
from ..storage.idempotency import IdempotencyKey


# Not `def`: FastAPI calls these in a thread, which costs a request more than they do.
async def _service(request: Request) -> Service:
    scope = request.scope
    found: Service = await request.app.state.tenants.find(
        scope.get(TENANT, DEFAULT), scope.get(PRINCIPAL, "")
    )
    return found


async def _sent(
    prefer: Annotated[  # noqa: ARG001 - for OpenAPI; `wait_of` reads it
        str | None,
        Header(
            max_length=200,
            description="`wait=30`: answer with the result, or with its job after so many seconds; "
            "`respond-async`: with its job at once",
            examples=["wait=30"],
        ),
    ] = None,
    idempotency_key: IdempotencyKey = None,
) -> str | None:
    return idempotency_key


ServiceOf: TypeAlias = Annotated[Service, Depends(_service)]
Sent: TypeAlias = Annotated[str | None, Depends(_sent)]
"""The `Idempotency-Key` of a request that may become a job; `Prefer` comes with it."""
BlobDigest: TypeAlias = Annotated[str, Path(description="sha256: of the bytes", examples=[BLOB])]
ModelDigest: TypeAlias = Annotated[str, Path(description="digest of a model", examples=[NO_DIGEST])]
StatsDigest: TypeAlias = Annotated[str, Path(description="digest of statistics", examples=[NO_STATS])]
PlanKey: TypeAlias = Annotated[str, Path(description="key of a plan", examples=[NO_DIGEST])]
Limit: TypeAlias = Annotated[int, Query(ge=1, le=MOST, description="items of a page", examples=[PAGE])]
Cursor: TypeAlias = Annotated[
    str | None,
    Query(max_length=400, description="`next` of the page before; none for the first", examples=[""]),
]
Ordered: TypeAlias = Annotated[
    Order, Query(description="by digest, or the newest first", examples=["newest"])
]


@dataclass(frozen=True, slots=True)
class Listing:
    """A request for a page of a list, and the answer to it, whose `Link` leads to the next page."""

    asked: PageRequest
    request: Request
    response: Response

    def linked(self, page: Mapping[str, Any]) -> Mapping[str, Any]:
        """Give a page, once the answer links to the one after it."""
        self.link(page["next"])
        return page

    def link(self, cursor: str | None) -> None:
        """Link the answer to the page of a cursor, where there is one."""
        self.response.headers.update(next_link(self.request, cursor))


async def _listing(
    request: Request, response: Response, limit: Limit = PAGE, cursor: Cursor = None
) -> Listing:
    return Listing(PageRequest(limit, cursor), request, response)


async def _ordered_listing(
    request: Request,
    response: Response,
    limit: Limit = PAGE,
    cursor: Cursor = None,
    order: Ordered = "name",
) -> Listing:
    return Listing(PageRequest(limit, cursor, order), request, response)


Listed: TypeAlias = Annotated[Listing, Depends(_listing)]
OrderedListed: TypeAlias = Annotated[Listing, Depends(_ordered_listing)]
JobId: TypeAlias = Annotated[
    str, Path(pattern="^[0-9a-z]{1,32}$", description="id of a job", examples=[NO_JOB])
]
IfMatch: TypeAlias = Annotated[
    str | None, Header(max_length=1000, description="tags, one of which has to be its", examples=["*"])
]

NOT_MODIFIED: Final[dict[int | str, dict[str, Any]]] = {
    304: {"description": "If-None-Match has its tag"},
}
JOB: Final[dict[int | str, dict[str, Any]]] = {
    202: {"description": "its job, see `Location`", "model": JobRecord},
}

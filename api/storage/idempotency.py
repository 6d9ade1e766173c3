"""Idempotency keys: a request that is sent again under its key is the request it was, not another one.

Answers are pure functions of requests, so the key only has to hold the request fast; what a request made
that is not named by its content stands beside it: an upload, or the job that was the answer, which is the
answer again then. Source: the IETF draft Idempotency-Key.
"""

import json
from typing import Annotated, Final, TypeAlias

from anyio.to_thread import run_sync
from fastapi import Header
from starlette.requests import Request

from ..planning.service import Service
from ..problems import Refused
from .digests import digest_of

LONGEST: Final = 200

IdempotencyKey: TypeAlias = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=LONGEST,
        description="of your choice; the same key with another request is refused",
        examples=["one-of-mine"],
    ),
]


async def hold(service: Service, request: Request, key: str | None, made: str = "") -> tuple[str | None, str]:
    """Hold a request fast under its key.

    Args:
      made: what the request is about to make.

    Returns:
      The key's own digest, apart for each token and address; and what was made under it first.

    Raises:
      Refused: `key-reused`.
    """
    if key is None:
        return None, made
    name = digest_of(json.dumps([request.method, request.url.path, service.principal, key]).encode())
    body = digest_of(await request.body())
    record = json.dumps({"request": body, "made": made}).encode()
    kept = await run_sync(_first, service, name, record)
    if kept["request"] != body:
        raise Refused("key-reused", f"the key {key!r} came with another request before")
    return name, kept["made"]


async def note_made(service: Service, request: Request, key: str, made: str) -> None:
    """Note what the first answer under a key was, by the key's digest: the next one is alike."""
    record = json.dumps({"request": digest_of(await request.body()), "made": made}).encode()
    await run_sync(service.store.replace, "keys", key, record)


def _first(service: Service, name: str, record: bytes) -> dict[str, str]:
    service.store.put("keys", name, record)
    found: dict[str, str] = service.store.read_json("keys", name)
    return found

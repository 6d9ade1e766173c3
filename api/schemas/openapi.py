"""The OpenAPI document: what FastAPI draws from the routes, and what it cannot know: tokens, servers, plans.

Source: OpenAPI 3.1; RFC 9457; RFC 6750.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from planner.plans.planschema import PLAN

from ..problems import MEDIA_TYPE
from .requests import TargetSource
from .schema_files import STATS

ABOUT: Final = (
    "Quantizes a model for a device: chooses a type for every tensor so that its kernels can run it. "
    "Digests, keys and ids in examples are placeholders, except the digest of the annotated model, which is "
    "an example too: they depend on the version of the planner. Every GET except event streams also answers "
    "HEAD with the same headers; HEAD is listed here only if its answer differs. `deprecated` of GET "
    "/v1/server lists deprecated names and their replacements."
)
PLAN_REF: Final = {"$ref": "#/components/schemas/Plan"}
SOURCE_REF: Final = {"$ref": "#/components/schemas/TargetSource"}
STATISTICS_REF: Final = {"$ref": "#/components/schemas/Statistics"}
_PARTS: Final = "#/components/schemas/Plan{model}"
_PROBLEM: Final = {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}
_BEARER: Final = {
    "type": "http",
    "scheme": "bearer",
    "description": "a token of `qplan token`; a server without tokens answers on loopback and needs none",
}
_CLAUSE: Final = re.compile(r"[.:;] ")
_OPEN: Final = ("/v1/health/live", "/v1/health/ready")


def openapi_of(app: FastAPI) -> dict[str, Any]:
    """The document of an application, made once."""
    if app.openapi_schema is None:
        found = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        found["servers"] = [{"url": "/", "description": "the server that gives this document"}]
        found["security"] = [{"bearer": []}, {}]
        components = found["components"]
        components["securitySchemes"] = {"bearer": _BEARER}
        source = TargetSource.model_json_schema()
        components["schemas"] |= {"Statistics": STATS, "TargetSource": source, **_plan_schemas()}
        for path, operation in _operations(found):
            operation["responses"]["default"]["content"] = {MEDIA_TYPE: _PROBLEM}  # FastAPI says plain JSON
            operation["summary"] = first_sentence(operation["description"])
            if path in _OPEN:
                operation["security"] = []
        app.openapi_schema = found
    return app.openapi_schema


def first_sentence(text: str) -> str:
    """The first main clause of a text, as a sentence."""
    return f"{_CLAUSE.split(text, maxsplit=1)[0].rstrip('.')}."


def _operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, entries in document["paths"].items():
        for operation in entries.values():
            yield path, operation


def _plan_schemas() -> dict[str, Any]:
    """The schema of a plan, its parts beside it under names of their own."""
    plan = PLAN.json_schema(ref_template=_PARTS)
    parts = plan.pop("$defs", {})
    return {"Plan": plan, **{f"Plan{name}": part for name, part in parts.items()}}

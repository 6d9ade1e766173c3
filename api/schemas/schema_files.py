"""JSON Schemas of the files that the service takes and gives, by name. Source: docs/formats.md."""

import json
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final

from pydantic import TypeAdapter

from planner.formats.annotated.schema import AnnotatedDoc
from planner.installation import targets_folder
from planner.plans.planschema import PLAN

DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_NUMBERS: Final = {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]}
_STORAGES: Final = {"type": "array", "items": {"type": "string"}}
_TYPES: Final = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}
_COUNT: Final = {"type": "integer", "minimum": 0}


def _object(required: tuple[str, ...], **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


_SIZES: Final = {"type": "array", "items": _COUNT}
STATS: Final = _object(
    ("format", "model", "method", "samples", "values"),
    format={"type": "string", "enum": ["qplan.stats/1", "qplan.stats/2"]},
    model={"type": "string"},
    method={"type": "string"},
    samples=_COUNT,
    sizes={
        "type": "object",
        "additionalProperties": _object(("sizes",), sizes=_SIZES, least=_SIZES, most=_SIZES),
    },
    trips={"type": "object", "additionalProperties": {"type": "integer", "minimum": 1}},
    values={
        "type": "object",
        "additionalProperties": _object(
            ("min", "max"),
            min=_NUMBERS,
            max=_NUMBERS,
            axis={"type": "integer"},
            nan=_COUNT,
            inf=_COUNT,
            bins=_object(
                ("exponent", "first", "counts"),
                exponent={"type": "integer"},
                first={"type": "integer"},
                counts={"type": "array", "items": _COUNT},
            ),
            mean=_object(
                ("axis", "values"),
                axis={"type": "integer"},
                values={"type": "array", "items": {"type": "number"}},
            ),
            row_max={
                "type": "array",
                "items": _object(
                    ("axis", "entries", "least"),
                    axis=_COUNT,
                    least={"type": "number"},
                    entries={"type": "integer", "minimum": 1},
                    apart=_COUNT,
                    sample={"type": "string"},
                ),
            },
            two_values={"type": "boolean"},
            below={"type": "boolean"},
            readers={"type": "object", "additionalProperties": {"type": "number"}},
        ),
    },
)
_ANNOTATIONS: Final = _object(
    ("format",),
    format={"const": "qplan.annotations/1"},
    values={"type": "object", "additionalProperties": _TYPES},
    ports={"type": "object", "additionalProperties": _TYPES},
    kernels={
        "type": "object",
        "additionalProperties": {
            "anyOf": [{"type": "string"}, _object((), **{"in": _STORAGES, "out": _STORAGES})]
        },
    },
    remove={"type": "array", "items": {"type": "string"}},
)

SCHEMAS: Final[Mapping[str, Callable[[], dict[str, Any]]]] = {
    "annotated": lambda: TypeAdapter(AnnotatedDoc).json_schema(),
    "annotations": lambda: _ANNOTATIONS,
    "plan": PLAN.json_schema,
    "stats": lambda: STATS,
    "target": lambda: json.loads((targets_folder() / "target.schema.json").read_text("utf-8")),
}
"""By the name of the format; all but a target's are of version 1."""


@cache
def schema_text(name: str) -> bytes:
    """The schema of a name in `SCHEMAS`, as JSON."""
    return json.dumps({"$schema": DRAFT, **SCHEMAS[name]()}).encode()

"""The JSON Schema (draft-07, which editors read) of a target file, generated from the models of `schema`.

`targets/target.schema.json` is its output (`python -m planner.target.docs.jsonschema`); a test compares.
`qplan target schema FILE` writes one that knows the file's own type names as well, for completion.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from planner.ir.types.storages import FLOAT_STORAGE
from planner.target.docs.fields import FIELDS
from planner.target.schema.document import Document

STORAGES: Final = (
    *(f"{sign}{bits}" for bits in (8, 4, 16, 32, 2, 64) for sign in ("i", "u")),
    *("f32", "f16", "bf16", *FLOAT_STORAGE, "*"),
)
"""Storages that editors offer; others, `i3` and `i8<-127:127>` among them, are as good."""
STORED: Final = (
    "TypeModel.storage",
    "RowModel.accumulator",
    "RemoveModel.storage",
    "AccumulatorModel.storage",
    "PartialSumsModel.storage",
    "DynamicModel.storage",
)
"""Fields that take a storage."""
BOUNDS: Final[Mapping[str, str]] = {
    "ge": "minimum",
    "le": "maximum",
    "gt": "exclusiveMinimum",
    "lt": "exclusiveMaximum",
}
"""JSON Schema's words for bounds that pydantic leaves in its own, on unions."""


def json_schema(types: Iterable[str] = ()) -> dict[str, Any]:
    """Generate the schema.

    Args:
      types: names of types that editors offer for ports, beside `*`.
    """
    whole = Document.model_json_schema(by_alias=True, mode="validation")
    for model, schema in (("Document", whole), *whole["$defs"].items()):
        _explain(model, schema)
    # Over an inherited type a file may say a part of it alone; loading asks for the rest.
    whole["$defs"]["TypeModel"].pop("required")
    ports = _offered(("*", *types))
    for side in ("in", "out"):
        (signature,) = whole["$defs"]["RowModel"]["properties"][side]["anyOf"][0][
            "patternProperties"
        ].values()
        signature["oneOf"][0]["anyOf"][0] = ports
    whole["$defs"]["DefaultsModel"]["properties"]["port"]["oneOf"][0]["anyOf"][0] = ports
    drafted: dict[str, Any] = _draft7(whole)
    return {"$schema": "http://json-schema.org/draft-07/schema#", **drafted}


def _explain(model: str, schema: dict[str, Any]) -> None:
    """Add the descriptions and examples of `fields` to the properties of a model."""
    for name, written in schema.get("properties", {}).items():
        description, example = FIELDS.get(f"{model}.{name}", ("", None))
        if description:
            written["description"] = description
        if example is not None:
            written.setdefault("examples", [example])
        if f"{model}.{name}" in STORED:
            text = _text_of(written)
            del text["type"]
            text |= _offered(STORAGES)


def _text_of(field: dict[str, Any]) -> dict[str, Any]:
    """The member of a field, or of one of its unions, that is text."""
    members = [one for key in ("anyOf", "oneOf") for one in field.get(key, ())]
    found = (text for one in members if (text := _text_of(one)).get("type") == "string")
    return field if field.get("type") == "string" else next(found, field)


def _offered(words: Iterable[str]) -> dict[str, Any]:
    """Text, of which editors offer some words."""
    return {"anyOf": [{"enum": [*words]}, {"type": "string"}]}


def json_schema_text(types: Iterable[str] = ()) -> str:
    """The shipped file, whole, or that of a file with types of its own."""
    return json.dumps(json_schema(types), indent=1, ensure_ascii=False) + "\n"


def _draft7(value: Any) -> Any:
    if isinstance(value, list):
        return [_draft7(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {_word(key, item): _draft7(item) for key, item in value.items()}
    if "patternProperties" in result:
        result.setdefault("additionalProperties", False)
    if isinstance(result.get("$ref"), str):
        reference = {"$ref": result.pop("$ref").replace("#/$defs/", "#/definitions/")}
        # Draft-07 ignores everything beside a $ref.
        result = {**result, "allOf": [reference]} if result else reference
    return result


def _word(key: str, item: Any) -> str:
    """A key in the words of draft-07."""
    if key == "$defs":
        return "definitions"
    return BOUNDS[key] if key in BOUNDS and isinstance(item, int | float) else key


if __name__ == "__main__":
    sys.stdout.write(json_schema_text())

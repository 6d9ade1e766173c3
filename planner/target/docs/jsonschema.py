"""The JSON Schema (draft-07, which editors read) of a target file, generated from the models of `schema`.

`targets/target.schema.json` is its output (`python -m planner.target.docs.jsonschema`); a test compares.
"""

import json
import sys
from typing import Any

from planner.target.docs.fields import FIELDS
from planner.target.schema import Document


def json_schema() -> dict[str, Any]:
    """Generate the schema."""
    whole = Document.model_json_schema(by_alias=True, mode="validation")
    for model, schema in (("Document", whole), *whole["$defs"].items()):
        _explain(model, schema)
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


def json_schema_text() -> str:
    """The shipped file, whole."""
    return json.dumps(json_schema(), indent=1, ensure_ascii=False) + "\n"


def _draft7(value: Any) -> Any:
    if isinstance(value, list):
        return [_draft7(item) for item in value]
    if not isinstance(value, dict):
        return value
    result = {("definitions" if key == "$defs" else key): _draft7(item) for key, item in value.items()}
    if "patternProperties" in result:
        result.setdefault("additionalProperties", False)
    if isinstance(result.get("$ref"), str):
        reference = {"$ref": result.pop("$ref").replace("#/$defs/", "#/definitions/")}
        # Draft-07 ignores everything beside a $ref.
        result = {**result, "allOf": [reference]} if result else reference
    return result


if __name__ == "__main__":
    sys.stdout.write(json_schema_text())

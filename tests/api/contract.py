"""What breaks clients: a later OpenAPI document held against an earlier one.

Requests may be asked for less and answers may say more; everything else is a break. Schemas are compared
as far as clients of ours depend on them: references, types, enumerations, properties, required ones.
The kinds of jobs grow: docs/service.md says so, and nobody meets a new one who did not ask for it.
"""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]

GROWING = ("/kind", "/format")
"""Ends of the places of enumerations whose words grow in answers."""

UNSENT = ("answer default", "application/json")
"""Problems were declared as plain JSON too, which no server ever sent: who waits for it waits for nothing."""


def breaks(before: Schema, after: Schema) -> list[str]:
    """Say what a client of the earlier document would stumble over, by operation id."""
    later = operations(after)
    found = []
    for name, (where, operation) in operations(before).items():
        if name not in later:
            found.append(f"{name}: gone")
        elif later[name][0] != where:
            found.append(f"{name}: moved from {' '.join(where)} to {' '.join(later[name][0])}")
        else:
            found += [f"{name}: {text}" for text in _operation((before, operation), (after, later[name][1]))]
    return found


def operations(document: Schema) -> dict[str, tuple[tuple[str, str], Schema]]:
    """Operations by id: (method, path) and what the document says."""
    return {
        entry["operationId"]: ((method, path), entry)
        for path, entries in document["paths"].items()
        for method, entry in entries.items()
    }


def _operation(before: tuple[Schema, Schema], after: tuple[Schema, Schema]) -> Iterator[str]:
    (old_root, old), (new_root, new) = before, after
    parameters = [{(p["in"], p["name"]): p for p in entry.get("parameters", ())} for entry in (old, new)]
    for key, parameter in parameters[1].items():
        if parameter.get("required") and not parameters[0].get(key, {}).get("required"):
            yield f"{key[0]} {key[1]} is required now"
    for key, parameter in parameters[0].items():
        if key not in parameters[1]:
            yield f"{key[0]} {key[1]} is gone"
        else:
            pair = (old_root, parameter["schema"]), (new_root, parameters[1][key]["schema"])
            yield from _narrowed(pair[1], pair[0], f"{key[0]} {key[1]}", asked=True)
    yield from _contents(
        (old_root, old.get("requestBody", {})), (new_root, new.get("requestBody", {})), "body", asked=True
    )
    for code, answer in old["responses"].items():
        if code not in new["responses"]:
            yield f"answer {code} is gone"
        else:
            both = (old_root, answer), (new_root, new["responses"][code])
            yield from _contents(*both, f"answer {code}", asked=False)


def _contents(
    before: tuple[Schema, Schema], after: tuple[Schema, Schema], where: str, *, asked: bool
) -> Iterator[str]:
    old, new = before[1].get("content", {}), after[1].get("content", {})
    for media, content in old.items():
        if media not in new:
            if (where, media) != UNSENT:
                yield f"{where}: {media} is gone"
            continue
        schemas = (before[0], content.get("schema", {})), (after[0], new[media].get("schema", {}))
        # What is asked may only widen, what is answered only narrow.
        first, second = schemas[::-1] if asked else schemas
        yield from _narrowed(first, second, where, asked=asked)


def _narrowed(
    wide: tuple[Schema, Schema], narrow: tuple[Schema, Schema], where: str, *, asked: bool, depth: int = 0
) -> Iterator[str]:
    """Why something that fits `narrow` may not fit `wide`."""
    (wide_root, one), (narrow_root, other) = (root_and_schema(*pair) for pair in (wide, narrow))
    if depth > 12 or not one:
        return
    kinds, others = set(_alternatives(wide_root, one)), set(_alternatives(narrow_root, other))
    if not others <= kinds:
        yield f"{where}: {_texts(others - kinds)} where {_texts(kinds)} was"
        return
    grows = not asked and where.endswith(GROWING)
    if "enum" in one and not grows and not set(other.get("enum", ())) <= set(one["enum"]):
        yield f"{where}: {sorted(set(other.get('enum', ())) ^ set(one['enum']))} differs"
    properties, found = one.get("properties", {}), other.get("properties", {})
    missing = set(one.get("required", ())) - set(other.get("required", ()))
    for name in sorted(missing):
        yield f"{where}/{name} is {'required now' if asked else 'not always there'}"
    for name in properties.keys() & found.keys():
        pair = (wide_root, properties[name]), (narrow_root, found[name])
        yield from _narrowed(*pair, f"{where}/{name}", asked=asked, depth=depth + 1)
    if asked and one.get("additionalProperties") is False:
        for name in sorted(found.keys() - properties.keys()):
            yield f"{where}/{name} is gone"
    if "items" in one and "items" in other:
        pair = (wide_root, one["items"]), (narrow_root, other["items"])
        yield from _narrowed(*pair, f"{where}[]", asked=asked, depth=depth + 1)


def root_and_schema(root: Schema, schema: Schema) -> tuple[Schema, Schema]:
    """A schema with its reference followed."""
    while "$ref" in schema:
        schema = root["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return root, schema


def _alternatives(root: Schema, schema: Schema) -> Iterator[str]:
    for choice in schema.get("anyOf", [schema]):
        _, found = root_and_schema(root, choice)
        yield found.get("type") or ("constant" if "const" in found else "any")


def _texts(kinds: set[str]) -> str:
    return " or ".join(sorted(kinds))

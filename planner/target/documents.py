"""Checking a document: pydantic's complaints as problems with file, line, column and code.

The models are `schema`; the places come from the marked tree. Each problem is reported once, by position.
"""

import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from planner.errors import Problem
from planner.target.schema.document import Document
from planner.target.yamltree import Node, locate, nearest

_EXPECTED: Final[Mapping[str, str]] = {
    "bool_type": "true or false",
    "float_type": "a number",
    "int_type": "a whole number",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
}
_FORMS: Final[Mapping[str, str]] = {
    "version": "a version has three numbers, 1.0.0",
    "id": "an id has letters, digits, '_', '.' and '-', and begins with one of the first three",
}
_GRANULARITIES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("per_tensor", "per_layer", "layer"), "tensor"),
    **dict.fromkeys(("per_channel", "per_axis", "channel", "channelwise"), "axis"),
    **dict.fromkeys(("per_block", "per_group", "group", "groupwise", "blockwise"), "block"),
}
"""Other tools' words."""
_ALIASES: Final[Mapping[str, str]] = {
    **dict.fromkeys(("bits", "dtype", "type"), "storage: i8"),
    **dict.fromkeys(("per_axis", "per_channel", "perchannel"), "granularity: axis"),
    **dict.fromkeys(("name", "op", "op_type", "operator"), "kernel"),
    **dict.fromkeys(("zeropoint", "zp"), "zero_point"),
}
"""Other tools' fields."""
_TAGS: Final[Mapping[str, str]] = {"text": "text", "list": "a list", "map": "a mapping"}


def check_document(root: Node, data: Mapping[str, Any]) -> Document | tuple[Problem, ...]:
    """Read the document, or list everything wrong with its shape, each problem once, by position.

    Args:
      data: the tree as `plain` gives it.
    """
    try:
        return Document.model_validate(data)
    except ValidationError as error:
        details = error.errors(include_url=False)
    details = [detail for detail in details if not _is_cut(root, detail)]
    problems = {_problem(root, detail) for detail in details if detail["type"] not in _EXPECTED}
    problems |= _wrong_kinds(root, details)
    problems |= set(_cut_patterns(root))
    places = {(p.line, p.column) for p in problems if p.code != "T010"}
    kept = [p for p in problems if p.code != "T010" or (p.line, p.column) not in places]
    return tuple(sorted(kept, key=lambda p: (p.line, p.column, p.code, p.message)))


def _wrong_kinds(root: Node, details: Sequence[ErrorDetails]) -> set[Problem]:
    """T010, once a place: pydantic reports each member of a union alone."""
    found: dict[tuple[int, int, str], tuple[Node, set[str]]] = {}
    for detail in details:
        if detail["type"] in _EXPECTED:
            node, text = locate(root, detail["loc"])
            known = found.setdefault((node.line, node.column, text), (node, set()))
            known[1].add(_EXPECTED[detail["type"]])
    return {
        node.problem(
            "T010", f"{_either(kinds)} is expected here, not {_shown(node)}{_quoted(text, node)}", text
        )
        for (_, _, text), (node, kinds) in found.items()
    }


def _quoted(text: str, node: Node) -> str:
    """The text to write for a version that YAML reads as a number."""
    if text != "version" or isinstance(node.data, bool) or not isinstance(node.data, int | float):
        return ""
    whole = f"{node.data}.0.0" if isinstance(node.data, int) else f"{node.data}.0"
    return f" (write {whole}: three numbers are text)"


def _is_cut(root: Node, detail: ErrorDetails) -> bool:
    """Whether a complaint is of a field that a merge key was to bring, or of the rest of a cut pattern."""
    path, kind = detail["loc"], detail["type"]
    mapping, _ = locate(root, path[:-1])
    if kind == "missing":
        return mapping.get("<<") is not None
    rest = mapping.get(str(path[-1])) if path else None
    is_rest = kind == "extra_forbidden" and rest is not None and rest.data is None
    return is_rest and _cut_pattern(mapping) is not None


def _cut_patterns(root: Node) -> Iterator[Problem]:
    """T014: patterns that YAML cut at a comma, as they stand in braces without quotes."""
    table = root.get("fusions")
    for i, entry in enumerate(table.entries() if table is not None else ()):
        pattern = _cut_pattern(entry)
        if pattern is not None:
            message = (
                f"the pattern ends at the comma, {pattern.data!r}: inside braces it is written in quotes"
            )
            yield pattern.problem("T014", message, f"fusions[{i}].pattern")


def _cut_pattern(entry: Node) -> Node | None:
    """The pattern of a fusion, where its parentheses do not close and keys without a value follow it."""
    pattern = entry.get("pattern")
    if (
        pattern is None
        or not isinstance(pattern.data, str)
        or pattern.data.count("(") <= pattern.data.count(")")
    ):
        return None
    return pattern if any(node.data is None for _, node in entry.items()) else None


def _either(kinds: set[str]) -> str:
    """The kinds expected, in a fixed order; a number may be whole."""
    wanted = kinds - {"a whole number"} if "a number" in kinds else kinds
    *first, last = (kind for kind in dict.fromkeys(_EXPECTED.values()) if kind in wanted)
    return f"{', '.join(first)} or {last}" if first else last


def _problem(root: Node, detail: ErrorDetails) -> Problem:
    path, kind, context = detail["loc"], detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        node, text = locate(root, path[:-1])
        key = str(path[-1])
        if key == "<<":
            message = "YAML 1.2 has no merge key '<<': write the fields out"
            return node.problem("T012", message, _join(text, key), key=key)
        known = _fields(path[:-1])
        alias = _ALIASES.get(key, "")
        hint = f" ({alias} here)" if alias.partition(":")[0] in known else nearest(key, known)
        return node.problem("T012", f"unknown field {key!r}{hint}", _join(text, key), key=key)
    if path and path[-1] == "[key]":
        node, text = locate(root, path[:-2])
        key = str(path[-2])
        return node.problem(
            "T014", f"{key!r} is no port name: letters, digits, '_', then '?' or '*'", text, key=key
        )
    node, text = locate(root, path)
    if kind == "missing":
        return node.problem("T011", f"field {str(path[-1])!r} is missing", text)
    if kind == "literal_error":
        known = [word.strip("'") for word in str(context["expected"]).replace(" or ", ", ").split(", ")]
        ours = _GRANULARITIES.get(str(node.data).replace("-", "_"))
        hint = f" ({ours} here)" if ours in known else nearest(str(node.data), known, listed=False)
        return node.problem("T013", f"{_shown(node)} is none of {', '.join(known)}{hint}", text)
    if kind == "one_rule":
        return node.problem("T014", str(detail["msg"]), text)
    if kind == "union_tag_invalid":
        wanted = " or ".join(word for tag, word in _TAGS.items() if f"'{tag}'" in context["expected_tags"])
        return node.problem("T010", f"{wanted} is expected here, not {_shown(node)}", text)
    if kind == "too_short":
        return node.problem("T014", f"{context['min_length']} or more entries are expected here", text)
    if kind == "string_pattern_mismatch" and text in _FORMS:
        return node.problem("T014", f"{_shown(node)}: {_FORMS[text]}", text)
    return node.problem("T014", f"{_shown(node)}: {_lower(detail['msg'])}", text)


def _join(text: str, key: str) -> str:
    return f"{text}.{key}" if text else key


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _shown(node: Node) -> str:
    if isinstance(node.data, Mapping):
        return "a mapping"
    if isinstance(node.data, tuple):
        return "a list"
    words = {None: "nothing", True: "true", False: "false"}
    if node.data is None or isinstance(node.data, bool):
        return words[node.data]
    text = repr(node.data)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields(path: Sequence[str | int]) -> list[str]:
    """Field names of the model that `path` (a pydantic location) leads to."""
    found: Any = Document
    for step in path:
        found = _step(found, step)
    model = next((m for m in _members(found) if isinstance(m, type) and issubclass(m, BaseModel)), None)
    return [f.alias or name for name, f in model.model_fields.items()] if model else []


def _step(found: Any, step: str | int) -> Any:
    for member in _members(found):
        origin = get_origin(member)
        if isinstance(step, int) and origin is list:
            return get_args(member)[0]
        if isinstance(step, str) and origin is dict:
            return get_args(member)[1]
        if isinstance(step, str) and isinstance(member, type) and issubclass(member, BaseModel):
            for name, item in member.model_fields.items():
                if (item.alias or name) == step:
                    return item.annotation
    return found


def _members(annotation: Any) -> list[Any]:
    """Flatten unions and annotations to plain types."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return [inner for member in get_args(annotation) for inner in _members(member)]
    return [annotation]

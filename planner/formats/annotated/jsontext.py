"""JSON files, checked on the way in and laid out one item a line on the way out.

`read_checked` validates text against a typed dictionary (unknown fields refused, nothing coerced) and
names the path of the fault; `write_lines` is the one layout of every file we write.
"""

import json
import json.encoder
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from planner.errors import PlanFormatError

STRICT = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

T = TypeVar("T")


def read_checked(text: str | bytes, adapter: TypeAdapter[T], version: str) -> T:
    """Read JSON text of one format version.

    Args:
      text: the file.
      adapter: of its fields.
      version: its `format`, e.g. `qplan.plan/1`.

    Raises:
      PlanFormatError: not JSON, another format or version, unknown, missing or wrong fields, with the path.
    """
    if not isinstance(text, str | bytes):
        raise PlanFormatError(f"JSON text is read here, not a {type(text).__name__}")
    try:
        return adapter.validate_json(text)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        unknown = (
            p for p in found if p["type"] == "extra_forbidden" and p["loc"][:-1] == found[0]["loc"][:-1]
        )
        raise PlanFormatError(_explain(text, version, next(unknown, found[0]))) from None


def _explain(text: str | bytes, version: str, problem: ErrorDetails) -> str:
    kind, message = problem["type"], problem["msg"]
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return f"not JSON: {message.removeprefix('Invalid JSON: ')}"
    if not isinstance(document, dict) or "format" not in document:
        return f'not a {version.partition("/")[0]} file: it has no "format"; expected "format": "{version}"'
    if document["format"] != version:
        return f"format {document['format']!r} is unknown here; this version reads {version!r}"
    path = json_path(document, problem["loc"])
    if kind == "extra_forbidden":
        return f"{path}: unknown field"
    if kind == "missing":
        return f"{path}: missing"
    return f"{path}: {message[:1].lower()}{message[1:]}"


def json_path(document: Any, loc: tuple[int | str, ...]) -> str:
    """Write a place in a document as `kernels[3].inputs[0]`; the names of union members are left out."""
    path, here, inside = "", document, True
    for i, part in enumerate(loc):
        inside = isinstance(here, dict) if isinstance(part, str) else isinstance(here, list)
        if not inside or (isinstance(here, dict) and part not in here and i < len(loc) - 1):
            break
        path += f"[{part}]" if isinstance(part, int) else f".{part}"
        try:
            here = here[part]
        except (KeyError, IndexError):
            break
    return path.removeprefix(".") or "the file"


class Nested(dict[str, Any]):
    """A mapping that `write_lines` lays out over several lines."""


class Lines:
    """A list, or with braces a table, whose entries are JSON text already; one a line if it is spread."""

    def __init__(self, entries: Iterable[str], brackets: str = "[]", *, spread: bool = True) -> None:
        self.entries = entries
        self.brackets = brackets
        self.spread = spread


def write_lines(document: Mapping[str, Any], *, indent: str = "") -> str:
    """Write a document with one line for each field, list item and table entry of the first level.

    A `Nested` field is laid out the same way. Big lists and tables come as `Lines`, whose entries were
    written from templates, which takes a third of the time; or as iterators, so that their entries need not
    be alive together: the garbage collector would walk them over and over.
    """
    return "".join(line_parts(document, indent=indent))


def line_parts(document: Mapping[str, Any], *, indent: str = "") -> Iterator[str]:
    """The same in parts: a long document need not be in memory as a whole."""
    yield "{\n"
    between = ""
    for key, value in document.items():
        yield f"{between}{indent} {encode(key)}: "
        yield from _field(value, indent)
        between = ",\n"
    yield f"\n{indent}}}"


def write_compact(document: Mapping[str, Any]) -> str:
    """Write the same document on one line."""
    return "{" + ", ".join(f"{encode(key)}: {_compact(value)}" for key, value in document.items()) + "}"


def _compact(value: Any) -> str:
    if isinstance(value, Nested):
        return write_compact(value)
    if isinstance(value, Lines):
        return ", ".join(value.entries).join(value.brackets)
    return encode(list(value) if isinstance(value, Iterator) else value)


def _field(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Nested):
        yield from line_parts(value, indent=indent + " ")
    elif isinstance(value, Lines) and value.spread:
        yield from _lines(value.brackets, value.entries, indent)
    elif isinstance(value, Iterator):
        yield from _lines("[]", map(encode, value), indent)
    else:
        yield _compact(value)


def _lines(brackets: str, items: Iterable[str], indent: str) -> Iterator[str]:
    before = f"{brackets[0]}\n{indent}  "
    for item in items:
        yield before
        yield item
        before = f",\n{indent}  "
    yield f"\n{indent} {brackets[1]}" if before[0] == "," else brackets


def _encoder() -> Callable[[Any], str]:
    """The encoder of one value; `JSONEncoder.encode` makes an encoder in C for each, most of its time."""
    plain = json.JSONEncoder(ensure_ascii=False, allow_nan=False)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return plain.encode
    parts = make(None, plain.default, json.encoder.encode_basestring, None, ": ", ", ", False, False, False)
    return lambda value: "".join(parts(value, 0))


encode = _encoder()
"""JSON text of any value."""
quote: Callable[[str], str] = json.encoder.encode_basestring
"""JSON text of a string."""


def quote_all(names: Iterable[str]) -> str:
    """JSON text of a list of names; "" is null."""
    return "[" + ", ".join([quote(name) if name else "null" for name in names]) + "]"


def number(value: float) -> str:
    """JSON text of a number with a point.

    Raises:
      ValueError: JSON has no text for it.
    """
    text = repr(float(value))
    if text[-1] in "fn":
        raise ValueError(f"{text} is no number of JSON")
    return text

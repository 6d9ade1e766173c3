"""JSON of other tools as marked trees: every value knows its file, line and column, and reads itself
strictly.

Comments (`//`, `/* */`) and a comma behind the last entry pass, since such files have them. JSON is a part of
YAML, so the limits on size and depth and the refusal of a key set twice are those of `yamltree`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

from planner.errors import InputError, TargetError
from planner.target.yamltree import MAX_BYTES, Node, nearest, plain, read_yaml

# What is not closed is taken to its end, so that no text is read twice.
_COMMENT: Final = re.compile(r'"(?:[^"\\\n]|\\.)*"?|//[^\n]*|/\*.*?(?:\*/|\Z)|\t', re.DOTALL)
LEAST: Final = 1e-12
MOST: Final = 64
"""Entries of a list that rows are made of."""


@dataclass(frozen=True, slots=True)
class Item:
    """A value of a JSON document, with its address (`op_type.Conv`) for messages."""

    node: Node
    path: str

    def fail(self, message: str, *, accepted: str = "") -> NoReturn:
        """Refuse this value: its place, the error, and the accepted values."""
        node = self.node
        where = f"{node.source.name}:{node.line}:{node.column}"
        raise InputError(f"{where}: {self.path or 'the document'}: {message}", hint=accepted)

    def fields(self, known: Sequence[str], *, required: Sequence[str] = ()) -> "dict[str, Item]":
        """The entries of an object that has these keys alone; `required` ones are there."""
        found = dict(self.entries())
        for key, item in found.items():
            if key not in known:
                item.fail(f"unknown key {key!r}{nearest(key, known)}")
        for key in required:
            if key not in found:
                self.fail(f"no {key!r}", accepted=f"keys are {', '.join(known)}")
        return found

    def entries(self) -> "Iterator[tuple[str, Item]]":
        """Keys and values of an object."""
        if not isinstance(self.node.data, dict):
            self.fail(f"is {_kind(self.node)}", accepted="an object: {...}")
        for key, node in self.node.data.items():
            yield key, Item(node, f"{self.path}.{key}" if self.path else key)

    def list(self, *, or_one: bool = False, most: int = MOST) -> "tuple[Item, ...]":
        """Values of an array, `most` at most; `or_one`: a value alone is an array of it."""
        if not isinstance(self.node.data, tuple):
            if or_one:
                return (self,)
            self.fail(f"is {_kind(self.node)}", accepted="an array: [...]")
        if len(self.node.data) > most:
            self.fail(f"{len(self.node.data)} entries", accepted=f"at most {most}")
        return tuple(Item(node, f"{self.path}[{i}]") for i, node in enumerate(self.node.data))

    def text(self, known: Sequence[str] = ()) -> str:
        """A text; one of `known`, if any are given."""
        data = self.node.data
        if not isinstance(data, str):
            self.fail(f"is {_kind(self.node)}", accepted=f"one of {', '.join(known)}" if known else "text")
        if known and data not in known:
            self.fail(f"{data!r} is none of those accepted{nearest(data, known)}")
        return data

    def truth(self) -> bool:
        """True or false, also as the words "True" and "False"."""
        data = self.node.data
        if data in ("True", "False"):
            return data == "True"
        if not isinstance(data, bool):
            shown = repr(data) if isinstance(data, str) else _kind(self.node)
            self.fail(f"is {shown}", accepted='"True" or "False"')
        return data

    def whole(self, least: int, most: int) -> int:
        """A whole number within bounds."""
        data = self.node.data
        if isinstance(data, bool) or not isinstance(data, int) or not least <= data <= most:
            self.fail(f"is {plain(self.node)!r}", accepted=f"a whole number, {least} to {most}")
        return data

    def number(self) -> float:
        """A finite number, neither huge nor tiny."""
        data = self.node.data
        if isinstance(data, bool) or not isinstance(data, int | float):
            self.fail(f"is {_kind(self.node)}", accepted="a number")
        if data and not LEAST <= abs(data) <= 1 / LEAST:
            self.fail(f"is {data}", accepted=f"0, or a number of {LEAST} to {1 / LEAST}")
        return data

    @property
    def is_null(self) -> bool:
        """Whether this is null."""
        return self.node.data is None


def _kind(node: Node) -> str:
    data = node.data
    kinds = {dict: "an object", tuple: "an array", str: "text", bool: "a truth value", type(None): "null"}
    return kinds.get(type(data), f"the number {data}")


def read_json(text: str, name: str) -> Item:
    """Read one JSON document.

    Raises:
      InputError: the first thing that is no JSON, as `name:line:column: ...`.
    """
    if len(text) > MAX_BYTES:
        raise InputError(f"{name}: more than {MAX_BYTES} characters")
    # Comments become spaces, so that places stay what they were.
    bare = _COMMENT.sub(lambda found: _blank(found[0]), text)
    try:
        root = read_yaml(bare, name, anchors=False)
    except TargetError as error:
        first = error.errors[0]
        message = first.message.replace("not YAML: ", "not JSON: ")
        raise InputError(f"{name}:{first.line}:{first.column}: {message}") from error
    return Item(root, "")


def _blank(token: str) -> str:
    return token if token.startswith('"') else re.sub(r"[^\n]", " ", token)

"""YAML text to a marked tree: every node and key knows its file, line and column.

Strict YAML 1.2 core: `on` is text, `010` is refused, keys are text and unique, no tags; anchors only
where asked. Size, depth and number of nodes are limited before a tree is built. `schema` gives the data
a meaning. Source: YAML 1.2.2, chapter 10.3; libyaml events through PyYAML.
"""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

import yaml

from planner.errors import InputError, Problem, TargetError

MAX_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 64
MAX_NODES: Final = 100_000
MAX_QUOTE: Final = 80
SURE: Final = 0.8
"""How alike a name is for which no other is as near: `inputs` begins with `in`, and looks like `computes`."""

Scalar: TypeAlias = bool | int | float | str | None

_WORDS: Final[Mapping[str, bool | None]] = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}
_INTEGER: Final = re.compile(r"[-+]?(0|[1-9][0-9]{0,38})|0x[0-9a-fA-F]{1,32}")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]{1,400}|[0-9]{1,400}(\.[0-9]{0,400})?)([eE][-+]?[0-9]{1,4})?")
_REFUSED: Final = re.compile(r"[-+]?0[0-9]+|0o[0-7]+|[-+]?[0-9]{39,}|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_INDENT: Final = "this line is indented otherwise than its list or mapping"
_PLAINLY: Final[Mapping[str, str]] = {
    "block collection did not find expected '-'": _INDENT,
    "block mapping did not find expected key": _INDENT,
    "block scalar did not find expected comment": "a text that begins with > or | goes in quotes",
    "mapping values are not allowed": "text with ': ' goes in quotes; else the indent is wrong",
    "could not find expected ':'": "there is no ': ' behind a key, here or in the line above",
}
"""What libyaml says, and what people do about it."""
_NO_KEYS: Final[Mapping[str, tuple[int, int]]] = {}
_NUMBERS_BEGIN: Final = frozenset("+-.0123456789")
# PyYAML's own parser refuses `b?: b32` inside braces, so libyaml it is.
_Loader: Final[Any] = getattr(yaml, "CSafeLoader", None)


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """A file's base name and its text."""

    name: str
    text: str = field(repr=False)

    def quote(self, line: int, column: int = 1) -> str:
        """Line `line` (from 1) without its indent; of a long one the part around `column`."""
        lines = self.text.splitlines()
        if not 0 < line <= len(lines):
            return ""
        found = lines[line - 1].rstrip()
        indent = len(found) - len(found.lstrip())
        start = max(indent, min(column - 1 - MAX_QUOTE // 2, len(found) - MAX_QUOTE))
        end = start + MAX_QUOTE
        return ("..." if start > indent else "") + found[start:end] + ("..." if end < len(found) else "")


class Node(NamedTuple):
    """A scalar, a sequence or a mapping, with the place it starts at (line and column from 1).

    Attributes:
      data: the scalar, a tuple of nodes, or a mapping from key to node.
      keys: of a mapping, line and column of each key.
    """

    data: Scalar | tuple["Node", ...] | dict[str, "Node"]
    source: Source
    line: int
    column: int
    keys: Mapping[str, tuple[int, int]] = _NO_KEYS

    def problem(self, code: str, message: str, path: str = "", *, key: str | None = None) -> Problem:
        """Make the record of an error here, or at one of this mapping's keys."""
        line, column = self.keys.get(key, (self.line, self.column)) if key else (self.line, self.column)
        return Problem(self.source.name, line, column, code, message, path, self.source.quote(line, column))

    def get(self, key: str) -> "Node | None":
        """The node under a key of a mapping; None where there is none."""
        return self.data.get(key) if isinstance(self.data, dict) else None

    def items(self) -> Iterator[tuple[str, "Node"]]:
        """Keys and nodes of a mapping; nothing for other nodes."""
        if isinstance(self.data, dict):
            yield from self.data.items()

    def entries(self) -> tuple["Node", ...]:
        """Nodes of a sequence; nothing for other nodes."""
        return self.data if isinstance(self.data, tuple) else ()

    @property
    def where(self) -> str:
        """`file:line`."""
        return f"{self.source.name}:{self.line}"


def plain(node: Node) -> Any:
    """The node as dicts, lists and scalars."""
    data = node.data
    if isinstance(data, dict):
        return {key: plain(item) for key, item in data.items()}
    return [plain(item) for item in data] if isinstance(data, tuple) else data


def locate(root: Node, path: Sequence[str | int]) -> tuple[Node, str]:
    """Follow keys and indices as far as they lead; steps that are none of the data are skipped.

    Returns:
      The deepest node, and its address as text (`kernels[3].when`).
    """
    node, text = root, ""
    for step in path:
        if isinstance(node.data, dict) and isinstance(step, str) and step in node.data:
            node, text = node.data[step], f"{text}.{step}" if text else step
        elif isinstance(node.data, tuple) and isinstance(step, int) and step < len(node.data):
            node, text = node.data[step], f"{text}[{step}]"
    return node, text


def nearest(name: str, known: Sequence[str], *, cutoff: float = 0.6, listed: bool = True) -> str:
    """` (did you mean 'when'?)`; without a near match the known names, if they are to be `listed`."""
    alike = [word for word in known if word.lower() == name.lower()]
    parts = [word for word in known if len(word) > 1 and (name.startswith(word) or name.endswith(word))]
    near = (
        alike
        or difflib.get_close_matches(name, known, n=1, cutoff=max(cutoff, SURE))
        or sorted(parts, key=len, reverse=True)
        or difflib.get_close_matches(name, known, n=1, cutoff=cutoff)
    )
    if near:
        return f" (did you mean {near[0]!r}?)"
    return f" (known: {', '.join(known)})" if known and listed else ""


def read_yaml(text: str, name: str, *, anchors: bool = True) -> Node:
    """Read one YAML document.

    Args:
      text: the file's content.
      name: the file's base name, for messages.
      anchors: whether `&a` and `*a` are allowed.

    Raises:
      TargetError: the first thing that is no strict YAML, as `file:line:column: T0xx ...`.
      InputError: PyYAML lacks libyaml.
    """
    if _Loader is None:
        raise InputError("this PyYAML was built without libyaml", hint="install PyYAML from its wheel")
    source = Source(name, text)
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        _fail(source, 1, 1, "T002", f"{size} bytes; a target has at most {MAX_BYTES}", quote=False)
    try:
        return _Reader(source, anchors).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = " ".join(part for part in (error.context, error.problem) if part)
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        # libyaml says "character that cannot start any token".
        if text.splitlines()[line - 1 : line] and text.splitlines()[line - 1][column - 1 : column] == "\t":
            what = "a tab in front of the text; YAML indents by spaces"
        plain = next((plainly for said, plainly in _PLAINLY.items() if said in what), what)
        _fail(source, line, column, "T001", f"not YAML: {plain}")
    except (yaml.YAMLError, UnicodeEncodeError) as error:
        reason = getattr(error, "reason", None) or "unreadable characters"
        position = getattr(error, "position", None) or getattr(error, "start", 0)
        before = text.encode("utf-8", "replace")[:position].decode("utf-8", "ignore")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        _fail(source, line, column, "T001", f"not YAML: {reason}")


def _fail(source: Source, line: int, column: int, code: str, message: str, *, quote: bool = True) -> NoReturn:
    shown = source.quote(line, column) if quote else ""
    raise TargetError(errors=(Problem(source.name, line, column, code, message, quote=shown),))


class _Reader:
    """Turns the events of one document into nodes, depth first."""

    def __init__(self, source: Source, anchors: bool) -> None:  # noqa: FBT001
        self.source = source
        self.anchors = anchors
        self.next: Callable[[], Any] = _Loader(source.text).get_event
        self.named: dict[str, tuple[Node, int]] = {}
        self.count = 0

    def document(self) -> Node:
        root = None
        while type(event := self.next()) is not yaml.StreamEndEvent:
            if type(event) is not yaml.DocumentStartEvent:
                continue
            if root is not None:
                self.fail(event, "T008", "a second document; a target file holds one")
            root = self.node(self.next(), 0)
        if root is None:
            _fail(self.source, 1, 1, "T008", "the file is empty", quote=False)
        return root

    def node(self, event: Any, depth: int) -> Node:
        kind, before = type(event), self.count
        if kind is yaml.AliasEvent:
            return self.alias(event)
        if event.tag is not None or event.anchor is not None:
            self.check(event)
        keys, data = _NO_KEYS, None
        if kind is yaml.ScalarEvent:
            data = self.resolve(event) if event.implicit[0] else event.value
        elif depth >= MAX_DEPTH:
            self.fail(event, "T003", f"nested deeper than {MAX_DEPTH}")
        elif kind is yaml.MappingStartEvent:
            data, keys = self.mapping(depth + 1)
        else:
            data = self.sequence(depth + 1)
        mark = event.start_mark
        node = Node(data, self.source, mark.line + 1, mark.column + 1, keys)
        self.add(event, 1)
        if event.anchor is not None:
            self.named[event.anchor] = node, self.count - before
        return node

    def mapping(self, depth: int) -> tuple[dict[str, Node], dict[str, tuple[int, int]]]:
        table: dict[str, Node] = {}
        keys: dict[str, tuple[int, int]] = {}
        while type(event := self.next()) is not yaml.MappingEndEvent:
            key = self.key(event, depth)
            if key in table:
                self.fail(event, "T004", f"key {key!r} is already set in line {keys[key][0]}")
            keys[key] = (event.start_mark.line + 1, event.start_mark.column + 1)
            table[key] = self.node(self.next(), depth)
        return table, keys

    def key(self, event: Any, depth: int) -> str:
        kind = type(event)
        if kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
            self.check(event)
            self.fail(event, "T008", "a key must be text")
        found: Any
        if kind is yaml.ScalarEvent and event.tag is None and event.anchor is None:
            self.add(event, 1)
            found = self.resolve(event) if event.implicit[0] else event.value
        else:
            found = self.node(event, depth).data
        if not isinstance(found, str) or not found:
            self.fail(event, "T008", "a key must be text; quote it")
        return found

    def sequence(self, depth: int) -> tuple[Node, ...]:
        items = []
        while type(event := self.next()) is not yaml.SequenceEndEvent:
            items.append(self.node(event, depth))
        return tuple(items)

    def add(self, event: Any, values: int) -> None:
        self.count += values
        if self.count > MAX_NODES:
            self.fail(event, "T002", f"more than {MAX_NODES} values, aliases expanded")

    def fail(self, event: Any, code: str, message: str) -> NoReturn:
        mark = event.start_mark
        _fail(self.source, mark.line + 1, mark.column + 1, code, message)

    def check(self, event: Any) -> None:
        if event.tag is not None:
            self.fail(event, "T005", f"tag {event.tag!r}; tags are not allowed")
        if event.anchor is not None and not self.anchors:
            self.fail(event, "T006", f"anchor '&{event.anchor}'; anchors are not allowed here")

    def alias(self, event: Any) -> Node:
        if not self.anchors:
            self.fail(event, "T006", f"alias '*{event.anchor}'; anchors are not allowed here")
        if event.anchor not in self.named:
            self.fail(event, "T006", f"alias '*{event.anchor}' of an anchor that is not complete before it")
        # An alias counts as all it stands for: nine levels of
        # nine aliases ("billion laughs") end at the limit.
        node, values = self.named[event.anchor]
        self.add(event, values)
        return node

    def resolve(self, event: Any) -> Scalar:
        text: str = event.value
        if text in _WORDS:
            return _WORDS[text]
        if text[0] not in _NUMBERS_BEGIN:
            return text
        if _INTEGER.fullmatch(text):
            return int(text, 16) if text.startswith("0x") else int(text)
        # YAML 1.1 reads 010 as eight, YAML 1.2 as ten; neither is what every reader expects.
        if _REFUSED.fullmatch(text):
            self.fail(event, "T007", f"number {text[:40]!r}: write it in plain decimal, or quote it as text")
        if _FLOAT.fullmatch(text):
            number = float(text)
            if abs(number) == float("inf"):
                self.fail(event, "T007", f"number {text[:40]!r} is beyond a double")
            return number
        return text

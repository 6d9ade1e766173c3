"""A target under construction: types, fusions and rows as an importer finds them, and the YAML they become.

Facts that have no row head the file as comments. The text is laid out here, one row a line, as an author
would write it. Nothing is read or evaluated here.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from planner.errors import InputError

WIDTH: Final = 118
SHOWN: Final = 100
"""Sentences of what is not said that head the file."""
_ID: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_PLAIN: Final = re.compile(r"[A-Za-z_][\w./-]*|-?\d+(\.\d+)?|-?\d+/\d+")
_WORDS: Final = frozenset({"null", "true", "false", "~"})


@dataclass(frozen=True, slots=True)
class Imported:
    """A target as text, and the facts of the file that it does not say: sentences, each with its place."""

    id: str
    text: str
    unsaid: tuple[str, ...]


@dataclass(slots=True)
class RowDraft:
    """One row: a kernel, or several ops that share it, with types of ports by name, in order.

    `comment` stands above it; a row says what a target file's keys of these names say.
    """

    kernels: tuple[str, ...]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    rules: Sequence[Mapping[str, Any]] = ()
    when: Mapping[str, Any] = field(default_factory=dict)
    axis: Mapping[str, Any] = field(default_factory=dict)
    more: Mapping[str, Any] = field(default_factory=dict)
    comment: str = ""


@dataclass(slots=True)
class TargetDraft:
    """Everything of a target file but its text."""

    id: str
    title: str
    source: str
    types: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    default_port: str = ""
    defaults: dict[str, Any] = field(default_factory=dict)
    fusions: list[Mapping[str, Any]] = field(default_factory=list)
    rows: list[RowDraft] = field(default_factory=list)
    tests: list[Mapping[str, Any]] = field(default_factory=list)
    unsaid: dict[str, None] = field(default_factory=dict)

    def type(self, name: str, **fields: Any) -> str:
        """Name a type; the same fields get the same name, other fields under this name a numbered one."""
        said = {key: value for key, value in fields.items() if value not in (None, False, "tensor")}
        count = 1
        while (chosen := name if count == 1 else f"{name}_{count}") in self.types:
            if self.types[chosen] == said:
                return chosen
            count += 1
        self.types[chosen] = said
        return chosen

    def not_said(self, sentence: str) -> None:
        """Record a fact that the target file cannot say."""
        self.unsaid[sentence] = None

    def text(self) -> str:
        """The whole file."""
        used = {self.default_port} | {
            name for row in self.rows for name in (*row.inputs.values(), *row.outputs.values())
        }
        types = {name: said for name, said in self.types.items() if name in used}
        groups, shown = self._groups(), list(self.unsaid)[:SHOWN]
        parts = [
            "# yaml-language-server: $schema=./target.schema.json\n#",
            *_wrapped(f"Made from {self.source}. Read it, correct it, add tests: it is yours."),
            *(["#", "# Not said here:"] if self.unsaid else []),
            *(line for sentence in shown for line in _wrapped(sentence, first="# - ", rest="#   ")),
            *([f"# - and {len(self.unsaid) - SHOWN} more"] if len(self.unsaid) > SHOWN else []),
            "apiVersion: planner/v1\nkind: Target",
            f"id: {self.id}\nversion: 0.1.0\ntitle: {_scalar(self.title)}\nmode: fixed",
            "\ntypes:",
            *(f"  {name}: {flow(said)}" for name, said in types.items()),
            f"\ndefaults: {flow({'port': self.default_port, 'on_no_kernel': 'float', **self.defaults})}",
        ]
        if groups:
            parts += ["\nop_groups:", *(f"  {name}: {flow(list(ops))}" for ops, name in groups.items())]
        if self.fusions:
            parts += ["\nfusions:", *(f"  - {flow(fusion)}" for fusion in self.fusions)]
        parts.append("\nkernels:")
        for row in self.rows:
            parts += _wrapped(row.comment, first="  # ", rest="  # ") if row.comment else []
            kernel: Any = row.kernels[0] if len(row.kernels) == 1 else {"group": groups[row.kernels]}
            said = (("axis", row.axis), ("when", row.when), *row.more.items(), ("rules", row.rules))
            written = {"kernel": kernel, "in": row.inputs, "out": row.outputs}
            written |= {key: value for key, value in said if value}
            parts.append(f"  - {flow(written)}")
        parts.append("\ntests:" if self.tests else "")
        for test in self.tests:
            parts.append(f"  - name: {_scalar(test['name'])}\n    model: |")
            parts += [f"      {line}" for line in test["model"]]
            parts.append(f"    expect: {flow(test['expect'])}")
        return "\n".join(parts).rstrip() + "\n"

    def imported(self) -> Imported:
        """The text, with the facts that it does not say.

        Raises:
          InputError: an id that is none.
        """
        if not _ID.fullmatch(self.id):
            raise InputError(
                f"{self.id!r} is no id of a target", hint="letters, digits, '_', '.' and '-', such as my-npu"
            )
        return Imported(self.id, self.text(), tuple(self.unsaid))

    def _groups(self) -> dict[tuple[str, ...], str]:
        lists = dict.fromkeys(row.kernels for row in self.rows if len(row.kernels) > 1)
        return {ops: f"ops_{number}" for number, ops in enumerate(lists, 1)}


def flow(value: Any) -> str:
    """A value in YAML's flow style, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    return _scalar(value)


def _scalar(value: Any) -> str:
    if value is None or isinstance(value, bool | int):
        return json.dumps(value)
    if isinstance(value, float):
        return repr(value)
    text = _clean(str(value))
    bare = _PLAIN.fullmatch(text.rstrip("?*")) and text.rstrip("?*") and text.lower() not in _WORDS
    return text if bare and not re.fullmatch(r"[\d.-]+", text) else json.dumps(text, ensure_ascii=False)


def _wrapped(sentence: str, first: str = "# ", rest: str = "# ") -> list[str]:
    """A comment in lines of at most `WIDTH`; control characters of an untrusted file become blanks."""
    lines, line = [], first
    for word in _clean(sentence).split():
        if len(line) + len(word) > WIDTH and line.strip("# -"):
            lines.append(line.rstrip())
            line = rest
        line += f"{word} "
    return [*lines, line.rstrip()]


def _clean(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def id_of(name: str, fallback: str) -> str:
    """An id of a target made of a name in a file; `fallback` where nothing of it is usable."""
    found = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:60]
    return found or fallback


def sentences(items: Iterable[str]) -> str:
    """Names in a row: `a, b and c`."""
    names = list(items)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

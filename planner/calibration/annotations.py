"""Annotations as written: YAML, JSON or a mapping, `qplan.annotations/1`, read into records.

Types are parsed here; whether names and tensors exist is `annotate`'s business.
Source: docs/library.md.
"""

import difflib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from planner.errors import AnnotationError, QTypeError, TargetError
from planner.ir.types.qtypes import QType, Storage, storage
from planner.ir.types.typetext import parse_type
from planner.ir.types.wanted import FORMS, Wanted, wanted_from_data
from planner.target.yamltree import Node, plain, read_yaml

FORMAT: Final = "qplan.annotations/1"
_SECTIONS: Final = ("caches", "format", "kernels", "ports", "remove", "values")

Place: TypeAlias = Callable[[str, str], str]


@dataclass(frozen=True, slots=True)
class Annotation:
    """Facts for a value name, a glob or a port address; no facts: those there are go.

    `place` is where it was written (`a.yaml:4:3`), for messages.
    """

    key: str
    facts: tuple[QType, ...]
    place: str


@dataclass(frozen=True, slots=True)
class KernelAnnotation:
    """A request for a kernel, by its name, by an op that it holds, or by a glob of either."""

    key: str
    wanted: Wanted
    place: str


@dataclass(frozen=True, slots=True)
class CacheAnnotation:
    """Inputs that outputs come back as (`calibration.caches`); no names: those that exporters use.

    `stored` is their storage, None where values have their types.
    """

    stored: Storage | None
    names: Mapping[str, str] | None
    place: str


@dataclass(frozen=True, slots=True)
class Annotations:
    """A whole file, each section in its order."""

    values: tuple[Annotation, ...] = ()
    ports: tuple[Annotation, ...] = ()
    remove: tuple[Annotation, ...] = ()
    kernels: tuple[KernelAnnotation, ...] = ()
    caches: CacheAnnotation | None = None


def read_annotations(source: str | Path | Mapping[str, Any]) -> Annotations:
    """Read a path, text (with a newline in it), or the document itself.

    Raises:
      AnnotationError: no readable file, not YAML, another format, an unknown field, or text that is no type;
        with file, line and column where there are any.
    """
    if isinstance(source, Mapping):
        return _sections(source, _path_place("annotations"))
    if isinstance(source, str) and "\n" in source:
        return _from_yaml(source, "annotations")
    if not isinstance(source, str | Path):
        raise AnnotationError(f"annotations are a mapping, a path or text, not a {type(source).__name__}")
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise AnnotationError(f"{path}: cannot read annotations: {reason}") from error
    if path.suffix == ".json":
        return _from_json(text, path.name)
    return _from_yaml(text, path.name)


def _from_json(text: str, name: str) -> Annotations:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AnnotationError(f"{name}: not JSON: {error}") from error
    return _sections(document, _path_place(name))


def _from_yaml(text: str, name: str) -> Annotations:
    try:
        root = read_yaml(text, name)
    except TargetError as error:
        raise AnnotationError(str(error)) from error
    return _sections(plain(root), _mark_place(root, name))


def _path_place(name: str) -> Place:
    """Places as a path inside the document."""

    def place(section: str, key: str) -> str:
        inside = ".".join(part for part in (section, key) if part)
        return f"{name}: {inside}" if inside else name

    return place


def _mark_place(root: Node, name: str) -> Place:
    """Places as line and column of a key, or of an entry of a list."""

    def place(section: str, key: str) -> str:
        node = root.get(section) if section else root
        if node is None:
            return name
        entry = next((item for item in node.entries() if item.data == key), node)
        line, column = node.keys.get(key) or (entry.line, entry.column)
        return f"{name}:{line}:{column}"

    return place


def _sections(document: Any, place: Place) -> Annotations:
    if not isinstance(document, Mapping):
        raise AnnotationError(f"{place('', '')}: expected a mapping with format: {FORMAT}")
    for key in document:
        if key not in _SECTIONS:
            near = difflib.get_close_matches(str(key), _SECTIONS, n=1, cutoff=0.5)
            hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(_SECTIONS)}"
            raise AnnotationError(f"{place('', str(key))}: unknown field {key!r}", hint=hint)
    if document.get("format") != FORMAT:
        found = document.get("format")
        where = place("", "format")
        raise AnnotationError(f"{where}: format {found!r} is not read here; {FORMAT!r} is")
    return Annotations(
        _entries(document.get("values"), "values", place),
        _entries(document.get("ports"), "ports", place),
        _removals(document.get("remove"), place),
        _kernels(document.get("kernels"), place),
        _caches(document.get("caches"), place("", "caches")),
    )


def _caches(section: Any, place: str) -> CacheAnnotation | None:
    if section is None:
        return None
    data = {"storage": section} if isinstance(section, str) else section
    if not isinstance(data, Mapping) or not data or set(data) - {"storage", "names"}:
        raise AnnotationError(
            f"{place}: caches are a storage, or a mapping of storage and names",
            hint='such as i8, or {storage: i8, names: {"past.*": "present.*"}}',
        )
    names, text = data.get("names"), data.get("storage")
    if names is not None and not (
        isinstance(names, Mapping) and names and all(isinstance(n, str) for n in (*names, *names.values()))
    ):
        raise AnnotationError(f"{place}: names must map names of inputs to names of outputs")
    try:
        stored = None if text is None else storage(str(text))
    except QTypeError as error:
        raise AnnotationError(f"{place}: {error}") from error
    return CacheAnnotation(stored, names, place)


def _entries(section: Any, name: str, place: Place) -> tuple[Annotation, ...]:
    if section is None:
        return ()
    if not isinstance(section, Mapping):
        raise AnnotationError(f"{place('', name)}: {name} must map names to types")
    return tuple(
        Annotation(str(key), _facts(item, str(key), place(name, str(key))), place(name, str(key)))
        for key, item in section.items()
    )


def _kernels(section: Any, place: Place) -> tuple[KernelAnnotation, ...]:
    if section is None:
        return ()
    if not isinstance(section, Mapping):
        raise AnnotationError(f"{place('', 'kernels')}: kernels must map names to {FORMS}")
    found = []
    for key, item in section.items():
        at = place("kernels", str(key))
        try:
            found.append(KernelAnnotation(str(key), wanted_from_data(item), at))
        except AnnotationError as error:
            raise AnnotationError(f"{at}: {error.message}") from None
    return tuple(found)


def _removals(section: Any, place: Place) -> tuple[Annotation, ...]:
    if section is None:
        return ()
    if not isinstance(section, (list, tuple)) or not all(isinstance(item, str) for item in section):
        raise AnnotationError(f"{place('', 'remove')}: remove must be a list of names")
    return tuple(Annotation(item, (), place("remove", item)) for item in section)


def _facts(item: Any, key: str, place: str) -> tuple[QType, ...]:
    texts = [item] if isinstance(item, str) else item
    if not isinstance(texts, (list, tuple)) or not texts or not all(isinstance(t, str) for t in texts):
        raise AnnotationError(
            f"{place}: {key!r} needs a type or a list of types, as text", hint='such as "!quant.any<i16>"'
        )
    try:
        facts = tuple(parse_type(text) for text in texts)
    except QTypeError as error:
        raise AnnotationError(f"{place}: {key!r}: {error}") from error
    kinds = [type(fact) for fact in facts]
    if len(set(kinds)) != len(kinds):
        raise AnnotationError(f"{place}: {key!r} has two facts of one kind: {', '.join(map(str, facts))}")
    return facts


def annotations_document(source: str | Path | Mapping[str, Any]) -> dict[str, Any]:
    """The plain data of annotations that `read_annotations` accepts, to write more over them."""
    read_annotations(source)
    if isinstance(source, Mapping):
        return dict(source)
    if isinstance(source, str) and "\n" in source:
        return dict(plain(read_yaml(source, "annotations")))
    path = Path(source)
    text = path.read_text(encoding="utf-8")
    return dict(json.loads(text) if path.suffix == ".json" else plain(read_yaml(text, path.name)))

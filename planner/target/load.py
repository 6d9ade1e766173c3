"""Loading a target: a shipped name, a path, text or a mapping becomes a frozen `Target`.

Every error of a file is reported at once, with line and column. Code comes in by `functions` alone;
a file never imports any. Source: docs/targets/reference.md.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from planner.errors import InputError, Problem, TargetError, expect, unknown_name
from planner.installation import targets_folder
from planner.ir.types.qtypes import storage
from planner.target.documents import check_document
from planner.target.lint.findings import Finding, lint_errors, quote
from planner.target.merge import expand_groups, merge
from planner.target.patterns import parse_pattern
from planner.target.port_types import Building, build_spec, build_type, child
from planner.target.records import Costs, Engines, Files, Fusion, PortType, QuantFn, Row, Target, TestCase
from planner.target.rules import named_storages
from planner.target.schema.document import Document
from planner.target.schema.rows import FusionModel, GroupModel
from planner.target.signature import build_arithmetic, build_row, build_work, freeze
from planner.target.yamltree import MAX_BYTES, Node, nearest, plain, read_yaml

MAX_BASES: Final = 8
MAX_ERRORS: Final = 100
_SUFFIXES: Final = (".yaml", ".yml", ".json")


TargetSource: TypeAlias = Target | str | Path | Mapping[str, Any]
"""A target as callers give it: loaded, or a source for `load_target` (a name, a path, text, a document)."""


@dataclass(frozen=True, slots=True)
class _File:
    """A text, its base name, and the folder its `extends` is relative to (None: shipped, or no file)."""

    name: str
    text: str
    folder: Path | None = None
    is_shipped: bool = False


@dataclass(frozen=True, slots=True)
class _Resolved:
    """The whole document, the op groups that its rows named, and the text of each file by name."""

    root: Node
    groups: frozenset[str]
    texts: Mapping[str, str]


def load_target(
    source: str | Path | Mapping[str, Any],
    functions: Mapping[str, QuantFn] | None = None,
    *,
    trusted: bool = True,
    name: str = "text",
) -> Target:
    """Load a target description.

    Args:
      source: a shipped name (`target_ids`), a path, text with newlines, or the document itself.
      functions: QuantFns that `fn` rules may name.
      trusted: False refuses paths and YAML anchors, for untrusted text.
      name: of a text in messages, `name:line`.

    Raises:
      TargetError: every error found, as `file:line:column: T0xx ...`; `.errors` has them as records.
      UnknownName: no such shipped target.
      InputError: a file that cannot be read.

    Example:
      >>> planner.load_target("litert-int8").title
      'LiteRT reference int8 kernels'
    """
    if not isinstance(source, str | Path | Mapping):
        raise InputError(
            f"a target is a name, a path, YAML text or its document, not a {type(source).__name__}"
        )
    expect({} if functions is None else functions, Mapping, "functions are a mapping from name to function")
    if isinstance(source, str) and source in target_ids() and not functions:
        return _load_shipped(source, tuple(path.stat().st_mtime_ns for path in _shipped().values()))
    return _load(_file(source, trusted=trusted, name=name), dict(functions or {}), trusted=trusted)


@lru_cache(maxsize=32)
def _load_shipped(name: str, _: tuple[int, ...]) -> Target:
    """A shipped target: the same again, with what is kept of it, until a file of the folder is written."""
    return _load(_read_shipped(name), {}, trusted=True)


def _load(file: _File, functions: dict[str, QuantFn], *, trusted: bool) -> Target:
    resolved = _resolve(file, trusted=trusted)
    root, data = resolved.root, plain(resolved.root)
    document = check_document(root, data)
    if not isinstance(document, Document):
        raise _refusal(document)
    built = _build(document, root, data, functions)
    target = replace(built, groups=resolved.groups, texts=resolved.texts)
    # Shipped targets are linted where they are made: a fifth of the time.
    errors = () if file.is_shipped else lint_errors(target)
    if errors:
        raise _refusal(tuple(_problem(finding, target) for finding in errors))
    return target


def as_target(target: TargetSource, functions: Mapping[str, QuantFn] | None = None) -> Target:
    """A target that is loaded already, or that `load_target` loads."""
    return target if isinstance(target, Target) else load_target(target, functions)


def target_ids() -> tuple[str, ...]:
    """Names of the shipped targets, sorted.

    Example:
      >>> "onnxruntime-cpu" in planner.target_ids()
      True
    """
    return tuple(sorted(name for name in _shipped() if not name.startswith("_")))


@cache
def _shipped() -> Mapping[str, Path]:
    return {path.stem: path for path in targets_folder().glob("*.yaml")}


def _file(source: str | Path | Mapping[str, Any], *, trusted: bool, name: str) -> _File:
    if isinstance(source, Mapping):
        try:
            text = json.dumps(source, indent=1, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise TargetError(f"the target mapping is no plain data: {error}") from error
        return _File("mapping", text)
    if isinstance(source, str):
        if "\n" in source:
            return _File(name, source)
        if source in target_ids():
            return _read_shipped(source)
        if not trusted or not _looks_like_path(source):
            raise unknown_name("target", source, target_ids())
    return _read_path(Path(source))


def _looks_like_path(text: str) -> bool:
    # A misspelt name must not become "file not found"; only text that looks like a path is opened.
    return text.endswith(_SUFFIXES) or "/" in text or "\\" in text


def _read_shipped(name: str) -> _File:
    return _File(f"{name}.yaml", _shipped()[name].read_text(encoding="utf-8"), is_shipped=True)


def _read_path(path: Path) -> _File:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot read the target {str(path)!r}: {error.strerror}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "ignore")
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        problem = Problem(path.name, line, column, "T001", f"not UTF-8: {error.reason}")
        raise TargetError(errors=[problem]) from error
    return _File(path.name, text, path.parent)


def _resolve(file: _File, *, trusted: bool) -> _Resolved:
    """Read a file and its bases, and lay them over each other, the outermost base lowest."""
    roots, files = [read_yaml(file.text, file.name, anchors=trusted)], [file]
    _add_bases(roots, files, [file], trusted=trusted)
    # Groups of all files first, the nearest file winning, since a row may name a group of its base.
    groups: dict[str, Node] = {}
    for root in reversed(roots):
        named = root.get("op_groups")
        groups |= dict(named.items()) if named else {}
    used = frozenset(str(group.data) for root in roots for group in _groups_of(root))
    expanded = [expand_groups(root, groups) for root in roots]
    merged = expanded.pop()
    while expanded:
        merged = merge(merged, expanded.pop())
    return _Resolved(merged, used, {file.name: file.text for file in files})


def _add_bases(roots: list[Node], files: list[_File], above: Sequence[_File], *, trusted: bool) -> None:
    """Read what the last file extends, and what that extends; of several bases the last is laid on top."""
    extends = roots[-1].get("extends")
    if extends is None:
        return
    names = [extends] if isinstance(extends.data, str) else list(extends.entries())
    for node in [name for name in names if isinstance(name.data, str)][::-1]:
        below = _base_file(node, above[-1].folder, trusted=trusted)
        circle = any((below.name, below.folder) == (f.name, f.folder) for f in above)
        if len(files) > MAX_BASES or circle:
            # A file is known by name and folder: two bases of one name in two folders are no circle.
            chain = " -> ".join(f.name for f in (*above, below))
            message = f"extends in a circle, or more than {MAX_BASES} deep: {chain}"
            raise TargetError(errors=[node.problem("T024", message)])
        if any((below.name, below.folder) == (f.name, f.folder) for f in files):
            continue  # two bases share it, and the upper one has it already
        files.append(below)
        roots.append(read_yaml(below.text, below.name, anchors=trusted))
        _add_bases(roots, files, (*above, below), trusted=trusted)


def _groups_of(root: Node) -> Iterator[Node]:
    for entry in child(root, "kernels").entries():
        kernel = entry.get("kernel")
        group = kernel.get("group") if kernel else None
        if group is not None:
            yield group


def _base_file(extends: Node, folder: Path | None, *, trusted: bool) -> _File:
    name = str(extends.data)
    if folder is not None and trusted:
        for candidate in (folder / name, folder / f"{name}.yaml"):
            if candidate.is_file():
                return _read_path(candidate)
    if name in _shipped():
        return _read_shipped(name)
    hint = nearest(name, sorted(_shipped()))
    raise TargetError(errors=[extends.problem("T024", f"extends unknown target {name!r}{hint}")])


def _refusal(found: tuple[Problem, ...]) -> TargetError:
    # A row for a group of ops is a row for each of them: what is wrong with it is told once.
    problems = tuple({str(problem): problem for problem in reversed(found)}.values())[::-1]
    shown = "\n".join(str(problem) for problem in problems[:MAX_ERRORS])
    more = len(problems) - MAX_ERRORS
    return TargetError(f"{shown}\n... and {more} more" if more > 0 else shown, errors=problems)


def _problem(finding: Finding, target: Target) -> Problem:
    line, column = finding.line, finding.column
    return Problem(finding.file, line, column, finding.code, finding.message, quote=quote(target, finding))


def _build(
    document: Document, root: Node, data: Mapping[str, Any], functions: Mapping[str, QuantFn]
) -> Target:
    building = Building()
    for name, model in document.types.items():
        building.types[name] = build_type(building, model, child(root, "types", name))
    defaults = document.defaults
    default_port = PortType(storage("i8"))
    if defaults.port is not None:
        default_port = build_spec(building, defaults.port, root, "defaults", "port")
    arithmetic = build_arithmetic(building, defaults.requantize, child(root, "defaults", "requantize"))
    rows = _rows(building, document, root, arithmetic)
    engines = _engines(building, document, root)
    files = _files(building, document, root)
    for i, fusion in enumerate(document.fusions):
        if fusion.remove:
            _removes_nothing(building, child(root, "fusions", i, "remove"))
    for i, block in enumerate(document.blocks):
        if block.remove:
            _removes_nothing(building, child(root, "blocks", i, "remove"))
    _check_functions(building, rows, root, functions)
    if building.problems:
        raise _refusal(tuple(sorted(set(building.problems), key=lambda p: (p.line, p.column, p.message))))
    resolved = {key: item for key, item in data.items() if key != "extends"}
    by_kernel = _by_kernel(rows)
    return Target(
        id=document.id,
        version=document.version,
        title=document.title or document.id,
        mode=document.mode,
        file=root.source.name,
        rows=by_kernel,
        fusions=_fusions(document.fusions, root, "fusions"),
        blocks=_blocks(document, root),
        costs=Costs(**_floats({**document.rescale.cost.model_dump(), **document.costs.model_dump()})),
        default_port=default_port,
        on_no_kernel=defaults.on_no_kernel,
        rescale_allowed=document.rescale.allowed,
        rescale_single_consumer=defaults.rescale_single_consumer,
        duplicate_constants=defaults.duplicate_constants,
        asked_widths=defaults.asked_widths,
        unsigned=defaults.unsigned,
        islands=defaults.islands,
        bias=defaults.bias,
        tests=_tests(document, root),
        document=resolved,
        digest=document_digest(resolved),
        functions=functions,
        columns=_columns(root),
        places=_places(root),
        legalize={entry.kernel: tuple(entry.into) for entry in document.legalize},
        float_work=build_work(document.float_work),
        work_unit=document.work_unit,
        engines=engines,
        files=files,
        storages=named_storages(by_kernel, default_port),
        requantize=arithmetic,
    )


def _engines(building: Building, document: Document, root: Node) -> Engines:
    """The engines, and a problem for each row on one that there is not."""
    given = document.engines
    names = () if given is None else tuple(given.names)
    for i, model in enumerate(document.kernels):
        if model.runs_on is not None and model.runs_on not in names:
            known = nearest(model.runs_on, names) if names else "; none are named"
            message = f"no engine {model.runs_on!r}{known}"
            building.problems.append(child(root, "kernels", i, "runs_on").problem("T032", message))
    if len(set(names)) < len(names):
        building.problems.append(child(root, "engines", "names").problem("T032", "an engine is named twice"))
    return Engines() if given is None else Engines(names, float(given.crossing), given.one_way)


def _files(building: Building, document: Document, root: Node) -> Files:
    """The files that the compiler reads, and a problem where it reads none."""
    given = document.files
    if given is None:
        return Files()
    made = Files(None, given.layout, tuple(given.formats or ()), given.sizes, given.runtime, given.reader)
    if given.opset is None:
        return made
    least, most = given.opset
    node = child(root, "files", "opset")
    bounded = building.attempt(node, "T028", lambda: replace(made, opset=(least, most)))
    return bounded if isinstance(bounded, Files) else Files()


def document_digest(document: Mapping[str, Any]) -> str:
    """`sha256:...` of a resolved document: keys sorted, except those of signatures, whose order counts."""
    kernels = [
        {key: list(item.items()) if key in ("in", "out") and item else item for key, item in entry.items()}
        for entry in document.get("kernels", ())
    ]
    # Reordering rows changes the order of preference, so lists keep their order in the digest.
    ordered = {**document, "kernels": kernels}
    text = json.dumps(ordered, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _rows(building: Building, document: Document, root: Node, arithmetic: str) -> list[Row]:
    rows: list[Row] = []
    defaults = document.defaults
    for i, model in enumerate(document.kernels):
        node = child(root, "kernels", i)
        if isinstance(model.kernel, GroupModel):
            building.problems.append(child(node, "kernel").problem("T021", "this group is no list of ops"))
        elif model.remove:
            _removes_nothing(building, child(node, "remove"))
        else:
            rows.append(build_row(building, model, node, defaults, arithmetic))
    return rows


def _removes_nothing(building: Building, node: Node) -> None:
    building.problems.append(node.problem("T027", "removes nothing: this file extends no other"))


def _by_kernel(rows: list[Row]) -> Mapping[str, tuple[Row, ...]]:
    found: dict[str, list[Row]] = {}
    keys: set[str] = set()
    for row in rows:
        count, named = 1, row
        while named.key in keys:
            count += 1
            named = replace(row, mark=f".{count}")
        keys.add(named.key)
        found.setdefault(row.kernel, []).append(named)
    return {kernel: tuple(group) for kernel, group in found.items()}


def _check_functions(
    building: Building, rows: list[Row], root: Node, functions: Mapping[str, QuantFn]
) -> None:
    for i, row in enumerate(rows):
        for j, rule in enumerate(row.rules):
            if rule.kind == "fn" and rule.args["name"] not in functions:
                name = rule.args["name"]
                message = f"function {name!r} was not handed to load_target(functions=...)"
                node = child(root, "kernels", i, "rules", j, "fn")
                building.problems.append(node.problem("T026", message + nearest(name, list(functions))))


def _fusions(models: Sequence[FusionModel], root: Node, key: str) -> tuple[Fusion, ...]:
    return tuple(
        Fusion(
            kernel=model.kernel,
            patterns=(model.pattern,) if isinstance(model.pattern, str) else tuple(model.pattern),
            where=freeze(model.where),
            source=child(root, key, i).where,
        )
        for i, model in enumerate(models)
    )


def _blocks(document: Document, root: Node) -> tuple[Fusion, ...]:
    """The blocks, each with the parts that its patterns may name.

    Raises:
      TargetError: T033, a pattern that cannot be read.
    """
    parts = tuple(
        (name, (ways,) if isinstance(ways, str) else tuple(ways)) for name, ways in document.parts.items()
    )
    made = _fusions(document.blocks, root, "blocks")
    found = tuple(
        replace(block, parts=parts, whole=model.whole)
        for block, model in zip(made, document.blocks, strict=True)
    )
    for i, block in enumerate(found):
        for text in block.patterns:
            try:
                parse_pattern(text, parts)
            except TargetError as error:
                node = child(root, "blocks", i, "pattern")
                raise TargetError(errors=[node.problem("T033", error.message)]) from error
    return found


def _tests(document: Document, root: Node) -> tuple[TestCase, ...]:
    return tuple(
        TestCase(
            model.name,
            model.model,
            freeze(plain(child(root, "tests", i, "expect"))),
            child(root, "tests", i).where,
            _first_line(child(root, "tests", i, "model")),
        )
        for i, model in enumerate(document.tests)
    )


def _first_line(node: Node) -> int:
    """Line of the first character of a text: of a block (`|`, `>`) the line after its sign."""
    start = node.source.text.splitlines()[node.line - 1][node.column - 1 :]
    return node.line + 1 if start[:1] in ("|", ">") else node.line


def _floats(costs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        k: value if value is None or isinstance(value, bool) else float(value) for k, value in costs.items()
    }


def _columns(root: Node) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for key in ("kernels", "fusions", "tests"):
        for entry in child(root, key).entries():
            found.setdefault(entry.where, entry.column)
            for rule in child(entry, "rules").entries():
                found.setdefault(rule.where, rule.column)
    return found


def _places(root: Node) -> Mapping[str, tuple[str, int, int]]:
    found: dict[str, tuple[str, int, int]] = {}
    for part, key in (("kernels", "when"), ("fusions", "where")):
        for entry in child(root, part).entries():
            asked = entry.get(key)
            if asked is not None:
                for name, (line, column) in asked.keys.items():
                    found.setdefault(f"{entry.where} {key} {name}", (asked.source.name, line, column))
    for key in ("types", "op_groups"):
        table = root.get(key)
        for name, node in table.items() if table is not None else ():
            line, column = table.keys.get(name, (node.line, node.column)) if table else (1, 1)
            found[f"{key}.{name}"] = (node.source.name, line, column)
    for key in ("costs", "defaults", "files", "legalize"):
        section = root.get(key)
        if section is not None:
            found[key] = (section.source.name, section.line, section.column)
    return found

"""Verbs that hold a target description against a device: kit, probe."""

from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import typer

from planner.cli.console import say, say_json
from planner.cli.files import (
    put_text,
    write_folder,
)
from planner.cli.options import (
    FunctionsOption,
    JsonOption,
    OutFile,
    load_function,
    read_target,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.target_tests.changed_rows import Before
    from planner.target_tests.engines.table import Engine
    from planner.target_tests.row_probe import RowFinding

BeforeOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--before", metavar="FILE", help="Show only rows that differ from this --json output of before."
    ),
]


def kit_target(
    target: Annotated[
        str,
        typer.Argument(metavar="T", help="Shipped name, or a YAML file; with --check a folder of results."),
    ],
    *,
    out: Annotated[
        str | None, typer.Option("--out", "-o", metavar="DIR", help="Folder to write the kit into.")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option("--check", metavar="DIR", help="Compare results with the kit in this folder instead."),
    ] = None,
    form: Annotated[
        str, typer.Option("--format", "-f", metavar="F", help="Format of the planned files.")
    ] = "onnx-qoperator",
    arithmetic: Annotated[
        str | None,
        typer.Option("--arithmetic", metavar="A", help="Expect this arithmetic, not each row's own."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Of weights and inputs.")] = 0,
    before: BeforeOption = None,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> int:
    """Write a small model for every row, with the integers a device must answer; or compare its answers.

    With --check, exit code 1 if an answer differs; with --before too, if a row got worse.
    """
    from pathlib import Path

    from planner.errors import InputError
    from planner.formats.table import require_format
    from planner.target_tests.kit_check import check_kit
    from planner.target_tests.probe_kit import kit_files, make_kit

    if check is not None:
        old = _read(before)
        found = _Findings(check_kit(Path(check), Path(target)), f"{target} beside {check}")
        return _say_findings(found, old, json=json)
    if before is not None:
        raise InputError("--before compares findings, and there are none", hint="--check DIR finds")
    if out is None:
        raise InputError("no folder to write the kit into", hint="--out DIR; --check DIR compares with one")
    require_format(form)
    kit = make_kit(read_target(target, functions), form=form, seed=seed, arithmetic=arithmetic)
    folders: dict[str, dict[str, bytes]] = {}
    for path, data in kit_files(kit).items():
        folder, _, name = path.rpartition("/")
        folders.setdefault(folder, {})[name] = data
    # The index is written last, so a folder that has one is whole.
    for folder in sorted(folders, reverse=True):
        write_folder(f"{out}/{folder}" if folder else out, folders[folder])
    if json:
        skipped = [{"kernel": s.kernel, "row": s.row, "reason": s.reason} for s in kit.skipped]
        say_json({"out": out, "items": [item.name for item in kit.items], "skipped": skipped})
        return 0
    say(f"{kit.target}: {len(kit.items)} rows in {out}, {len(kit.skipped)} without a model")
    for skip in kit.skipped:
        say(f"  {skip.row} {skip.kernel}: {skip.reason}")
    return 0


def probe_engine(
    *,
    engine: Annotated[
        str,
        typer.Option(
            "--engine",
            metavar="E",
            help="onnxruntime; with --target also finn, hls4ml, litert, litert-optimized, openvino, qnn, "
            "tosa, vela or module:function.",
        ),
    ] = "onnxruntime",
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", metavar="T", help="Try its rows: a shipped name, or a YAML file."),
    ] = None,
    kernel: Annotated[
        list[str] | None, typer.Option("--kernel", metavar="K", help="Try only this kernel; may be repeated.")
    ] = None,
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="FILE", help="Python of the environment that has the engine."),
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", "-f", metavar="F", help="Format of the files for the engine.")
    ] = None,
    allow: Annotated[
        list[str] | None,
        typer.Option("--allow", metavar="VERDICT", help="Do not fail for it: float, say; may be repeated."),
    ] = None,
    before: BeforeOption = None,
    name: Annotated[str, typer.Option("--id", metavar="ID", help="Id of the target written.")] = "probed",
    functions: FunctionsOption = None,
    out: OutFile = None,
    json: JsonOption = False,
) -> int:
    """Try every row of a target on an engine; without a target, write the rows that run as a target file.

    With --target, exit code 1 if a row runs otherwise than it says; with --before too, if a row got worse.
    """
    if target is not None:
        from planner.errors import unknown_name
        from planner.target_tests.engines.table import HERE
        from planner.target_tests.row_probe import VERDICTS, probe_rows

        for verdict in allow or ():
            if verdict not in VERDICTS:
                raise unknown_name("verdict", verdict, VERDICTS)
        device, asked = read_target(target, functions), _engine(engine, form)
        home, old = python or HERE, _read(before)
        rows = probe_rows(device, asked, python=home, kernels=kernel or ())
        version = asked.version(home)
        title = f"{device.id} on {engine}{f' ({version})' * bool(version)}"
        return _say_findings(_Findings(rows, title, version, tuple(allow or ())), old, json=json)
    from planner.errors import InputError
    from planner.target_tests.probe import probe, probe_yaml, rows_of

    if before is not None:
        raise InputError("--before compares findings, and there are none", hint="--target T finds")
    found = probe(engine, kernel or None)
    if json:
        answers = [
            {
                "kernel": a.kernel,
                "operator": a.operator,
                "storages": a.storages,
                "runs": a.runs,
                "refusal": a.refusal,
            }
            for _, group in found.answers
            for a in group
        ]
        say_json({"engine": engine, "version": found.version, "answers": answers, "rows": rows_of(found)})
        return 0
    put_text(probe_yaml(found, name), out, None)
    return 0


def _engine(name: str, form: str | None) -> "Engine":
    """An engine by its name, or by the place of a function; with files of a format if asked."""
    from dataclasses import replace

    from planner.errors import unknown_name
    from planner.formats.table import require_format
    from planner.target_tests.engines.table import ENGINES, own_engine

    if form is not None:
        require_format(form)
    if ":" in name:
        return own_engine(load_function(name, "--engine"), form or "onnx-qdq")
    if name not in ENGINES:
        raise unknown_name("engine", name, (*ENGINES, "module:function"))
    return replace(ENGINES[name], form=form or ENGINES[name].form)


class _Findings(NamedTuple):
    """Findings on rows: `allowed` verdicts are no failure."""

    rows: "Sequence[RowFinding]"
    title: str
    version: str = ""
    allowed: tuple[str, ...] = ()


def _read(before: str | None) -> "Before | None":
    """Read the findings of before, ahead of a probe of minutes that a wrong file would lose."""
    from pathlib import Path

    from planner.target_tests.changed_rows import read_before

    return None if before is None else read_before(Path(before))


def _say_findings(found: _Findings, old: "Before | None", *, json: bool) -> int:
    """A line for each row, or each that changed, and the count of each verdict; 1 where one fails."""
    from collections import Counter
    from dataclasses import asdict

    from planner.target_tests.changed_rows import changed_rows

    counts = Counter(row.verdict for row in found.rows)
    refuted = any(row.refuted and row.verdict not in found.allowed for row in found.rows)
    said: dict[str, object] = {"version": found.version, "counts": counts}
    wide = [max((len(text) for text in texts), default=0) for texts in _columns(found.rows)]
    lines = [
        f"{row.row:<{wide[0]}}  {row.name:<{wide[1]}}  {row.verdict}{': ' * bool(row.detail)}{row.detail}"
        for row in found.rows
    ]
    if old is not None:
        changes = changed_rows(old.findings, found.rows)
        refuted = any(
            change.refuted and change.after is not None and change.after.verdict not in found.allowed
            for change in changes
        )
        said["changes"] = [asdict(change) for change in changes]
        lines = [change.text for change in changes]
        was = f"; before {old.version}" if old.version and old.version != found.version else ""
        rows = len(found.rows) + sum(change.after is None for change in changes)
        lines.append(f"{len(changes)} of {rows} rows changed{was}")
    if json:
        say_json({"holds": not refuted, **said, "rows": [asdict(row) for row in found.rows]})
        return 1 if refuted else 0
    for line in lines:
        say(line)
    say(f"{found.title}: {', '.join(f'{count} {verdict}' for verdict, count in counts.most_common())}")
    return 1 if refuted else 0


def _columns(rows: "Sequence[RowFinding]") -> "tuple[list[str], list[str]]":
    return [row.row for row in rows], [row.name for row in rows]

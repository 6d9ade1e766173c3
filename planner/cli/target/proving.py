"""Verbs that hold a target description against a device: kit, probe."""

from typing import TYPE_CHECKING, Annotated

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

    from planner.target_tests.engines.table import Engine
    from planner.target_tests.row_probe import RowFinding


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
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> int:
    """Write a small model for every row, with the integers a device must answer; or compare its answers.

    With --check, exit code 1 if an answer differs.
    """
    from pathlib import Path

    from planner.errors import InputError
    from planner.exporters.table import require_format
    from planner.target_tests.kit_check import check_kit
    from planner.target_tests.probe_kit import kit_files, make_kit

    if check is not None:
        return _say_findings(check_kit(Path(check), Path(target)), f"{target} beside {check}", (), json=json)
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
            help="onnxruntime; with --target litert, litert-optimized, qnn, tosa, vela, module:function too.",
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
    name: Annotated[str, typer.Option("--id", metavar="ID", help="Id of the target written.")] = "probed",
    functions: FunctionsOption = None,
    out: OutFile = None,
    json: JsonOption = False,
) -> int:
    """Try every row of a target on an engine; without a target, write what really runs as a target file.

    With --target, exit code 1 if a row runs otherwise than it says.
    """
    if target is not None:
        from planner.errors import unknown_name
        from planner.target_tests.engines.table import HERE
        from planner.target_tests.row_probe import VERDICTS, probe_rows

        for verdict in allow or ():
            if verdict not in VERDICTS:
                raise unknown_name("verdict", verdict, VERDICTS)
        device, asked = read_target(target, functions), _engine(engine, form)
        rows = probe_rows(device, asked, python=python or HERE, kernels=kernel or ())
        return _say_findings(rows, f"{device.id} on {engine}", allow or (), json=json)
    from planner.target_tests.probe import probe, probe_yaml, rows_of

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
    from planner.exporters.table import require_format
    from planner.target_tests.engines.table import ENGINES, own_engine

    if form is not None:
        require_format(form)
    if ":" in name:
        return own_engine(load_function(name, "--engine"), form or "onnx-qdq")
    if name not in ENGINES:
        raise unknown_name("engine", name, (*ENGINES, "module:function"))
    return replace(ENGINES[name], form=form or ENGINES[name].form)


def _say_findings(found: "Sequence[RowFinding]", title: str, allowed: "Sequence[str]", *, json: bool) -> int:
    """A line for each row, and the count of each verdict; 1 where one is refuted that is not allowed."""
    from collections import Counter
    from dataclasses import asdict

    refuted = any(row.refuted and row.verdict not in allowed for row in found)
    counts = Counter(row.verdict for row in found)
    if json:
        say_json({"holds": not refuted, "counts": counts, "rows": [asdict(row) for row in found]})
        return 1 if refuted else 0
    wide = max((len(row.row) for row in found), default=0), max((len(row.name) for row in found), default=0)
    for row in found:
        say(
            f"{row.row:<{wide[0]}}  {row.name:<{wide[1]}}  {row.verdict}{': ' * bool(row.detail)}{row.detail}"
        )
    say(f"{title}: {', '.join(f'{count} {verdict}' for verdict, count in counts.most_common())}")
    return 1 if refuted else 0

"""Verbs about targets: list, show, lint, test, doc, diff, new, coverage, probe, kit."""

from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import complain, say, say_json, say_table
from planner.cli.files import (
    STDIN,
    keep_from,
    only_one_stdin,
    put_text,
    read_text,
    write_file,
    write_folder,
)
from planner.cli.options import (
    FunctionsOption,
    JsonOption,
    ModelFile,
    OutFile,
    TargetName,
    TargetOption,
    load_function,
    load_functions,
    read_model,
    read_target,
)
from planner.errors import TargetError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from planner.target.records import PortPattern
    from planner.target_tests.engines.table import Engine
    from planner.target_tests.row_probe import RowFinding


def list_targets(*, json: JsonOption = False) -> None:
    """List the shipped targets."""
    import planner

    found = [planner.load_target(name) for name in planner.target_ids()]
    if json:
        fields = ("id", "version", "title", "mode", "digest")
        say_json([{name: getattr(target, name) for name in fields} for target in found])
        return
    say_table(
        "Shipped targets",
        ("id", "version", "mode", "kernels", "title"),
        ((t.id, t.version, t.mode, len(t.rows), t.title) for t in found),
    )


def show_target(target: TargetName, *, functions: FunctionsOption = None, json: JsonOption = False) -> None:
    """Show a target: its kernels, their signatures and rules, in order of preference."""
    from planner.target.show import target_to_json

    device = read_target(target, functions)
    if json:
        say_json(target_to_json(device))
        return
    say(f"{device.id} {device.version}: {device.title}\n  {device.digest}")
    say_table(
        "Kernels",
        ("kernel", "in", "out", "rules", "row"),
        (
            (
                row.kernel,
                "\n".join(map(_port, row.inputs)),
                "\n".join(map(_port, row.outputs)),
                "\n".join(rule.kind for rule in row.rules),
                row.source,
            )
            for rows in device.rows.values()
            for row in rows
        ),
    )


def _port(port: "PortPattern") -> str:
    return f"{port.name}{'?' * port.optional}{'*' * port.variadic}: {port.type}"


def lint_target(
    target: TargetName,
    *,
    functions: FunctionsOption = None,
    sarif: Annotated[bool, typer.Option("--sarif", help="A SARIF 2.1.0 log on standard output.")] = False,
    json: JsonOption = False,
) -> int:
    """Say what is wrong or odd in a target description; exit code 1 if something is wrong."""
    import planner
    from planner.target.lint.findings import finding_text, lint, quote
    from planner.target.lint.sarif import sarif_of_findings

    source = read_text(target, "target") + "\n" if target == STDIN else target
    try:
        device = planner.load_target(source, load_functions(functions))
    except TargetError as error:
        if not error.errors:
            raise
        return _problems(error, "" if target == STDIN else target, sarif=sarif, json=json)
    findings = lint(device)
    wrong = any(finding.severity == "error" for finding in findings)
    if sarif:
        say_json(sarif_of_findings(device, findings, target if "." in target else ""))
    elif json:
        fields = ("file", "line", "column", "code", "severity", "message")
        rows = [
            {name: getattr(finding, name) for name in fields} | {"quote": quote(device, finding)}
            for finding in findings
        ]
        say_json({"ok": not wrong, "findings": rows})
    else:
        for finding in findings:
            say(finding_text(device, finding))
        say(f"{device.id}: {len(findings)} findings")
    return 1 if wrong else 0


def _problems(error: TargetError, path: str, *, sarif: bool, json: bool) -> int:
    from planner.target.lint.sarif import sarif_of_problems

    fields = ("file", "line", "column", "code", "message", "quote")
    if sarif:
        say_json(sarif_of_problems(error.errors, path))
    elif json:
        rows = [{name: getattr(p, name) for name in fields} | {"severity": "error"} for p in error.errors]
        say_json({"ok": False, "findings": rows})
    else:
        complain(str(error))
    return 1


def try_target(
    target: TargetName,
    *,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Run tests of this name or glob.")
    ] = None,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> int:
    """Run the tests in a target file; exit code 1 if one fails."""
    from planner.target_tests.cases import run_cases

    device = read_target(target, functions)
    results = run_cases(device, only or ())
    failed = sum(not result.ok for result in results)
    if json:
        rows = [
            {"name": r.name, "source": r.source, "ok": r.ok, "problems": list(r.problems)} for r in results
        ]
        say_json({"ok": not failed, "tests": rows})
        return 1 if failed else 0
    for result in results:
        say(f"{result.source}: {'ok' if result.ok else 'FAILED'}: {result.name}")
        for problem in result.problems:
            say(f"    {problem}")
    say(f"{device.id}: {len(results)} tests, {failed} failed")
    return 1 if failed else 0


def doc_target(
    target: TargetName,
    *,
    html: Annotated[bool, typer.Option("--html", help="One offline HTML page instead of Markdown.")] = False,
    out: OutFile = None,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> None:
    """Write the support table of a target: kernels, ports, rules, conditions."""
    from dataclasses import asdict

    from planner.target.docs.support import support_markdown, support_of
    from planner.target_tests.support_page import support_html

    device = read_target(target, functions)
    if json:
        say_json(asdict(support_of(device)))
        return
    put_text(support_html(device) if html else support_markdown(device), out, target)


def schema_target(
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="[TARGET]", help="Shipped name, or a YAML file, whose type names are offered."
        ),
    ] = None,
    *,
    out: OutFile = None,
    functions: FunctionsOption = None,
) -> None:
    """Write the JSON Schema of target files for an editor, with the names of a target's own types."""
    from planner.target.docs.jsonschema import json_schema_text

    types = () if target is None else read_target(target, functions).document.get("types", {})
    put_text(json_schema_text(types), out, target or "")


def diff_target(
    first: Annotated[str, typer.Argument(metavar="A", help="Shipped name, or a YAML file.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Shipped name, or a YAML file.")],
    *,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> int:
    """Say what differs between two targets; exit code 1 if something does."""
    from dataclasses import asdict

    from planner.target.diff import diff_targets

    only_one_stdin(first, second)
    found = diff_targets(read_target(first, functions), read_target(second, functions))
    if json:
        say_json({"equal": not found, "differences": [asdict(difference) for difference in found]})
    else:
        for difference in found:
            say(str(difference))
    return 1 if found else 0


def new_target(
    name: Annotated[str, typer.Argument(metavar="ID", help="Id of the new target, such as my-npu.")],
    *,
    base: Annotated[
        str | None, typer.Option("--from", metavar="T", help="Target to extend: a shipped name, or a file.")
    ] = None,
    title: Annotated[str, typer.Option("--title", metavar="TEXT", help="A line for people.")] = "",
    functions: FunctionsOption = None,
    out: OutFile = None,
    json: JsonOption = False,
) -> None:
    """Write a target file to start from; it lints clean and its tests pass."""
    import os
    from pathlib import Path

    from planner.target.docs.starter import new_target as starter

    extends = ""
    if base is not None and Path(base).is_file():
        extends = os.path.relpath(base, Path(out).parent) if out else base
    text = starter(name, None if base is None else read_target(base, functions), extends=extends, title=title)
    if not json:
        put_text(text, out, base)
        return
    if out is not None:
        keep_from(out, base)
        write_file(out, text.encode())
    say_json({"id": name, "text": text, "file": out})


def cover_target(
    model: ModelFile,
    *,
    target: TargetOption,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> int:
    """Say which kernels of a model have no row, and draft the rows; exit code 1 if some have none."""
    from dataclasses import asdict

    from planner.target_tests.coverage import coverage

    only_one_stdin(model, target)
    found = coverage(read_model(model), read_target(target, functions))
    if json:
        say_json({"complete": found.complete, **asdict(found)})
        return 0 if found.complete else 1
    served = sum(found.served.values())
    lacking = sum(item.count for item in found.missing)
    say(f"{found.model} on {found.target}: {served} kernels have a row, {lacking} have none")
    for item in found.missing:
        say(f"\n{item.count} x {item.kernel}, first {item.example!r}: {item.reason}\n  {item.row}")
    return 0 if found.complete else 1


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

    from planner.errors import InputError, unknown_name
    from planner.exporters.table import EXPORTERS
    from planner.target_tests.kit_check import check_kit
    from planner.target_tests.probe_kit import kit_files, make_kit

    if check is not None:
        return _say_findings(check_kit(Path(check), Path(target)), f"{target} beside {check}", (), json=json)
    if out is None:
        raise InputError("no folder to write the kit into", hint="--out DIR; --check DIR compares with one")
    if form not in EXPORTERS:
        raise unknown_name("export format", form, EXPORTERS)
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
            help="onnxruntime; with --target also litert, litert-optimized, tosa, vela, or module:function.",
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
    from planner.exporters.table import EXPORTERS
    from planner.target_tests.engines.table import ENGINES, own_engine

    if form is not None and form not in EXPORTERS:
        raise unknown_name("export format", form, EXPORTERS)
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

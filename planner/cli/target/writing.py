"""Verbs for the author of a target description: new, lint, test, coverage."""

from typing import Annotated

import typer

from planner.cli.console import complain, say, say_json
from planner.cli.files import (
    STDIN,
    keep_from,
    only_one_stdin,
    put_text,
    read_text,
    write_file,
)
from planner.cli.options import (
    DimOption,
    FunctionsOption,
    JsonOption,
    ModelFile,
    OutFile,
    TargetName,
    TargetOption,
    load_functions,
    read_model,
    read_target,
    sizes_of,
)
from planner.errors import TargetError, quantity


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


def lint_target(
    target: TargetName,
    *,
    functions: FunctionsOption = None,
    sarif: Annotated[bool, typer.Option("--sarif", help="A SARIF 2.1.0 log on standard output.")] = False,
    json: JsonOption = False,
) -> int:
    """Report errors and warnings of a target description; exit code 1 if there is an error."""
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
        say(f"{device.id}: {quantity(len(findings), 'finding')}")
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
    say(f"{device.id}: {quantity(len(results), 'test')}, {failed} failed")
    return 1 if failed else 0


def cover_target(
    model: ModelFile,
    *,
    target: TargetOption,
    functions: FunctionsOption = None,
    dim: DimOption = None,
    json: JsonOption = False,
) -> int:
    """Say which kernels of a model have no row, and draft the rows; exit code 1 if some have none."""
    from dataclasses import asdict

    from planner.target_tests.coverage import coverage

    only_one_stdin(model, target)
    found = coverage(read_model(model, dims=sizes_of(dim)), read_target(target, functions))
    if json:
        say_json({"complete": found.complete, **asdict(found)})
        return 0 if found.complete else 1
    served = sum(found.served.values())
    lacking = sum(item.count for item in found.missing)
    say(f"{found.model} on {found.target}: {served} kernels have a row, {lacking} have none")
    for item in found.missing:
        say(f"\n{item.count} x {item.kernel}, first {item.example!r}: {item.reason}\n  {item.row}")
    return 0 if found.complete else 1

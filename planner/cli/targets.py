"""Verbs about targets: `target list`, `target show`, `target lint`, `target test`."""

from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import complain, say, say_json, say_table
from planner.cli.files import STDIN, read_text
from planner.cli.options import FunctionsOption, JsonOption, load_functions, read_target
from planner.errors import TargetError

if TYPE_CHECKING:
    from planner.target.records import PortPattern

TargetName = Annotated[str, typer.Argument(metavar="T", help="Shipped name, or a YAML file.")]


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
    from planner.target.lint import finding_text, lint, quote
    from planner.target.sarif import sarif_of_findings

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
    from planner.target.sarif import sarif_of_problems

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
    from planner.tryout.cases import run_cases

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

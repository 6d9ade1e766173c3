"""Verbs that read target descriptions: list, show, doc, schema, diff."""

from typing import TYPE_CHECKING, Annotated

import typer

from planner.cli.console import say, say_json, say_table
from planner.cli.files import (
    only_one_stdin,
    put_text,
)
from planner.cli.options import (
    FunctionsOption,
    JsonOption,
    OutFile,
    TargetName,
    read_target,
)

if TYPE_CHECKING:
    from planner.target.records import PortPattern


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
    """List the differences of two targets; exit code 1 if there are any."""
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

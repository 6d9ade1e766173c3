"""Verbs that exchange target descriptions with other tools: import, export."""

from typing import Annotated

import typer

from planner.cli.console import say_json, warn
from planner.cli.files import keep_from, put_text, read_text, write_file
from planner.cli.options import FunctionsOption, JsonOption, OutFile, TargetName, read_target


def import_target(
    source: Annotated[str, typer.Argument(metavar="FILE", help="JSON or XML; - is standard input.")],
    *,
    kind: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="TOOL",
            help="Whose file it is: aimet (quantsim configuration), nncf (hardware "
            "configuration), pt2e (quantizer specs as JSON), qnn (XML of an op package).",
        ),
    ],
    name: Annotated[
        str, typer.Option("--id", metavar="ID", help="Id of the target; by default of the file.")
    ] = "",
    out: OutFile = None,
    json: JsonOption = False,
) -> None:
    """Write a target file from another tool's description of a device, and list features that are lost."""
    from pathlib import Path

    from planner.errors import unknown_name
    from planner.target_exchange.table import IMPORTERS

    if kind not in IMPORTERS:
        raise unknown_name("kind of file", kind, IMPORTERS)
    found = IMPORTERS[kind](read_text(source, "file"), Path(source).name if source != "-" else "stdin", name)
    if json:
        _write(found.text, out, source)
        say_json({"id": found.id, "text": found.text, "unsaid": found.unsaid, "file": out})
        return
    for sentence in found.unsaid:
        warn(f"not taken over: {sentence}")
    put_text(found.text, out, source)


def export_target(
    target: TargetName,
    *,
    kind: Annotated[
        str, typer.Option("--to", metavar="TOOL", help="For which tool: aimet (quantsim configuration).")
    ],
    functions: FunctionsOption = None,
    out: OutFile = None,
    json: JsonOption = False,
) -> None:
    """Write a target as another tool's configuration, and list features that it cannot express."""
    from planner.errors import unknown_name
    from planner.target_exchange.table import EXPORTERS

    if kind not in EXPORTERS:
        raise unknown_name("kind of file", kind, EXPORTERS)
    found = EXPORTERS[kind](read_target(target, functions))
    if json:
        _write(found.text, out, target)
        say_json({"text": found.text, "unsaid": found.unsaid, "file": out})
        return
    for sentence in found.unsaid:
        warn(f"not said: {sentence}")
    put_text(found.text, out, target)


def _write(text: str, out: str | None, source: str) -> None:
    """Write the file that was requested beside JSON."""
    if out is not None:
        keep_from(out, source)
        write_file(out, text.encode())

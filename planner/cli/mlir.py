"""The verb `mlir`: MLIR in, verified, transformed, and out again; or an annotated model as JSON."""

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from planner.cli.console import complain, say_json, warn, write_text
from planner.cli.files import read_text
from planner.cli.options import JsonOption


def mlir(
    file: Annotated[str, typer.Argument(metavar="FILE", help="MLIR text, or an annotated model as JSON.")],
    *,
    split_input_file: Annotated[
        bool, typer.Option("--split-input-file", help="Lines of // ----- separate modules.")
    ] = False,
    passes: Annotated[
        list[str] | None, typer.Option("--pass", metavar="NAME", help="Run this pass; repeat it for several.")
    ] = None,
    truncating: Annotated[
        bool, typer.Option("--truncating", help="lower-quant-ops as upstream: towards zero, wrapping.")
    ] = False,
    to: Annotated[
        Literal["mlir", "json"], typer.Option("--to", help="Print a module, or an annotated model as JSON.")
    ] = "mlir",
    json: JsonOption = False,
) -> int:
    """Parse, verify, transform and print MLIR modules."""
    from planner.mlir.passes.tool import SEPARATOR, run_parts

    parts = run_parts(
        read_text(file, "module"),
        passes or [],
        separate=split_input_file,
        truncating=truncating,
        to_json=to == "json",
    )
    if json:
        say_json({"parts": [asdict(part) for part in parts]})
    else:
        written = [part.text or f"// error: {part.error}\n" for part in parts]
        write_text(f"{SEPARATOR}\n".join(written))
        for part in parts:
            for warning in part.warnings:
                warn(warning)
            if part.error:
                complain(part.error)
    return 1 if any(part.error for part in parts) else 0

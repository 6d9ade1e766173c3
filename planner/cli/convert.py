"""The verb `convert`: an ONNX model in another quantized dialect, without a plan."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.console import say, say_json
from planner.cli.files import STDIN, keep_from, read_bytes, write_file
from planner.cli.options import JsonOption
from planner.errors import InputError


def convert(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="ONNX file of any quantized dialect.")],
    *,
    to: Annotated[str, typer.Option("--to", metavar="F", help="The dialect to write; see docs/qonnx.md.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="File to write.")],
    dim: Annotated[
        list[str] | None,
        typer.Option("--dim", metavar="NAME=SIZE", help="Give an open dimension its size; repeatable."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Write a model in another dialect with the same numbers, or say why that cannot be."""
    from planner.conversion.convert import convert as convert_model

    if out == STDIN:
        raise InputError("a model cannot go to standard output", hint="name a file with --out")
    keep_from(out, model)
    source = read_bytes(model, "model") if model == STDIN else Path(model)
    data = convert_model(source, to, dims=_sizes(dim or ()))
    write_file(out, data)
    if json:
        say_json({"file": out, "to": to, "bytes": len(data)})
    else:
        say(f"wrote {out}: {to}, {len(data):,} bytes")


def _sizes(texts: Iterable[str]) -> dict[str, int]:
    found = {}
    for text in texts:
        name, _, size = text.rpartition("=")
        if not name or not size.isdecimal():
            raise InputError(f"--dim {text}: accepted is NAME=SIZE, such as --dim batch=1")
        found[name] = int(size)
    return found

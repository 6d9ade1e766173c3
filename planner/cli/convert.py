"""Verbs about ONNX files of any quantized dialect, without a plan: `convert`, `cost`."""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from planner.cli.console import say, say_json, say_table
from planner.cli.files import STDIN, keep_from, read_bytes, write_file
from planner.cli.options import JsonOption
from planner.errors import InputError

_TOTALS = ("macs", "bops", "weights", "weight_bits", "main_macs", "main_weights")


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


def cost(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="ONNX file of any quantized dialect.")],
    *,
    mode: Annotated[
        str, typer.Option("--mode", metavar="M", help="How bit operations are counted: qonnx, table3 or eq5.")
    ] = "qonnx",
    main: Annotated[
        bool,
        typer.Option("--main", help="Total MACs of the commonest widths, as the QONNX paper lists them."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Count what a model costs: multiply-accumulates, bit operations, weight bits, per layer and in all."""
    from dataclasses import asdict

    from planner.costs import cost as count
    from planner.costs import rows

    found = count(read_bytes(model, "model") if model == STDIN else Path(model), mode)
    if json:
        totals = {name: getattr(found, name) for name in _TOTALS}
        say_json({"mode": mode, "total": totals, "layers": [asdict(layer) for layer in found.layers]})
        return
    say_table(
        f"Cost ({mode})", ("layer", "type", "MACs", "BOPs", "weight bits", "bits"), rows(found, main=main)
    )
    other = sum(layer.other for layer in found.layers)
    if other:
        say(f"{other:,} elementwise results besides, which no mode counts")

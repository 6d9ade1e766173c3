"""Verbs for models in other dialects, without a plan: `convert`, `cost`, `mlir`."""

from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final, Literal

import typer

from planner.cli.console import complain, say, say_json, say_table, warn, write_text
from planner.cli.files import STDIN, keep_from, read_bytes, read_text, write_file
from planner.cli.options import JsonOption
from planner.errors import InputError

_TOTALS: Final = ("macs", "bops", "weights", "weight_bits", "main_macs", "main_weights")


def convert(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="ONNX file of any quantized dialect, or .tflite.")
    ],
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
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="ONNX file of any quantized dialect, or .tflite.")
    ],
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

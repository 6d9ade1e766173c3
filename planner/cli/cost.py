"""The verb `cost`: multiply-accumulates, bit operations and weight bits, layer by layer."""

from pathlib import Path
from typing import Annotated

import typer

from planner.cli.console import say, say_json, say_table
from planner.cli.files import STDIN, read_bytes
from planner.cli.options import JsonOption

_TOTALS = ("macs", "bops", "weights", "weight_bits", "main_macs", "main_weights")


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

"""The verb `run`: any ONNX model on samples, quantized dialects included."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from planner.cli.console import progress, say_json, say_table
from planner.cli.files import STDIN, as_samples, keep_from, only_one_stdin, read_bytes
from planner.cli.models import RequiredData
from planner.cli.options import JsonOption
from planner.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray


def run(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="ONNX file of any quantized dialect, or .tflite.")
    ],
    *,
    data: RequiredData,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="NPZ", help="Write the outputs here, samples stacked."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run a model as it is written: shapes and ranges of its outputs; the outputs themselves with --out."""
    import numpy as np

    from planner.calibration.samples import open_samples
    from planner.interpreter.models import ModelRunner
    from planner.onnx.read import read_written

    only_one_stdin(model, data)
    if out is not None:
        keep_from(out, model, data)
    graph = read_written(read_bytes(model, "model") if model == STDIN else Path(model))
    runner = ModelRunner(graph)
    with as_samples(data, graph) as samples, progress("running") as bar:
        opened = open_samples(samples, graph)
        results = []
        for feed in opened.feeds:
            results.append(runner.run(feed.arrays))
            bar(len(results), opened.count)
    if not results:
        raise InputError(f"no samples in {data!r}")
    stacked = {name: np.stack([result[name] for result in results]) for name in graph.outputs}
    if out is not None:
        try:
            _save(out, stacked)
        except OSError as error:
            raise InputError(f"cannot write to {out!r}: {error.strerror}") from error
    if json:
        outputs = {name: _summary(array) for name, array in stacked.items()}
        say_json({"samples": len(results), "outputs": outputs, "file": out})
        return
    rows = [(name, *_cells(_summary(array))) for name, array in stacked.items()]
    say_table(f"{len(results)} samples", ("output", "shape", "least", "largest"), rows)


def _save(path: str, arrays: "Mapping[str, NDArray[Any]]") -> None:
    import numpy as np

    with Path(path).open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def _summary(array: "NDArray[Any]") -> dict[str, Any]:
    """Shape of one sample's result, and the range over all of them."""
    shape = list(array.shape[1:])
    if not array.size or array.dtype.kind not in "biuf":
        return {"shape": shape, "min": None, "max": None}
    return {"shape": shape, "min": array.min().item(), "max": array.max().item()}


def _cells(summary: dict[str, Any]) -> tuple[str, str, str]:
    ends = ("" if summary[key] is None else f"{summary[key]:.6g}" for key in ("min", "max"))
    low, high = ends
    return " x ".join(map(str, summary["shape"])), low, high

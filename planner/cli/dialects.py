"""Verbs for models in other dialects, without a plan: `convert`, `run`, `cost`, `tensors`, `mlir`."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from planner.cli.console import complain, progress, say, say_json, say_table, warn, write_text
from planner.cli.files import STDIN, as_samples, as_text, keep_from, only_one_stdin, read_bytes, write_file
from planner.cli.options import (
    CutOption,
    DataOption,
    DimOption,
    JsonOption,
    RequiredData,
    cut_names,
    is_count,
    of_file,
    read_plan,
    sizes_of,
)
from planner.errors import InputError, quantity

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from planner.ir.graph import Graph

_TOTALS: Final = ("macs", "bops", "weights", "weight_bits", "main_macs", "main_weights")


def convert(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="ONNX file of any quantized dialect, or .tflite.")
    ],
    *,
    to: Annotated[str, typer.Option("--to", metavar="F", help="The dialect to write; see docs/qonnx.md.")],
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="File to write.")],
    dim: DimOption = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", metavar="N", help="Samples at once: the first axis of every input."),
    ] = None,
    prune: Annotated[
        list[str] | None,
        typer.Option(
            "--prune",
            metavar="TENSOR[@AXIS]=N,N",
            help="Take out channels and all that belongs to them; axis 1 by default; repeatable.",
        ),
    ] = None,
    cut: CutOption = None,
    json: JsonOption = False,
) -> None:
    """Write a model in another dialect with the same numbers, or say why that cannot be."""
    from planner.conversion.convert import convert as convert_model

    if out == STDIN:
        raise InputError("a model cannot go to standard output", hint="name a file with --out")
    keep_from(out, model)
    source = read_bytes(model, "model") if model == STDIN else Path(model)
    data = convert_model(
        source, to, dims=sizes_of(dim), outputs=cut_names(cut), prune=_channels(prune or ()), batch=batch
    )
    write_file(out, data)
    if json:
        say_json({"file": out, "to": to, "bytes": len(data)})
    else:
        say(f"wrote {out}: {to}, {len(data):,} bytes")


def _channels(texts: Iterable[str]) -> dict[str, dict[int, list[int]]]:
    found: dict[str, dict[int, list[int]]] = {}
    for text in texts:
        where, _, indices = text.rpartition("=")
        name, at, axis = where.rpartition("@")
        if not at or not is_count(axis):
            name, axis = where, "1"
        if not name or not all(map(is_count, indices.split(","))):
            raise InputError(f"--prune {text:.200}: accepted is TENSOR=N,N or TENSOR@AXIS=N,N")
        found.setdefault(name, {}).setdefault(int(axis), []).extend(map(int, indices.split(",")))
    return found


def run(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="ONNX file of any quantized dialect, .tflite, or MLIR.")
    ],
    *,
    data: RequiredData,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="NPZ", help="Write the outputs here, samples stacked."),
    ] = None,
    dim: DimOption = None,
    json: JsonOption = False,
) -> None:
    """Run a model as it is written: shapes and ranges of its outputs; the outputs themselves with --out."""
    import numpy as np

    from planner.calibration.samples import open_samples
    from planner.interpreter.models import ModelRunner

    only_one_stdin(model, data)
    if out is not None:
        keep_from(out, model, data)
    graph = _runnable(model, sizes_of(dim))
    runner = ModelRunner(graph)
    with as_samples(data, graph) as samples, progress("running") as bar:
        opened = open_samples(samples, graph)
        results = []
        for feed in opened.feeds:
            results.append(runner.run(feed.arrays))
            bar(len(results), opened.count)
    if not results:
        raise InputError(f"no samples in {data!r}")
    stacked = {name.partition("#r")[0]: np.stack([one[name] for one in results]) for name in graph.outputs}
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
    say_table(f"{quantity(len(results), 'sample')}", ("output", "shape", "least", "largest"), rows)


def _runnable(model: str, dims: Mapping[str, int]) -> "Graph":
    """A model as it is written; of MLIR and JSON, with the rounding that its types say."""
    from planner.cli.files import model_format
    from planner.conversion.pins import with_rounding
    from planner.formats.onnx.read import read_written
    from planner.formats.stablehlo.identifier import is_serialized
    from planner.pipeline import load_model

    data = read_bytes(model, "model") if model == STDIN or Path(model).is_file() else b""
    if is_serialized(data) or (data and model_format(data) in ("json", "mlir")):
        kind = None if is_serialized(data) else model_format(data)
        with of_file(model):
            return with_rounding(load_model(data, format=kind, dims=dims))
    return read_written(data if model == STDIN else Path(model), dims=dims)


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
    dim: DimOption = None,
    json: JsonOption = False,
) -> None:
    """Count the cost of a model: multiply-accumulates, bit operations, weight bits, per layer and in all."""
    from planner.costs import cost as count
    from planner.costs import rows

    found = count(read_bytes(model, "model") if model == STDIN else Path(model), mode, dims=sizes_of(dim))
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


def tensors(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="ONNX file of any quantized dialect, or .tflite.")
    ],
    *,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="[INPUT=]LO:HI",
            help="Range of an input; numbers with commas are channels; repeatable.",
        ),
    ] = None,
    data: DataOption = None,
    axis: Annotated[int, typer.Option("--axis", metavar="N", help="The axis of the channels.")] = 1,
    dim: DimOption = None,
    json: JsonOption = False,
) -> None:
    """Print the QONNX datatype, the bounds and the constant channels of each tensor."""
    from planner.analysis.tensors import as_json, rows, tensors_of
    from planner.calibration.samples import open_samples
    from planner.formats.onnx.read import read_written

    only_one_stdin(model, data)
    source = read_bytes(model, "model") if model == STDIN else Path(model)
    graph = read_written(source, dims=sizes_of(dim), opened=False)
    inputs = dict(_range(text, graph, axis) for text in ranges or ())
    if data is None:
        found = tensors_of(graph, inputs=inputs, axis=axis)
    else:
        with as_samples(data, graph) as samples:
            feeds = open_samples(samples, graph).feeds
            found = tensors_of(graph, inputs=inputs, samples=(feed.arrays for feed in feeds), axis=axis)
    if json:
        say_json({"axis": axis, "tensors": [as_json(tensor) for tensor in found]})
        return
    columns = ("tensor", "shape", "datatype", "range", *([] if data is None else ["seen"]), "stuck channels")
    say_table("Tensors", columns, rows(found, seen=data is not None))
    for why in dict.fromkeys(tensor.why for tensor in found if tensor.why):
        say(f"no range: {why}")


def _range(text: str, graph: "Graph", axis: int) -> "tuple[str, tuple[NDArray[Any], NDArray[Any]]]":
    """An input and its ends; numbers with commas lie along the axis of its channels."""
    import numpy as np

    name, _, ends = text.rpartition("=")
    low, _, high = ends.partition(":")
    if not name and len(graph.inputs) != 1:
        raise InputError(
            f"--range {text}: the model has {quantity(len(graph.inputs), 'input')}", hint="say INPUT=LO:HI"
        )
    name = name or graph.inputs[0]
    shape = graph.values[name].shape if name in graph.inputs else None
    rank = len(shape or ())
    try:
        sides = [np.asarray([float(part) for part in side.split(",")]) for side in (low, high)]
    except ValueError as error:
        raise InputError(
            f"--range {text}: accepted is LO:HI, such as --range 0:1 or --range 0,0:1,2"
        ) from error
    spread = [-1 if i == axis % rank else 1 for i in range(rank)] if rank else [-1]
    low_end, high_end = (side.reshape(spread) if side.size > 1 else side.reshape(()) for side in sides)
    return name, (low_end, high_end)


def mlir(
    file: Annotated[str, typer.Argument(metavar="FILE", help="MLIR text, or an annotated model as JSON.")],
    *,
    split_input_file: Annotated[
        bool, typer.Option("--split-input-file", help="Lines of // ----- separate modules.")
    ] = False,
    passes: Annotated[
        list[str] | None, typer.Option("--pass", metavar="NAME", help="Run this pass; repeat it for several.")
    ] = None,
    pass_pipeline: Annotated[
        str | None,
        typer.Option(
            "--pass-pipeline",
            metavar="TEXT",
            help="Run passes as mlir-opt takes them: builtin.module(func.func(cse),inline).",
        ),
    ] = None,
    truncating: Annotated[
        bool, typer.Option("--truncating", help="lower-quant-ops as upstream: towards zero, wrapping.")
    ] = False,
    to: Annotated[
        Literal["mlir", "json", "mlirbc", "vhlo"],
        typer.Option(
            "--to", help="A module, an annotated model as JSON, bytecode, or StableHLO's portable artifact."
        ),
    ] = "mlir",
    spelling: Annotated[
        Literal["qplan", "rfc"],
        typer.Option(
            "--spelling",
            help="Names of operations that LLVM's quant dialect lacks: qplan.region, or quant.region.",
        ),
    ] = "qplan",
    casts: Annotated[
        str | None,
        typer.Option(
            "--casts", metavar="PLAN", help="Put the casts of a plan of this module around its ops."
        ),
    ] = None,
    form: Annotated[
        Literal["attributes", "casts", "types"] | None,
        typer.Option("--form", help="With --casts: how types are written; casts by default."),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option("--out", "-o", metavar="FILE", help="File to write; standard output if none."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Parse, verify, transform and print MLIR modules."""
    from planner.formats.mlir.passes.table import PASSES
    from planner.formats.mlir.passes.tool import SEPARATOR, run_parts
    from planner.formats.mlir.pipeline_text import read_pipeline
    from planner.formats.stablehlo.reader.serialized import SERIALS, require_jaxlib

    if to in SERIALS:
        require_jaxlib("serialized MLIR is written")
    if pass_pipeline is not None:
        if passes:
            raise InputError("--pass beside --pass-pipeline", hint="name all passes in one of them")
        passes = list(read_pipeline(pass_pipeline, PASSES))
    only_one_stdin(file, casts)
    keep_from(out, file, casts)
    text = _module_text(file)
    if form is not None and casts is None:
        raise InputError(f"--form {form} is for --casts PLAN")
    if casts is not None:
        text = _with_casts(file, text, casts, form or "casts", split_input_file=split_input_file)
        if not passes and to == "mlir" and not json:
            _write_module(out, text)
            return 0
    parts = run_parts(
        text,
        passes or [],
        separate=split_input_file,
        truncating=truncating,
        to_json=to == "json",
        spelling=spelling,
    )
    if to in SERIALS and not any(part.error for part in parts):
        _write_serialized(out, [part.text for part in parts], to)
    elif json:
        say_json({"parts": [asdict(part) for part in parts]})
    else:
        written = [part.text or f"// error: {part.error}\n" for part in parts]
        if out is None or not any(part.error for part in parts):
            _write_module(out, f"{SEPARATOR}\n".join(written))
        for part in parts:
            for warning in part.warnings:
                warn(warning)
            if part.error:
                complain(part.error)
    return 1 if any(part.error for part in parts) else 0


def _module_text(file: str) -> str:
    """The text of a module, of serialized MLIR too."""
    from planner.formats.stablehlo.identifier import is_serialized
    from planner.formats.stablehlo.reader.serialized import serialized_text

    data = read_bytes(file, "module")
    if not is_serialized(data):
        return as_text(file, "module", data)
    with of_file(file):
        return serialized_text(data)


def _write_serialized(out: str | None, texts: list[str], form: str) -> None:
    from planner.formats.stablehlo.reader.serialized import SERIALS, serialize

    if out is None or len(texts) > 1:
        raise InputError(f"--to {form} writes one module to a file", hint="name it with -o")
    data = next(serialize(texts[0], known) for known in SERIALS if known == form)
    write_file(out, data)
    say(f"wrote {out}: {form}, {len(data):,} bytes")


def _with_casts(
    file: str, text: str, plan: str, form: Literal["attributes", "casts", "types"], *, split_input_file: bool
) -> str:
    """The module of a plan with its casts; warns of the ports that they do not show."""
    from planner.plans.read_mlir import cast_module

    if split_input_file:
        raise InputError("--casts is for one module", hint="leave --split-input-file away")
    planned = read_plan(plan)
    with of_file(file):
        found = cast_module(text, planned, form)
    if found.left:
        warn(f"no cast shows {quantity(len(found.left), 'port')} of the plan: {', '.join(found.left[:5])}")
    return found.text


def _write_module(out: str | None, text: str) -> None:
    if out is None:
        write_text(text)
    else:
        write_file(out, text.encode())
        say(f"wrote {out}")

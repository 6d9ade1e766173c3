"""The verb `condition`, a float model made easier to quantize; and the steps that `plan` applies to one
first.

Facts and statistics that an ONNX file does not hold are written beside the model.
"""

import json as json_text
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from planner.cli.console import progress, say, say_json, warn
from planner.cli.files import as_samples, keep_inputs, only_one_stdin, write_folder
from planner.cli.options import (
    AnnotationsOption,
    DataOption,
    DimOption,
    FunctionsOption,
    JsonOption,
    MethodOption,
    ModelFile,
    StatsOption,
    read_annotations_argument,
    read_model,
    read_stats,
    read_target,
    sizes_of,
    stats_warnings,
)

if TYPE_CHECKING:
    from planner.calibration.statistics import Statistics
    from planner.ir.graph import Graph
    from planner.target.records import Target
    from planner.weight_conditioning.condition import Change, Conditioned

STATS: Final = "stats.json"
PINS: Final = "annotations.yaml"
_UNSAFE: Final = re.compile(r"[^\w.+-]+")


def condition(
    model: ModelFile,
    *,
    methods: Annotated[
        str,
        typer.Option("--methods", metavar="M", help="equalize, absorb, migrate[:0.5], clip, round, correct."),
    ],
    out: Annotated[str, typer.Option("--out", "-o", metavar="OUT", help="Folder to write into.")],
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", metavar="T", help="For clip, round and correct: whose types."),
    ] = None,
    data: DataOption = None,
    stats: StatsOption = None,
    method: MethodOption = None,
    annotations: AnnotationsOption = None,
    dim: DimOption = None,
    functions: FunctionsOption = None,
    json: JsonOption = False,
) -> None:
    """Change the weights of a float model so that quantization loses less, and list the changes."""
    import planner
    from planner.formats.onnx.write import write_graph

    only_one_stdin(model, target, data, stats, annotations)
    graph = read_model(model, dims=sizes_of(dim))
    device = None if target is None else read_target(target, functions)
    given = None if annotations is None else read_annotations_argument(annotations)
    read = None if stats is None else read_stats(stats)
    if read is not None and method is not None:
        read = read.by(method)
    for warning in stats_warnings(graph, read):
        warn(warning)
    if data is None:
        done = planner.condition(
            planner.annotate(graph, annotations=given), methods, target=device, stats=read
        )
    else:
        with as_samples(data, graph) as samples:
            seen = read or observed(graph, samples, method or "minmax")
            done = planner.condition(
                planner.annotate(graph, annotations=given),
                methods,
                target=device,
                stats=seen,
                samples=samples,
            )
    named = _named(done.model)
    data_of_model, file = write_graph(named, with_shapes=True), f"{named.name}.onnx"
    files = {file: data_of_model, **_beside(done, data_of_model, named.name)}
    keep_inputs(out, files, (model, target, data, stats, annotations, functions))
    written = write_folder(out, files)
    for text in warnings_of(done):
        warn(text)
    if json:
        changes = [change_json(change) for change in done.changes]
        say_json({"files": list(written), "changes": changes, "unobserved": list(done.unobserved)})
        return
    for change in done.changes:
        say(change_text(change))
    say(f"wrote {', '.join(written)}")
    say(_next(Path(out), file, files, target))


def observed(graph: "Graph", samples: str, method: str) -> "Statistics":
    """Statistics of a model over samples, with a bar on the way."""
    import planner

    with progress("calibrating") as bar:
        return planner.calibrate(graph, samples, method=method, progress=bar)


def _beside(done: "Conditioned", data: bytes, name: str) -> dict[str, bytes]:
    """Statistics and facts of a conditioned model, which its ONNX file does not hold, if there are any."""
    from planner.calibration.annotations import FORMAT
    from planner.calibration.statistics import calibration_digest
    from planner.formats.onnx.read import read_onnx
    from planner.ir.types.wanted import wanted_to_data

    found = {}
    if done.stats is not None:
        # They are used with the file, read anew.
        read = calibration_digest(read_onnx(data, name=name))
        found[STATS] = replace(done.stats, model=read).to_json().encode()
    facts = {
        name: [str(fact) for fact in value.facts] for name, value in done.model.values.items() if value.facts
    }
    kernels = {key: wanted_to_data(wanted) for key, wanted in done.model.wanted.items()}
    if facts or kernels:
        sections = {"values": facts} if facts else {}
        sections |= {"kernels": kernels} if kernels else {}
        # JSON is YAML, and quotes any name.
        found[PINS] = (json_text.dumps({"format": FORMAT, **sections}, indent=1) + "\n").encode()
    return found


def change_json(change: "Change") -> dict[str, Any]:
    """The changes that a method made, as JSON data."""
    from dataclasses import asdict

    return asdict(change)


def change_text(change: "Change") -> str:
    """The changes that a method made, in a line."""
    told = f"{change.method}: {len(change.values)} constants"
    if change.rescaled:
        least, greatest = change.factors
        told += f", {len(change.rescaled)} activations, factors {least:.3g} to {greatest:.3g}"
    if change.left:
        told += f"; {len(change.left)} values stay (--json says why)"
    return told if change.outputs is None else f"{told}; outputs move by {change.outputs:.2g}"


def warnings_of(done: "Conditioned") -> list[str]:
    """Warnings about what a conditioned model still needs."""
    if not done.unobserved:
        return []
    shown = ", ".join(map(repr, done.unobserved[:3])) + (", ..." if len(done.unobserved) > 3 else "")
    return [f"{len(done.unobserved)} values have to be observed again ({shown}): give --data, or calibrate"]


def _next(folder: Path, model: str, files: dict[str, bytes], target: str | None) -> str:
    words = ["qplan", "plan", str(folder / model), "--target", target or "TARGET"]
    for option, name in (("--stats", STATS), ("--annotations", PINS)):
        words += [option, str(folder / name)] if name in files else []
    return f"next:\n  {shlex.join((*words, '--out', 'OUT'))}"


@dataclass(frozen=True, slots=True, eq=False)
class Preparation:
    """Inputs that prepare a model: methods of conditioning, statistics, samples, annotations."""

    methods: str | None
    stats: "Statistics | None"
    samples: str | None
    given: str | Mapping[str, Any] | None
    correct: bool


def prepared(graph: "Graph", device: "Target", wanted: Preparation) -> "tuple[Graph, tuple[Change, ...]]":
    """Annotate, and correct biases where statistics allow it; the result has a name that files can have."""
    import planner

    if wanted.methods is not None:
        return _conditioned(graph, device, wanted, wanted.methods)
    stats, correct = wanted.stats, wanted.correct
    ranged = planner.annotate(graph, stats=stats, annotations=wanted.given, target=device)
    if stats is None or not stats.values or not correct:
        return ranged, ()
    with progress("correcting biases"):
        corrected = planner.correct_biases(ranged, device, stats)
    for note in corrected.notes[len(ranged.notes) :]:
        warn(note)
    if corrected.constants == ranged.constants:
        return ranged, ()
    return _named(corrected), ()


def _named(graph: "Graph") -> "Graph":
    return replace(graph, name=_UNSAFE.sub("_", graph.name) or "model")


def _conditioned(
    graph: "Graph", device: "Target", wanted: Preparation, methods: str
) -> "tuple[Graph, tuple[Change, ...]]":
    """Condition a model, its biases too unless that was turned off, and annotate what came of it."""
    import planner
    from planner.weight_conditioning.follow import has_range
    from planner.weight_conditioning.methods import read_methods

    asked = [str(method) for method in read_methods(methods)]
    if wanted.correct and wanted.stats is not None and "correct" not in asked:
        asked.append("correct")
    noted = planner.annotate(graph, annotations=wanted.given)
    with progress("conditioning"):
        done = planner.condition(noted, asked, target=device, stats=wanted.stats, samples=wanted.samples)
    for text in warnings_of(done):
        warn(text)
    if done.stats is None:
        return _named(done.model), done.changes
    # The user's own ranges come before those of statistics, as ever.
    own = {name: seen for name, seen in done.stats.values.items() if not has_range(done.model, name)}
    return _named(planner.annotate(done.model, stats=replace(done.stats, values=own))), done.changes

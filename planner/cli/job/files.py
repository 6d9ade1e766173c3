"""Files of a plan, written beside each other, and those that an earlier plan left in the folder."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.cli.comparing import Judging, compare_and_warn
from planner.cli.console import progress, warn
from planner.cli.effort import ANNOTATIONS
from planner.cli.files import size_of
from planner.errors import ModelError, UnsupportedExport
from planner.file_names import CORRECTED

if TYPE_CHECKING:
    from planner.interpreter.compare import Comparison
    from planner.ir.graph import Graph
    from planner.plans.plan import Plan


def corrected_files(name: str) -> tuple[str, str]:
    """Return the names of the float model with corrected biases: ones that nobody takes for the result."""
    return f"{name}{CORRECTED}.onnx", f"{name}{CORRECTED}.json"


def corrected_in(name: str, files: Iterable[str]) -> str:
    """Return which of them is among the files; "" if none is."""
    return next((file for file in corrected_files(name) if file in files), "")


def leftovers(
    out: str, planned: "Plan", files: Mapping[str, Any], inputs: Iterable[str | None]
) -> Iterator[str]:
    """Yield warnings of files of an earlier plan in the folder, which do not belong to this one."""
    from planner.formats.table import EXPORTERS, file_name

    given = [Path(name) for name in inputs if name is not None and Path(name).exists()]
    for file in (*corrected_files(planned.graph.name), *map(file_name, EXPORTERS), ANNOTATIONS):
        path = Path(out) / file
        if path.name not in files and path.is_file() and not any(map(path.samefile, given)):
            yield f"{path} was there before and does not belong to this plan"


def documents_of(
    documents: Mapping[str, Callable[[], Iterable[str]]], staged: Path | None
) -> dict[str, bytes | Path]:
    """Texts as bytes; of a large model, whose texts are long, one after the other in files."""
    if staged is None:
        return {name: "".join(parts()).encode() for name, parts in documents.items()}
    for name, parts in documents.items():
        with progress(f"writing {name}"), (staged / name).open("w", encoding="utf-8", newline="") as file:
            file.writelines(parts())
    return {name: staged / name for name in documents}


def _float_model(
    graph: "Graph", ready: "Graph", *, is_cut: bool, staged: Path | None
) -> dict[str, bytes | Path]:
    """Return the float model that later verbs need beside the plan; nothing if it is the file given.

    An ONNX file has no place for expanded loops, branches, functions and composites of a model.
    Where it is read as another model than the plan is for, the model is written as annotated JSON.
    """
    from planner.formats.annotated.document import write_annotated
    from planner.formats.onnx.write import write_graph
    from planner.formats.to_file import write_float

    if not is_cut and all(
        graph.constants.get(name) is constant for name, constant in ready.constants.items()
    ):
        return {}
    name, annotated = corrected_files(ready.name)
    try:
        if staged is not None:
            return {file.name: file for file in write_float(ready, staged / name)}
        data = write_graph(ready, with_shapes=True)
        if _is_read_as(data, ready):
            return {name: data}
        return {annotated: write_annotated(ready).encode()}
    except UnsupportedExport as error:
        warn(f"the model with corrected biases is not written: {error.message}")
        return {}


def _is_read_as(data: bytes, ready: "Graph") -> bool:
    from planner.formats.onnx.read import read_onnx
    from planner.ir.graph import model_digest, with_facts

    try:
        read = read_onnx(data, name=ready.name)
    except ModelError:
        return False
    return model_digest(with_facts(read, ready)) == model_digest(ready)


def written_in(
    graph: "Graph",
    ready: "Graph",
    planned: "Plan",
    formats: list[str],
    judging: Judging,
    *,
    is_cut: bool,
    staged: Path | None,
) -> tuple[dict[str, bytes | Path], "dict[str, Comparison]"]:
    """Write the corrected model and each format, compared with the float model where there are samples.

    The plan was checked with this model just now: it is not checked again.

    Args:
      staged: where files of a large model are written.
    """
    from planner.formats.common.known_shapes import taken_for_one
    from planner.formats.file_coverage import coverage_of_file
    from planner.formats.runnable import ARITHMETICS, runnable
    from planner.formats.table import EXPORTERS, file_name
    from planner.formats.to_file import write_to
    from planner.interpreter.compare import Evaluated
    from planner.interpreter.reference import outputs_once
    from planner.pipeline import exportable

    files = _float_model(graph, ready, is_cut=is_cut, staged=staged)
    comparisons: dict[str, Comparison] = {}
    known = outputs_once(graph, judging.reference) if judging.samples and len(formats) > 1 else None
    for name in dict.fromkeys(formats):
        exported: bytes | Path
        with progress(f"exporting {name}") as bar:
            model = exportable(ready, planned, name)
            if text := taken_for_one(model, name):
                warn(text)
            if staged is None:
                exported = EXPORTERS[name](model, planned)
                files[file_name(name)], size = exported, len(exported)
            else:
                written = write_to(model, planned, name, staged / file_name(name), progress=bar)
                files |= {file.name: file for file in written}
                exported, size = written[0], sum(map(size_of, written))
        if judging.samples is None:
            continue
        runs: bytes | Path | Evaluated | None = runnable(name, exported)
        if name in ARITHMETICS:
            runs = Evaluated(ready, planned, ARITHMETICS[name])
        if runs is not None:
            device = planned.target.files
            found = compare_and_warn(graph, name, runs, judging.samples, judging, device=device, known=known)
            comparisons[name] = replace(found, coverage=coverage_of_file(planned, graph, name, size))
    return files, comparisons

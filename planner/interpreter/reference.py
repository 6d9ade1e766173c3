"""Reference: the model as its user gave it, which a quantized model is compared with.

A float model runs in onnxruntime. One whose file has quantizers of its own (QAT) runs as that file says,
rounding included: without them it is another model, which nobody trained. Source: docs/accuracy.md.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, TypeAlias

from planner.errors import ModelError, SampleError
from planner.formats.onnx.quantized.quantizers import find_quantizers
from planner.formats.onnx.sessions import FAILURES, one_line, open_graph, run_arrays, session_options
from planner.formats.onnx.shapes import infer
from planner.interpreter.models import ModelRunner
from planner.interpreter.requantize import Array
from planner.interpreter.store import Store
from planner.ir.graph import Graph

ReferenceKind: TypeAlias = Literal["written", "stripped"]
"""With the quantizers that the file brought, or the bare float net."""
Run: TypeAlias = Callable[[str, Mapping[str, Array], tuple[str, ...]], Mapping[str, Array]]
"""Results by name, of a sample: its name for messages, its arrays, the names of the results."""

# A protobuf holds less than 2 GB: models with more weights go through a folder.
MAX_INLINE_BYTES: Final = 1 << 30


def open_reference(graph: Graph, watched: Iterable[str] = (), kind: ReferenceKind = "written") -> Run:
    """Make the reference ready to run.

    Args:
      watched: inner values to return beside the outputs.
      kind: `stripped` leaves out the quantizers that the model's file brought.

    Raises:
      ModelError: a model that cannot be run.
    """
    if kind == "stripped" or graph.written is None:
        return _float_model(graph, tuple(watched))
    return _written_model(graph.written, tuple(watched))


def remembered(run: Run, names: Iterable[str]) -> Run:
    """A reference that runs each sample once and keeps these results of it, by the sample's name.

    For samples that are iterated many times, each under a name of its own.
    """
    wanted, known, store = tuple(names), dict[str, Mapping[str, Array]](), Store()

    def again(label: str, arrays: Mapping[str, Array], names: tuple[str, ...]) -> Mapping[str, Array]:
        if label not in known:
            found = run(label, arrays, wanted)
            known[label] = {name: store.kept(array) for name, array in found.items()}
        return {name: known[label][name] for name in names}

    return again


def outputs_once(graph: Graph, kind: ReferenceKind = "written") -> Run:
    """The reference for outputs alone, `remembered`: for samples that several files are compared on.

    Raises:
      ModelError: a model that cannot be run.
    """
    numbers = [name for name in graph.outputs if graph.values[name].dtype not in ("", "string")]
    return remembered(open_reference(graph, (), kind), numbers)


def named_in_reference(
    graph: Graph, names: Iterable[str], kind: ReferenceKind = "written"
) -> tuple[str, ...]:
    """Those of the values that the reference has, too: folding and quantizers leave some of a file's out."""
    if kind == "stripped" or graph.written is None:
        return tuple(names)
    computed = {out for op in graph.written.ops for out in op.outputs}
    return tuple(name for name in names if name in computed)


def _float_model(graph: Graph, watched: tuple[str, ...]) -> Run:
    outputs = (*graph.outputs, *watched)
    # No shapes for the new outputs: onnxruntime refuses claims that it infers otherwise.
    loose = {name: replace(graph.values[name], shape=None) for name in outputs}
    model = replace(graph, outputs=outputs, values={**graph.values, **loose})
    session = open_graph(model, session_options(), inline=MAX_INLINE_BYTES)
    return lambda label, arrays, names: run_session(session, label, arrays, names)


def _written_model(graph: Graph, watched: tuple[str, ...]) -> Run:
    model = infer(graph)
    # What a value is after its quantizer, as a planned file has it under the value's own name.
    readers = [name for op in model.ops for name in {*op.inputs, *op.captures}]
    quantizers = [*find_quantizers(model)]
    # Of two in a row, the first one's result is a value of its own.
    results = {found.result for found in quantizers}
    behind = {
        found.source: found.result
        for found in quantizers
        if found.source in watched and readers.count(found.source) == 1 and found.source not in results
    }
    seen = {name: behind.get(name, name) for name in (*graph.outputs, *watched)}
    runner = ModelRunner(model, watched=seen.values())

    def run(label: str, arrays: Mapping[str, Array], names: tuple[str, ...]) -> Mapping[str, Array]:
        try:
            found = runner.run(arrays)
        except (ModelError, SampleError) as error:
            raise type(error)(f"{label}: {error.message}", hint=_BARE) from error
        return {name: found[seen[name]] for name in names}

    return run


_BARE: Final = "the reference runs the model with its own quantizers; the reference 'stripped' has none"


def run_session(
    session: Any, label: str, arrays: Mapping[str, Array], names: tuple[str, ...]
) -> Mapping[str, Array]:
    """Run an onnxruntime session on those of the arrays that it takes.

    Raises:
      SampleError: a sample that does not run.
    """
    used = {port.name for port in session.get_inputs()}
    feeds = {name: array for name, array in arrays.items() if name in used}
    try:
        results = run_arrays(session, names, feeds)
    except FAILURES as error:
        raise SampleError(f"{label}: onnxruntime cannot run the model: {one_line(error)}") from error
    return dict(zip(names, results, strict=True))

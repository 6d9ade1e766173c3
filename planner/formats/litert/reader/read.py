"""Reading a LiteRT file: a graph of ONNX ops in normal form whose values have the file's types as fixed
types.

An operator that no ONNX op equals stays under its own name, opaque and float, and a note says why:
`tflite::LSTM`, or `tflite.custom::Name`. Source: TensorFlow Lite's schema, version 3; ONNX operators, opset
21; docs/litert.md.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from planner.errors import ModelError, QTypeError
from planner.file_names import model_name
from planner.formats.litert.reader.builder import Builder, State, Unread
from planner.formats.litert.reader.control_flow import CONTROL, TYPES
from planner.formats.litert.reader.elementwise import ELEMENTWISE
from planner.formats.litert.reader.file import File, Operator, read_file
from planner.formats.litert.reader.linear import LINEAR, Reader, hybrid_operands
from planner.formats.litert.reader.movement import MOVEMENT
from planner.formats.litert.reader.pooling import POOLING
from planner.formats.litert.reader.quantizers import with_quantizers
from planner.formats.litert.reader.recurrent import RECURRENT
from planner.formats.litert.reader.variables import VARIABLES, next_states
from planner.formats.onnx.decoding import graph_of_bytes
from planner.formats.onnx.drafts.draft import OPSET
from planner.formats.onnx.drafts.simplify import tidy
from planner.formats.onnx.normalise import normalise
from planner.formats.onnx.shapes import infer
from planner.formats.onnx.write import write_graph
from planner.ir.expand import expand
from planner.ir.graph import LEFT_BEHIND, Graph, Op
from planner.ir.topology import topological
from planner.ir.types.fit import refuse_misfits
from planner.ir.validity import validate

READERS: Final[Mapping[str, Reader]] = {
    **CONTROL,
    **ELEMENTWISE,
    **LINEAR,
    **MOVEMENT,
    **POOLING,
    **RECURRENT,
}
_FAULTS: Final = (
    struct.error,
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    QTypeError,
    TypeError,
    ValueError,
)


def read_litert(source: str | Path | bytes, *, name: str | None = None) -> Graph:
    """Read a model for planning: its first subgraph, with the file as it quantizes as `Graph.written`.

    Args:
      name: the graph's name; by default the file's stem, or the name in it.

    Raises:
      ModelError: no LiteRT file, or one that cannot be read; one line that says where and why.
    """
    plain = _drafted(source, name)
    graph = expand(_typed(_each(plain, normalise)))
    if any(value.facts for part in (plain, *plain.functions.values()) for value in part.values.values()):
        graph = replace(graph, written=_settled(_written(plain)))
    return _settled(refuse_misfits(validate(graph)))


def read_litert_written(source: str | Path | bytes, *, stored: bool = False) -> Graph:
    """Read a model for running or converting, its quantization as QuantizeLinear and DequantizeLinear.

    Args:
      stored: whether quantized inputs and outputs are stored integers, as in the file; else they are reals.

    Raises:
      ModelError: no LiteRT file, or one that cannot be read.
    """
    return _settled(validate(infer(_written(_drafted(source, None), stored=stored))))


def _each(graph: Graph, change: Callable[[Graph], Graph]) -> Graph:
    """A graph and its functions, changed one by one."""
    bodies = {name: change(body) for name, body in graph.functions.items()}
    return replace(change(replace(graph, functions={})), functions=bodies)


def _typed(graph: Graph) -> Graph:
    """The graph with the ops that run functions under ONNX's names, which only their structure explains."""

    def named(part: Graph) -> Graph:
        ops = [replace(op, type=TYPES[op.type]) if op.structure is not None else op for op in part.ops]
        return replace(part, ops=tuple(ops))

    return _each(graph, named) if graph.functions else graph


def _written(graph: Graph, *, stored: bool = False) -> Graph:
    """The file as it quantizes, its loops and branches as ONNX's own, with subgraphs."""
    if not graph.functions:
        return with_quantizers(graph, stored=stored)
    inner = {name: with_quantizers(body) for name, body in graph.functions.items()}
    outer = with_quantizers(replace(graph, functions={}), stored=stored)
    whole = expand(_typed(replace(outer, functions=inner)))
    found = graph_of_bytes(write_graph(infer(whole)), graph.opsets, graph.name)
    return replace(found, ops=topological(found.ops), notes=graph.notes)


def _drafted(source: str | Path | bytes, name: str | None) -> Graph:
    """The graph of a file, transposes sunk, with facts; subgraphs that it runs are its functions."""
    data = source if isinstance(source, bytes) else _contents(Path(source))
    file = read_file(data)
    stem = "" if isinstance(source, bytes) else model_name(source)
    builder = Builder(State(), file=file, graph_of=_subgraph)
    if file.metadata:
        builder.notes.append(f"{LEFT_BEHIND}: {', '.join(map(repr, file.metadata))}")
    graph = _read_file(builder)
    return validate(replace(graph, name=name or stem or file.name, functions=builder.functions))


def _subgraph(outer: Builder, file: File) -> Graph:
    builder = Builder(
        State(),
        file=file,
        graph_of=_subgraph,
        functions=outer.functions,
        known_functions=outer.known_functions,
        chain=(*outer.chain, file.index),
        notes=outer.notes,
    )
    return _read_file(builder)


def _read_file(builder: Builder) -> Graph:
    file = builder.file
    builder.hybrid = hybrid_operands(file)
    builder.taken.update(called for called, _ in (*file.inputs, *file.outputs))
    inputs = tuple([_input(builder, called, place) for called, place in file.inputs])
    for operator in file.operators:
        _read(builder, operator)
    inputs += tuple(builder.states.values())
    outputs = (*_outputs(builder), *next_states(builder))
    tidy(builder, outputs, pools=False)
    return _graph(builder, file.name, inputs, outputs)


def _contents(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {str(path)!r}: {error.strerror}") from error


def _input(builder: Builder, called: str, place: int) -> str:
    if place in builder.names:
        raise ModelError(f"tensor {called!r} is an input twice")
    if builder.file.tensors[place].data is not None:
        raise ModelError(f"input {called!r} is a constant")
    return builder.enter(place, name="" if called in builder.read.values else called or f"input_{place}")


def _read(builder: Builder, operator: Operator) -> None:
    if not operator.is_custom and operator.name in VARIABLES:
        VARIABLES[operator.name](builder, operator)
        return
    for place in operator.inputs:
        if place >= 0 and not builder.file.tensors[place].is_variable:
            _check(builder, operator, place)
    reader = None if operator.is_custom else READERS.get(operator.name)
    why = "no ONNX op means the same" if reader is None else ""
    if reader is not None and len(operator.outputs) == 0:
        why = "it has no result"
    elif reader is not None:
        before = set(builder.names)
        try:
            reader(builder, operator)
        except Unread as reason:
            why = str(reason)
            for place in [place for place in operator.outputs if place not in before]:
                builder.names.pop(place, None)
        except _FAULTS as error:
            made = [builder.file.tensors[i].name for i in operator.outputs if i >= 0]
            raise ModelError(
                f"operator {operator.name}, whose results are {made}, cannot be read: {error}"
            ) from None
    if why:
        _opaque(builder, operator, why)


def _check(builder: Builder, operator: Operator, place: int) -> None:
    tensor = builder.file.tensors[place]
    if place not in builder.names and tensor.data is None and 0 not in tensor.shape:
        raise ModelError(
            f"operator {operator.name} reads tensor {tensor.name!r}, and nothing before defines it"
        )


def _opaque(builder: Builder, operator: Operator, why: str) -> None:
    """An operator under its own name."""
    domain = "tflite.custom" if operator.is_custom else "tflite"
    inputs = []
    for place in operator.inputs:
        known = place >= 0 and not builder.file.tensors[place].is_variable
        inputs.append(builder.known(place) if known else "")
    for place in operator.outputs:
        if place in builder.names:
            raise ModelError(f"operator {operator.name} defines tensor {place}, which is defined already")
    outputs = tuple([builder.enter(place) for place in operator.outputs if place >= 0])
    name = outputs[0] if outputs else builder.read.fresh(operator.name)
    builder.read.ops.append(Op(name, f"{domain}::{operator.name}", tuple(inputs), outputs))
    builder.notes.append(f"{operator.name} {name!r} stays opaque and float: {why}")


def _outputs(builder: Builder) -> tuple[str, ...]:
    """The outputs under the names that the file gives them; one that has another already is copied."""
    found: list[str] = []
    for called, place in builder.file.outputs:
        name = builder.known(place)
        wanted = called or name
        is_free = wanted not in builder.read.values
        if (
            name in found
            or name in builder.read.constants
            or (wanted != name and is_free)
            or (name in {builder.names.get(i) for _, i in builder.file.inputs})
        ):
            copy = wanted if is_free else builder.read.fresh(wanted)
            builder.read.values[copy] = replace(builder.read.values[name], name=copy)
            if name in builder.read.stated:
                builder.read.stated[copy] = builder.read.stated[name]
            builder.read.ops.append(Op(copy, "Identity", (name,), (copy,)))
            name = copy
        found.append(name)
    return tuple(found)


def _graph(builder: Builder, name: str, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> Graph:
    read = builder.read
    wanted = {*inputs, *outputs}
    for op in read.ops:
        wanted.update((*op.inputs, *op.outputs))
    values = {
        key: replace(value, facts=read.stated.get(key, ()))
        for key, value in read.values.items()
        if key in wanted
    }
    notes = [
        f"tensor {tensor.name!r} has no fixed type: {tensor.problem}"
        for tensor in builder.file.tensors
        if tensor.problem and tensor.data is None
    ]
    return Graph(
        name=name,
        values=values,
        ops=tuple(read.ops),
        inputs=inputs,
        outputs=outputs,
        constants={key: item for key, item in read.constants.items() if key in wanted},
        opsets={"": OPSET},
        notes=(*builder.notes, *notes),
    )


def _settled(graph: Graph) -> Graph:
    """The graph with read-only numbers, so that its digest is taken once."""
    for constant in graph.constants.values():
        if constant.array is not None:
            constant.array.setflags(write=False)
    return graph

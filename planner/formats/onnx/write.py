"""Writing ONNX: plain records to the bytes of a model.

Exporters build `Node` records and call `write_model`; `write_graph` re-emits an imported Graph as it
is. Nothing here plans or quantizes. Source: onnx.proto.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import numpy as np
from onnx import GraphProto, ModelProto

from planner.errors import ModelError, UnsupportedExport
from planner.formats.onnx.dtypes import byte_size, dtype_of
from planner.formats.onnx.nodes import Node, Port, fill_node, op_node, value_info
from planner.formats.onnx.structure.functions_to_subgraphs import QPLAN, nest
from planner.formats.onnx.tensors import (
    aligned,
    external_tensor,
    field_parts,
    raw_view,
    tensor_of,
    tensor_parts,
)
from planner.ir.expand import expand
from planner.ir.graph import Dim, Graph, scaled_to_json
from planner.ir.mapped import Place, let_go
from planner.ir.structure import Scope

Data: TypeAlias = np.ndarray | tuple[np.ndarray, str]

__all__ = ["IR_VERSION", "OPSET", "Node", "Port", "op_node", "value_info", "write_graph", "write_model"]

OPSET: Final = 21
IR_VERSION: Final = 10
_IR_OF: Final = {"f4E2M1FN": 11, "f8E8M0FNU": 12, "i2": 13, "u2": 13}
"""The versions of the format that brought element types later than `IR_VERSION`."""
OWN: Final = "qplan."
"""Begins the keys of the metadata that a planner writes."""
SCALED: Final = "qplan.scaled"
"""Metadata of a model in which factors were absorbed: so its first names still tell of statistics."""
MAX_BYTES: Final = 1_900_000_000
_MAX_INLINE: Final = 1024
_GRAPH: Final = ModelProto.GRAPH_FIELD_NUMBER
_INITIALIZER: Final = GraphProto.INITIALIZER_FIELD_NUMBER


def write_model(
    *,
    name: str,
    nodes: Sequence[Node],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    constants: Mapping[str, Data],
    opset: int = OPSET,
    ir_version: int = IR_VERSION,
    domains: Mapping[str, int] | None = None,
    external: Path | None = None,
    into: Path | None = None,
    places: Mapping[str, Place] | None = None,
    doc: str = "",
    metadata: Mapping[str, str] | None = None,
    producer: str = "quant-planner",
    version: str = "",
    annotations: Mapping[str, Mapping[str, str]] | None = None,
    inner: Sequence[Port] = (),
    scopes: Mapping[str, Scope] | None = None,
    typed: Callable[[str], tuple[str, Sequence[Dim] | None]] | None = None,
) -> bytes:
    """Serialise a model.

    Args:
      inputs, outputs: (name, element type, shape); an unknown shape is None, an unknown dim too.
      constants: arrays by value name, or (array, element type) for formats such as `i4`.
      domains: versions of further operator sets; a domain that nodes use and that is missing gets 1.
      producer, version: of what writes the model.
      external: a data file to write the weights into; the model refers to it by its file name, so
        the returned bytes belong into the same folder.
      into: a file to write the whole model into, weight by weight; nothing is returned then.
      places: bytes of files that are the weights of some names as they are: the model refers to them by their
        paths, relative ones to the folder that it is read in.
      annotations: quantization annotations of tensors, key to text, by tensor name.
      inner: shapes and element types of values inside, for tools that infer none.
      scopes: bodies that nodes stand in; with `typed`, the types of tensors at their borders.

    Raises:
      UnsupportedExport: over 1.9 GB without `external`: no protobuf holds more than 2 GB.
    """
    known = places or {}
    tensors = {key: _typed(data) for key, data in constants.items() if key not in known}
    total = sum(byte_size(dtype, array.size) for array, dtype in tensors.values())
    if external is None and total > MAX_BYTES:
        raise UnsupportedExport(
            f"model {name!r} has {total} bytes of weights, one ONNX file holds at most {MAX_BYTES}",
            hint="write it to a path (over HTTP: external_data), then the weights go into a file beside it",
        )
    used = {node.domain: 1 for node in nodes if node.domain not in ("", QPLAN)}
    least = max((_IR_OF.get(dtype, 0) for _, dtype in tensors.values()), default=0)
    model = ModelProto(ir_version=max(ir_version, least), producer_name=producer, producer_version=version)
    model.doc_string = doc
    for domain, number in sorted({"": opset, **used, **(domains or {})}.items()):
        model.opset_import.add(domain=domain, version=number)
    for key, text in sorted((metadata or {}).items()):
        model.metadata_props.add(key=key, value=text)
    graph = model.graph
    graph.name = name
    for node in nest(nodes, scopes, typed) if scopes and typed is not None else nodes:
        fill_node(graph.node.add(), node)
    graph.input.extend(value_info(*port) for port in inputs)
    graph.output.extend(value_info(*port) for port in outputs)
    graph.value_info.extend(value_info(*port) for port in inner)
    for key, place in known.items():
        array, dtype = _typed(constants[key])
        where = place.path.as_posix()
        graph.initializer.append(external_tensor(key, array, dtype, location=where, offset=place.offset))
    for tensor, texts in (annotations or {}).items():
        entry = graph.quantization_annotation.add(tensor_name=tensor)
        for key, text in texts.items():
            entry.quant_parameter_tensor_names.add(key=key, value=text)
    if external is None and into is None:
        return b"".join(_parts(model, tensors))
    if into is not None:
        with into.open("wb") as file:
            file.writelines(_parts(model, tensors))
        return b""
    if external is not None:
        _write_external(graph, tensors, external)
    return bytes(model.SerializeToString())


def _parts(model: ModelProto, tensors: Mapping[str, tuple[np.ndarray, str]]) -> list[bytes]:
    """The bytes of a model and its weights in parts, none of them copied: protobuf would copy them twice."""
    parts: list[bytes] = [model.graph.SerializeToString()]
    for key, (array, dtype) in tensors.items():
        parts += field_parts(_INITIALIZER, tensor_parts(key, array, dtype))
    model.ClearField("graph")
    return [model.SerializeToString(), *field_parts(_GRAPH, parts)]


def write_graph(
    graph: Graph,
    *,
    nodes: Sequence[Node] | None = None,
    external: Path | None = None,
    places: Mapping[str, Place] | None = None,
    with_shapes: bool = False,
    annotations: Mapping[str, Mapping[str, str]] | None = None,
) -> bytes:
    """Re-emit an imported Graph as float ONNX, op by op; facts on values are not written.

    Args:
      nodes: instead of those of its ops.
      external, places: see `write_model`.
      with_shapes: also state the known types of values inside, but for bodies: names of open sizes that the
        source stated are in no other place, and a plan is for a model with them.
      annotations: `quantization_annotation` by tensor.

    Raises:
      ModelError: a constant whose numbers are not known, only its range.
    """
    graph = expand(graph)
    for name, constant in graph.constants.items():
        if constant.array is None:
            raise ModelError(f"constant {name!r} has a range but no numbers, so no model can be written")
    others = {domain: version for domain, version in graph.opsets.items() if domain}

    def typed(name: str) -> tuple[str, Sequence[Dim] | None]:
        return graph.values[name].dtype, graph.values[name].shape

    boundary = {*graph.inputs, *graph.outputs, *graph.constants}
    outer = (op for op in graph.all_ops() if not op.scope)
    made = [out for op in outer for out in op.outputs if out and out not in boundary]
    known = [name for name in made if graph.values[name].shape is not None and graph.values[name].dtype]
    return write_model(
        name=graph.name,
        nodes=[op_node(op) for op in graph.all_ops()] if nodes is None else nodes,
        inputs=[_port(graph, name) for name in graph.inputs],
        outputs=[_port(graph, name) for name in graph.outputs],
        constants={
            name: (c.array, graph.values[name].dtype)
            for name, c in graph.constants.items()
            if c.array is not None
        },
        opset=graph.opsets.get("", OPSET),
        domains=others,
        external=external,
        places=places,
        inner=[_port(graph, name) for name in known] if with_shapes else (),
        scopes=graph.scopes,
        typed=typed,
        annotations=annotations,
        metadata={
            **graph.metadata,
            **({SCALED: json.dumps(scaled_to_json(graph.scaled))} if graph.scaled else {}),
        },
    )


def _port(graph: Graph, name: str) -> Port:
    value = graph.values[name]
    return name, value.dtype, value.shape


def _typed(data: Data) -> tuple[np.ndarray, str]:
    if isinstance(data, tuple):
        return data
    return data, dtype_of(data)


def _write_external(graph: GraphProto, tensors: Mapping[str, tuple[np.ndarray, str]], path: Path) -> None:
    """Weights of more than a page go to the file, written aside and moved into place."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            for key, (array, dtype) in tensors.items():
                if dtype == "string" or byte_size(dtype, array.size) <= _MAX_INLINE:
                    graph.initializer.append(tensor_of(key, array, dtype))
                    continue
                file.seek(aligned(file.tell()))
                described = external_tensor(key, array, dtype, location=path.name, offset=file.tell())
                graph.initializer.append(described)
                file.write(raw_view(array, dtype))
                let_go(array)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def with_data_at(data: bytes, name: str) -> bytes:
    """A written model that looks for its external weights in the file `name` beside it."""
    model = ModelProto.FromString(data)
    graphs = [model.graph]
    while graphs:
        graph = graphs.pop()
        graphs += [item.g for node in graph.node for item in node.attribute if item.type == item.GRAPH]
        graphs += [g for node in graph.node for item in node.attribute for g in item.graphs]
        for tensor in graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = name
    return bytes(model.SerializeToString())

"""Writing ONNX: plain records to the bytes of a model.

Exporters build `Node` records and call `write_model`; `write_graph` re-emits an imported Graph as it
is. Nothing here plans or quantizes. Source: onnx.proto.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from planner.errors import ModelError, UnsupportedExport
from planner.ir.graph import Dim, Graph, Op
from planner.onnx.attributes import attribute_of
from planner.onnx.dtypes import byte_size, dtype_of, enum_of
from planner.onnx.tensors import aligned, external_tensor, fill_tensor, raw_bytes, tensor_of

Data: TypeAlias = np.ndarray | tuple[np.ndarray, str]
Port: TypeAlias = tuple[str, str, Sequence[Dim] | None]

OPSET: Final = 21
IR_VERSION: Final = 10
MAX_BYTES: Final = 1_900_000_000
_MAX_INLINE: Final = 1024


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a model to write; attributes are plain values, arrays or `Opaque` subgraphs."""

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str = ""
    domain: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)


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
    doc: str = "",
    metadata: Mapping[str, str] | None = None,
    producer: str = "quant-planner",
    annotations: Mapping[str, Mapping[str, str]] | None = None,
    inner: Sequence[Port] = (),
) -> bytes:
    """Serialise a model.

    Args:
      inputs, outputs: (name, element type, shape); an unknown shape is None, an unknown dim too.
      constants: arrays by value name, or (array, element type) for formats such as `i4`.
      domains: versions of further operator sets; a domain that nodes use and that is missing gets 1.
      external: a data file to write the weights into; the model refers to it by its file name, so
        the returned bytes belong into the same folder.
      annotations: quantization annotations of tensors, key to text, by tensor name.
      inner: shapes and element types of values inside, for readers that infer none.

    Raises:
      UnsupportedExport: over 1.9 GB without `external`: no protobuf holds more than 2 GB.
    """
    tensors = {key: _typed(data) for key, data in constants.items()}
    total = sum(byte_size(dtype, array.size) for array, dtype in tensors.values())
    if external is None and total > MAX_BYTES:
        raise UnsupportedExport(
            f"model {name!r} has {total} bytes of weights, one ONNX file holds at most {MAX_BYTES}",
            hint="write it to a path, then the weights go into a file beside it",
        )
    versions = {"": opset, **{node.domain: 1 for node in nodes if node.domain}, **(domains or {})}
    model = ModelProto(ir_version=ir_version, producer_name=producer, doc_string=doc)
    for domain, version in sorted(versions.items()):
        model.opset_import.add(domain=domain, version=version)
    for key, text in sorted((metadata or {}).items()):
        model.metadata_props.add(key=key, value=text)
    graph = model.graph
    graph.name = name
    for node in nodes:
        _fill_node(graph.node.add(), node)
    graph.input.extend(value_info(*port) for port in inputs)
    graph.output.extend(value_info(*port) for port in outputs)
    graph.value_info.extend(value_info(*port) for port in inner)
    for tensor, texts in (annotations or {}).items():
        entry = graph.quantization_annotation.add(tensor_name=tensor)
        for key, text in texts.items():
            entry.quant_parameter_tensor_names.add(key=key, value=text)
    if external is None:
        for key, (array, dtype) in tensors.items():
            fill_tensor(graph.initializer.add(), key, array, dtype)
    else:
        _write_external(graph, tensors, external)
    data: bytes = model.SerializeToString()
    return data


def op_node(op: Op, rename: Callable[[str], str] = str) -> Node:
    """Make the node of a source op, its operands renamed; "" stays absent.

    Raises:
      ModelError: `rename` changes a value that a subgraph body of the op captures.
    """
    for name in op.captures:
        if rename(name) != name:
            raise ModelError(f"a subgraph of {op.name!r} captures {name!r}, so it cannot be renamed")
    domain, _, kind = op.type.rpartition("::")

    def named(values: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(rename(value) if value else "" for value in values)

    return Node(kind, named(op.inputs), named(op.outputs), op.name, domain, op.attributes)


def write_graph(graph: Graph, *, external: Path | None = None, with_shapes: bool = False) -> bytes:
    """Re-emit an imported Graph as float ONNX, op by op; facts on values are not written.

    Args:
      external: see `write_model`.
      with_shapes: also state what is known of values inside.

    Raises:
      ModelError: a constant whose numbers are not known, only its range.
    """
    for name, constant in graph.constants.items():
        if constant.array is None:
            raise ModelError(f"constant {name!r} has a range but no numbers, so no model can be written")
    others = {domain: version for domain, version in graph.opsets.items() if domain}
    boundary = {*graph.inputs, *graph.outputs, *graph.constants}
    made = [out for op in graph.all_ops() for out in op.outputs if out and out not in boundary]
    known = [name for name in made if graph.values[name].shape is not None and graph.values[name].dtype]
    return write_model(
        name=graph.name,
        nodes=[op_node(op) for op in graph.all_ops()],
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
        inner=[_port(graph, name) for name in known] if with_shapes else (),
    )


def node_proto(node: Node) -> NodeProto:
    """Encode one node."""
    proto = NodeProto()
    _fill_node(proto, node)
    return proto


def _fill_node(proto: NodeProto, node: Node) -> None:
    proto.op_type, proto.name = node.op_type, node.name
    if node.domain:
        proto.domain = node.domain
    proto.input.extend(node.inputs)
    proto.output.extend(node.outputs)
    if node.attributes:
        proto.attribute.extend(attribute_of(key, value) for key, value in node.attributes.items())


def value_info(name: str, dtype: str, shape: Sequence[Dim] | None) -> ValueInfoProto:
    """Encode a value's type; nothing is claimed about what is unknown."""
    info = ValueInfoProto(name=name)
    tensor = info.type.tensor_type
    tensor.elem_type = enum_of(dtype)
    if shape is None:
        return info
    tensor.shape.SetInParent()
    for dim in shape:
        entry = tensor.shape.dim.add()
        if isinstance(dim, int):
            entry.dim_value = dim
        elif dim:
            entry.dim_param = dim
    return info


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
    with partial.open("wb") as file:
        for key, (array, dtype) in tensors.items():
            if dtype == "string" or byte_size(dtype, array.size) <= _MAX_INLINE:
                graph.initializer.append(tensor_of(key, array, dtype))
                continue
            file.seek(aligned(file.tell()))
            described = external_tensor(key, array, dtype, location=path.name, offset=file.tell())
            graph.initializer.append(described)
            file.write(raw_bytes(array, dtype))
    partial.replace(path)

"""Nodes: plain records of the parts of an ONNX graph, and their protobuf.

Source: onnx.proto.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

from onnx import NodeProto, ValueInfoProto

from planner.formats.onnx.attributes import write_attribute
from planner.formats.onnx.dtypes import enum_of
from planner.ir.graph import Dim, Op

Port: TypeAlias = tuple[str, str, Sequence[Dim] | None]
"""Name, element type and shape; an unknown shape is None, an unknown dim too."""


class Node(NamedTuple):
    """One node of a model to write; attributes are plain values, arrays or `Opaque` subgraphs.

    `scope` is the body it stands in (`ir.structure.Scope`); `functions_to_subgraphs` puts it there.
    """

    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    name: str = ""
    domain: str = ""
    attributes: Mapping[str, Any] = MappingProxyType({})
    scope: str = ""


def op_node(op: Op) -> Node:
    """Make the node of a source op."""
    domain, _, kind = op.type.rpartition("::")
    return Node(kind, op.inputs, op.outputs, op.name, domain, op.attributes, op.scope)


def node_proto(node: Node) -> NodeProto:
    """Encode one node."""
    proto = NodeProto()
    fill_node(proto, node)
    return proto


def fill_node(proto: NodeProto, node: Node) -> None:
    """Write a node into an empty one."""
    proto.op_type, proto.name = node.op_type, node.name
    if node.domain:
        proto.domain = node.domain
    proto.input.extend(node.inputs)
    proto.output.extend(node.outputs)
    for key, value in node.attributes.items():
        write_attribute(proto, key, value)


def value_info(name: str, dtype: str, shape: Sequence[Dim] | None) -> ValueInfoProto:
    """Encode a value's type; unknown parts are left out."""
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

"""Nodes to ops, for the main graph and for subgraph bodies alike.

A body is a `GraphProto` inside an attribute; this module is the only one that looks into one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from onnx import AttributeProto, GraphProto, NodeProto

from planner.formats.onnx.attributes import GRAPH, value_of
from planner.formats.onnx.naming import unused
from planner.formats.onnx.nodes import node_proto, op_node
from planner.formats.onnx.structure.calls import SCOPE_KEY
from planner.ir.graph import BOUNDARY, Op, Opaque


def ops_of(nodes: Sequence[NodeProto], folder: Path | None = None) -> tuple[Op, ...]:
    """Turn nodes into ops; an unnamed one gets `{op_type}_{index}`, a repeated name a number behind."""
    taken = {node.name for node in nodes}
    seen = {BOUNDARY}
    ops = []
    for index, node in enumerate(nodes):
        name = node.name or unused(f"{node.op_type}_{index}", taken)
        if name in seen:
            name = unused(f"{name}_{index}", taken)
        seen.add(name)
        taken.add(name)
        ops.append(_op(node, name, folder))
    return tuple(ops)


def node_of(op: Op) -> NodeProto:
    """The node of an op."""
    return node_proto(op_node(op))


def graph_of(value: Opaque) -> GraphProto:
    """Parse a subgraph attribute."""
    graph: GraphProto = GraphProto.FromString(value.data)
    return graph


def opaque(graph: GraphProto) -> Opaque:
    """Keep a subgraph as an attribute value."""
    return Opaque(GRAPH, graph.SerializeToString())


def subgraphs(op: Op) -> Mapping[str, Opaque]:
    """The subgraph attributes of an op."""
    return {k: v for k, v in op.attributes.items() if isinstance(v, Opaque) and v.kind == GRAPH}


def free_names(graph: GraphProto) -> Iterator[str]:
    """Values of outer scopes that a body reads, in order of use, possibly repeated."""
    own = {info.name for info in graph.input} | {tensor.name for tensor in graph.initializer}
    for node in graph.node:
        for body in _bodies(node):
            yield from (name for name in free_names(body) if name not in own)
        yield from (name for name in node.input if name and name not in own)
        own.update(node.output)
    yield from (info.name for info in graph.output if info.name not in own)


def op_types(graph: GraphProto) -> Iterator[str]:
    """Types of the nodes of a body and of the bodies inside it, as ops have them."""
    for node in graph.node:
        yield _type_of(node)
        for body in _bodies(node):
            yield from op_types(body)


def rename_values(graph: GraphProto, rename: Callable[[str], str]) -> None:
    """Rename the values of a body and of the bodies inside it, in place."""
    for infos in (graph.input, graph.output, graph.value_info, graph.initializer):
        for info in infos:
            info.name = rename(info.name)
    for node in graph.node:
        for names in (node.input, node.output):
            names[:] = [rename(name) if name else "" for name in names]
        for body in _bodies(node):
            rename_values(body, rename)


def defined_names(graph: GraphProto) -> Iterator[str]:
    """Values that a body defines itself."""
    yield from (info.name for info in (*graph.input, *graph.initializer))
    for node in graph.node:
        yield from (name for name in node.output if name)


def _op(node: NodeProto, name: str, folder: Path | None) -> Op:
    attributes: dict[str, Any] = {}
    captures: dict[str, None] = {}
    for attribute in node.attribute:
        attributes[attribute.name] = value_of(attribute, folder)
        if attribute.type == AttributeProto.GRAPH:
            captures.update(dict.fromkeys(free_names(attribute.g)))
    return Op(
        name=name,
        type=_type_of(node),
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        attributes=attributes,
        captures=tuple(captures),
        scope=next((entry.value for entry in node.metadata_props if entry.key == SCOPE_KEY), ""),
    )


def _type_of(node: NodeProto) -> str:
    return f"{node.domain}::{node.op_type}" if node.domain not in ("", "ai.onnx") else str(node.op_type)


def _bodies(node: NodeProto) -> Iterator[GraphProto]:
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g

"""Cut: a model that ends at other values than its own outputs, before anything else is read of it.

For models whose last operators give lists or maps (scikit-learn's ZipMap) or are computed elsewhere
(non-maximum suppression).
"""

from collections.abc import Iterator

from onnx import GraphProto, NodeProto, ValueInfoProto

from planner.errors import ModelError, require_name


def cut_to(graph: GraphProto, outputs: tuple[str, ...]) -> None:
    """End a graph, in place, at these values; nodes and inputs that nothing needs any more go.

    The result of a ZipMap stands for the tensor that it reads.

    Raises:
      UnknownName: no value of the graph, or of its top level, has such a name.
      ModelError: a value named twice.
    """
    made = {name for node in graph.node for name in node.output if name} | {port.name for port in graph.input}
    for name in outputs:
        require_name("value of the model", name, made)
    maps = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "ZipMap"}
    outputs = tuple(maps.get(name, name) for name in outputs)
    if len(set(outputs)) < len(outputs):
        raise ModelError(f"the model cannot end twice at one value: {', '.join(outputs)}")
    known = {port.name: port for port in (*graph.value_info, *graph.output, *graph.input)}
    needed = set(outputs)
    kept = []
    # A file's nodes stand in an order that can run, so that readers come before writers from the end.
    for node in reversed(graph.node):
        if needed & set(node.output):
            kept.append(node)
            needed |= set(_read_by(node))
    ends = [known.get(name, ValueInfoProto(name=name)) for name in outputs]
    inputs = [port for port in graph.input if port.name in needed]
    for field, items in (("node", kept[::-1]), ("output", ends), ("input", inputs)):
        copies = [type(item).FromString(item.SerializeToString()) for item in items]
        graph.ClearField(field)
        getattr(graph, field).extend(copies)


def _read_by(node: NodeProto) -> Iterator[str]:
    """Names that a node reads, and its bodies: names of their own there do no harm."""
    yield from node.input
    for attribute in node.attribute:
        for body in (attribute.g, *attribute.graphs):
            for inner in body.node:
                yield from _read_by(inner)
            yield from (port.name for port in body.output)


def tensors_before(graph: GraphProto) -> tuple[str, ...]:
    """The tensors that a model could end at instead of outputs that are none: what their ZipMap reads."""
    writers = {name: node for node in graph.node for name in node.output}
    found = []
    for port in graph.output:
        writer = writers.get(port.name)
        if port.type.WhichOneof("value") in (None, "tensor_type"):
            found.append(port.name)
        elif writer is not None and writer.op_type == "ZipMap":
            found.append(writer.input[0])
        else:
            return ()
    return tuple(found)

"""Guards of a converted model, as in exported files: `exporters.onnx.guards`, on a graph.

And behind each DequantizeLinear of 2 bits: onnxruntime 1.31 makes kernels of it and the product behind
it that have no such type, or read beyond rows of few columns. And around each MaxPool near 4 bits, which it
would have in 4 bits too.
"""

from dataclasses import replace

from planner.formats.onnx.naming import unused
from planner.formats.onnx.write import OPSET, op_node
from planner.formats.onnx.writer.guards.layouts import kept_in_layout
from planner.formats.onnx.writer.guards.optimisations import GUARD, guarded, softmax_sizes
from planner.ir.graph import Graph, Op


def guard(graph: Graph) -> Graph:
    """The graph with a guard where onnxruntime's optimisations would compute something else."""
    return _as_exported(_of_few_bits(graph))


def _of_few_bits(graph: Graph) -> Graph:
    """A guard behind each DequantizeLinear of 2 bits, and around a MaxPool where one is of 4."""
    kinds = {op.outputs[0]: _stored(graph, op) for op in graph.ops if op.type == "DequantizeLinear"}
    read = {name for op in graph.ops for name in op.inputs}
    found = {name for name, kind in kinds.items() if kind in ("i2", "u2") and name in read}
    if {"i2", "i4", "u2", "u4"} & set(kinds.values()):
        # Pairs come to it from both sides, over ops that move data.
        found |= {name for op in graph.ops if op.type == "MaxPool" for name in (op.inputs[0], op.outputs[0])}
    taken, names, values = set(graph.values), {op.name for op in graph.ops}, dict(graph.values)
    ops: list[Op] = []
    for op in graph.ops:
        if op.outputs[0] not in found:
            ops.append(op)
            continue
        out = op.outputs[0]
        bare = unused(f"{out}/bare", taken)
        values[bare] = replace(values[out], name=bare, facts=())
        ops.append(replace(op, outputs=(bare, *op.outputs[1:])))
        ops.append(Op(unused(f"{op.name}/guard", names), GUARD, (bare,), (out,), scope=op.scope))
    return graph if len(ops) == len(graph.ops) else replace(graph, ops=tuple(ops), values=values)


def _stored(graph: Graph, op: Op) -> str:
    return graph.values[op.inputs[0]].dtype


def _as_exported(graph: Graph) -> Graph:
    """The guards of exported files."""
    taken = {*graph.values, *(op.name for op in graph.ops)}
    nodes = guarded(
        [op_node(op) for op in graph.ops],
        {name: item.array for name, item in graph.constants.items() if item.array is not None},
        graph.outputs,
        lambda stem: unused(stem, taken),
        opset=graph.opsets.get("", OPSET),
        softmaxes=softmax_sizes(graph),
    )
    nodes = kept_in_layout(nodes, graph, lambda stem: unused(stem, taken))
    if len(nodes) == len(graph.ops):
        return graph
    own, values, ops = {op.outputs: op for op in graph.ops}, dict(graph.values), list[Op]()
    for node in nodes:
        op = own.get(node.outputs)
        if op is not None:
            ops.append(replace(op, inputs=node.inputs))
            continue
        ops.append(
            Op(node.name, node.op_type, node.inputs, node.outputs, dict(node.attributes), scope=node.scope)
        )
        name = node.outputs[0]
        values[name] = replace(values[node.inputs[0]], name=name, facts=())
    return replace(graph, ops=tuple(ops), values=values)

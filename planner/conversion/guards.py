"""Guards of a converted model, as in exported files: `exporters.onnx.guards`, on a graph."""

from dataclasses import replace

from planner.exporters.onnx.guards import guarded, lone_softmaxes
from planner.ir.graph import Graph, Op
from planner.onnx.naming import unused
from planner.onnx.write import OPSET, op_node


def guard(graph: Graph) -> Graph:
    """The graph with a guard where onnxruntime's optimisations would compute something else."""
    taken = {*graph.values, *(op.name for op in graph.ops)}
    nodes = guarded(
        [op_node(op) for op in graph.ops],
        {name: item.array for name, item in graph.constants.items() if item.array is not None},
        graph.outputs,
        lambda stem: unused(stem, taken),
        opset=graph.opsets.get("", OPSET),
        lone=lone_softmaxes(graph),
    )
    if len(nodes) == len(graph.ops):
        return graph
    own, values, ops = {op.outputs: op for op in graph.ops}, dict(graph.values), list[Op]()
    for node in nodes:
        op = own.get(node.outputs)
        if op is not None:
            ops.append(replace(op, inputs=node.inputs))
            continue
        ops.append(Op(node.name, node.op_type, node.inputs, node.outputs, scope=node.scope))
        name = node.outputs[0]
        values[name] = replace(values[node.inputs[0]], name=name, facts=())
    return replace(graph, ops=tuple(ops), values=values)

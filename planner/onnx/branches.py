"""Branches: an `If` whose condition is known is replaced by the branch it takes.

Bodies of other `If`, `Loop` and `Scan` ops are `opening`'s.
"""

from dataclasses import replace
from typing import Any

from planner.ir.graph import Constant, Graph, Op, Value
from planner.onnx.bodies import defined_names, graph_of, ops_of, rename_values
from planner.onnx.dtypes import NAMES, UNKNOWN
from planner.onnx.naming import unused
from planner.onnx.shapes import type_of
from planner.onnx.tensors import array_of


def inline_known_branches(graph: Graph) -> Graph:
    """Inline every `If` with a constant condition; the same graph if there is none."""
    for op in graph.ops:
        condition = graph.constants.get(op.inputs[0]) if op.type == "If" else None
        if condition is not None and condition.array is not None and condition.array.size == 1:
            graph = _inline(graph, op, "then_branch" if bool(condition.array.item()) else "else_branch")
    return graph


def _inline(graph: Graph, op: Op, branch: str) -> Graph:
    body = graph_of(op.attributes[branch])
    taken = set(graph.values)
    renames = {name: unused(f"{op.name}/{name}", taken) for name in defined_names(body) if name in taken}
    rename_values(body, lambda name: renames.get(name, name))
    inner = _named_apart(ops_of(body.node), op, {other.name for other in graph.ops if other is not op})
    results = zip(body.output, op.outputs, strict=False)
    copies = [
        Op(f"{op.name}/result_{i}", "Identity", (info.name,), (out,))
        for i, (info, out) in enumerate(results)
        if out
    ]
    values, constants = _values_of(body)
    at = graph.ops.index(op)
    return replace(
        graph,
        ops=(*graph.ops[:at], *inner, *copies, *graph.ops[at + 1 :]),
        values={**graph.values, **values},
        constants={**graph.constants, **constants},
        notes=(*graph.notes, f"If at {op.name!r} has a known condition: its {branch} is inlined"),
    )


def _values_of(body: Any) -> tuple[dict[str, Value], dict[str, Constant]]:
    values = {name: Value(name, None, UNKNOWN) for node in body.node for name in node.output if name}
    for info in (*body.value_info, *body.output):
        if info.name in values:
            values[info.name] = Value(info.name, *type_of(info.type))
    constants = {tensor.name: Constant(array_of(tensor)) for tensor in body.initializer}
    for tensor in body.initializer:
        values[tensor.name] = Value(tensor.name, tuple(tensor.dims), NAMES[tensor.data_type])
    return values, constants


def _named_apart(ops: tuple[Op, ...], outer: Op, taken: set[str]) -> list[Op]:
    named = []
    for op in ops:
        name = unused(op.name if op.name not in taken else f"{outer.name}/{op.name}", taken)
        named.append(replace(op, name=name))
    return named

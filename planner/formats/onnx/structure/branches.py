"""Branches: an `If` whose condition is known is replaced by the branch it takes.

Bodies of other `If`, `Loop` and `Scan` ops are `subgraphs_to_functions`'s.
"""

from collections.abc import Iterator
from dataclasses import replace

from planner.formats.onnx.decoding import decoded
from planner.formats.onnx.naming import unused
from planner.formats.onnx.structure.subgraph_nodes import defined_names, graph_of, rename_values
from planner.ir.graph import Graph, Op


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
    results = [info.name for info in body.output]
    body.value_info.extend(body.output)  # they are no outputs of the model, so a Constant there is a constant
    del body.output[:]
    inner = decoded(body, graph.opsets, op.name)
    copies = [
        Op(f"{op.name}/result_{i}", "Identity", (name,), (out,))
        for i, (name, out) in enumerate(zip(results, op.outputs, strict=False))
        if out
    ]
    at = graph.ops.index(op)
    ops = _named_apart(inner.ops, op, {other.name for other in graph.ops if other is not op})
    return replace(
        graph,
        ops=(*graph.ops[:at], *ops, *copies, *graph.ops[at + 1 :]),
        values={**graph.values, **{name: inner.values[name] for name in _made(inner)}},
        constants={**graph.constants, **inner.constants},
        notes=(*graph.notes, f"If at {op.name!r} has a known condition: its {branch} is inlined"),
    )


def _made(body: Graph) -> Iterator[str]:
    """Values that a body defines itself."""
    yield from body.constants
    for op in body.ops:
        yield from filter(None, op.outputs)


def _named_apart(ops: tuple[Op, ...], outer: Op, taken: set[str]) -> list[Op]:
    named = []
    for op in ops:
        name = unused(op.name if op.name not in taken else f"{outer.name}/{op.name}", taken)
        named.append(replace(op, name=name))
    return named

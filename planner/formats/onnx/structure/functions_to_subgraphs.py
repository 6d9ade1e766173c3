"""Functions to subgraphs: nodes that stand in bodies go back into `If`, `Loop` and `Scan`.

In: flat nodes, each with its scope, and border nodes where values enter and leave; out: nodes with subgraphs.
Branches capture operands, loops unchanged ones. Calls leave no trace: their nodes stand where the call
stood. Source: ONNX operators If, Loop and Scan; `ir.expand`.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from onnx import GraphProto

from planner.errors import UnsupportedExport
from planner.formats.onnx.attributes import GRAPH
from planner.formats.onnx.nodes import Node, Port, fill_node, value_info
from planner.formats.onnx.structure.subgraph_nodes import free_names, graph_of
from planner.ir.borders import closed_scope
from planner.ir.graph import Dim, Opaque
from planner.ir.structure import BEGIN, END, JOIN, Scope

Typed: TypeAlias = Callable[[str], tuple[str, Sequence[Dim] | None]]
"""Element type and shape of a tensor that enters or leaves a body."""

QPLAN: Final = BEGIN.partition("::")[0]
_OF_RESULTS: Final = ("scan_output_axes", "scan_output_directions")
_BEGIN, _END, _JOIN = (kind.partition("::")[2] for kind in (BEGIN, END, JOIN))


Captured: TypeAlias = dict[Opaque, tuple[str, ...]]
"""Outer tensors that the bodies written so far read."""


@dataclass(slots=True)
class _Body:
    """Nodes of one body (or of the model), and the borders of the bodies that stand in it."""

    nodes: list[Node] = field(default_factory=list)
    begins: dict[int, Node] = field(default_factory=dict)
    ends: dict[int, Node] = field(default_factory=dict)


def nest(nodes: Sequence[Node], scopes: Mapping[str, Scope], typed: Typed) -> list[Node]:
    """Put the nodes of bodies into the nodes that run them.

    Raises:
      UnsupportedExport: a loop or branch that is none of ONNX's.
    """
    if not scopes:
        return list(nodes)
    bodies: dict[str, _Body] = {"": _Body()}
    bodies |= {path: _Body() for path, scope in scopes.items() if scope.kind != "call"}
    joins: dict[str, list[Node]] = {}
    alias: dict[str, str] = {}
    operands = _operands(nodes, scopes)
    for node in nodes:
        home = closed_scope(scopes, node.scope)
        if node.domain != QPLAN:
            bodies[home].nodes.append(node)
        elif node.op_type == _JOIN:
            joins.setdefault(node.attributes["body"], []).append(node)
        else:
            _sort_border(node, scopes, bodies, alias, operands)
    for body in bodies.values():
        _rename(body, alias)
    captured: Captured = {}
    found = {owner: [_aliased(node, alias) for node in group] for owner, group in joins.items()}
    for path in sorted(bodies, key=lambda path: -_depth(scopes, path)):
        scope = scopes.get(path)
        if scope is None:
            continue
        outer = bodies[closed_scope(scopes, scope.parent)]
        if scope.kind == "loop" and bodies[path].ends:
            outer.nodes.append(_loop(path, scope, bodies[path], typed, captured))
        elif scope.kind == "branch" and scope.index == 0 and scope.owner in found:
            branches = [p for p, s in scopes.items() if s.kind == "branch" and s.owner == scope.owner]
            inner = [bodies[p] for p in branches]
            outer.nodes.append(_branches(scope, inner, found[scope.owner], typed, captured))
    return _in_order(bodies[""].nodes, captured)


def _depth(scopes: Mapping[str, Scope], path: str) -> int:
    depth = 0
    while path:
        path, depth = scopes[path].parent, depth + 1
    return depth


def _aliased(node: Node, alias: Mapping[str, str]) -> Node:
    """A node that reads tensors by the names they have outside."""
    if alias.keys().isdisjoint(node.inputs):
        return node

    def resolved(name: str) -> str:
        while name in alias:
            name = alias[name]
        return name

    return node._replace(inputs=tuple(map(resolved, node.inputs)))


def _rename(body: _Body, alias: Mapping[str, str]) -> None:
    body.nodes = [_aliased(node, alias) for node in body.nodes]
    for side in (body.begins, body.ends):
        side.update({index: _aliased(node, alias) for index, node in side.items()})


def _sort_border(
    node: Node,
    scopes: Mapping[str, Scope],
    bodies: Mapping[str, _Body],
    alias: dict[str, str],
    operands: Mapping[str, int],
) -> None:
    """Join values that cross a border unchanged into one tensor; the rest are operands and results."""
    body, index = node.attributes["body"], node.attributes["index"]
    if scopes[body].kind == "loop" and node.op_type == _END:
        bodies[body].ends[index] = node
    elif scopes[body].kind == "loop" and _is_handed(node, operands[body]):
        bodies[body].begins[index] = node
    else:
        alias[node.outputs[0]] = node.inputs[0]


def _operands(nodes: Sequence[Node], scopes: Mapping[str, Scope]) -> Mapping[str, int]:
    """Number of a Scan's operands that are states and slices, 1 for other loops; captures follow."""
    found = {
        path: int(scope.attributes["num_scan_inputs"]) if scope.type == "Scan" else 1
        for path, scope in scopes.items()
    }
    for node in nodes:
        body = node.attributes["body"] if node.domain == QPLAN else ""
        if body and node.op_type == _BEGIN and scopes[body].type == "Scan":
            found[body] += node.attributes["carried"] >= 0
    return found


def _is_handed(node: Node, operands: int) -> bool:
    """Whether an operand changes from trip to trip; one that does not is captured."""
    return bool(node.attributes["carried"] >= 0 or node.attributes["index"] < operands)


def _loop(path: str, scope: Scope, body: _Body, typed: Typed, captured: Captured) -> Node:
    if scope.type not in ("Loop", "Scan"):
        raise UnsupportedExport(
            f"{scope.owner!r} loops in a way that ONNX has no operator for; accepted: Loop and Scan",
            hint="write the loop as one of these in the source model",
        )
    begins = [body.begins[i] for i in sorted(body.begins)]
    ends = sorted(body.ends.values(), key=_place_of_result)
    inner = [(node.outputs[0], *typed(node.outputs[0])) for node in begins]
    tensors, outputs = [node.inputs[0] for node in ends], [node.outputs[0] for node in ends]
    results, copies = _own_results(body, path, tensors, [typed(name) for name in outputs])
    written = _graph(path, [*body.nodes, *copies], inner, results, captured)
    told = _told(scope, sum(node.attributes["carried"] < 0 for node in ends))
    attributes = {**scope.attributes, **told, "body": written}
    return Node(
        scope.type,
        tuple(node.inputs[0] for node in begins),
        tuple(outputs[1:] if scope.type == "Loop" else outputs),
        scope.owner,
        "",
        attributes,
        scope.parent,
    )


def _told(scope: Scope, slices: int) -> Mapping[str, tuple[int, ...]]:
    """Axis and direction of each collected result of a Scan; for new ones the first axis, in order."""
    found = {key: tuple(scope.attributes.get(key, ())) for key in _OF_RESULTS}
    return {key: told + (0,) * (slices - len(told)) for key, told in found.items() if told}


def _place_of_result(end: Node) -> tuple[bool, int]:
    """Carried values come before those that are collected."""
    return end.attributes["carried"] < 0, end.attributes["index"]


def _branches(
    scope: Scope, bodies: Sequence[_Body], joins: Sequence[Node], typed: Typed, captured: Captured
) -> Node:
    if scope.type != "If":
        raise UnsupportedExport(
            f"{scope.owner!r} branches in a way that ONNX has no operator for; accepted: If",
            hint="write the branches as an If in the source model",
        )
    outputs = tuple(node.outputs[0] for node in joins)
    graphs = {}
    for n, (key, body) in enumerate(zip(("then_branch", "else_branch"), bodies, strict=True)):
        tensors = [node.inputs[1 + n] for node in joins]
        results, copies = _own_results(
            body, f"{scope.owner}/{key}", tensors, [typed(name) for name in outputs]
        )
        graphs[key] = _graph(key, [*body.nodes, *copies], [], results, captured)
    attributes = {**scope.attributes, **graphs}
    return Node("If", joins[0].inputs[:1], outputs, scope.owner, "", attributes, scope.parent)


def _own_results(
    body: _Body, path: str, tensors: Sequence[str], types: Sequence[tuple[str, Sequence[Dim] | None]]
) -> tuple[list[Port], list[Node]]:
    """Results that a body writes itself, each once: values that it only hands through are copied."""
    written = {out for node in body.nodes for out in node.outputs}
    ports: list[Port] = []
    copies: list[Node] = []
    for i, (tensor, (dtype, _)) in enumerate(zip(tensors, types, strict=True)):
        name = tensor
        if tensor not in written or tensor in tensors[:i]:
            name = f"{path}/result_{i}"
            copies.append(Node("Identity", (tensor,), (name,), f"{name}/copy"))
        ports.append((name, dtype, None))
    return ports, copies


def _graph(
    name: str, nodes: list[Node], inputs: Sequence[Port], outputs: Sequence[Port], captured: Captured
) -> Opaque:
    proto = GraphProto(name=name)
    own = {port[0] for port in inputs}
    free: list[str] = []
    for node in _in_order(nodes, captured):
        fill_node(proto.node.add(), node)
        free += [read for read in _reads(node, captured) if read and read not in own]
        own.update(node.outputs)
    proto.input.extend(value_info(*port) for port in inputs)
    proto.output.extend(value_info(*port) for port in outputs)
    found = Opaque(GRAPH, proto.SerializeToString())
    captured[found] = tuple(dict.fromkeys(free))
    return found


def _in_order(nodes: list[Node], captured: Captured) -> list[Node]:
    """Nodes behind those they read from, directly or in a body; the given order where it is free."""
    reading = [_reads(node, captured) for node in nodes]
    later = {out for node in nodes for out in node.outputs if out}
    for node, names in zip(nodes, reading, strict=True):
        if not later.isdisjoint(names):
            break
        later.difference_update(node.outputs)
    else:
        return nodes
    writer = {out: i for i, node in enumerate(nodes) for out in node.outputs if out}
    nx = importlib.import_module("networkx")  # a fifth of a second, which few files need
    needed = nx.DiGraph()
    needed.add_nodes_from(range(len(nodes)))
    needed.add_edges_from(
        (writer[name], i) for i, names in enumerate(reading) for name in names if name in writer
    )
    return [nodes[i] for i in nx.lexicographical_topological_sort(needed)]


def _reads(node: Node, captured: Captured) -> Sequence[str]:
    """Values that a node reads, directly or in a body."""
    inner = [value for value in node.attributes.values() if isinstance(value, Opaque) and value.kind == GRAPH]
    if not inner:
        return node.inputs
    names = [*node.inputs]
    for value in inner:
        known = captured.get(value)
        names += free_names(graph_of(value)) if known is None else known
    return names

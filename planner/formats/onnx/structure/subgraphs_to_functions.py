"""Subgraphs to functions: the bodies of `If`, `Loop` and `Scan` become functions of the graph.

Captures of a body become operands; captured constants are its own. A body that holds what no Graph can
(sequences, optionals) stays closed, and the notes say so. Source: ONNX operators If, Loop and Scan.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from onnx import GraphProto

from planner.errors import ModelError
from planner.formats.onnx.decoding import decoded
from planner.formats.onnx.naming import unused
from planner.formats.onnx.structure.subgraph_nodes import free_names, graph_of, subgraphs
from planner.ir.dtypes import UNKNOWN
from planner.ir.graph import Graph, Op
from planner.ir.structure import UNKNOWN_TRIPS, Branches, Loop, Structure
from planner.ir.topology import topological
from planner.ir.validity import validate

Prepare: TypeAlias = Callable[[Graph], Graph]


@dataclass(frozen=True, slots=True)
class _Form:
    """Layout of an op that runs bodies.

    Attributes:
      bodies: the attributes that hold them, in order.
      operands: of the op that each body reads one by one, from `first` on.
      results: number of absent results in front, which only the body yields.
      structure: word for it in the names of its functions.
    """

    bodies: tuple[str, ...]
    structure: Callable[[Op, Graph, tuple[str, ...]], Structure]
    first: int = 0
    results: int = 0


def open_bodies(graph: Graph, prepare: Prepare) -> Graph:
    """Turn every op with bodies into one that runs functions, bodies inside bodies too.

    Args:
      graph: in normal form, with the types of its values known.
      prepare: brings a body into normal form, its own bodies opened.
    """
    taken: set[str] = set()
    functions: dict[str, Graph] = {}
    ops, notes = [], list(graph.notes)
    for op in graph.ops:
        form = FORMS.get(op.type)
        if not subgraphs(op):
            ops.append(op)
            continue
        reason = "its body is not looked into" if form is None else _closed_reason(op, graph, form)
        if form is not None and not reason:
            opened, bodies = _opened(op, graph, form, prepare, taken)
            reason = next((f"{n} {what}" for n, body in bodies.items() if (what := _foreign(body))), "")
            if not reason:
                functions |= bodies
                ops.append(opened)
                continue
        notes.append(f"{op.type} at {op.name!r} falls back to float: {reason}")
        ops.append(op)
    if not functions and len(notes) == len(graph.notes):
        return graph
    return replace(graph, ops=tuple(ops), functions=functions, notes=tuple(dict.fromkeys(notes)))


def _closed_reason(op: Op, graph: Graph, form: _Form) -> str:
    """The reason why an op's bodies cannot be opened; "" where they can."""
    names = (*op.inputs, *op.captures, *op.outputs)
    odd = next((n for n in names if n and graph.values[n].dtype == UNKNOWN), None)
    if odd is not None:
        return f"the element type of {odd!r} is not known, or it is no tensor"
    return "" if all(key in op.attributes for key in form.bodies) else "a body is missing"


def _foreign(body: Graph) -> str:
    """The part of a body that no Graph can hold; "" for none."""
    closed = next((op for op in body.ops if subgraphs(op)), None)
    if closed is not None:
        return f"holds {closed.type} at {closed.name!r}, which stays closed"
    odd = next((n for n in body.outputs if body.values[n].dtype == UNKNOWN), None)
    return f"yields {odd!r}, whose element type is not known" if odd is not None else ""


def _opened(
    op: Op, graph: Graph, form: _Form, prepare: Prepare, taken: set[str]
) -> tuple[Op, dict[str, Graph]]:
    protos = [graph_of(op.attributes[key]) for key in form.bodies]
    captured = tuple(n for n in dict.fromkeys(op.captures) if n not in graph.constants)
    operands = (*op.inputs, *captured)
    found: dict[str, Graph] = {}
    nested: dict[str, Graph] = {}
    names = []
    for key, proto in zip(form.bodies, protos, strict=True):
        name = unused(f"{op.name}/{key}" if len(protos) > 1 else op.name, taken)
        body = prepare(_body(proto, op, graph, form, captured))
        apart = {inner: f"{name}/{inner.lstrip('/')}" for inner in body.functions}
        nested |= {apart[inner]: _running(other, apart) for inner, other in body.functions.items()}
        found[name] = replace(_running(body, apart), name=name, functions={})
        names.append(name)
    attributes = {key: value for key, value in op.attributes.items() if key not in form.bodies}
    results = ("",) * form.results + op.outputs
    structure = form.structure(op, graph, tuple(names))
    opened = replace(
        op, inputs=operands, outputs=results, attributes=attributes, captures=(), structure=structure
    )
    return opened, {**nested, **found}


def _body(proto: GraphProto, op: Op, graph: Graph, form: _Form, captured: Sequence[str]) -> Graph:
    """A body as a graph of its own: its captures become further inputs."""
    body = decoded(proto, graph.opsets, op.name)
    own = {*body.inputs, *body.constants, *(out for inner in body.ops for out in inner.outputs)}
    free = {n for n in free_names(proto) if n not in own}
    values = dict(body.values)
    for name in (*captured, *free):
        values[name] = graph.values[name]
    for name, given in zip(body.inputs, op.inputs[form.first :], strict=False):
        known = values[name]
        # Files may leave the types of a body's inputs out; they are those of the operands.
        if given and known.dtype == UNKNOWN:
            values[name] = replace(known, dtype=graph.values[given].dtype)
    read = {n for inner in body.ops for n in (*inner.inputs, *inner.captures)} | set(body.outputs)
    ready = replace(
        body,
        inputs=(*body.inputs, *captured),
        values={n: v for n, v in values.items() if n in own or n in captured or n in read},
        constants={**body.constants, **{n: graph.constants[n] for n in free if n in graph.constants}},
        ops=topological(body.ops),
    )
    try:
        return validate(ready)
    except ModelError as error:
        raise ModelError(f"the body of {op.type} at {op.name!r}: {error}") from error


def _running(body: Graph, names: Mapping[str, str]) -> Graph:
    """A body whose ops run the same functions under other names."""
    if not names:
        return body
    return replace(body, ops=tuple(_runs(op, names) for op in body.ops))


def _runs(op: Op, names: Mapping[str, str]) -> Op:
    match op.structure:
        case Branches(bodies):
            return replace(op, structure=Branches(tuple(names[name] for name in bodies)))
        case Loop() as loop:
            return replace(op, structure=replace(loop, body=names[loop.body]))
    return op


def _branches(op: Op, graph: Graph, names: tuple[str, ...]) -> Structure:
    del op, graph
    return Branches(names)


def _loop(op: Op, graph: Graph, names: tuple[str, ...]) -> Structure:
    """M, condition, carried values; the body has a count for M and yields a condition first."""
    trips = graph.constants.get(op.inputs[0])
    count = int(trips.array.item()) if trips is not None and trips.array is not None else UNKNOWN_TRIPS
    carried = ((1, 0), *((i, i - 1) for i in range(2, len(op.inputs))))
    return Loop(names[0], min(max(count, 1), MOST_TRIPS), carried, varying=(0,))


def _scan(op: Op, graph: Graph, names: tuple[str, ...]) -> Structure:
    slices: int = op.attributes["num_scan_inputs"]
    states = len(op.inputs) - slices
    axis = (op.attributes.get("scan_input_axes") or [0])[0]
    shape = graph.values[op.inputs[states]].shape if slices else None
    size: Any = shape[axis] if shape is not None else None
    count = size if isinstance(size, int) and size > 0 else UNKNOWN_TRIPS
    carried = tuple((i, i) for i in range(states))
    return Loop(names[0], count, carried, varying=tuple(range(states, len(op.inputs))))


MOST_TRIPS: Final = 1 << 20
FORMS: Final[Mapping[str, _Form]] = {
    "If": _Form(("then_branch", "else_branch"), _branches, first=1),
    "Loop": _Form(("body",), _loop, results=1),
    "Scan": _Form(("body",), _scan),
}
"""Ops whose bodies are opened."""

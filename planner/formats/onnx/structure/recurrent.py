"""Recurrent ops in plain form: time first, and with names for the states they carry from step to step.

LSTM, GRU and RNN with `layout` 1 become the same op between Transposes: devices and onnxruntime have the
layout of the first opsets only, (time, batch, width) with states of (directions, batch, hidden). The sequence
of hidden states and the cell state are results even where nothing reads them: a device stores them at every
step, so they have ranges and types. Source: ONNX operators, `layout` since opset 14.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from planner.formats.onnx.naming import unused
from planner.ir.graph import Graph, Op, Shape, Value

RECURRENT: Final = frozenset({"GRU", "LSTM", "RNN"})
Perm: TypeAlias = tuple[int, ...]
SEQUENCE_IN: Final[Perm] = (1, 0, 2)
STATE: Final[Perm] = (1, 0, 2)
SEQUENCE_OUT: Final[Perm] = (2, 0, 1, 3)
"""(time, directions, batch, hidden) to (batch, time, directions, hidden)."""


@dataclass(frozen=True, slots=True)
class _Turned:
    """Values the pass makes, and the Transpose of each operand that was turned already."""

    taken: set[str]
    values: dict[str, Value] = field(default_factory=dict)
    done: dict[str, str] = field(default_factory=dict)


def time_first(graph: Graph) -> Graph:
    """Rewrite every recurrent op that is batch first; the same graph if there is none."""
    turned = _Turned(set(graph.values))
    ops: list[Op] = []
    for op in graph.ops:
        ops.extend(_rewritten(op, graph, turned) if _is_batch_first(op) else [op])
    if not turned.values:
        return graph
    return replace(graph, ops=tuple(ops), values={**graph.values, **turned.values})


def name_states(graph: Graph) -> Graph:
    """Give recurrent ops the results of their states that they leave out; the same graph if none does."""
    taken = set(graph.values)
    values: dict[str, Value] = {}
    ops = tuple(_with_states(op, graph, taken, values) if op.type in RECURRENT else op for op in graph.ops)
    return graph if not values else replace(graph, ops=ops, values={**graph.values, **values})


def _with_states(op: Op, graph: Graph, taken: set[str], values: dict[str, Value]) -> Op:
    wanted = {0: "states", 2: "cell"} if op.type == "LSTM" else {0: "states"}
    outputs = [*op.outputs, *("" for _ in range(len(op.outputs), max(wanted) + 1))]
    like = next((name for name in op.outputs if name), "")
    for index, part in wanted.items() if like else ():
        if not outputs[index]:
            outputs[index] = unused(f"{like}/{part}", taken)
            values[outputs[index]] = Value(outputs[index], None, graph.values[like].dtype)
    return replace(op, outputs=tuple(outputs))


def _is_batch_first(op: Op) -> bool:
    return op.type in RECURRENT and bool(op.attributes.get("layout", 0))


def _rewritten(op: Op, graph: Graph, turned: _Turned) -> Iterator[Op]:
    inputs, outputs, after = list(op.inputs), list(op.outputs), []
    for index, perm in ((0, SEQUENCE_IN), (5, STATE), (6, STATE)):
        name = inputs[index] if index < len(inputs) else ""
        if name and name not in turned.done:
            turned.done[name] = _value_like(f"{name}/time_first", graph.values[name], perm, turned)
            yield Op(f"{op.name}/in_{index}", "Transpose", (name,), (turned.done[name],), {"perm": perm})
        if name:
            inputs[index] = turned.done[name]
    for index, perm in enumerate((SEQUENCE_OUT, STATE, STATE)[: len(outputs)]):
        name = outputs[index]
        if name:
            back = tuple(perm.index(axis) for axis in range(len(perm)))
            outputs[index] = _value_like(f"{name}/time_first", graph.values[name], back, turned)
            after.append(
                Op(f"{op.name}/out_{index}", "Transpose", (outputs[index],), (name,), {"perm": perm})
            )
    attributes = {key: item for key, item in op.attributes.items() if key != "layout"}
    yield replace(op, inputs=tuple(inputs), outputs=tuple(outputs), attributes=attributes)
    yield from after


def _value_like(wanted: str, value: Value, perm: Perm, turned: _Turned) -> str:
    name = unused(wanted, turned.taken)
    turned.values[name] = Value(name, _permuted(value.shape, perm), value.dtype)
    return name


def _permuted(shape: Shape | None, perm: Perm) -> Shape | None:
    return None if shape is None or len(shape) != len(perm) else tuple(shape[axis] for axis in perm)

"""The cell state of an LSTM at every step: devices store it, the op gives the last one only.

The op runs in onnxruntime; from what it read and the hidden states it gave, the gates that a state depends on
follow at once, and then the cell states by one multiplication and one addition for each step. Source: ONNX
operators, LSTM, its equations.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnxruntime

from planner.calibration.observe import Array
from planner.formats.onnx.sessions import observing_options, open_session
from planner.formats.onnx.write import Node, write_model
from planner.ir.graph import Graph, Op

CELL: Final = 2
"""Index of the cell state among an LSTM's results."""
_WEIGHTS: Final = (1, 2, 3, 7)
_GATED: Final = (1, 2, 3)
"""W, R and B among an LSTM's operands, in which all four gates have rows."""
_LENGTHS: Final = 4
_STATE_GATES: Final = (0, 2, 3)
"""Input, forget and cell gate among ONNX's four; the output gate has no say in the state."""
_DEFAULTS: Final = ("Sigmoid", "Tanh", "Tanh")

Activation = Callable[[Array], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Cell:
    """An LSTM whose cell state is followed.

    Attributes:
      op: the op.
      known: its constant operands by their index, without the output gate.
    """

    op: Op
    known: Mapping[int, Array]


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One direction of an LSTM that ran, float32, its steps in the order they are taken.

    Attributes:
      back: whether the last step of the sequence is taken first.
      x, hidden: its input and result, `(time, batch, width)`.
      w, r, bias: as in ONNX, without directions and the output gate; three gates one below the other.
      peepholes: as in ONNX, without directions.
      runs: whether a sequence has not ended, `(time, batch, 1)`; None: none has.
      h, c: states to start from, `(batch, hidden)`.
    """

    back: bool
    x: Array
    hidden: Array
    w: Array
    r: Array
    bias: Array
    runs: Array | None
    h: Array
    c: Array
    peepholes: Array | None


def followed(graph: Graph, wanted: Sequence[str]) -> tuple[Cell, ...]:
    """Return LSTMs whose cell state is in `wanted` and can be followed: weights and activations are known."""
    found = []
    for op in graph.all_ops():
        cell = op.outputs[CELL] if op.type == "LSTM" and len(op.outputs) > CELL else ""
        if cell in wanted and cell and op.outputs[0] and _is_plain(op, graph):
            numbers = {i: graph.constants.get(name) for i, name in enumerate(op.inputs) if name}
            arrays = {i: c.array for i, c in numbers.items() if c is not None and c.array is not None}
            found.append(Cell(op, {i: _of_state(i, array) for i, array in arrays.items()}))
    return tuple(found)


def _of_state(index: int, array: Array) -> Array:
    """An operand without the output gate: W, R and B are `(sides, gates x hidden, ...)`, B of twice that."""
    if index not in _GATED:
        return array
    sides, rows, *rest = array.shape
    gates = array.reshape(sides, -1, 4, rows // (4 * (1 + (index == 3))), *rest)
    return gates[:, :, _STATE_GATES].reshape(sides, -1, *rest)


def read_by(cell: Cell) -> tuple[str, ...]:
    """The values that `cell_states` needs beside constants: operands and the sequence of hidden states."""
    dynamic = (name for i, name in enumerate(cell.op.inputs) if name and i not in cell.known)
    return tuple(dict.fromkeys((*dynamic, cell.op.outputs[0])))


def gate_products(threads: int = 0) -> onnxruntime.InferenceSession:
    """`x @ w.T + h @ r.T + b` of matrices, which gates open by.

    In onnxruntime: numpy's threads wait for each other spinning, which takes a hundred times as long where
    other processes run.
    """
    matrices = [(name, "f32", (None, None)) for name in ("x", "w", "h", "r", "gates")]
    data = write_model(
        name="gates",
        nodes=(
            Node("Gemm", ("x", "w", "b"), ("read",), attributes={"transB": 1}),
            Node("Gemm", ("h", "r", "read"), ("gates",), attributes={"transB": 1}),
        ),
        inputs=[*matrices[:-1], ("b", "f32", (None,))],
        outputs=matrices[-1:],
        constants={},
    )
    return open_session(data, observing_options(threads))


def cell_states(
    cell: Cell, arrays: Mapping[str, Array], products: onnxruntime.InferenceSession
) -> Array | None:
    """Cell states after every step.

    Args:
      cell: one that `followed` gave.
      arrays: of the values that `read_by` names.
      products: from `gate_products`.

    Returns:
      Reals of shape `(directions, time, batch, hidden)`, float32; behind the end of a sequence the state
      stays. None where the op did not run (a branch not taken) or ran as a body of its own many times.
    """
    op = cell.op
    names = (*op.inputs, *("",) * (8 - len(op.inputs)))
    operands = [_operand(cell, i, name, arrays) for i, name in enumerate(names)]
    x, hidden = operands[0], arrays[op.outputs[0]]
    if x is None or x.ndim != 3 or hidden.ndim != 4 or not x.size:
        return None
    found = []
    for d in range(hidden.shape[1]):
        side = _side(op, d, operands, hidden[:, d])
        gates = _gates(side, products)
        states = _steps(op, d, gates, side) if side.peepholes is None else _peeping(op, d, gates, side)
        found.append(states[::-1] if side.back else states)
    return np.stack(found)


def _side(op: Op, d: int, operands: Sequence[Array | None], hidden: Array) -> _Side:
    own = [part if part is None or i in (0, _LENGTHS) else part[d] for i, part in enumerate(operands)]
    x, w, r, bias, lengths, h, c, peepholes = (
        part if part is None else part.astype(np.float32, copy=False) for part in own
    )
    if x is None or w is None or r is None:
        raise AssertionError("followed() gives no LSTM without these")
    time, batch, size = hidden.shape
    back = op.attributes.get("direction") == "reverse" or d == 1
    order = slice(None, None, -1 if back else 1)
    rest = np.zeros((batch, size), np.float32)
    return _Side(
        back,
        x[order],
        hidden[order].astype(np.float32, copy=False),
        w,
        r,
        np.zeros(6 * size, np.float32) if bias is None else bias,
        None if lengths is None else (np.arange(time)[:, None, None] < lengths[:, None])[order],
        rest if h is None else h,
        rest if c is None else c,
        peepholes,
    )


def _gates(side: _Side, products: onnxruntime.InferenceSession) -> Array:
    """Inputs of the gates' activations, peepholes apart, `(time, batch, 3, hidden)`: input, forget, cell."""
    time, batch, size = side.hidden.shape
    before = np.concatenate([side.h[None], side.hidden[:-1]])
    if side.runs is not None:
        np.copyto(before[1:], side.h, where=~side.runs[:-1])
    feeds = {
        "x": side.x.reshape(time * batch, -1),
        "w": side.w,
        "h": before.reshape(time * batch, size),
        "r": side.r,
        "b": side.bias[: 3 * size] + side.bias[3 * size :],
    }
    gates: Array = products.run(None, feeds)[0]
    return gates.reshape(time, batch, 3, size)


def _opened(op: Op, d: int, gates: Array) -> tuple[Array, Array]:
    """The share of the state that a step keeps, and its addend; gates are `(..., 3, hidden)`."""
    limit = op.attributes.get("clip", np.inf)
    names = op.attributes.get("activations", _DEFAULTS * 2)[3 * d : 3 * d + 2]
    gate, squash = (ACTIVATIONS[name.lower()] for name in names)
    within = gates if limit == np.inf else np.clip(gates, -limit, limit)
    enter, forget, fresh = np.moveaxis(within, -2, 0)
    opened = gate(enter)
    kept = 1 - opened if op.attributes.get("input_forget", 0) else gate(forget)
    return kept, opened * squash(fresh)


def _steps(op: Op, d: int, gates: Array, side: _Side) -> Array:
    """States after each step, shape `(time, batch, hidden)`."""
    kept, states = _opened(op, d, gates)
    if side.runs is not None:
        kept, states = np.where(side.runs, kept, np.float32(1)), np.where(side.runs, states, np.float32(0))
    state = side.c
    for share, after in zip(kept, states, strict=True):
        after += share * state  # noqa: PLW2901
        state = after
    return states


def _peeping(op: Op, d: int, gates: Array, side: _Side) -> Array:
    """Cell states where the gates have peepholes, which open step by step."""
    size = side.c.shape[-1]
    seen = np.zeros((3, size), np.float32)
    if side.peepholes is not None:
        # Theirs are of the input, the output and the forget gate.
        seen[0], seen[1] = side.peepholes[:size], side.peepholes[2 * size :]
    states = np.empty_like(side.hidden)
    state = side.c
    for t, gate in enumerate(gates):
        kept, added = _opened(op, d, gate + seen * state[:, None])
        after = kept * state + added
        states[t] = state = after if side.runs is None else np.where(side.runs[t], after, state)
    return states


def _operand(cell: Cell, index: int, name: str, arrays: Mapping[str, Array]) -> Array | None:
    if not name or index in cell.known:
        return cell.known.get(index)
    return _of_state(index, arrays[name])


def _is_plain(op: Op, graph: Graph) -> bool:
    attributes = op.attributes
    if attributes.get("activation_alpha") or attributes.get("activation_beta"):
        return False
    if not all(name.lower() in ACTIVATIONS for name in attributes.get("activations", _DEFAULTS)):
        return False
    return all(_is_known(name, graph) for name in _weights(op))


def _weights(op: Op) -> Iterator[str]:
    yield from (op.inputs[i] for i in _WEIGHTS if i < len(op.inputs) and op.inputs[i])


def _is_known(name: str, graph: Graph) -> bool:
    constant = graph.constants.get(name)
    return constant is None or constant.array is not None


def _sigmoid(x: Array) -> Array:
    return np.asarray(0.5 * (1 + np.tanh(0.5 * x)))


def _hard_sigmoid(x: Array) -> Array:
    return np.clip(0.2 * x + 0.5, 0, 1)


def _relu(x: Array) -> Array:
    return np.maximum(x, 0)


def _softsign(x: Array) -> Array:
    return np.asarray(x / (1 + np.abs(x)))


def _tanh(x: Array) -> Array:
    return np.asarray(np.tanh(x))


ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "hardsigmoid": _hard_sigmoid,
    "relu": _relu,
    "sigmoid": _sigmoid,
    "softsign": _softsign,
    "tanh": _tanh,
}

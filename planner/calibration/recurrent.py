"""The cell state of an LSTM at every step: what a device stores, and what the op tells of the last only.

The op runs in onnxruntime; from what it read and the hidden states it gave, all gates follow at once, and
then the cell states by one multiplication and one addition for each step. Source: ONNX operators, LSTM, its
equations.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnxruntime

from planner.calibration.observe import Array
from planner.ir.graph import Graph, Op
from planner.onnx.sessions import observing_options, open_session
from planner.onnx.write import Node, write_model

CELL: Final = 2
"""Index of the cell state among an LSTM's results."""
_WEIGHTS: Final = (1, 2, 3, 7)
_LENGTHS: Final = 4
_DEFAULTS: Final = ("Sigmoid", "Tanh", "Tanh")

Activation = Callable[[Array], Array]


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One direction of an LSTM that ran, float32, its steps in the order they are taken.

    Attributes:
      back: whether the last step of the sequence is taken first.
      x, hidden: what it read and gave, `(time, batch, width)`.
      w, r, bias, peepholes: as in ONNX, without directions; four gates one below the other.
      runs: which sequences have not ended, `(time, batch, 1)`; None: none has.
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


def followed(graph: Graph, wanted: Sequence[str]) -> tuple[Op, ...]:
    """LSTMs whose cell state is wanted and can be followed: weights and activations are known."""
    found = []
    for op in graph.all_ops():
        cell = op.outputs[CELL] if op.type == "LSTM" and len(op.outputs) > CELL else ""
        if cell in wanted and cell and op.outputs[0] and _is_plain(op, graph):
            found.append(op)
    return tuple(found)


def read_by(op: Op, graph: Graph) -> tuple[str, ...]:
    """The values that `cell_states` needs beside constants: operands and the sequence of hidden states."""
    dynamic = (name for name in op.inputs if name and name not in graph.constants)
    return tuple(dict.fromkeys((*dynamic, op.outputs[0])))


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
    op: Op, graph: Graph, arrays: Mapping[str, Array], products: onnxruntime.InferenceSession
) -> Array | None:
    """Cell states after every step.

    Args:
      op: one that `followed` gave.
      graph: with the numbers of its constants.
      arrays: of the values that `read_by` names.
      products: from `gate_products`.

    Returns:
      Reals of shape `(directions, time, batch, hidden)`, float32; behind the end of a sequence the state
      stays. None where the op did not run (a branch not taken) or ran as a body of its own many times.
    """
    operands = [_operand(name, graph, arrays) for name in (*op.inputs, *("",) * (8 - len(op.inputs)))]
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
        np.zeros(8 * size, np.float32) if bias is None else bias,
        None if lengths is None else (np.arange(time)[:, None, None] < lengths[:, None])[order],
        rest if h is None else h,
        rest if c is None else c,
        peepholes,
    )


def _gates(side: _Side, products: onnxruntime.InferenceSession) -> Array:
    """What the gates open by, peepholes apart, `(time, batch, 4, hidden)`: input, output, forget, cell."""
    time, batch, size = side.hidden.shape
    before = np.concatenate([side.h[None], side.hidden[:-1]])
    if side.runs is not None:
        np.copyto(before[1:], side.h, where=~side.runs[:-1])
    feeds = {
        "x": side.x.reshape(time * batch, -1),
        "w": side.w,
        "h": before.reshape(time * batch, size),
        "r": side.r,
        "b": side.bias[: 4 * size] + side.bias[4 * size :],
    }
    gates: Array = products.run(None, feeds)[0]
    return gates.reshape(time, batch, 4, size)


def _opened(op: Op, d: int, gates: Array) -> tuple[Array, Array]:
    """What share of the state a step keeps, and what it adds; gates are `(..., 4, hidden)`."""
    limit = op.attributes.get("clip", np.inf)
    names = op.attributes.get("activations", _DEFAULTS * 2)[3 * d : 3 * d + 2]
    gate, squash = (ACTIVATIONS[name.lower()] for name in names)
    within = gates if limit == np.inf else np.clip(gates, -limit, limit)
    enter, _, forget, fresh = np.moveaxis(within, -2, 0)
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
    """The same where the gates look at the state, so that they open step by step."""
    size = side.c.shape[-1]
    seen = np.zeros((4, size), np.float32)
    if side.peepholes is not None:
        # Theirs are of the input, the output and the forget gate; the output gate is not computed.
        seen[0], seen[2] = side.peepholes[:size], side.peepholes[2 * size :]
    states = np.empty_like(side.hidden)
    state = side.c
    for t, gate in enumerate(gates):
        kept, added = _opened(op, d, gate + seen * state[:, None])
        after = kept * state + added
        states[t] = state = after if side.runs is None else np.where(side.runs[t], after, state)
    return states


def _operand(name: str, graph: Graph, arrays: Mapping[str, Array]) -> Array | None:
    if not name:
        return None
    constant = graph.constants.get(name)
    return arrays[name] if constant is None else constant.array


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

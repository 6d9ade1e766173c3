"""The cell state of an LSTM at every step: what a device stores, and what the op tells of the last only.

The op runs in onnxruntime; from what it read and the hidden states it gave, the cell states follow by one
product for all steps and a few elementwise operations for each. Source: ONNX operators, LSTM, its equations.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from planner.calibration.observe import Array
from planner.ir.graph import Graph, Op

CELL: Final = 2
"""Index of the cell state among an LSTM's results."""
_WEIGHTS: Final = (1, 2, 3, 7)
_DEFAULTS: Final = ("Sigmoid", "Tanh", "Tanh")

Activation = Callable[[Array], Array]


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


def cell_states(op: Op, graph: Graph, arrays: Mapping[str, Array]) -> Array | None:
    """Cell states after every step.

    Args:
      op: one that `followed` gave.
      graph: with the numbers of its constants.
      arrays: of the values that `read_by` names.

    Returns:
      Reals of shape `(directions, time, batch, hidden)`; behind the end of a sequence the state stays.
      None where the op did not run (a branch not taken) or ran as a body of its own many times.
    """
    operands = [_operand(name, graph, arrays) for name in (*op.inputs, *("",) * (8 - len(op.inputs)))]
    x, hidden = operands[0], arrays[op.outputs[0]]
    if x is None or x.ndim != 3 or hidden.ndim != 4 or not x.size:
        return None
    return np.stack([_direction(op, d, operands, hidden[:, d]) for d in range(hidden.shape[1])])


def _direction(op: Op, d: int, operands: Sequence[Array | None], hidden: Array) -> Array:
    """Cell states of one direction, shape `(time, batch, hidden)`; `hidden` is its part of the results."""
    x, w, r, bias, lengths, h, c, peepholes = (
        part if part is None or i in (0, 4) else part[d] for i, part in enumerate(operands)
    )
    if x is None or w is None or r is None:
        raise AssertionError("followed() gives no LSTM without these")
    time, batch, size = hidden.shape
    order = [*range(time)]
    if op.attributes.get("direction") == "reverse" or d == 1:
        order.reverse()
    runs = (
        np.ones((time, batch, 1), bool)
        if lengths is None
        else np.arange(time)[:, None, None] < lengths[:, None]
    )
    before = np.empty_like(hidden)
    last = np.zeros((batch, size), hidden.dtype) if h is None else h
    for t in order:
        before[t] = last
        last = np.where(runs[t], hidden[t], last)
    gates = x @ w.T + before @ r.T
    gates += 0.0 if bias is None else bias[: 4 * size] + bias[4 * size :]
    state = np.zeros((batch, size), hidden.dtype) if c is None else c
    states = np.empty_like(hidden)
    for t in order:
        state = np.where(runs[t], _step(op, d, gates[t], state, peepholes), state)
        states[t] = state
    return states


def _step(op: Op, d: int, gates: Array, state: Array, peepholes: Array | None) -> Array:
    """The next cell state; gates are in ONNX's order: input, output, forget, cell."""
    size = state.shape[-1]
    enter, _, forget, fresh = (gates[:, i * size : (i + 1) * size] for i in range(4))
    if peepholes is not None:
        enter, forget = enter + peepholes[:size] * state, forget + peepholes[2 * size :] * state
    limit = op.attributes.get("clip", np.inf)
    names = op.attributes.get("activations", _DEFAULTS * 2)[3 * d : 3 * d + 2]
    gate, squash = (ACTIVATIONS[name.lower()] for name in names)
    opened = gate(np.clip(enter, -limit, limit))
    kept = 1 - opened if op.attributes.get("input_forget", 0) else gate(np.clip(forget, -limit, limit))
    return np.asarray(kept * state + opened * squash(np.clip(fresh, -limit, limit)))


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

"""Unrolled: recurrent layers in float as the ops of their steps, one after the other.

For formats whose own layer cannot start at states that are computed. Source: ONNX LSTM, GRU.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from planner.formats.onnx.composites.body import Body, StaysWhole

MOST_STEPS: Final = 64
"""Beyond, a layer stays whole."""
_ACTIVATIONS: Final = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh")}
_PLAIN: Final = {"clip": 0.0, "input_forget": 0, "layout": 0}

Array: TypeAlias = np.ndarray[Any, Any]
Step: TypeAlias = Callable[[str, Sequence[str]], tuple[str, ...]]
"""The states behind a step, the hidden one first, from what it reads and the states before."""


def lstm(body: Body) -> tuple[str, ...]:
    """LSTM without peepholes, of one direction or both."""
    if body.input(7):
        raise StaysWhole("it has peepholes")
    return _layer(body, states=(5, 6), make=_lstm_step)


def gru(body: Body) -> tuple[str, ...]:
    """GRU of one direction or both."""
    return _layer(body, states=(5,), make=_gru_step)


def _lstm_step(body: Body, way: int) -> Step:
    """Gates are packed input, output, forget, cell."""
    weight, recurrence, (of_x, of_h) = _numbers(body, way)
    w, r = body.constant("weight", weight.T), body.constant("recurrence", recurrence.T)
    bias, sizes = body.constant("bias", of_x + of_h), body.integers(*[len(weight) // 4] * 4)

    def step(x: str, states: Sequence[str]) -> tuple[str, ...]:
        hidden, cell = states
        gates = body("Add", body("Add", body("MatMul", x, w), body("MatMul", hidden, r)), bias)
        into, out, forget, new = body.parts("Split", gates, sizes, count=4, axis=-1)
        kept = body("Mul", body("Sigmoid", forget), cell)
        cell = body("Add", kept, body("Mul", body("Sigmoid", into), body("Tanh", new)))
        return body("Mul", body("Sigmoid", out), body("Tanh", cell)), cell

    return step


def _gru_step(body: Body, way: int) -> Step:
    """Gates are packed update, reset, hidden."""
    weight, recurrence, (of_x, of_h) = _numbers(body, way)
    size = len(weight) // 3
    w, bias = body.constant("weight", weight.T), body.constant("bias", of_x)
    gates_r = body.constant("recurrence", recurrence[: 2 * size].T)
    hidden_r = body.constant("recurrence", recurrence[2 * size :].T)
    gates_b, hidden_b = (body.constant("bias", part) for part in (of_h[: 2 * size], of_h[2 * size :]))
    is_behind = bool(body.attribute("linear_before_reset", 0))
    two, three = body.integers(size, size), body.integers(*[size] * 3)

    def step(x: str, states: Sequence[str]) -> tuple[str, ...]:
        (hidden,) = states
        read = body("Add", body("MatMul", x, w), bias)
        update_x, reset_x, new = body.parts("Split", read, three, count=3, axis=-1)
        held = body("Add", body("MatMul", hidden, gates_r), gates_b)
        update_h, reset_h = body.parts("Split", held, two, count=2, axis=-1)
        update = body("Sigmoid", body("Add", update_x, update_h))
        reset = body("Sigmoid", body("Add", reset_x, reset_h))
        if is_behind:
            past = body("Mul", reset, body("Add", body("MatMul", hidden, hidden_r), hidden_b))
        else:
            past = body("Add", body("MatMul", body("Mul", reset, hidden), hidden_r), hidden_b)
        fresh = body("Tanh", body("Add", new, past))
        return (body("Add", fresh, body("Mul", update, body("Sub", hidden, fresh))),)

    return step


def _numbers(body: Body, way: int) -> tuple[Array, Array, tuple[Array, Array]]:
    """Weight (gates * hidden, inputs) and recurrence of a direction, and the biases of both."""
    weight, recurrence = body.array(body.input(1))[way], body.array(body.input(2))[way]
    if not body.input(3):
        zeros = np.zeros(len(weight), weight.dtype)
        return weight, recurrence, (zeros, zeros)
    of_x, of_h = np.split(body.array(body.input(3))[way], 2)
    return weight, recurrence, (of_x, of_h)


def _layer(body: Body, states: Sequence[int], make: Callable[[Body, int], Step]) -> tuple[str, ...]:
    """The whole sequence and the last states; "" for a result that nothing reads."""
    direction = str(body.attribute("direction", "forward"))
    ways, kind = 2 if direction == "bidirectional" else 1, body.op.type
    names = tuple(str(name).lower() for name in body.attribute("activations", ()))
    if names not in ((), _ACTIVATIONS[kind] * ways) or body.input(4):
        raise StaysWhole("it has activations or lengths of its own")
    if any(body.attribute(key, value) != value for key, value in _PLAIN.items()):
        raise StaysWhole("it is clipped, or laid out otherwise")
    steps, rows, size = (
        body.fixed(body.input(0), 0),
        body.fixed(body.input(0), 1),
        body.array(body.input(2)).shape[2],
    )
    if steps > MOST_STEPS:
        raise StaysWhole(f"it has more than {MOST_STEPS} steps")
    first = body.integers(0)
    reads = [_slice(body, body.input(0), t, first) for t in range(steps)]
    sequences, ends = [], []
    for way in range(ways):
        step = make(body, way)
        held = tuple(
            _slice(body, body.input(i), way, first)
            if body.input(i)
            else body.constant("zeros", np.zeros((rows, size), np.float32))
            for i in states
        )
        is_back = direction == "reverse" or way == 1
        found = [""] * steps
        for t in reversed(range(steps)) if is_back else range(steps):
            held = step(reads[t], held)
            found[t] = body("Unsqueeze", held[0], body.integers(0, 1)) if body.output(0) else ""
        sequences.append(found)
        ends.append([body("Unsqueeze", state, first) for state in held])
    results = [""]
    if body.output(0):
        results = [body.joined(*[_joined(body, pair, 1) for pair in zip(*sequences, strict=True)], axis=0)]
    for i, pair in enumerate(zip(*ends, strict=True), 1):
        results.append(_joined(body, pair, 0) if body.output(i) else "")
    return tuple(results)


def _slice(body: Body, name: str, at: int, axis: str) -> str:
    """One of the matrices along the first axis."""
    known = body.graph.constants.get(name)
    if known is not None and known.array is not None:
        return body.constant("state", known.array[at])
    return body("Squeeze", body("Slice", name, body.integers(at), body.integers(at + 1), axis), axis)


def _joined(body: Body, parts: Sequence[str], axis: int) -> str:
    return body.joined(*parts, axis=axis) if len(parts) > 1 else parts[0]

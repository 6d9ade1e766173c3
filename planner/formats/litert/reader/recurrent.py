"""Recurrent: UNIDIRECTIONAL_SEQUENCE_LSTM as an ONNX LSTM, and the REVERSE_V2 around one that runs back.

The operator's states are variable tensors, which live from call to call; an ONNX LSTM begins every call at
zero, as the runtime does after `reset_all_variables`. Gates of one type become one constant of that type.
Source: TensorFlow Lite, kernel of UNIDIRECTIONAL_SEQUENCE_LSTM; ONNX LSTM.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from planner.formats.litert.reader.builder import Builder, Unread, reals_of, tight
from planner.formats.litert.reader.file import Array, Operator, Tensor
from planner.formats.litert.reader.linear import Reader
from planner.formats.litert.reader.movement import joined
from planner.ir.graph import Facts, Op, Value
from planner.ir.types.qtypes import Storage, Uniform, storage

_INPUTS: Final = (1, 4, 2, 3)
"""Weights of the input's gates in ONNX's order: input, output, forget, cell."""
_AGAIN: Final = (5, 8, 6, 7)
_HOLES: Final = (9, 11, 10)
_BIASES: Final = (12, 15, 13, 14)
_PROJECTION: Final = (16, 17)
_STATES: Final = (18, 19)
_NORMS: Final = (20, 21, 22, 23)
_TANH: Final = 4
_TURN: Final = (1, 0, 2)
_BEFORE_FIRST: Final = -(1 << 31)
_MOST_STEPS: Final = 64
"""Of a layer that is read as its steps."""


def lstm(builder: Builder, op: Operator) -> None:
    """UNIDIRECTIONAL_SEQUENCE_LSTM with four gates, without projection and normalisation.

    ONNX's has no bound of the cell state. One that the state may reach is an end of its fixed type; a layer
    of floats is its steps then.
    """
    options = builder.options(op, "UnidirectionalSequenceLSTMOptions")
    for places, what in ((_PROJECTION, "a projection"), (_NORMS, "layer normalisation")):
        if any(builder.has(op, i) for i in places):
            raise Unread(f"it has {what}")
    if options.FusedActivationFunction() != _TANH:
        raise Unread("its activation is not TANH")
    if not all(builder.tensor(op, i).is_variable for i in _STATES):
        raise Unread("its states are no variable tensors")
    x, cell = builder.tensor(op, 0), builder.tensor(op, _STATES[1])
    if len(x.shape) != 3 or len(cell.shape) != 2:
        raise Unread(f"its operands have shapes {list(x.shape)} and {list(cell.shape)}")
    is_major, (batch, size) = bool(options.TimeMajor()), cell.shape
    steps = x.shape[0 if is_major else 1]
    name = builder.value(op, 0) if is_major else builder.turned(builder.value(op, 0), _TURN)
    bound, kind = options.CellClip(), cell.kind
    if 0 < bound < _reach(cell, steps):
        if kind is None:
            _in_steps(builder, op, name, bound, is_major=is_major)
            return
        most = int(np.float32(bound) / np.float32(kind.scale))
        kind = replace(kind, storage=Storage(kind.storage.bits, kind.storage.signed, -most, most))
    weights = [_packed(builder, op, places, size, what) for places, what in ((_INPUTS, "w"), (_AGAIN, "r"))]
    operands = [name, *weights, _bias(builder, op, size), "", "", "", _peepholes(builder, op, size)]
    while not operands[-1]:
        operands.pop()
    result = builder.file.tensors[op.outputs[0]]
    every = _named(builder, f"{result.name}/every", (steps, 1, batch, size), result.kind)
    last = _named(builder, f"{result.name}/cell", (1, batch, size), kind)
    hidden = _named(builder, f"{result.name}/hidden", (1, batch, size), result.kind)
    made = (every, hidden, last)
    builder.read.ops.append(
        Op(every, "LSTM", tuple(operands), made, {"direction": "forward", "hidden_size": size})
    )
    for place, state in zip((op.inputs[i] for i in _STATES), (hidden, last), strict=True):
        if any(place in other.inputs for other in builder.file.operators if other is not op):
            builder.names[place] = builder.shaped(state, (batch, size))
    axes = builder.constant(np.array([1]), "axes")
    builder.result(op, "Squeeze", [every, axes], order=() if is_major else _TURN)


def _reach(cell: Tensor, steps: int) -> float:
    """The largest magnitude that a cell state can have: a step adds 1 at most, and its type has an end."""
    most = float(steps)
    return most if cell.kind is None else min(most, cell.kind.scale * cell.kind.storage.qmax)


def _in_steps(builder: Builder, op: Operator, x: str, bound: float, *, is_major: bool) -> None:
    """An LSTM whose cell state is cut at a bound in each step, as the ops of its steps.

    Args:
      x: what it reads, steps first.
    """
    tensor = builder.tensor(op, 0)
    (steps, batch), elements = tensor.shape[:2] if is_major else tensor.shape[1::-1], tensor.shape[2]
    size = builder.tensor(op, _STATES[1]).shape[1]
    if any(builder.tensor(op, i).element != "f32" for i in (0, *_INPUTS, *_AGAIN)):
        raise Unread(f"it cuts its quantized cell state at {bound:g}")
    if any(builder.has(op, i) for i in _HOLES) or _is_read_elsewhere(builder, op):
        raise Unread(f"it cuts its cell state at {bound:g}, beside peepholes or read states")
    if steps > _MOST_STEPS:
        raise Unread(f"it cuts its cell state at {bound:g} in {steps} steps; read: at most {_MOST_STEPS}")
    drive, again = (
        builder.transposed(
            builder.reshaped(_packed(builder, op, places, size, what), (4 * size, width)), (1, 0)
        )
        for places, what, width in ((_INPUTS, "w", elements), (_AGAIN, "r", size))
    )
    bias = builder.constant(_bias_array(builder, op, size)[: 4 * size], f"{op.name}/b")
    wide, whole = (batch, 4 * size), (steps, batch, 4 * size)
    given = builder.between("Add", [builder.between("MatMul", [x, drive], whole), bias], whole)
    ends = [builder.constant(np.array(end, np.float32), "bound") for end in (-bound, bound)]
    hidden, cell = "", ""
    every = []
    for step in range(steps):
        gates = builder.reshaped(_part(builder, given, (step, step + 1, 0), (1, *wide)), wide)
        if hidden:
            gates = builder.between("Add", [gates, builder.between("MatMul", [hidden, again], wide)], wide)
        hidden, cell = _step(builder, gates, cell, ends, (batch, size))
        every.append(builder.reshaped(hidden, (1, batch, size)))
    joined(builder, op, every, order=() if is_major else _TURN)


def _is_read_elsewhere(builder: Builder, op: Operator) -> bool:
    states = {op.inputs[i] for i in _STATES}
    return any(not states.isdisjoint(other.inputs) for other in builder.file.operators if other is not op)


def _part(builder: Builder, name: str, numbers: Sequence[int], shape: Sequence[int]) -> str:
    """A slice by start, end and axis."""
    return builder.between("Slice", [name, *(builder.integers([number]) for number in numbers)], shape)


def _step(
    builder: Builder, gates: str, cell: str, ends: Sequence[str], shape: tuple[int, int]
) -> tuple[str, str]:
    """The hidden and the cell state behind a step; the cell in front of it is "" where it is zero."""
    size = shape[1]
    cut = [_part(builder, gates, (i * size, (i + 1) * size, 1), shape) for i in range(4)]
    enter, leave, forget = (builder.between("Sigmoid", [one], shape) for one in cut[:3])
    fresh = builder.between("Mul", [enter, builder.between("Tanh", [cut[3]], shape)], shape)
    if cell:
        fresh = builder.between("Add", [builder.between("Mul", [forget, cell], shape), fresh], shape)
    after = builder.between("Clip", [fresh, *ends], shape)
    return builder.between("Mul", [leave, builder.between("Tanh", [after], shape)], shape), after


def _named(builder: Builder, base: str, shape: Sequence[int], kind: Uniform | None) -> str:
    name = builder.read.fresh(base)
    builder.read.values[name] = Value(name, tuple(shape), "f32")
    if kind is not None:
        builder.read.stated[name] = (kind,)
    return name


def _packed(builder: Builder, op: Operator, places: Sequence[int], size: int, what: str) -> str:
    """The weights of four gates as one constant (1, 4 * size, elements), with their type where it is one."""
    tensors = [builder.tensor(op, i) for i in places]
    if any(t.data is None or len(t.shape) != 2 or t.shape != (size, tensors[0].shape[1]) for t in tensors):
        raise Unread("its weights are no constant matrices of one shape")
    name = builder.constant(np.concatenate([reals_of(t) for t in tensors])[None], f"{op.name}/{what}")
    kinds = {t.kind for t in tensors}
    kind = next(iter(kinds))
    if len(kinds) == 1 and kind is not None and kind.is_per_tensor:
        tightened = {tight(t) for t in tensors}
        builder.read.stated[name] = (tightened.pop() if len(tightened) == 1 else kind,)
    elif (own := _by_gate(tensors, size)) is not None:
        builder.read.stated[name] = (own,)
    elif kinds != {None}:
        builder.notes.append(f"weights {tensors[0].name!r} have no fixed type: each gate has its own")
    return name


def _by_gate(tensors: Sequence[Tensor], size: int) -> Uniform | None:
    """The type of gates beside each other, each with its scale; None where no type says them."""
    kinds = [tight(t) for t in tensors if t.kind is not None and t.kind.is_per_tensor]
    if len(kinds) < len(tensors) or any(any(kind.zero_points) for kind in kinds):
        return None
    wide = max((kind.storage for kind in kinds), key=lambda store: store.steps)
    scales = tuple([kind.scale for kind in kinds for _ in range(size)])
    return Uniform(wide, scales, (0,) * len(scales), axis=1)


def _bias(builder: Builder, op: Operator, size: int) -> str:
    """Biases as one constant (1, 8 * size), on the grids of their gates where these are apart."""
    x, weights = builder.tensor(op, 0).kind, [builder.tensor(op, i) for i in _INPUTS]
    own = _by_gate(weights, size) if len({t.kind for t in weights}) > 1 and x is not None else None
    facts: Facts = ()
    if own is not None and x is not None:
        scales = tuple([float(np.float32(x.scale) * np.float32(scale)) for scale in own.scales]) * 2
        facts = (Uniform(storage("i32"), scales, (0,) * len(scales), axis=1),)
    return builder.constant(_bias_array(builder, op, size)[None], f"{op.name}/b", facts)


def _bias_array(builder: Builder, op: Operator, size: int) -> Array:
    """Biases of four gates beside the zeros that ONNX adds for the hidden state, (8 * size,)."""
    parts: list[Array] = []
    for place, weight in zip(_BIASES, _INPUTS, strict=True):
        if not builder.has(op, place):
            parts.append(np.zeros(size, np.float32))
            continue
        tensor = builder.tensor(op, place)
        if tensor.data is None or tensor.shape != (size,):
            raise Unread("its biases are no constants of the states' size")
        is_real = tensor.data.dtype.kind == "f"
        parts.append(reals_of(tensor) if is_real else builder.bias_reals(op, tensor, 0, weight))
    return np.concatenate([*parts, np.zeros(4 * size, np.float32)]).astype(np.float32)


def _peepholes(builder: Builder, op: Operator, size: int) -> str:
    if not any(builder.has(op, i) for i in _HOLES):
        return ""
    tensors = [builder.tensor(op, i) for i in _HOLES]
    if any(t.data is None or t.shape != (size,) for t in tensors):
        raise Unread("its peepholes are no constants of the states' size")
    name = builder.constant(np.concatenate([reals_of(t) for t in tensors])[None], f"{op.name}/p")
    kinds = {t.kind for t in tensors}
    if len(kinds) == 1 and None not in kinds:
        builder.read.stated[name] = tuple(kind for kind in kinds if kind is not None)
    return name


def reverse(builder: Builder, op: Operator) -> None:
    """REVERSE_V2: slices of steps of -1."""
    axes = builder.numbers(op, 1)
    numbers = [[-1] * len(axes), [_BEFORE_FIRST] * len(axes), list(axes), [-1] * len(axes)]
    operands = [builder.constant(np.array(part, np.int64), "reversed") for part in numbers]
    builder.result(op, "Slice", [builder.value(op, 0), *operands])


RECURRENT: Final[Mapping[str, Reader]] = {"REVERSE_V2": reverse, "UNIDIRECTIONAL_SEQUENCE_LSTM": lstm}
